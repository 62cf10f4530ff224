#!/usr/bin/env python3
"""Write the tables of presets in docs/platforms.md, from emulator/faults/platforms/presets.py.

A test fails while the page differs from what this writes (tests/faults/platforms/test_presets.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from emulator.faults.platforms.presets import ASSUMED, OURS, PRESETS, TIMES, Preset, Source
from emulator.faults.preempt import Preempt
from emulator.validation.units import format_duration

PAGE = Path(__file__).parent.parent / "docs" / "platforms.md"
UNNAMED = (ASSUMED, OURS)
"""Values that no platform states."""
BEGIN, END = "<!-- {} made by scripts/write_presets.py -->\n", "<!-- end -->\n"


def written(page: str) -> str:
    """Return the page with the tables as they are now."""
    for name, lines in (("timelines", _timelines()), ("facts", _facts())):
        begin = BEGIN.format(name)
        head, _, rest = page.partition(begin)
        table = "\n".join(lines)
        page = f"{head}{begin}\n{table}\n\n{END}{rest.partition(END)[2]}"
    return page


def _timelines() -> Iterator[str]:
    """Yield the rows of what each preset does, and when."""
    yield "| `like` | what it is | what happens |"
    yield "|---|---|---|"
    for name, preset in PRESETS.items():
        events = Preempt(preempt="worker-1", like=name).timeline()
        steps = "<br>".join(f"{format_duration(when)}: {what}" for when, what in events)
        remark = f" {preset.remark}" if preset.remark else ""
        yield f"| `{name}` | {preset.title}.{remark} | {steps} |"


def _facts() -> Iterator[str]:
    """Yield the rows of where each value is from, and when it was read."""
    yield "| `like` | values | source | date |"
    yield "|---|---|---|---|"
    for name, preset in PRESETS.items():
        for source in dict.fromkeys(fact.source for fact in preset.facts.values()):
            if source in UNNAMED:
                continue  # the page says so of all of them
            yield f"| `{name}` | {_values(preset, source)} | {source.title} | {source.date} |"


def _values(preset: Preset, source: Source) -> str:
    """Return the values that a preset has from a source, as users would write them."""
    texts = []
    for field, fact in preset.facts.items():
        if fact.source == source:
            value: object = fact.value
            if field in TIMES:
                value = f"{fact.value:g}s"
            elif isinstance(fact.value, bool):
                value = str(fact.value).lower()
            texts.append(f"`{field}: {value}`")
    return ", ".join(texts)


def main() -> None:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
