"""What each task was doing, as spans of time (pure): states, phases, steps.

Times are seconds since the run began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.record.events import (
    Entry,
    Phase,
    Restart,
    Step,
    TaskExit,
    TaskRunning,
    TaskStart,
    fields_of,
)

__all__ = ["Span", "lanes", "phases", "states", "steps"]


@dataclass(frozen=True)
class Span:
    """Something that lasted."""

    name: str
    begin: float
    end: float
    told: Mapping[str, Any] = field(default_factory=dict)
    """What else is known of it."""


def states(of_task: Sequence[Entry], end: float) -> list[Span]:
    """Return a task's states: starting, running, down (preempted), backoff (to be restarted).

    After an exit that no start followed there is none. What still goes on ends at `end`.
    """
    found: list[Span] = []
    now: tuple[str, float, Mapping[str, Any]] | None = None
    for number, entry in enumerate(of_task):
        if not isinstance(entry, TaskStart | TaskRunning | TaskExit):
            continue
        if now is not None:
            ended = fields_of(entry) if isinstance(entry, TaskExit) else {}
            found.append(Span(now[0], now[1], entry.t, {**now[2], **ended}))
        state = _state(entry, of_task[number + 1 :])
        now = (state, entry.t, fields_of(entry) if state == "running" else {}) if state else None
    if now is not None:
        found.append(Span(now[0], now[1], max(end, now[1]), now[2]))
    return found


def _state(entry: Entry, later: Iterable[Entry]) -> str:
    if not isinstance(entry, TaskExit):
        return "starting" if isinstance(entry, TaskStart) else "running"
    if entry.fault:
        return "down"
    return "backoff" if any(isinstance(one, TaskStart | Restart) for one in later) else ""


def phases(of_task: Sequence[Entry], end: float) -> list[Span]:
    """Return a task's phases; one that its end cut off says so."""
    begun: dict[str, float] = {}
    found: list[Span] = []

    def cut_off(when: float) -> None:
        found.extend(Span(name, since, when, {"cut off": True}) for name, since in begun.items())
        begun.clear()

    for entry in of_task:
        if isinstance(entry, TaskExit | TaskStart):
            cut_off(entry.t)
        elif isinstance(entry, Phase) and entry.state == "begin":
            begun[entry.phase] = entry.t
        elif isinstance(entry, Phase) and entry.phase in begun:
            found.append(Span(entry.phase, begun.pop(entry.phase), entry.t, entry.values))
    cut_off(max([end, *begun.values()]))
    return found


def steps(of_task: Sequence[Entry]) -> Iterator[Span]:
    """Yield the time between each two step events of one life of a task."""
    before: Step | None = None
    for entry in of_task:
        if isinstance(entry, TaskExit | TaskStart):
            before = None
        elif isinstance(entry, Step):
            if before is not None:
                yield Span(f"steps to {entry.step}", before.t, entry.t, fields_of(entry))
            before = entry


def lanes(spans: Iterable[Span]) -> list[list[Span]]:
    """Share spans out over rows in which each two lie apart or one inside the other."""
    rows: list[list[Span]] = []
    opened: list[list[float]] = []  # for each row, when its spans end that are not over
    for span in sorted(spans, key=lambda span: (span.begin, -span.end)):
        for ends in opened:
            while ends and ends[-1] <= span.begin:
                ends.pop()
        fits = [not ends or ends[-1] >= span.end for ends in opened]
        if True not in fits:
            rows.append([])
            opened.append([])
            fits.append(True)
        row = fits.index(True)
        rows[row].append(span)
        opened[row].append(span.end)
    return rows
