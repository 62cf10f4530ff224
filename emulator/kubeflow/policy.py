"""Decides what follows from the exit of a pod, as Kubeflow's training operator does (pure).

Two parts of Kubernetes restart pods. With `on-failure` and `always`, the kubelet starts the
container again in its pod, later each time. With `exit-code`, and where the machine of a pod was
taken away, the operator deletes the pod and makes a new one at once, on a fresh disk.
Source: kubeflow/training-operator v1.9.0, ReconcileJobs and ReconcilePods of
pkg/controller.v1/common, UpdateJobStatus of both controllers, pkg/core/job.go;
kubernetes/pkg/kubelet, doBackOff.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emulator.kubeflow.section import LEADERS, Operator
from emulator.record.timeline import Incarnation
from emulator.scenario.frameworks.spec import WORKER, role_of
from emulator.scenario.restart import Restart, RestartPolicy
from emulator.supervisor.restart_policy import (
    BACKOFF_CEILING,
    Decision,
    Fail,
    RestartTask,
    Succeed,
    Wait,
)

KUBELET_BACKOFF = 10.0
"""Seconds before the second restart in a row; the first is at once."""
KUBELET_RESET = 600.0
"""Seconds after which a container that ran is restarted at once again."""


def crashes_after(crashes: int, ran: float) -> int:
    """Return the restarts in a row that count after the container has run for some seconds."""
    return 0 if ran >= KUBELET_RESET else crashes


def crashes_of(incarnations: Iterable[Incarnation]) -> int:
    """Return the restarts in a row of a task's latest pod, by its history."""
    crashes = 0
    for one in incarnations:
        if one.start is not None and one.start.fresh:
            crashes = 0
        if one.exit is not None:
            ran = one.exit.wall - (one.start.wall if one.start else 0.0)
            crashes = crashes_after(crashes, ran)
        if one.restart is not None:
            crashes += 1
    return crashes


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
    return RestartTask(delay=_crash_delay(pods.crashes, restart), number=number)


def starts_fresh(operator: Operator, task: str) -> bool:
    """Return whether a restart of the task by its policy is a new pod, with a new disk."""
    return operator.policy_of(role_of(task)) == "exit-code"


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


def _crash_delay(crashes: int, restart: Restart) -> float:
    """Return the seconds that the kubelet waits: none, then the backoff, then twice that."""
    if crashes == 0:
        return 0.0
    first = KUBELET_BACKOFF if restart.backoff is None else restart.backoff
    return min(first * 2.0 ** min(crashes - 1, 64), BACKOFF_CEILING)
