"""The job of a run: the state of its tasks, and how they are started and stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from emulator.metrics.steps import StepReader
from emulator.record.events import Outcome, StopSignal, TaskStart

if TYPE_CHECKING:
    from emulator.engines.base import Exited
    from emulator.planning.plan import Plan, Task
    from emulator.supervisor.engine_calls import EngineCalls
    from emulator.supervisor.history import HistoryWriter
    from emulator.supervisor.timers import Timers

State = Literal["pending", "starting", "running", "backoff", "down", "ended"]


@dataclass(frozen=True)
class JobEnd:
    """How the job ended; `task` is the one that failed."""

    outcome: Outcome
    reason: str
    task: str = ""
    cause: str = ""
    """The limit of a job of the training operator that ended it; `JobEnded` has them."""


@dataclass
class TaskState:
    """One task, as the supervisor knows it."""

    task: Task
    reader: StepReader
    state: State = "pending"
    exit_code: int | None = None
    restarts: int = 0
    step: int | None = None
    """The last one that it reported."""
    starts: list[float] = field(default_factory=list)
    """When the engine was asked to start it, in seconds since 1970."""
    crashes: int = 0
    """Its restarts in a row on its present disk, without those before it ran for long."""
    stop_sent: float | None = None
    """When it was told to end (seconds since 1970); None: it was not."""
    early_exit: Exited | None = None
    """It ended before the engine's start call had returned; handled once that has."""

    def was_told_before(self, end: Exited) -> bool:
        """Return whether it was told to end before it did, by the engine's stamp."""
        return self.stop_sent is not None and not end.was_before(self.stop_sent)


def pending(plan: Plan) -> dict[str, TaskState]:
    """Return the tasks of a run that has not begun."""
    return {task.name: TaskState(task, StepReader(plan.step_rules(task))) for task in plan.tasks}


def have_started(tasks: Iterable[TaskState]) -> bool:
    """Return whether each of some tasks has run, or runs."""
    return all(state.state not in ("pending", "starting") for state in tasks)


def is_stoppable(state: TaskState) -> bool:
    """Return whether a task can be told to end: it runs, or may be at its init steps."""
    return state.state == "running" or (state.state == "starting" and bool(state.task.init))


class Job:
    """The tasks of one run, and what acts on them: timers, the engine's calls, the history."""

    def __init__(
        self,
        plan: Plan,
        tasks: Mapping[str, TaskState],
        *,
        timers: Timers,
        calls: EngineCalls,
        history: HistoryWriter,
    ) -> None:
        self._plan = plan
        self.tasks, self.timers, self.calls, self.history = tasks, timers, calls, history
        self.before_training = {task.name: tasks[task.name] for task in plan.before_training}
        """The tasks that end before the others start."""
        self.in_training = {task.name: tasks[task.name] for task in plan.in_training}
        """All others."""
        self._starts = {name: state.starts for name, state in tasks.items()}
        self.end: JobEnd | None = None
        """How it ended, once that is settled."""
        self.restarts = 0
        """Of the whole job, by the restart policy."""
        self.before_training_ran = False
        """All tasks before training have run at the same time."""
        self.training_began = not self.before_training
        """There are no tasks before training, or all of them have succeeded."""
        self.all_running = False
        """All tasks of the training have run at the same time."""

    @property
    def phase(self) -> str:
        """starting, running, ending."""
        return "ending" if self.end else "running" if self.all_running else "starting"

    @property
    def starts(self) -> Mapping[str, Sequence[float]]:
        """When each task was started, in seconds since 1970."""
        return self._starts

    @property
    def anything_left(self) -> bool:
        """Whether a task is starting or running."""
        return any(state.state in ("starting", "running") for state in self.tasks.values())

    def is_running(self, task: str) -> bool:
        """Return whether a task runs in a job that has not ended."""
        return self.end is None and self.tasks[task].state == "running"

    def is_starting(self, task: str) -> bool:
        """Return whether the engine was asked to start a task, and has not said that it runs."""
        return self.end is None and self.tasks[task].state == "starting"

    def start_task(self, name: str, *, fresh: bool = False, same_address: bool = False) -> None:
        """Start a task, on a fresh disk and at its old address if asked to."""
        state = self.tasks[name]
        state.state, state.stop_sent = "starting", None
        if fresh:
            state.crashes = 0
        state.reader = state.reader.again()
        start = self.history.write(TaskStart(task=name, fresh=fresh))
        state.starts.append(start.wall)
        self.calls.start(state.task, fresh=fresh, same_address=same_address)

    def stop_task(self, name: str, number: signal.Signals) -> None:
        """Send a task a signal that asks it to end; its exit is no failure."""
        told = self.history.write(StopSignal(task=name, signal=number.name))
        if self.tasks[name].stop_sent is None:
            self.tasks[name].stop_sent = told.wall
        self.calls.stop(name, number)
