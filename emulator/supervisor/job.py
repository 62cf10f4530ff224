"""The job of a run: the state of its tasks and helpers, and how they are started and stopped.

Helpers are programs next to the job, which decide nothing about it. They start before the tasks and
are stopped after them. The restart policy, the success rule, the faults and the watchdog do not
know them. One that ends by itself, or can't be started, is in the history, and the job continues
without it.
"""

from __future__ import annotations

import math
import signal
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from emulator.analysis.steps_made import JobSteps
from emulator.metrics.steps import StepReader
from emulator.record.events import (
    HelperEvent,
    Outcome,
    SlowPattern,
    StopSignal,
    TaskRunning,
    TaskStart,
)

if TYPE_CHECKING:
    from emulator.engines.base import Exited
    from emulator.planning.plan import Plan, Task
    from emulator.record.events import Entry
    from emulator.record.writer import RunWriter
    from emulator.supervisor.engine_calls import EngineCalls
    from emulator.supervisor.restart_policy import RestartJob
    from emulator.supervisor.timers import Timers

HELPER_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL of helpers, when no task runs any more."""
LAST_WORDS = 5
"""Lines of a helper that has ended which are in the history."""
LONGEST_WORD = 300
"""Characters of each."""

State = Literal["pending", "starting", "running", "backoff", "down", "ended"]


@dataclass(frozen=True)
class JobEnd:
    """How the job ended; `task` is the one that failed."""

    outcome: Outcome
    reason: str
    task: str = ""
    cause: str = ""
    """The limit of another system's job that ended it; `JobEnded` has them."""


@dataclass
class TaskState:
    """One task or helper, as the supervisor knows it."""

    task: Task
    reader: StepReader
    is_helper: bool = False
    state: State = "pending"
    exit_code: int | None = None
    restarts: int = 0
    step: int | None = None
    """The last one that it reported."""
    starts: list[float] = field(default_factory=list)
    """When the engine was asked to start it, in seconds since 1970."""
    crashes: int = 0
    """Its restarts in a row on its present disk, without those before it ran for long."""
    leaving_since: float = math.inf
    """When a fault asked it to end, before its latest exit (seconds since 1970)."""
    due: float = 0.0
    """When it may be started again at the earliest (monotonic seconds)."""
    stop_sent: float | None = None
    """When it was told to end (seconds since 1970); None: it was not."""
    early_exit: Exited | None = None
    """It ended before the engine's start call had returned; handled once that has."""
    last_words: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_WORDS))
    """Of a helper: what it has printed last."""

    def was_told_before(self, end: Exited) -> bool:
        """Return whether it was told to end before it did, by the engine's stamp."""
        return self.stop_sent is not None and not end.was_before(self.stop_sent)


def pending(plan: Plan) -> dict[str, TaskState]:
    """Return the tasks of a run that has not begun."""
    return {task.name: TaskState(task, StepReader(plan.step_rules(task))) for task in plan.tasks}


def pending_helpers(plan: Plan) -> dict[str, TaskState]:
    """Return the helpers of a run that has not begun."""
    return {one.name: TaskState(one, StepReader(()), is_helper=True) for one in plan.helpers}


def step_reporters(plan: Plan) -> list[str]:
    """Return the tasks in whose output steps are expected."""
    if plan.scenario.expect.steps is not None or plan.scenario.metrics.helper:
        return []
    return [task.name for task in plan.in_training if plan.roles.trains(task.role)]


def have_started(tasks: Iterable[TaskState]) -> bool:
    """Return whether each of some tasks has run, or runs."""
    return all(state.state not in ("pending", "starting") for state in tasks)


def is_any(states: Iterable[TaskState], *wanted: State) -> bool:
    """Return whether one of some tasks is in one of these states."""
    return any(one.state in wanted for one in states)


def is_stoppable(state: TaskState) -> bool:
    """Return whether a task can be told to end: it runs, or may be at its init steps."""
    return state.state == "running" or (state.state == "starting" and bool(state.task.init))


class Job:
    """The tasks and helpers of one run, and what acts on them: timers, engine calls, history."""

    def __init__(
        self,
        plan: Plan,
        tasks: Mapping[str, TaskState],
        helpers: Mapping[str, TaskState],
        *,
        timers: Timers,
        calls: EngineCalls,
        history: RunWriter,
    ) -> None:
        self._plan = plan
        self.slow_patterns: set[str] = set()
        """The regular expressions that are not used any more."""
        self.tasks, self.timers, self.calls, self.history = tasks, timers, calls, history
        self.helpers, self.states = helpers, {**tasks, **helpers}
        self.stops_helpers = False
        """The job is over and its tasks have ended: helpers are told to end."""
        self.before_training = {task.name: tasks[task.name] for task in plan.before_training}
        """The tasks that end before the others start."""
        self.in_training = {task.name: tasks[task.name] for task in plan.in_training}
        """All others."""
        self.evaluators = plan.evaluators
        """The tasks whose steps are those of checkpoints that they read."""
        self.steps = JobSteps(self.evaluators)
        """Which steps show that it goes on."""
        self._starts = {name: state.starts for name, state in tasks.items()}
        self.end: JobEnd | None = None
        """How it ended, once that is settled."""
        self.restarts = 0
        """Of the whole job, by the restart policy."""
        self.restarting: RestartJob | None = None
        """Its tasks are ending, and start again once all have ended."""
        self.before_training_ran = False
        """All tasks before training have run at the same time."""
        self.training_began = not self.before_training
        """There are no tasks before training, or all of them have succeeded."""
        self.all_running = False
        """All tasks of the training have run at the same time."""

    @property
    def present(self) -> Mapping[str, TaskState]:
        """The tasks of the training, or until it begins, those before it."""
        return self.in_training if self.training_began else self.before_training

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
        return is_any(self.tasks.values(), "starting", "running")

    def is_running(self, task: str) -> bool:
        """Return whether a task runs in a job that has not ended."""
        return self.end is None and self.tasks[task].state == "running"

    def start_task(self, name: str, *, fresh: bool = False, same_address: bool = False) -> None:
        """Start a task or helper, on a fresh disk and at its old address if asked to."""
        state = self.states[name]
        state.state, state.stop_sent, state.leaving_since = "starting", None, math.inf
        if fresh:
            state.crashes = 0
        state.reader = state.reader.again()
        start: Entry = TaskStart(task=name, fresh=fresh)
        if state.is_helper:
            start = HelperEvent(task=name, stage="starting")
        start = self.history.write(start)
        state.starts.append(start.wall)
        self.calls.start(state.task, fresh=fresh, same_address=same_address)

    def note_running(self, name: str, identity: str) -> TaskState:
        """Note that the engine has started a task or helper; return it."""
        state = self.states[name]
        state.state = "running"
        running: Entry = TaskRunning(task=name, id=identity)
        if state.is_helper:
            running = HelperEvent(task=name, stage="running", id=identity)
        self.history.write(running)
        return state

    def do_without(self, pattern: str, task: str) -> None:
        """Use a regular expression no more, which took too long for a line of a task."""
        if pattern not in self.slow_patterns:
            self.slow_patterns.add(pattern)
            self.history.write(SlowPattern(task=task, pattern=pattern))
            for state in self.tasks.values():
                state.reader.do_without(pattern)

    def stop_task(self, name: str, number: signal.Signals) -> None:
        """Send a task or helper a signal that asks it to end; its exit is no failure."""
        state = self.states[name]
        told: Entry = StopSignal(task=name, signal=number.name)
        if state.is_helper:
            told = HelperEvent(task=name, stage="stopping", signal=number.name)
        told = self.history.write(told)
        if state.stop_sent is None:
            state.stop_sent = told.wall
        self.calls.stop(name, number)

    # --- Helpers --------------------------------------------------------------------------------

    @property
    def awaits_helpers(self) -> bool:
        """Return whether tasks wait for a helper until it runs."""
        return is_any(self.helpers.values(), "starting")

    def end_helper(self, name: str, exit_code: int) -> None:
        """Note that a helper has ended."""
        state = self.helpers[name]
        state.state, state.exit_code = "ended", exit_code
        end = HelperEvent(task=name, stage="ended", exit_code=exit_code)
        if state.stop_sent is None:
            end = replace(end, last_words=tuple(state.last_words))
        else:
            end = replace(end, told_to_stop=True)
        self.history.write(end)

    def fail_helper(self, name: str, reason: str) -> None:
        """Note that the engine can't start a helper, or can't end it: only its removal can."""
        self.helpers[name].state = "ended"
        self.history.write(HelperEvent(task=name, stage="failed", reason=reason))

    def stop_helpers(self) -> None:
        """Send SIGTERM to every helper, and SIGKILL after HELPER_GRACE: the job is over."""
        if not self.stops_helpers:
            self.stops_helpers = True
            self._signal_helpers(signal.SIGTERM)
            self.timers.after(HELPER_GRACE, self.kill_helpers)

    def kill_helpers(self) -> None:
        """Kill the helpers that still run."""
        self._signal_helpers(signal.SIGKILL)

    def _signal_helpers(self, number: signal.Signals) -> None:
        for name, state in self.helpers.items():
            if state.state == "running":
                self.stop_task(name, number)
