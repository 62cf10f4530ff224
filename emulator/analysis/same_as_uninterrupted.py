"""The expectation that a run ends as without its faults (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from emulator.analysis.uninterrupted import (
    LOSS,
    TOLERANCE,
    Figures,
    differences,
    figures_of,
    from_data,
)
from emulator.record.timeline import Timeline
from emulator.scenario.schema import SameAsUninterrupted

NAME = "same_as_uninterrupted"
WHY = "why"
"""In `uninterrupted.json`: why there is nothing to compare with."""
SHOWN = 5
"""Things that are named."""


@dataclass(frozen=True)
class Ends:
    """What a run has left, and what a run without its faults has shown."""

    results: Mapping[str, Any] | None = None
    uninterrupted: Mapping[str, Any] | None = None


NOTHING_LEFT = Ends()


@dataclass(frozen=True)
class Answer:
    """Whether one thing is as without a fault."""

    name: str
    """Of its expectation."""
    status: Literal["ok", "failed", "unknown"]
    expected: str
    actual: str


def answers(
    expect: SameAsUninterrupted, timeline: Timeline, ends: Ends, *, is_anew: bool
) -> Iterator[Answer]:
    """Yield for each thing that is expected whether it is as without a fault.

    If it was not before the first fault, the program is not repeatable: then it is not known.
    `is_anew`: the steps of the run were counted anew.
    """
    events = [event.n for one in timeline.faults.values() for event in one.stages.values()]
    happened = [n for n in events if n >= 0]
    first = min(happened, default=None)
    until = math.inf if first is None else first
    early = figures_of(timeline, None, until=until, is_anew=is_anew)
    late = figures_of(timeline, ends.results, since=-1 if first is None else first, is_anew=is_anew)
    data = ends.uninterrupted or {WHY: "there was no run without a fault"}
    for key, tolerance, expected in _asked(expect):
        name = f"{NAME}.{key}"
        twin = _part(from_data(data), key, expect)
        apart = differences(replace(_part(early, key, expect), last_step=None), twin, tolerance)
        found = differences(_part(late, key, expect), twin, tolerance)
        if WHY in data:
            yield Answer(name, "unknown", expected, data[WHY])
        elif apart.differs:
            actual = f"{apart.differs[0]}, before the first fault: it is not repeatable"
            yield Answer(name, "unknown", expected, actual)
        elif found.differs:
            more = f", and {len(found.differs) - 1} more" if len(found.differs) > 1 else ""
            yield Answer(name, "failed", expected, f"{found.differs[0]}{more}")
        elif found.compared and not found.missing:
            alike = ", ".join(found.compared[:SHOWN])
            yield Answer(name, "ok", expected, f"the same: {alike}")
        else:
            missing = "; ".join(found.missing[:SHOWN]) or "there is nothing to compare"
            yield Answer(name, "unknown", expected, missing)


def _asked(expect: SameAsUninterrupted) -> Iterator[tuple[str, float, str]]:
    """Yield each thing that is expected, with what numbers may differ by, and in words."""
    tolerance = expect.tolerance
    within = "exactly" if tolerance == 0 else f"within {tolerance or TOLERANCE:g}"
    if tolerance is not None:
        yield "loss", tolerance, within
    if expect.result is not None:
        yield "result", TOLERANCE if tolerance is None else tolerance, f"{expect.result}, {within}"
    if expect.samples:
        yield "samples", 0.0, "exactly"


def _part(figures: Figures, key: str, expect: SameAsUninterrupted) -> Figures:
    """Return the part of figures that is meant."""
    if key == "samples":
        return Figures(samples=figures.samples)
    if key == "result":
        return Figures(files=figures.with_files(expect.result or "**").files)
    losses = {
        task: {name: values for name, values in names.items() if LOSS.search(name)}
        for task, names in figures.steps.items()
    }
    return Figures(losses if any(losses.values()) else figures.steps, figures.last_step)
