"""What a supervisor knows of its tasks, and how it comes to know it again from a history.

`resumed` is what `emulate attach` stands on: the same state that the supervisor had which was
killed, from the events that it wrote (pure).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from emulator.engines.base import Exited
from emulator.plan import Plan, Task
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
from emulator.steps import StepReader
from emulator.supervisor.events import JobEnd, Outcome

__all__ = ["Resumed", "TaskState", "resumed"]

LAST_WORDS = 12
"""Lines of a failed task that are shown."""

State = Literal["pending", "starting", "running", "backoff", "down", "ended"]


@dataclass
class TaskState:
    """One task, as the supervisor sees it."""

    task: Task
    reader: StepReader
    state: State = "pending"
    exit_code: int | None = None
    restarts: int = 0
    step: int | None = None
    """The last that it told of."""
    told_to_stop: bool = False
    early_exit: Exited | None = None
    """It ended before the engine's start call had returned; handled once that has."""
    last_words: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_WORDS))


@dataclass
class Resumed:
    """Where a run stood when its history ends."""

    tasks: dict[str, TaskState]
    t: float = 0.0
    """The time of the last event."""
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
    """What follows from it may not have been decided."""


def resumed(plan: Plan, history: Sequence[Entry]) -> Resumed:
    """Return where a run stood, event by event as the supervisor wrote them."""
    rule = plan.scenario.metrics.steps
    found = Resumed({task.name: TaskState(task, StepReader(rule)) for task in plan.tasks})
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


def _started(found: Resumed, state: TaskState, entry: Entry) -> None:
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
