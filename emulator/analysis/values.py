"""What tasks reported with their steps beside the step itself (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from emulator.record.timeline import Timeline

NAMES = 200
"""Names that are followed in a run; a program that makes up names does not fill the summary."""

Values = Mapping[str, Mapping[str, float | None]]
"""The last number of each task by the name it was reported under.

None: what the task reported last is no number. A loss that is NaN at the end has no value, and not
the one that it had before.
"""


def last_values(timeline: Timeline) -> Values:
    """Return the last value of each name that each task reported in its step events.

    A name under which only texts were reported is left out.
    """
    found: dict[str, dict[str, float | None]] = {}
    numbers: set[str] = set()
    for name, task in timeline.tasks.items():
        for step in task.steps:
            for key, value in step.values.items():
                if key in found or len(found) < NAMES:
                    found.setdefault(key, {})[name] = known = number(value)
                    if known is not None:
                        numbers.add(key)
    return {key: of for key, of in found.items() if key in numbers}


def number(value: object) -> float | None:
    """Return a reported value if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
