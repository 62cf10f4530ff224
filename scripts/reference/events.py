"""docs/reference/events.md: every event of history.jsonl, from its class."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import get_args

from emulator.record.events import KINDS, Entry
from emulator.validation.fields import descriptions
from scripts.reference.markdown import code, page, table

INTRODUCTION = """
Each line of `history.jsonl` is a JSON object with the keys of [every event](#every-event) and those
of its kind. A key without a value is left out. [Results](../results.md#the-history) explains
the history, and [events.py](../../emulator/record/events.py) defines it.
"""
HEADER = {"n", "t", "wall", "task"}


def written() -> str:
    """Return the page."""
    names = {"event": ("text", "The name of the kind.")}
    common = {name: row for name, row in fields(Entry).items() if name in HEADER}
    parts = [INTRODUCTION, f"## Every event\n\n{_table(names | common)}"]
    for name, kind in KINDS.items():
        own = {key: row for key, row in fields(kind).items() if key not in HEADER}
        text = " ".join((inspect.getdoc(kind) or "").split())
        parts.append(f"## `{name}`\n\n{text}" + (f"\n\n{_table(own)}" if own else ""))
    return page("Events", *parts)


def fields(kind: type[Entry]) -> dict[str, tuple[str, str]]:
    """Return the type and the meaning of each field."""
    texts = descriptions(kind)
    return {
        field.name: (_type(str(field.type)), texts.get(field.name, ""))
        for field in dataclasses.fields(kind)
    }


def _type(annotation: str) -> str:
    """Return a type as JSON has it."""
    from emulator.record import events

    annotation = annotation.removesuffix(" | None")
    if (options := get_args(getattr(events, annotation, None))) or annotation.startswith("Literal"):
        words = options or re.findall(r"[\w-]+", annotation.removeprefix("Literal"))
        return ", ".join(code(str(word)) for word in words)
    names = {"int": "integer", "float": "number", "str": "text", "bool": "`true`, `false`"}
    if annotation in names:
        return names[annotation]
    return "list" if annotation.startswith(("list", "Sequence")) else "map"


def _table(rows: dict[str, tuple[str, str]]) -> str:
    cells = ((code(name), kind, text) for name, (kind, text) in rows.items())
    return table(("key", "type", "meaning"), cells)
