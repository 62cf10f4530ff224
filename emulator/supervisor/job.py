"""The job of a run: the state of its tasks, and how they are started and stopped."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from emulator.engines.base import Exited
from emulator.metrics.steps import StepReader
from emulator.planning.plan import Plan, Task
from emulator.record.events import StopSignal, TaskStart
from emulator.supervisor.engine_calls import EngineCalls
from emulator.supervisor.history import HistoryWriter
from emulator.supervisor.timers import Timers

LAST_WORDS = 12
"""Lines of a failed task that are shown."""

Outcome = Literal["succeeded", "failed", "timeout", "interrupted"]
State = Literal["pending", "starting", "running", "backoff", "down", "ended"]


@dataclass(frozen=True)
class JobEnd:
    """How the job ended; `task` is the one that failed, with the last lines it printed."""

    outcome: Outcome
    reason: str
    task: str = ""
    last_words: tuple[str, ...] = ()


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
    stop_sent: bool = False
    early_exit: Exited | None = None
    """It ended before the engine's start call had returned; handled once that has."""
    last_words: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_WORDS))


def pending(plan: Plan) -> dict[str, TaskState]:
    """Return the tasks of a run that has not begun."""
    rule = plan.scenario.metrics.steps
    return {task.name: TaskState(task, StepReader(rule)) for task in plan.tasks}


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
        self._rule = plan.scenario.metrics.steps
        self.tasks, self.timers, self.calls, self.history = tasks, timers, calls, history
        self.end: JobEnd | None = None
        """How it ended, once that is settled."""
        self.restarts = 0
        """Of the whole job, by the restart policy."""
        self.all_running = False
        """All tasks have run at the same time."""

    @property
    def phase(self) -> str:
        """starting, running, ending."""
        return "ending" if self.end else "running" if self.all_running else "starting"

    @property
    def anything_left(self) -> bool:
        """Whether a task is starting or running."""
        return any(state.state in ("starting", "running") for state in self.tasks.values())

    def is_running(self, task: str) -> bool:
        """Return whether a task runs in a job that has not ended."""
        return self.end is None and self.tasks[task].state == "running"

    def start_task(self, name: str, *, fresh: bool = False, same_address: bool = False) -> None:
        """Start a task, on a fresh disk and at its old address if asked to."""
        state = self.tasks[name]
        state.state, state.stop_sent = "starting", False
        state.reader = StepReader(self._rule)
        self.history.write(TaskStart(task=name, fresh=fresh))
        self.calls.start(state.task, fresh=fresh, same_address=same_address)

    def stop_task(self, name: str, number: signal.Signals) -> None:
        """Send a task a signal that asks it to end; its exit is no failure."""
        self.tasks[name].stop_sent = True
        self.history.write(StopSignal(task=name, signal=number.name))
        self.calls.stop(name, number)
