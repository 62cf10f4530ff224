"""Messages for validation errors: the path, what is wrong, what to write instead (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from emulator.errors import shown
from emulator.faults.kinds import FAULTS, entries
from emulator.faults.spec import Entry, FaultSpec
from emulator.scenario.document import KeyPath
from emulator.scenario.schema import Scenario
from emulator.scenario.sections import SECTIONS
from emulator.validation.similar import closest


def document_path(loc: Iterable[str | int], data: object) -> KeyPath:
    """Return pydantic's location without the names of union members that it adds."""
    steps = [step for step in loc if step != "[key]"]
    path: list[str | int] = []
    for number, step in enumerate(steps):
        is_key = isinstance(data, dict) and step in data
        if is_key or (isinstance(data, list) and step in range(len(data))):
            data = data[step]  # type: ignore[index]
        elif number < len(steps) - 1 or not isinstance(data, dict):
            continue
        path.append(step)
    return tuple(path)


def explain(detail: ErrorDetails) -> tuple[str, str]:
    """Return what is wrong, and what to write instead."""
    kind, context, given = detail["type"], detail.get("ctx", {}), detail.get("input")
    written = shown(json.dumps(given, default=str) if not isinstance(given, str) else repr(given))
    if kind == "extra_forbidden":
        loc = detail["loc"]
        if instead := _instead(loc):
            return "was removed", instead
        known = sorted(fields_at(loc[:-1]))
        key = MEANT.get(str(loc[-1]), "")
        close = f"did you mean '{key}'?" if key in known else closest(str(loc[-1]), known)
        return "unknown key", close or f"known here: {', '.join(known)}"
    if kind == "value_error":
        may_be_step = "at" in detail["loc"][-2:] and str(given).isdigit()
        return str(context["error"]), f"or `{{step: {given}}}`" if may_be_step else ""
    if kind == "list_type" and detail["loc"][-1:] == ("command",) and isinstance(given, str):
        return f"{written} should be a list", f"write `command: [{', '.join(given.split())}]`"
    if kind in ("too_short", "string_too_short"):
        few = f"has fewer than {context['min_length']} entries" if given else "is empty"
        return few, _example(detail["loc"])
    if kind == "too_long":
        return f"has more than {context['max_length']:,} entries", ""
    if kind == "string_too_long":
        return f"{written} is longer than {context['max_length']} characters", ""
    if kind == "string_type" and isinstance(given, int | float):
        return f"{written} should be text", f'write "{written}" in quotes'
    if kind == "missing":
        return "is missing", _example(detail["loc"])
    if kind == "literal_error":
        if instead := _instead((*detail["loc"], str(given))):
            return f"{written} was removed", instead
        options = [o.strip("'") for o in re.split(r", | or ", context["expected"])]
        return f"{written} is not allowed", closest(str(given), options) or (
            "write " + " or ".join(filter(None, [", ".join(options[:-1]), options[-1]]))
        )
    if kind == "string_pattern_mismatch":
        return f"{written} is not a valid host name", "lower-case letters, digits, dashes; up to 40"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return f"{written} should be a mapping of keys and values", _example(detail["loc"])
    nouns = {
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "list": "a list",
        "path": "a path",
        "string": "text",
    }
    noun = nouns.get(kind.partition("_")[0], detail["msg"].removeprefix("Input should be "))
    return f"{written} should be {noun}", _example(detail["loc"])


MEANT = {"when": "at", "duration": "for"}
"""Words that others use, and the keys that they mean."""


def fields_at(loc: Iterable[str | int]) -> set[str]:
    """Return the keys of the schema at a location."""
    models: set[type[BaseModel]] = {Scenario}
    for step in loc:
        deeper = {
            inner
            for model in models
            for name, field in model.model_fields.items()
            if step in (name, field.alias)
            for inner in _models_in(field.annotation)
        }
        models = deeper or models
    return {field.alias or name for m in models for name, field in m.model_fields.items()}


_REMOVED: dict[tuple[int | str, ...], str] = {
    ("cluster", "*", "sidecars"): "start it in the task's own command, or make it one of `helpers`",
    **dict.fromkeys(
        [("prices",), ("currency",)],
        "leave it out; `python scenarios/costs/costs.py PRICES.yaml RUN` tells what a run cost",
    ),
    ("jobset",): "write `restart: {policy: on-failure, scope: job}`, which starts all tasks again "
    "where one is lost",
    (
        "metrics",
        "trainer_status",
    ): "leave it out; steps are read from what the tasks print, or from event files (`events`)",
    ("time_scale",): "write `speed: 10`",
    ("volumes",): "write `shared_size: 64m`",
    ("expect", "throughput", "of", "baseline"): "write `min:` with a number of steps/s, or "
    "`of: reference`; `emulate compare` compares runs",
}
"""What to do instead of writing a key, or a value of one, that there was; `*` is any name."""


def _instead(loc: tuple[int | str, ...]) -> str:
    """Return what to do instead of a key or value that was removed; empty: there was none."""
    of_section: Mapping[str, str] = getattr(SECTIONS.get(str(loc[0])), "removed", {})
    found = _REMOVED.get(loc) or _REMOVED.get((loc[0], "*", *loc[2:]))
    return found or of_section.get(".".join(map(str, loc[1:])), "")


def _models_in(annotation: object) -> set[type[BaseModel]]:
    if annotation is Entry:
        return set(entries().values())
    if annotation is FaultSpec:
        return set(FAULTS.values())
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for inner in get_args(annotation) for model in _models_in(inner)}


_EXAMPLES = {
    "name": "my-cluster",
    "program": "{source: train.py, command: [python, train.py]}",
    "command": "[python, train.py]",
    "env": '{LEARNING_RATE: "0.1"}',
    "cluster": "{worker: 2}",
    "gpus": "1",
    "restart": "{policy: on-failure}",
    "reserve": "{cpus: 2, memory: 4g}",
    "parametrize": "{cluster.worker: [2, 4]}",
    "reference": "{cluster.worker: 1}",
    "marks": "[slow]",
    "throughput": "{min: 5}",
    "for": "5s",
    "cpus": "0.2",
    "every": "30s",
}


def _example(loc: Sequence[str | int]) -> str:
    key = str(loc[-1]) if loc else ""
    if len(loc) == 2 and loc[0] == "cluster":
        return f"write the number of tasks, `{key}: 2`, or `{key}: {{replicas: 2, cpus: 1}}`"
    return f"write `{key}: {_EXAMPLES[key]}`" if key in _EXAMPLES else ""
