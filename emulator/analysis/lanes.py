"""The lanes of a timeline: what every task was doing, with the faults that lay over it (pure).

Times are seconds since the run began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from emulator.analysis import spans
from emulator.analysis.analyse import faults_of
from emulator.faults.table import states as states_under_faults
from emulator.plan import Plan
from emulator.record.events import Entry

__all__ = ["Ending", "Span", "all_states", "endings", "over_at", "phases", "states"]


def all_states() -> tuple[str, ...]:
    """Return every state that a task can be in, in the order in which they are listed."""
    return ("starting", "running", *states_under_faults(), "backoff", "down")


@dataclass(frozen=True)
class Span:
    """A task was in one state, or in one phase, from `begin` until `end`."""

    task: str
    what: str
    """One of `all_states`, or the name of a phase."""
    begin: float
    end: float
    count: int = 1
    """How many it stands for, where neighbours were drawn together."""


@dataclass(frozen=True)
class Ending:
    """How a task's last process ended."""

    task: str
    t: float
    exit_code: int
    state: str
    """succeeded, failed, stopped (by us)."""


def over_at(history: Sequence[Entry]) -> float:
    """Return when the last thing of a run happened: all of it fits between 0 and that."""
    return max((entry.t for entry in history), default=0.0)


def states(plan: Plan, history: Sequence[Entry]) -> list[Span]:
    """Return the states of every task, each task's in order and without overlap.

    Before its first start and after its last exit a task is in none; see `endings`.
    """
    end = over_at(history)
    impaired = _impairments(plan, history, end)
    found = [
        span
        for task, moments in _moments(history).items()
        for state in spans.states(moments, end)
        for whole in [Span(task, state.name, state.begin, state.end)]
        for span in (_split(whole, impaired[task]) if whole.what == "running" else [whole])
    ]
    return [span for span in found if span.begin < span.end]


def _moments(history: Sequence[Entry]) -> Mapping[str, list[Entry]]:
    """Return what happened to each task, in order."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in history:
        if entry.task and entry.event != "step":
            found[entry.task].append(entry)
    return found


def _impairments(plan: Plan, history: Sequence[Entry], over: float) -> Mapping[str, list[Span]]:
    """Return when each task was not itself though it ran; the run is `over` then."""
    found: dict[str, list[Span]] = defaultdict(list)
    by_id = {fault.id: fault for fault in faults_of(plan, history)}
    stages = [entry for entry in history if entry.event == "fault"]
    healed = {str(e.data["id"]): e.t for e in reversed(stages) if e.data["stage"] == "healed"}
    for entry in stages:
        fault = by_id.get(str(entry.data["id"])) if entry.data["stage"] == "applied" else None
        if fault is None or "exit_code" in entry.data:
            continue  # it is gone, and that is a state of its own
        until = healed.get(fault.id, over)
        what = fault.spec.state
        for task in fault.tasks:
            found[task].append(Span(task, what, entry.t, until))
    return found


def _split(whole: Span, over: Sequence[Span]) -> Iterator[Span]:
    """Yield a span with others laid over it; where two of them overlap, the first counts."""
    since = whole.begin
    for upper in sorted(over, key=lambda span: span.begin):
        begin, end = max(upper.begin, since), min(upper.end, whole.end)
        if begin >= end:
            continue
        yield replace(whole, begin=since, end=begin)
        yield replace(upper, begin=begin, end=end)
        since = end
    yield replace(whole, begin=since)


def phases(history: Sequence[Entry]) -> list[Span]:
    """Return the phases that tasks told of; one that never ended lasts as long as its task."""
    end = over_at(history)
    return [
        Span(task, phase.name, phase.begin, phase.end)
        for task, moments in _moments(history).items()
        for phase in spans.phases(moments, end)
    ]


def endings(history: Sequence[Entry]) -> list[Ending]:
    """Return the exit of every task that was not started again after it."""
    found: dict[str, Ending] = {}
    for task, moments in _moments(history).items():
        for entry in moments:
            if entry.event == "start":
                found.pop(task, None)
            elif entry.event == "exit" and not entry.data.get("fault"):
                code = int(entry.data["exit_code"])
                ended = "stopped" if entry.data["told_to_stop"] else "failed"
                found[task] = Ending(task, entry.t, code, "succeeded" if code == 0 else ended)
    return list(found.values())
