"""Lines that report steps and phases, as people read them on a terminal (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from emulator.metrics.steps import json_event
from emulator.validation.units import format_rate

_STATES = {"begin": "begins", "end": "ends"}
_NOT_SHOWN = frozenset({"step", "phase", "state", "examples"})
"""What is said otherwise; the number of examples grows with the steps."""
LONGEST = 40
"""Characters of a value that is a text."""


def in_words(line: str) -> str:
    """Return `step 90  loss 0.300` of a line of JSON that reports a step; other lines as they are.

    A phase is `checkpoint begins  step 90`. Values are as `metrics.steps` reads them; lists and
    objects, and more than three digits of a number, are in the log alone.
    """
    if not line.startswith("{") or (found := json_event(line)) is None:
        return line
    data = found.data
    if found.event == "step":
        return "  ".join([f"step {data['step']}", *_values(data)])
    head = f"{data['phase']} {_STATES[str(data['state'])]}"
    step = [f"step {step}"] if isinstance(step := data.get("step"), int) else []
    return "  ".join([head, *step, *_values(data)])


def _values(data: Mapping[str, object]) -> list[str]:
    shown = {key: value for key, value in data.items() if key not in _NOT_SHOWN}
    return [f"{key} {text}" for key, value in shown.items() if (text := _text(value))]


def _text(value: object) -> str:
    """Return a value; empty if it is none that fits in a line."""
    match value:
        case bool() | int():
            return str(value)
        case float():
            return format_rate(value)
        case str() if len(value) <= LONGEST and value.isprintable():
            return value
    return ""
