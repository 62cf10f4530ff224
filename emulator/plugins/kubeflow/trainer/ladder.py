"""The restarts of an indexed Job and of a JobSet: container, Pod, gang, failure (pure).

Four parts of Kubernetes act, each where the one before gives up. The kubelet starts a container
again in its Pod (`on-failure`). A Job makes a new Pod of the same index in place of one that has
failed or was deleted, while its peers stay. A JobSet makes all its Jobs again where one has failed,
if its `failurePolicy` says so. Else it fails.
Source: kubernetes/pkg/controller/job 1.34 (backoff_utils.go, pod_failure_policy.go,
indexed_job_utils.go, success_policy.go; syncJob, isPodFailed, pastBackoffLimitOnFailure and
MaxJobPodFailureBackOff of job_controller.go); kubernetes-sigs/jobset v0.12.0,
pkg/controllers/failure_policy.go and success_policy.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from emulator.plugins.kubeflow.kubelet import crash_delay, first_backoff
from emulator.plugins.kubeflow.trainer.section import (
    DISRUPTED,
    FailureAction,
    JobSet,
    KubernetesJob,
    PodFailureRule,
    Reason,
    parsed,
)
from emulator.scenario.frameworks.spec import role_of
from emulator.scenario.restart import Restart
from emulator.supervisor.restart_policy import (
    BeginTraining,
    Decision,
    Fail,
    RestartJob,
    RestartTask,
    Succeed,
    Wait,
)
from emulator.validation.patterns import TooSlow, compiled

POD_BACKOFF_CEILING = 600.0
"""Seconds; MaxJobPodFailureBackOff of the Job controller."""
CAUSES: Mapping[Reason, str] = {
    "BackoffLimitExceeded": "backoff-limit",
    "DeadlineExceeded": "deadline",
    "FailedIndexes": "failed-indexes",
    "MaxFailedIndexesExceeded": "failed-indexes",
    "PodFailurePolicy": "pod-failure-policy",
}
"""The causes of `JobEnded`, by the reason of the failed Job."""


@dataclass(frozen=True)
class PodEnd:
    """A task has ended, and what of it depends on more than the Jobs."""

    task: str
    exit_code: int
    evicted: bool = False
    """Its Pod was deleted or evicted, by a fault that may bring the task back."""
    leaving: float = 0.0
    """Seconds from the deletion of its Pod to its end."""
    crashes: int = 0
    """The restarts in a row of its container."""
    restarts: int = 0
    """All restarts of the task so far."""


@dataclass(frozen=True)
class Index:
    """An index of a Job, with its present Pod."""

    state: Literal["active", "succeeded", "failed"] = "active"
    rung: Literal["", "container", "pod", "gang"] = ""
    """How it was started last, or is about to be; empty: for the first time."""
    restarts: int = 0
    """Of the container in the present Pod."""
    failures: int = 0
    """Failed Pods that count."""
    ignored: int = 0
    """Failed Pods that a rule ignores."""


@dataclass(frozen=True)
class JobStatus:
    """A Job, which is made again with each restart of the JobSet."""

    indexes: Mapping[str, Index]
    """By task."""
    failed: int = 0
    """Failed Pods that count."""
    failures_in_row: int = 0
    """Failed Pods since one has succeeded, also those that a rule ignores."""
    complete: bool = False

    def of(self, *states: str) -> list[str]:
        """Return the tasks whose index is in one of these states."""
        return [task for task, index in self.indexes.items() if index.state in states]

    def having(self, task: str, index: Index) -> JobStatus:
        """Return it with another state of an index."""
        return replace(self, indexes={**self.indexes, task: index})


@dataclass(frozen=True)
class Status:
    """The JobSet."""

    jobs: Mapping[str, JobStatus]
    """By role."""
    restarts: int = 0
    """Of all Jobs together."""
    counted: int = 0
    """Those of them that count towards maxRestarts."""

    def having(self, role: str, job: JobStatus) -> Status:
        """Return it with another state of a Job."""
        return replace(self, jobs={**self.jobs, role: job})


@dataclass(frozen=True)
class _Failure:
    """A Job has failed."""

    role: str
    reason: Reason
    message: str
    """Of its condition, with the task in place of the name of its Pod."""
    why: str
    """What it ended with, in words."""


@dataclass(frozen=True)
class Ladder:
    """The rules of a JobSet, and the tasks of its Jobs."""

    rules: JobSet
    tasks: Mapping[str, Sequence[str]]
    """By role."""
    before: frozenset[str] = frozenset()
    """The roles whose Jobs complete before the others start."""
    restart: Restart = field(default_factory=Restart)
    """Its `backoff` is the first one of kubelets and of Jobs."""

    def begin(self) -> Status:
        """Return the JobSet before anything has happened."""
        return Status({role: _made(tasks) for role, tasks in self.tasks.items()})

    def began_training(self, status: Status) -> bool:
        """Return whether all Jobs before training are complete."""
        return all(status.jobs[role].complete for role in self.before)

    def after(self, status: Status, end: PodEnd) -> tuple[Status, Decision]:
        """Return the JobSet after a task has ended, and what follows."""
        role, task = role_of(end.task), end.task
        job, spec = status.jobs[role], self.rules.job(role)
        if job.complete or job.indexes[task].state != "active":
            return status, Wait()  # its Pod was left over
        if end.exit_code == 0 and not (end.evicted and spec.counts_deleted):
            return self._succeeded(status, role, task)
        if spec.restart == "on-failure" and not end.evicted:
            return self._container_failed(status, role, end)
        return self._pod_failed(status, role, end)

    def after_deadline(self, status: Status, role: str) -> tuple[Status, Decision]:
        """Return the JobSet after the activeDeadlineSeconds of a Job, and what follows."""
        limit = self.rules.job(role).active_deadline or 0.0
        why = f"{role} was active for longer than its activeDeadlineSeconds of {limit:g} s"
        message = "Job was active longer than specified deadline"
        return self._job_failed(status, _Failure(role, "DeadlineExceeded", message, why))

    # --- A Job ----------------------------------------------------------------------------------

    def _succeeded(self, status: Status, role: str, task: str) -> tuple[Status, Decision]:
        job = status.jobs[role]
        index = replace(job.indexes[task], state="succeeded")
        job = replace(job.having(task, index), failures_in_row=0)
        if _is_done(self.rules.job(role), job):
            status = status.having(role, replace(job, complete=True))
            return status, self._job_completed(status, role)
        status = status.having(role, job)
        if not job.of("active"):
            return self._job_failed(status, _failed_indexes(role, job))
        return status, Wait()

    def _container_failed(self, status: Status, role: str, end: PodEnd) -> tuple[Status, Decision]:
        """Start a container again in its Pod, unless the restarts of active Pods are too many.

        A Job fails with the restart that reaches its limit; the same for 0 and 1.
        """
        job, spec = status.jobs[role], self.rules.job(role)
        index = job.indexes[end.task]
        index = replace(index, rung="container", restarts=index.restarts + 1)
        job = job.having(end.task, index)
        status = status.having(role, job)
        if sum(job.indexes[task].restarts for task in job.of("active")) >= max(spec.limit, 1):
            reached = f"the restart of its container would reach the backoffLimit of {spec.limit}"
            return self._job_failed(status, _past_limit(role, end, reached))
        delay = crash_delay(end.crashes, self.restart)
        return status, RestartTask(delay, end.restarts + 1, level="container")

    def _pod_failed(self, status: Status, role: str, end: PodEnd) -> tuple[Status, Decision]:
        """Make a new Pod of the same index, unless too many have failed or a rule says otherwise.

        Without limits for each index, all new Pods of a Job wait for the back-off of its last
        failure.
        """
        job, spec, task = status.jobs[role], self.rules.job(role), end.task
        number, rule = _rule(spec, end)
        if rule is not None and rule.action == "fail-job":
            return self._job_failed(status, _by_rule(role, end, number, rule))
        counts = rule is None or rule.action != "ignore"
        old = job.indexes[task]
        index = Index(
            rung="pod", failures=old.failures + counts, ignored=old.ignored + (not counts)
        )
        job = replace(
            job.having(task, index),
            failed=job.failed + counts,
            failures_in_row=job.failures_in_row + 1,
        )
        if job.failed > spec.limit:
            reached = f"{job.failed} Pods have failed, above the backoffLimit of {spec.limit}"
            return self._job_failed(status.having(role, job), _past_limit(role, end, reached))
        if spec.backoff_limit_per_index is None:
            delay = self._pod_backoff(job.failures_in_row, spec, end)
            waiting = [one for one in job.of("active") if job.indexes[one].rung == "pod"]
            holds = tuple(one for one in waiting if one != task)
            restart = RestartTask(delay, end.restarts + 1, fresh=True, level="pod", holds=holds)
            return status.having(role, job), restart
        by_rule = rule is not None and rule.action == "fail-index"
        if by_rule or index.failures > spec.backoff_limit_per_index:
            return self._index_failed(
                status, role, job.having(task, replace(index, state="failed"))
            )
        delay = self._pod_backoff(index.failures + index.ignored, spec, end)
        restart = RestartTask(delay, end.restarts + 1, fresh=True, level="pod")
        return status.having(role, job), restart

    def _index_failed(self, status: Status, role: str, job: JobStatus) -> tuple[Status, Decision]:
        """Go on with the other indexes, if there are any and not too many have failed."""
        status, most = status.having(role, job), self.rules.job(role).max_failed_indexes
        failed = len(job.of("failed"))
        if most is not None and failed > most:
            why = f"{failed} indexes have failed, above the maxFailedIndexes of {most}"
            message = "Job has exceeded the specified maximal number of failed indexes"
            failure = _Failure(role, "MaxFailedIndexesExceeded", message, why)
            return self._job_failed(status, failure)
        if not job.of("active"):
            return self._job_failed(status, _failed_indexes(role, job))
        return status, Wait()

    def _pod_backoff(self, failures: int, spec: KubernetesJob, end: PodEnd) -> float:
        """Return the seconds until a new Pod: from when the old one counts as failed."""
        doubled = first_backoff(self.restart) * 2.0 ** min(failures - 1, 64)
        since = end.leaving if spec.counts_deleted else 0.0
        return max(0.0, min(doubled, POD_BACKOFF_CEILING) - since)

    # --- The JobSet -----------------------------------------------------------------------------

    def _job_completed(self, status: Status, role: str) -> Decision:
        policy = self.rules.success
        counting = policy.jobs or [*self.tasks]
        complete = [one for one in counting if status.jobs[one].complete]
        if len(complete) == len(counting) or (complete and policy.operator == "any"):
            jobs = f"the Job{'' if len(complete) == 1 else 's'} {', '.join(complete)}"
            return Succeed(f"{jobs} completed")
        if role in self.before and self.began_training(status):
            return BeginTraining()
        return Wait()

    def _job_failed(self, status: Status, failure: _Failure) -> tuple[Status, Decision]:
        """Make all Jobs again, or fail: as the first rule that is about the failure says."""
        words = f"{failure.why}: the Job {failure.role} has failed ({failure.reason})"
        cause, policy = CAUSES[failure.reason], self.rules.failure
        if policy is None:
            return status, Fail(words, cause)
        action = self._action(failure)
        if action == "fail-jobset":
            return status, Fail(f"{words}, and a rule of the failurePolicy says FailJobSet", cause)
        counts = action == "restart-jobset"
        if counts and status.counted >= policy.max_restarts:
            used = f"the maxRestarts of {policy.max_restarts} are used up"
            return status, Fail(f"{words}, and {used}", cause)
        began = self.began_training(status)
        again = {
            role: _made(tasks, "gang")
            for role, tasks in self.tasks.items()
            if (role in self.before) != began
        }
        number = status.restarts + 1
        made = Status({**status.jobs, **again}, number, status.counted + counts)
        return made, RestartJob(0.0, number)

    def _action(self, failure: _Failure) -> FailureAction:
        for rule in self.rules.failure.rules if self.rules.failure else ():
            if rule.reasons and failure.reason not in rule.reasons:
                continue
            if rule.jobs and failure.role not in rule.jobs:
                continue
            if rule.messages and not any(_says(failure, one) for one in rule.messages):
                continue
            return rule.action
        return "restart-jobset"


def _says(failure: _Failure, pattern: str) -> bool:
    """Return whether the message matches a pattern; not if that takes too long."""
    try:
        return compiled(pattern).search(failure.message) is not None
    except TooSlow:
        return False


def _made(tasks: Sequence[str], rung: Literal["", "gang"] = "") -> JobStatus:
    return JobStatus(dict.fromkeys(tasks, Index(rung=rung)))


def _is_done(spec: KubernetesJob, job: JobStatus) -> bool:
    """Return whether a Job is complete: all indexes have succeeded, or as its rules say."""
    succeeded = {int(task.rpartition("-")[2]) for task in job.of("succeeded")}
    if len(succeeded) == len(job.indexes):
        return True
    for rule in spec.success:
        wanted = {*range(len(job.indexes))} if rule.indexes is None else parsed(rule.indexes)
        if len(succeeded & wanted) >= (len(wanted) if rule.count is None else rule.count):
            return True
    return False


def _rule(spec: KubernetesJob, end: PodEnd) -> tuple[int, PodFailureRule | None]:
    """Return the rule of the podFailurePolicy that is about a failed Pod, with its number."""
    conditions = [DISRUPTED] if end.evicted else []
    for number, rule in enumerate(spec.pod_failure):
        codes = rule.on_exit_codes
        if codes.has(end.exit_code) if codes else {*conditions} & {*rule.on_conditions}:
            return number, rule
    return 0, None


def _by_rule(role: str, end: PodEnd, number: int, rule: PodFailureRule) -> _Failure:
    matching = f"matching FailJob rule at index {number}"
    message = f"Pod {end.task} has condition {DISRUPTED} {matching}"
    if rule.on_exit_codes is not None:
        message = f"Container for pod {end.task} failed with exit code {end.exit_code} {matching}"
    why = f"{_ended(end)}, and rule {number} of the podFailurePolicy says FailJob"
    return _Failure(role, "PodFailurePolicy", message, why)


def _past_limit(role: str, end: PodEnd, reached: str) -> _Failure:
    message = "Job has reached the specified backoff limit"
    return _Failure(role, "BackoffLimitExceeded", message, f"{_ended(end)}, and {reached}")


def _failed_indexes(role: str, job: JobStatus) -> _Failure:
    why = f"{', '.join(_first(job.of('failed')))} failed, and the others have succeeded"
    if not job.of("succeeded"):
        why = "every index failed"
    return _Failure(role, "FailedIndexes", "Job has failed indexes", why)


def _first(tasks: Sequence[str]) -> Iterator[str]:
    yield from tasks[:3]
    if len(tasks) > 3:
        yield f"and {len(tasks) - 3} more"


def _ended(end: PodEnd) -> str:
    how = "was taken away" if end.evicted else "ended"
    return f"{end.task} {how} with exit code {end.exit_code}"
