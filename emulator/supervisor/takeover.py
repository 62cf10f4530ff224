"""Taking over a run whose supervisor was killed: what that one knew, from the record (pure).

The kill may fall between any two effects. What was written and not done is done again, what was
done and not written is reported again by the engine, and what can't be known is asked of it.
`recover` returns a state from which a new `Supervisor` continues.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, cast

from emulator.engines.base import Exited, KnownOutput
from emulator.metrics.steps import Observation
from emulator.planning.plan import Plan
from emulator.record.events import (
    AllRunning,
    Entry,
    JobEnded,
    Prepared,
    Restart,
    Step,
    StopSignal,
    TaskExit,
    TaskRunning,
    TaskStart,
)
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.supervisor.active import ActiveFaults, recover_faults
from emulator.supervisor.job import JobEnd, Outcome, TaskState, pending

__all__ = ["RecoveredState", "recover", "recover_run", "resumption"]


@dataclass
class RecoveredState:
    """Where a run stood when its history ends."""

    tasks: dict[str, TaskState]
    t: float = 0.0
    """The time of the last event, in seconds since the run began."""
    all_running: float | None = None
    """When all tasks ran for the first time."""
    job_restarts: int = 0
    restarting: bool = False
    """All tasks were being stopped to be started again together."""
    end: JobEnd | None = None
    prepared: bool = False
    asked: dict[str, float] = field(default_factory=dict)
    """When each task's last start was asked for (seconds since 1970)."""
    replaced: set[str] = field(default_factory=set)
    """Tasks that a fault has started again and that have not run since."""
    last_exit: Exited | None = None
    """Its consequences may not have been decided."""
    faults: ActiveFaults = field(default_factory=ActiveFaults)
    known: dict[str, KnownOutput] = field(default_factory=dict)
    """The output of each task as far as it is in the logs."""
    unwritten: dict[str, Sequence[Observation]] = field(default_factory=dict)
    """Steps that are in the logs and not in the history: see `emulator/record/coalesce.py`."""


def recover_run(plan: Plan, record: RunWriter, began: float) -> RecoveredState:
    """Return where the run of a folder stood; `began` is the clock's time of its beginning."""
    history = Record(record.path).history
    found = recover(plan, history)
    found.faults = recover_faults(plan.faults, history, began)
    for name, state in found.tasks.items():
        printed = record.printed(name)
        since = found.asked[name] if state.state == "starting" else math.inf
        if state.state == "running":
            since = 0.0
            found.unwritten[name] = _read_again(state, printed)
        found.known[name] = KnownOutput(printed, since)
    return found


def recover(plan: Plan, history: Sequence[Entry]) -> RecoveredState:
    """Return where tasks and job stood, event by event as the supervisor wrote them."""
    found = RecoveredState(pending(plan))
    for entry in history:
        found.t = max(found.t, entry.t)
        state = found.tasks.get(entry.task)
        match entry:
            case Prepared():
                found.prepared = True
            case AllRunning():
                found.all_running = entry.t
            case JobEnded():
                found.end = JobEnd(cast("Outcome", entry.outcome), entry.reason, entry.task)
            case Restart(scope="job"):
                found.job_restarts, found.restarting = entry.number, True
            case TaskStart() if state is not None:
                _started(found, state, entry)
            case TaskRunning():
                found.replaced.discard(entry.task)
            case TaskExit():
                found.last_exit = Exited(entry.task, entry.wall, entry.exit_code, entry.oom_killed)
        if state is not None:
            _follow(state, entry)
    return found


Resumption = Literal["follow", "lost", "started", "start", "down", "ended"]


def resumption(name: str, found: RecoveredState, there: Mapping[str, str]) -> Resumption:
    """Say what to do with a task: `there` are the starts that the engine has made, with their ids.

    follow: nothing; lost: it ran and is gone; started: its start had not been written; start it;
    down: a fault starts it again; ended: it does not start, or only with all others.
    """
    state = found.tasks[name].state
    if state in ("ended", "down"):
        return "follow"
    if state == "running":
        return "follow" if name in there else "lost"
    if state == "starting" and name in there:
        return "started"
    if found.end:
        return "ended"
    if state == "starting" and name in found.replaced:
        return "down"
    return "ended" if found.restarting else "start"


def _started(found: RecoveredState, state: TaskState, entry: Entry) -> None:
    """See what a start says of the job; a replacement may come while others are being stopped."""
    found.asked[entry.task] = entry.wall
    if state.state == "down" or entry.task in found.replaced:
        found.replaced.add(entry.task)
        return
    if found.restarting:
        found.restarting = False
        for other in found.tasks.values():
            if other.state == "ended":
                other.state = "backoff"


def _follow(state: TaskState, entry: Entry) -> None:
    match entry:
        case TaskStart():
            state.state, state.told_to_stop = "starting", False
        case TaskRunning():
            state.state = "running"
        case StopSignal():
            state.told_to_stop = True
        case Step():
            state.step = entry.step
        case Restart(scope="task"):
            state.state, state.restarts = "backoff", entry.number
        case TaskExit():
            state.state = "down" if entry.fault else "ended"
            state.exit_code = entry.exit_code


def _read_again(state: TaskState, printed: Sequence[str]) -> Sequence[Observation]:
    """Read a running task's output again; return the steps in it that were not written."""
    state.last_words.extend(printed)
    steps = list(_steps(state, printed))
    unwritten = _after(state.step, steps)
    if steps:
        state.step = cast("int", steps[-1].data["step"])
    return unwritten


def _steps(state: TaskState, printed: Sequence[str]) -> Iterator[Observation]:
    for line in printed:
        seen = state.reader.read(line)
        if seen is not None and seen.event == "step":
            yield seen


def _after(last: int | None, steps: Sequence[Observation]) -> Sequence[Observation]:
    """Return the steps after the last that was written.

    The first step after a start is written at once, so without one there is nothing.
    """
    buffered = list(takewhile(lambda one: one.data["step"] != last, reversed(steps)))
    return buffered[::-1] if len(buffered) < len(steps) else []
