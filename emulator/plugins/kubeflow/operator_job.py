"""A job of Kubeflow's training operator: its deadline, and its pods after its end.

What follows from an exit is decided by pure functions, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from emulator.engines.base import Exited
from emulator.plugins.kubeflow.kubelet import crash_delay, crashes_after, crashes_of
from emulator.plugins.kubeflow.section import LEADERS, Operator, operator_of
from emulator.record.timeline import Timeline
from emulator.scenario.frameworks.spec import WORKER, role_of
from emulator.scenario.restart import Restart, RestartPolicy
from emulator.supervisor.job import JobEnd, TaskState
from emulator.supervisor.restart_policy import Decision, Fail, RestartTask, Succeed, Wait
from emulator.supervisor.strategy import Strategy

QUIET = 10.0
"""Seconds without output after which the pods that were left alone are stopped."""


class OperatorJob(Strategy):
    """What the operator does with the job of one run."""

    _printed = math.inf
    """When a task last printed, while the remaining pods finish by themselves."""

    @cached_property
    def _operator(self) -> Operator:
        operator = operator_of(self._plan.scenario)
        assert operator is not None, "only its jobs have this strategy"
        return operator

    # --- Its beginning --------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to count the time of the job."""
        self._activate(self._timers.now())

    def take_over(self, timeline: Timeline, began: float) -> None:
        """Continue with the job of a killed supervisor; the run began at the time `began`."""
        for name, state in self._job.tasks.items():
            state.crashes = crashes_of(timeline.tasks[name].incarnations)
        if timeline.prepared is not None:
            self._activate(began + timeline.prepared)

    def _activate(self, since: float) -> None:
        """Fail the job once it has been active for too long, from the time `since`."""
        if self._operator.active_deadline is not None:
            self._timers.at(since + self._operator.active_deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        if self._job.end is None:
            limit = self._operator.active_deadline or 0.0
            why = f"it was active for longer than its activeDeadlineSeconds of {limit:g} s"
            self._finish(JobEnd("failed", why, cause="deadline"))

    # --- While it runs --------------------------------------------------------------------------

    def decide(self, state: TaskState, event: Exited, *, evicted: bool = False) -> Decision:
        """Return what follows from an exit; `evicted`: by a fault that may bring the task back."""
        state.crashes = crashes_after(state.crashes, event.wall - state.starts[-1])
        tasks = self._job.tasks
        return decide(
            event.task,
            event.exit_code,
            operator=self._operator,
            restart=self._plan.scenario.restart,
            pods=Pods(
                exits={n: s.exit_code if s.state == "ended" else None for n, s in tasks.items()},
                restarts={name: one.restarts for name, one in tasks.items()},
                crashes=state.crashes,
            ),
            evicted=evicted,
        )

    def comes_back(self, state: TaskState, event: Exited) -> bool:
        """Return whether a task that a fault has ended is started again."""
        return self._job.end is not None or isinstance(
            self.decide(state, event, evicted=True), RestartTask
        )

    def starts_fresh(self, state: TaskState) -> bool:
        """Return whether the next start of a task is that of a new pod, with a new disk."""
        ended = state.exit_code is not None
        return ended and self._operator.policy_of(state.task.role) == "exit-code"

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
        if stops_pods(self._operator, end.outcome):
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


# --- What follows from an exit (pure) -------------------------------------------------------------

# Two parts of Kubernetes restart pods. With `on-failure` and `always`, the kubelet starts the
# container again in its pod, later each time. With `exit-code`, and where the machine of a pod was
# taken away, the operator deletes the pod and makes a new one at once, on a fresh disk.
# Source: kubeflow/training-operator v1.9.0, ReconcileJobs and ReconcilePods of
# pkg/controller.v1/common, UpdateJobStatus of both controllers, pkg/core/job.go.


@dataclass(frozen=True)
class Pods:
    """The pods of a job when one of them ends."""

    exits: Mapping[str, int | None]
    """The exit code of every task; None for one that runs or will run again."""
    restarts: Mapping[str, int]
    """The restarts of every task so far, of all its pods."""
    crashes: int
    """The restarts in a row of the pod that ends."""


def decide(
    task: str,
    exit_code: int,
    *,
    operator: Operator,
    restart: Restart,
    pods: Pods,
    evicted: bool = False,
) -> Decision:
    """Return what follows from the exit of `task` with `exit_code`.

    `evicted`: a fault has taken its machine away and brings it back, if that is decided here.
    """
    policy = operator.policy_of(role_of(task))
    exits, restarts = {**pods.exits, task: exit_code}, pods.restarts
    if exit_code == 0 and policy != "always":
        reason = _success(operator, exits)
        return Succeed(reason) if reason else _wait(exits)
    if exit_code != 0 and not _retryable(policy, exit_code):
        if policy == "never" and operator.dynamic_worker and role_of(task) == WORKER:
            return _wait(exits)
        return Fail(_failure(task, exit_code, policy, evicted=evicted))
    if evicted:
        return RestartTask(delay=0.0, number=restarts[task], fresh=True)
    limit = operator.backoff_limit
    # The job fails with the restart that reaches the limit; the same for 0 and 1.
    if limit is not None and sum(restarts.values()) + 1 >= limit:
        reached = f"its restart would reach the backoffLimit of {limit}"
        return Fail(f"{task} ended with exit code {exit_code}, and {reached}", "backoff-limit")
    number = restarts[task] + 1
    if policy == "exit-code":
        return RestartTask(delay=0.0, number=number, fresh=True)
    return RestartTask(delay=crash_delay(pods.crashes, restart), number=number)


def stops_pods(operator: Operator, outcome: str) -> bool:
    """Return whether the pods that still run are stopped once the job has ended."""
    return operator.clean_pods != "none" or outcome not in ("succeeded", "failed")


def _retryable(policy: RestartPolicy, exit_code: int) -> bool:
    return exit_code >= 128 if policy == "exit-code" else policy != "never"


def _failure(task: str, exit_code: int, policy: RestartPolicy, *, evicted: bool) -> str:
    """Return why the job fails with a pod that is not made again."""
    why = f"{task} {'was taken away' if evicted else 'failed'} with exit code {exit_code}"
    if policy == "exit-code":
        return f"{why}, which ExitCode takes for permanent (below 128)"
    return f"{why}, and a pod with restartPolicy Never is not made again" if evicted else why


def _wait(exits: Mapping[str, int | None]) -> Decision:
    """Wait for the other pods, if there are any."""
    if all(code is not None for code in exits.values()):
        why = "every pod has ended, and none that decides has succeeded: it would never end"
        return Fail(why, cause="stuck")
    return Wait()


def _success(operator: Operator, exits: Mapping[str, int | None]) -> str:
    """Return why the job has succeeded, or nothing."""
    leaders = [task for task in exits if role_of(task) in LEADERS]
    if leaders:
        done = all(exits[task] == 0 for task in leaders)
        return f"{leaders[0]} finished" if done else ""
    succeeded = [task for task in exits if role_of(task) == WORKER and exits[task] == 0]
    count = sum(role_of(task) == WORKER for task in exits)
    if succeeded and len(succeeded) == count:
        return "all workers finished" if count > 1 else f"{succeeded[0]} finished"
    first = f"{WORKER}-0"
    if operator.kind == "TFJob" and operator.success == "default" and first in succeeded:
        return f"{first} finished"
    if operator.elastic is not None and succeeded:
        return f"{succeeded[0]} finished, and the job is elastic"
    return ""
