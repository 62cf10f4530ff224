"""What each task was doing, as spans of time (pure): states, phases, steps.

Times are seconds since the run began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.record.events import Entry

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
        if entry.event not in ("start", "running", "exit"):
            continue
        if now is not None:
            ended = dict(entry.data) if entry.event == "exit" else {}
            found.append(Span(now[0], now[1], entry.t, {**now[2], **ended}))
        state = _state(entry, of_task[number + 1 :])
        now = (state, entry.t, entry.data if state == "running" else {}) if state else None
    if now is not None:
        found.append(Span(now[0], now[1], max(end, now[1]), now[2]))
    return found


def _state(entry: Entry, later: Iterable[Entry]) -> str:
    if entry.event != "exit":
        return {"start": "starting", "running": "running"}[entry.event]
    if entry.data.get("fault"):
        return "down"
    return "backoff" if any(next_.event in ("start", "restart") for next_ in later) else ""


def phases(of_task: Sequence[Entry], end: float) -> list[Span]:
    """Return a task's phases; one that its end cut off says so."""
    begun: dict[str, float] = {}
    found: list[Span] = []

    def cut_off(when: float) -> None:
        found.extend(Span(name, since, when, {"cut off": True}) for name, since in begun.items())
        begun.clear()

    for entry in of_task:
        if entry.event in ("exit", "start"):
            cut_off(entry.t)
        elif entry.event == "phase" and entry.data["state"] == "begin":
            begun[str(entry.data["phase"])] = entry.t
        elif entry.event == "phase" and (name := str(entry.data["phase"])) in begun:
            told = {k: v for k, v in entry.data.items() if k not in ("phase", "state")}
            found.append(Span(name, begun.pop(name), entry.t, told))
    cut_off(max([end, *begun.values()]))
    return found


def steps(of_task: Sequence[Entry]) -> Iterator[Span]:
    """Yield the time between each two step events of one life of a task."""
    before: Entry | None = None
    for entry in of_task:
        if entry.event in ("exit", "start"):
            before = None
        elif entry.event == "step":
            if before is not None:
                name = f"steps to {entry.data['step']}"
                yield Span(name, before.t, entry.t, entry.data)
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
