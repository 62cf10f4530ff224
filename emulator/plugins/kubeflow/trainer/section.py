"""Section `jobset` of a scenario: the job as a JobSet or an indexed Job, with their restarts.

Each role is a Job. The rules replace what a scenario says in `restart.policy` and `success`.
Source: kubernetes-sigs/jobset v0.12.0, api/jobset/v1alpha2; Kubernetes 1.34, k8s.io/api/batch/v1
and pkg/apis/batch/validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from emulator.scenario.document import KeyPath
from emulator.scenario.restart import RestartPolicy
from emulator.validation.fields import Duration, Model
from emulator.validation.patterns import Pattern
from emulator.validation.similar import closest
from emulator.validation.units import format_count, format_duration

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

PodRestart = Literal["on-failure", "never"]
PodReplacement = Literal["terminating-or-failed", "failed"]
PodFailureAction = Literal["fail-job", "fail-index", "ignore", "count"]
FailureAction = Literal["fail-jobset", "restart-jobset", "restart-jobset-and-ignore-max-restarts"]
Reason = Literal[
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
]
"""Why a Job has failed, as its condition says it."""
BACKOFF_LIMIT = 6
"""Kubernetes' default."""
NO_LIMIT = 2**31 - 1
"""The default with a limit for each index."""
DISRUPTED = "DisruptionTarget"
"""The condition of a Pod that is preempted, drained or evicted: the only one that tasks get."""

Count = Annotated[int, Field(strict=True, ge=0, le=NO_LIMIT)]
Names = Annotated[list[Annotated[str, Field(min_length=1, max_length=63)]], Field(max_length=500)]
Error = tuple[KeyPath, str, str]


def _pattern(text: str) -> str:
    Pattern(text)
    return text


def _indexes(text: str) -> str:
    parsed(text)
    return text


def parsed(indexes: str) -> frozenset[int]:
    """Return the numbers of a list such as `0,2-4`. Raises ValueError."""
    found = set[int]()
    for part in indexes.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{indexes!r} is no list of indexes; write it as '0,2-4'")
        end = int(last) if dash else int(first)
        if not 0 <= end - int(first) <= 10_000:
            raise ValueError(f"{part!r} is no range from a lower to a higher index")
        found.update(range(int(first), end + 1))
    return frozenset(found)


class ExitCodes(Model):
    """`onExitCodes` of a rule: the exit codes of the task that it is about; 0 never is."""

    operator: Literal["in", "not-in"]
    """Whether the code is one of the values, or none of them."""
    values: Annotated[
        list[Annotated[int, Field(strict=True)]],
        Field(min_length=1, max_length=255, examples=[[42]]),
    ]
    """The exit codes."""

    @model_validator(mode="after")
    def _about_failures(self) -> ExitCodes:
        if self.operator == "in" and 0 in self.values:
            raise ValueError("0 is no failure: leave it out of `values`")
        return self

    def has(self, code: int) -> bool:
        """Return whether the rule is about an exit code."""
        return code != 0 and (code in self.values) == (self.operator == "in")


class PodFailureRule(Model):
    """A rule of `podFailurePolicy`: what follows where a Pod has failed in this way."""

    action: PodFailureAction
    """`fail-job`, `fail-index`, `ignore` (a new Pod that does not count) or `count`."""
    on_exit_codes: ExitCodes | None = None
    """By the exit code of the task."""
    on_conditions: Annotated[
        list[Literal["DisruptionTarget"]], Field(max_length=20, examples=[["DisruptionTarget"]])
    ] = []
    """By a condition of the Pod: `DisruptionTarget` has one that was preempted or evicted."""

    @model_validator(mode="after")
    def _one(self) -> PodFailureRule:
        if (self.on_exit_codes is None) == (not self.on_conditions):
            raise ValueError("needs either `on_exit_codes` or `on_conditions`")
        return self


class SuccessRule(Model):
    """A rule of a Job's `successPolicy`; the Job is done where one holds."""

    indexes: Annotated[str, Field(max_length=1000), AfterValidator(_indexes)] | None = Field(
        None, examples=["0,2-4"]
    )
    """Those that count; default: all."""
    count: Annotated[int, Field(strict=True, ge=1)] | None = Field(None, examples=[1])
    """How many of them have to succeed; default: all."""

    @model_validator(mode="after")
    def _some(self) -> SuccessRule:
        if self.indexes is None and self.count is None:
            raise ValueError("needs `indexes`, `count` or both")
        return self


class KubernetesJob(Model):
    """The Job of a role; what is left out has the default of a JobSet's Job."""

    restart: PodRestart = "on-failure"
    """`restartPolicy` of its Pods: `on-failure` starts a container again in its Pod, with `never`
    the Job makes a new Pod."""
    backoff_limit: Count | None = Field(None, examples=[0])
    """Failures after which the Job fails: restarts of containers with `on-failure`, and failed
    Pods; default: 6, and without limit beside `backoff_limit_per_index`."""
    backoff_limit_per_index: Count | None = Field(None, examples=[1])
    """Failed Pods of an index after which that index has failed; the others go on."""
    max_failed_indexes: Count | None = Field(None, examples=[1])
    """Failed indexes above which the Job fails at once."""
    active_deadline: Duration | None = Field(None, gt=0, examples=["1h"])
    """The time from the start of the Job after which it fails."""
    pod_failure: Annotated[list[PodFailureRule], Field(max_length=20)] = []
    """`podFailurePolicy`: the first rule that is about a failed Pod counts."""
    pod_replacement: PodReplacement | None = None
    """When a deleted Pod has failed: as it is deleted (`terminating-or-failed`, the default), or
    once it has ended, and not with exit code 0 (`failed`, the default with `pod_failure`)."""
    success: Annotated[list[SuccessRule], Field(max_length=20)] = []
    """`successPolicy`: default: every index."""

    @property
    def limit(self) -> int:
        """The failures above which the Job fails."""
        if self.backoff_limit is not None:
            return self.backoff_limit
        return BACKOFF_LIMIT if self.backoff_limit_per_index is None else NO_LIMIT

    @property
    def counts_deleted(self) -> bool:
        """Whether a Pod has failed as soon as it is deleted."""
        default = "failed" if self.pod_failure else "terminating-or-failed"
        return (self.pod_replacement or default) == "terminating-or-failed"


class FailureRule(Model):
    """A rule of a JobSet's `failurePolicy`: what follows where a Job has failed in this way."""

    action: FailureAction
    """`fail-jobset`, `restart-jobset`, or a restart that does not count."""
    reasons: Annotated[list[Reason], Field(max_length=20, examples=[["PodFailurePolicy"]])] = []
    """Why the Job has failed; default: whatever the reason."""
    messages: Annotated[
        list[Annotated[str, AfterValidator(_pattern)]],
        Field(max_length=20, examples=[["DisruptionTarget"]]),
    ] = []
    """Regular expressions, one of which the Job's message has to match; default: any message."""
    jobs: Names = Field([], examples=[["worker"]])
    """The roles that it is about; default: all."""


class FailurePolicy(Model):
    """`failurePolicy` of a JobSet."""

    max_restarts: Count = Field(0, examples=[3])
    """Restarts of all Jobs together, after which the JobSet fails."""
    rules: Annotated[list[FailureRule], Field(max_length=20)] = []
    """The first rule that is about a failed Job counts; without one, the JobSet restarts."""


class SuccessPolicy(Model):
    """`successPolicy` of a JobSet."""

    operator: Literal["all", "any"] = "all"
    """Whether all Jobs have to complete, or one of them."""
    jobs: Names = Field([], examples=[["worker"]])
    """The roles that count; default: all."""


class JobSet(Model):
    """The job as a JobSet of Kubernetes, or as a single indexed Job, runs it."""

    jobs: dict[str, KubernetesJob] = Field({}, examples=[{"worker": {"restart": "never"}}])
    """The Job of each role; default: that of a JobSet, with all its defaults."""
    failure: FailurePolicy | None = None
    """What follows from a failed Job; default: the JobSet fails."""
    success: SuccessPolicy = SuccessPolicy()
    """When the JobSet is done."""
    active_deadline: Duration | None = Field(None, gt=0, examples=["1h"])
    """The time from the start of the run after which a TrainJob fails."""

    def job(self, role: str) -> KubernetesJob:
        """Return the Job of a role."""
        return self.jobs.get(role) or KubernetesJob()

    # --- What the rest asks of it: see `AnyRules` of emulator/scenario/extension.py --------------

    @property
    def strategy(self) -> str:
        """The name of what follows from the events of the job, among what the extension adds."""
        return "jobset-strategy"

    def policy_of(self, role: str) -> RestartPolicy:
        """Return whether the tasks of a role are started again: in their Pods, or as new ones."""
        restarts = self.job(role).limit > 0 or self.failure is not None
        return "on-failure" if restarts else "never"

    def errors(self, scenario: Scenario) -> Iterator[Error]:
        """Yield each mistake: its path, what is wrong, and what to write instead."""
        yield from _check_other_sections(scenario)
        for path, roles in self._named():
            for role in roles:
                if role not in scenario.cluster:
                    known = [*scenario.cluster]
                    hint = closest(role, known) or f"roles: {', '.join(known[:8])}"
                    yield ("jobset", *path), f"{role} is not a role of the cluster", hint
        for role, job in self.jobs.items():
            for key, message, hint in _check_job(job):
                yield ("jobset", "jobs", role, key), message, hint

    def _named(self) -> Iterator[tuple[KeyPath, Sequence[str]]]:
        yield ("jobs",), [*self.jobs]
        yield ("success", "jobs"), self.success.jobs
        for number, rule in enumerate(self.failure.rules if self.failure else ()):
            yield ("failure", "rules", number, "jobs"), rule.jobs

    def rules(self, roles: Sequence[str]) -> Iterator[str]:
        """Yield what decides the end of the job."""
        for role in roles:
            job = self.job(role)
            limit = "no limit" if job.limit == NO_LIMIT else f"backoffLimit {job.limit}"
            if job.backoff_limit_per_index is not None:
                limit += f", {job.backoff_limit_per_index} per index"
            rules = format_count(len(job.pod_failure), "rule")
            policy = f"; {rules} for failed Pods" if job.pod_failure else ""
            yield f"Job {role}: restartPolicy {job.restart}, {limit}{policy}"
            if job.active_deadline is not None:
                yield f"  deadline: {format_duration(job.active_deadline)}"
        yield f"a failed Job: {_in_words(self.failure)}"
        which = f"of {', '.join(self.success.jobs)}" if self.success.jobs else "Jobs"
        yield f"success: {self.success.operator} {which}"
        if self.active_deadline is not None:
            yield f"deadline: {format_duration(self.active_deadline)}"


def _in_words(failure: FailurePolicy | None) -> str:
    if failure is None:
        return "the JobSet fails"
    rules = format_count(len(failure.rules), "rule")
    after = f", unless {rules} decide otherwise" if failure.rules else ""
    return f"all start again, at most {format_count(failure.max_restarts, 'time')}{after}"


# --- Mistakes: pkg/apis/batch/validation of Kubernetes -------------------------------------------

OF_RESTART = {
    "policy": "`jobset.jobs.ROLE.restart`",
    "scope": "`jobset.failure`, with which all tasks restart",
    "limit": "`jobset.jobs.ROLE.backoff_limit`, or `jobset.failure.max_restarts`",
}
"""Keys of `restart` for which a JobSet has its own, and what to write."""


def _check_other_sections(scenario: Scenario) -> Iterator[Error]:
    message = "can't be set beside `jobset`, which has its own rule"
    given = scenario.restart.model_fields_set if "restart" in scenario.model_fields_set else set()
    for key, instead in OF_RESTART.items():
        if key in given:
            yield ("restart", key), message, f"instead: {instead}"
    if "success" in scenario.model_fields_set:
        yield ("success",), message, "instead: `jobset.success`"
    for key in ("operator", "slurm"):
        if getattr(scenario, key):
            yield (key,), message, f"a job is one or the other: leave `{key}` or `jobset` out"


def _check_job(job: KubernetesJob) -> Iterator[tuple[str, str, str]]:
    """Yield what the API server refuses in a Job."""
    for key in ("pod_failure", "backoff_limit_per_index"):
        if getattr(job, key) not in (None, []) and job.restart != "never":
            yield key, "needs new Pods", "write `restart: never`"
    needs_limit = ["max_failed_indexes"] if job.max_failed_indexes is not None else []
    if any(rule.action == "fail-index" for rule in job.pod_failure):
        needs_limit.append("pod_failure")
    for key in needs_limit if job.backoff_limit_per_index is None else ():
        yield key, "needs a limit for each index", "write `backoff_limit_per_index: 0`, or more"
    if job.pod_failure and job.counts_deleted:
        message = "a Job with `pod_failure` only replaces Pods that have ended"
        yield "pod_replacement", message, "write `failed`, or leave it out"
