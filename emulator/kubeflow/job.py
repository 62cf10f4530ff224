"""A job of Kubeflow's training operator: its deadline, its pods after its end, its suspension.

`policy.py` decides what follows from an exit; this acts.
"""

from __future__ import annotations

import math
from functools import cached_property

from emulator.engines.base import Exited
from emulator.errors import UsageError
from emulator.kubeflow import policy
from emulator.kubeflow.section import Operator, operator_of
from emulator.record.events import Suspension
from emulator.record.timeline import Timeline
from emulator.supervisor.job import JobEnd, TaskState
from emulator.supervisor.restart_policy import Decision, RestartTask
from emulator.supervisor.strategy import Strategy

QUIET = 10.0
"""Seconds without output after which the pods that were left alone are stopped."""


class OperatorJob(Strategy):
    """What the operator does with the job of one run."""

    _active_since = math.inf
    """When it was started, or resumed."""
    _printed = math.inf
    """When a task last printed, while the remaining pods finish by themselves."""

    @cached_property
    def _operator(self) -> Operator:
        operator = operator_of(self._plan.scenario)
        assert operator is not None, "only its jobs have this strategy"
        return operator

    # --- Its beginning --------------------------------------------------------------------------

    def begin(self) -> bool:
        """Return whether the pods are to be made; else the job is suspended."""
        if self._operator.suspend:
            self._suspend()
            return False
        self._activate(self._timers.now())
        return True

    def take_over(self, timeline: Timeline, began: float) -> None:
        """Continue with the job of a killed supervisor; the run began at the time `began`."""
        for name, state in self._job.tasks.items():
            state.crashes = policy.crashes_of(timeline.tasks[name].incarnations)
        self.suspended = timeline.suspended
        since = timeline.prepared if timeline.resumed is None else timeline.resumed
        if not self.suspended and since is not None:
            self._activate(began + since)

    def _activate(self, since: float) -> None:
        """Fail the job once it has been active for too long, from the time `since`."""
        self._active_since = since
        if self._operator.active_deadline is not None:
            self._timers.at(since + self._operator.active_deadline, self._on_deadline, since)

    def _on_deadline(self, since: float) -> None:
        # Unless it was suspended meanwhile.
        if since == self._active_since and self._job.end is None:
            limit = self._operator.active_deadline or 0.0
            why = f"it was active for longer than its activeDeadlineSeconds of {limit:g} s"
            self._finish(JobEnd("failed", why, cause="deadline"))

    # --- Suspension -----------------------------------------------------------------------------

    def suspend(self) -> None:
        """Stop every pod, until the job is resumed. Raises UsageError."""
        if self._job.end is not None or self.suspended:
            raise UsageError("The job is over." if self._job.end else "The job is suspended.")
        self._suspend()
        for state in self._job.tasks.values():
            if state.state in ("backoff", "down"):
                state.state = "ended"
        self._stop()

    def _suspend(self) -> None:
        self.suspended, self._active_since = True, math.inf
        self._job.history.write(Suspension(suspended=True))

    def resume(self) -> None:
        """Make every pod of a suspended job. Raises UsageError."""
        if self._job.end is not None or not self.suspended:
            raise UsageError("The job is over." if self._job.end else "The job is not suspended.")
        if self._job.anything_left:
            raise UsageError("Some of its pods have not ended yet.", "Try again in a moment.")
        self.suspended = False
        self.resumptions += 1
        self._job.history.write(Suspension(suspended=False))
        self._activate(self._timers.now())
        for name, state in self._job.tasks.items():
            self._job.start_task(name, fresh=bool(state.starts))

    # --- While it runs --------------------------------------------------------------------------

    def decide(self, state: TaskState, event: Exited, *, evicted: bool = False) -> Decision:
        """Return what follows from an exit; `evicted`: by a fault that may bring the task back."""
        state.crashes = policy.crashes_after(state.crashes, event.wall - state.starts[-1])
        tasks = self._job.tasks
        return policy.decide(
            event.task,
            event.exit_code,
            operator=self._operator,
            restart=self._plan.scenario.restart,
            pods=policy.Pods(
                exits={n: s.exit_code if s.state == "ended" else None for n, s in tasks.items()},
                restarts={name: one.restarts for name, one in tasks.items()},
                crashes=state.crashes,
            ),
            evicted=evicted,
        )

    def comes_back(self, state: TaskState, event: Exited) -> bool:
        """Return whether a task that a fault has ended is started again."""
        over = self._job.end is not None or self.suspended
        return over or isinstance(self.decide(state, event, evicted=True), RestartTask)

    def starts_fresh(self, state: TaskState) -> bool:
        """Return whether the next start of a task is that of a new pod."""
        ended = state.exit_code is not None
        return ended and policy.starts_fresh(self._operator, state.task.name)

    def on_line(self) -> None:
        """A task has printed."""
        if self._printed < math.inf:
            self._printed = self._timers.now()

    def on_exit(self) -> None:
        """A task has ended, and what follows from it was done."""
        if self._printed < math.inf:
            self._stop_servers()

    # --- Its end --------------------------------------------------------------------------------

    def wind_down(self, end: JobEnd, *, drain: bool) -> None:
        """Stop the remaining pods, or let them finish by themselves.

        In Kubernetes those may run for ever. Here they are stopped once they are silent, once only
        servers are left, or when the job would be deleted.
        """
        if policy.stops_pods(self._operator, end.outcome):
            self._stop()
            return
        self._printed = self._timers.now()
        self._timers.after(QUIET, self._stop_if_quiet)
        if self._operator.ttl_after_finished is not None:
            self._timers.after(self._operator.ttl_after_finished, self._stop_left)
        self._stop_servers()

    def time_out(self) -> None:
        """The time limit of the run has passed after the end of the job."""
        if self._printed < math.inf:
            self._stop_left()

    def _stop_if_quiet(self) -> None:
        idle = self._timers.now() - self._printed
        if idle >= QUIET:
            self._stop_left()
        elif self._printed < math.inf:
            self._timers.after(QUIET - idle, self._stop_if_quiet)

    def _stop_servers(self) -> None:
        left = [one for one in self._job.tasks.values() if one.state in ("starting", "running")]
        if all(one.task.role in self._plan.roles.endless_beside for one in left):
            self._stop_left()

    def _stop_left(self) -> None:
        if self._printed < math.inf:
            self._printed = math.inf
            self._stop()
