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

from emulator.record.timeline import Incarnation
from emulator.scenario.frameworks.spec import WORKER, role_of
from emulator.scenario.operator import Operator
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
LEADERS = ("chief", "master")


@dataclass(frozen=True)
class Crashes:
    """How often the container of a pod was restarted in it."""

    count: int = 0
    """Since the pod was made: `restartCount` of its status."""
    in_a_row: int = 0
    """Without those before it ran for long: they decide how long the kubelet waits."""

    def after(self, ran: float) -> Crashes:
        """Return the same after the container has run for some seconds."""
        return Crashes(self.count, 0) if ran >= KUBELET_RESET else self

    def one_more(self) -> Crashes:
        """Return the same after one more restart in the pod."""
        return Crashes(self.count + 1, self.in_a_row + 1)


def crashes_of(incarnations: Iterable[Incarnation]) -> Crashes:
    """Return what the history of a task says of its latest pod."""
    crashes = Crashes()
    for one in incarnations:
        if one.start is not None and one.start.fresh:
            crashes = Crashes()
        if one.exit is not None:
            crashes = crashes.after(one.exit.wall - (one.start.wall if one.start else 0.0))
        if one.restart is not None:
            crashes = crashes.one_more()
    return crashes


@dataclass(frozen=True)
class Pods:
    """The pods of a job when one of them ends."""

    exits: Mapping[str, int | None]
    """The exit code of every task; None for one that runs or will run again."""
    restarts: Mapping[str, int]
    """The restarts of every task so far, of all its pods."""
    crashes: Mapping[str, Crashes]
    restarting: bool = False
    """A pod is being replaced: the job has the condition Restarting."""


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
    exits = {**pods.exits, task: exit_code}
    if exit_code == 0 and policy != "always":
        reason = _success(operator, exits)
        return Succeed(reason) if reason else _wait(exits)
    if exit_code != 0 and not _retryable(policy, exit_code):
        return _of_failed_pod(task, exit_code, operator, pods, evicted=evicted)
    if evicted:
        # A pod that is deleted while it runs counts as failed until it is gone
        # (UpdateJobReplicaStatuses; kubeflow/trainer#2124).
        if operator.quirks and operator.kind == "TFJob" and not _is_tolerated(task, operator, pods):
            return _of_failed_pod(task, exit_code, operator, pods, evicted=True)
        return RestartTask(delay=0.0, number=pods.restarts[task], fresh=True)
    if _is_past_limit(operator, policy, pods):
        return Fail(_exhausted(task, exit_code, operator), cause="backoff-limit")
    number = pods.restarts[task] + 1
    if policy == "exit-code":
        return RestartTask(delay=0.0, number=number, fresh=True)
    return RestartTask(delay=_crash_delay(pods.crashes[task], restart), number=number)


def starts_fresh(operator: Operator | None, task: str) -> bool:
    """Return whether a restart of the task by its policy is a new pod, with a new disk."""
    return operator is not None and operator.policy_of(role_of(task)) == "exit-code"


def stops_pods(operator: Operator, outcome: str, cause: str) -> bool:
    """Return whether the pods that still run are stopped once the job has ended.

    The operator forgets cleanPodPolicy at a limit (kubeflow/trainer#3419): it deletes the pods
    before the job has a condition that says that it ended.
    """
    if operator.clean_pods != "none" or outcome not in ("succeeded", "failed"):
        return True
    return operator.quirks and cause in ("backoff-limit", "deadline")


def _retryable(policy: RestartPolicy, exit_code: int) -> bool:
    return exit_code >= 128 if policy == "exit-code" else policy != "never"


def _of_failed_pod(
    task: str, exit_code: int, operator: Operator, pods: Pods, *, evicted: bool
) -> Decision:
    """Return what follows when a pod has failed and is not replaced."""
    policy = operator.policy_of(role_of(task))
    if policy != "exit-code" and _is_tolerated(task, operator, pods):
        return _wait({**pods.exits, task: exit_code})
    how = "was taken away" if evicted else "failed"
    why = f"{task} {how} with exit code {exit_code}"
    if policy == "exit-code" and exit_code < 128:
        why += ", which ExitCode takes for permanent (below 128)"
    elif evicted and policy == "never":
        why += ", and a pod with restartPolicy Never is not made again"
    elif evicted:
        why += "; a pod that is deleted while it runs fails a TFJob (--operator-quirks)"
    return Fail(why)


def _is_tolerated(task: str, operator: Operator, pods: Pods) -> bool:
    """Return whether the job goes on with a failed pod.

    A TFJob does with workers that may leave; and while its condition is Restarting, which hides
    the failure.
    """
    hidden = operator.quirks and operator.kind == "TFJob" and pods.restarting
    return hidden or (operator.dynamic_worker and role_of(task) == WORKER)


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


def _is_past_limit(operator: Operator, policy: RestartPolicy, pods: Pods) -> bool:
    """Return whether one more restart reaches backoffLimit, which is the sum over all pods.

    The job fails with the restart that reaches it; the same for 0 and 1. The operator itself
    counts restarts in pods that are there, so those before a pod was replaced are lost: it never
    gets there with ExitCode (kubeflow/trainer#2045), unless the limit is 0.
    """
    limit = operator.backoff_limit
    if limit is None:
        return False
    if not operator.quirks or limit == 0:
        return sum(pods.restarts.values()) + 1 >= limit
    alive = [task for task, code in pods.exits.items() if code is None]
    counted = sum(pods.crashes[task].count for task in alive)
    return policy != "exit-code" and counted + 1 >= limit


def _exhausted(task: str, exit_code: int, operator: Operator) -> str:
    limit = f"the backoffLimit of {operator.backoff_limit}"
    return f"{task} ended with exit code {exit_code}, and its restart would reach {limit}"


def _crash_delay(crashes: Crashes, restart: Restart) -> float:
    """Return the seconds that the kubelet waits: none, then the backoff, then twice that."""
    if crashes.in_a_row == 0:
        return 0.0
    first = KUBELET_BACKOFF if restart.backoff is None else restart.backoff
    return min(first * 2.0 ** min(crashes.in_a_row - 1, 64), BACKOFF_CEILING)
