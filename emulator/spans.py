"""What every task was doing when, from the history alone (pure).

Exits and phases lie where the engine's stamp says, everything else where the supervisor heard of
it; times are seconds since the run began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from emulator.faults import PlannedFault, from_json
from emulator.plan import Plan
from emulator.record import Entry

__all__ = ["STATES", "Ending", "Span", "endings", "faults_of", "over_at", "phases", "states"]

STATES = (
    "starting",
    "running",
    "paused",
    "throttled",
    "cut off",
    "impaired",
    "backoff",
    "down",
)
_IMPAIRED = {"pause": "paused", "throttle": "throttled", "partition": "cut off"}
"""What a running task is while a fault of this kind lasts; `impaired` under any other."""
_STAMPED = frozenset({"step", "phase", "exit"})


@dataclass(frozen=True)
class Span:
    """A task was in one state, or in one phase, from `begin` until `end`."""

    task: str
    what: str
    """One of STATES, or the name of a phase."""
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


def faults_of(plan: Plan, history: Sequence[Entry]) -> list[PlannedFault]:
    """Return the planned faults, and those that were asked for by hand."""
    told = (e for e in history if e.event == "fault" and e.data["stage"] == "planned")
    return [*plan.faults, *(from_json(entry.data["plan"]) for entry in told)]


def states(plan: Plan, history: Sequence[Entry]) -> list[Span]:
    """Return the states of every task, each task's in order and without overlap.

    Before its first start and after its last exit a task is in none; see `endings`.
    """
    end, impaired = over_at(history), _impairments(plan, history)
    moments: dict[str, list[tuple[Entry, float]]] = defaultdict(list)
    for entry in history:
        if entry.event in ("start", "running", "exit"):
            moments[entry.task].append((entry, _when(entry, history)))
    return [
        span
        for task in plan.tasks
        for whole in _courses(task.name, moments[task.name], end)
        for span in (_split(whole, impaired[task.name]) if whole.what == "running" else [whole])
        if span.begin < span.end
    ]


def _courses(task: str, moments: Sequence[tuple[Entry, float]], end: float) -> Iterator[Span]:
    """Yield starting, running, and what comes between an exit and the next start."""
    state, since = "", 0.0
    for entry, when in moments:
        now = max(since, when)
        if state:
            yield Span(task, state, since, now)
        since = now
        if entry.event == "exit":
            state = "down" if entry.data.get("fault") else "backoff"
        else:
            state = "starting" if entry.event == "start" else "running"
    if state and state != "backoff":  # nobody starts again what has ended
        yield Span(task, state, since, end)


def _impairments(plan: Plan, history: Sequence[Entry]) -> Mapping[str, list[Span]]:
    """Return when each task was not itself though it ran."""
    found: dict[str, list[Span]] = defaultdict(list)
    by_id = {fault.id: fault for fault in faults_of(plan, history)}
    for entry in history:
        if entry.event != "fault" or entry.data["stage"] != "applied":
            continue
        fault = by_id.get(str(entry.data["id"]))
        if fault is None or "exit_code" in entry.data:
            continue  # it is gone, and that is a state of its own
        until = _healed(fault.id, history)
        what = _IMPAIRED.get(fault.kind, "impaired")
        for task in fault.tasks:
            found[task].append(Span(task, what, entry.t, until))
    return found


def _healed(fault: str, history: Sequence[Entry]) -> float:
    ends = (
        entry.t
        for entry in history
        if entry.event == "fault" and entry.data["id"] == fault and entry.data["stage"] == "healed"
    )
    return next(ends, over_at(history))


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
    """Return the phases that tasks told of, in order of their end; one that never ended is none."""
    begun: dict[tuple[str, str], float] = {}
    found: list[Span] = []
    for entry in history:
        if entry.event == "start":
            begun = {key: when for key, when in begun.items() if key[0] != entry.task}
        if entry.event != "phase":
            continue
        key, now = (entry.task, str(entry.data["phase"])), _when(entry, history)
        if entry.data["state"] == "begin":
            begun[key] = now
        elif key in begun:
            found.append(Span(*key, begun.pop(key), now))
    return found


def endings(plan: Plan, history: Sequence[Entry]) -> list[Ending]:
    """Return the exit of every task that was not started again after it."""
    found: dict[str, Ending] = {}
    for entry in history:
        if entry.event == "start":
            found.pop(entry.task, None)
        elif entry.event == "exit" and not entry.data.get("fault"):
            code = int(entry.data["exit_code"])
            ended = "stopped" if entry.data["told_to_stop"] else "failed"
            state = "succeeded" if code == 0 else ended
            found[entry.task] = Ending(entry.task, _when(entry, history), code, state)
    return [found[task.name] for task in plan.tasks if task.name in found]


def _when(entry: Entry, history: Sequence[Entry]) -> float:
    """Return when it happened: the engine says so of what tasks do, the history of the rest."""
    if entry.event not in _STAMPED:
        return entry.t
    stamp = entry.wall - (history[0].wall - history[0].t)
    return min(max(stamp, 0.0), entry.t)  # the engine's clock may be off; nothing is heard early
