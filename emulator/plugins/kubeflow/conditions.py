"""The conditions of a job of Kubeflow's training operator, from its history alone (pure).

Source: kubeflow/training-operator v1.9.0, pkg/util/status.go (how conditions replace one another),
ReconcileJobs of pkg/controller.v1/common and UpdateJobStatus of both controllers (when they are
set).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from emulator.plugins.kubeflow.section import LEADERS, Operator, operator_of
from emulator.record.events import (
    Entry,
    JobEnded,
    Restart,
    RunStarted,
    TaskExit,
    TaskRunning,
    TaskStart,
)
from emulator.record.timeline import Timeline
from emulator.scenario.frameworks.spec import WORKER, role_of

ConditionType = Literal["Created", "Running", "Restarting", "Succeeded", "Failed"]
LISTED = 200
"""Changes of conditions that a summary lists: the first and the last."""


@dataclass(frozen=True)
class Condition:
    """One condition, as it was set."""

    type: ConditionType
    status: Literal["True", "False"]
    reason: str
    """The kind of the job and what happened: `TFJobRestarting`."""
    message: str
    t: float
    """Seconds since the run began."""


def changes(timeline: Timeline) -> Sequence[Condition]:
    """Return every condition that was set, in order; none without `operator`."""
    operator = operator_of(timeline.plan.scenario)
    return () if operator is None else tuple(_changes(timeline, operator))


def present(changes: Sequence[Condition]) -> Sequence[Condition]:
    """Return the conditions as `kubectl get -o yaml` shows them after some changes."""
    status: list[Condition] = []
    for change in changes:
        status = _with(status, change)
    return status


def conditions_of_job(timeline: Timeline) -> list[dict[str, Any]]:
    """Return what `summary.json` has of a job; nothing without `operator`."""
    return as_data(changes(timeline))


def as_data(changes: Sequence[Condition]) -> list[dict[str, Any]]:
    """Return what `summary.json` has of the changes."""
    half = LISTED // 2
    shown = [*changes[:half], *changes[half:][-half:]]
    return [{**asdict(one), "t": round(one.t, 6)} for one in shown]


def _with(status: Sequence[Condition], new: Condition) -> list[Condition]:
    """Return the conditions with one more: Running and Restarting replace one another."""
    others = {"Running": "Restarting", "Restarting": "Running"}
    kept = [one for one in status if one.type not in (new.type, others.get(new.type))]
    if new.type in ("Succeeded", "Failed"):
        kept = [replace(one, status="False") if one.type == "Running" else one for one in kept]
    return [*kept, new]


def _changes(timeline: Timeline, operator: Operator) -> Iterator[Condition]:
    """Yield what changes the status; a condition that says the same again does not."""
    status: list[Condition] = []
    for new in _Pods(timeline, operator).set_conditions():
        if not any((one.type, one.status) == (new.type, new.status) for one in status):
            status = _with(status, new)
            yield new


class _Pods:
    """The pods of a job over time: they say which condition is set when."""

    def __init__(self, timeline: Timeline, operator: Operator) -> None:
        self._history, self._operator = timeline.history, operator
        roles = timeline.plan.scenario.cluster
        self._deciding = [role for role in LEADERS if role in roles] or [WORKER]
        self._running: set[str] = set()
        """Pods that run; the container of one may wait to be restarted in it."""
        self._replaced: set[str] = set()
        """Pods that failed and are made again."""

    def set_conditions(self) -> Iterator[Condition]:
        for entry in self._history:
            yield from self._at(entry)
            if isinstance(entry, JobEnded):
                return  # nothing changes a job that has ended

    def _at(self, entry: Entry) -> Iterator[Condition]:
        name = f"{self._operator.namespace}/{self._operator.job}"
        match entry:
            case RunStarted():
                yield self._condition("Created", f"{name} was made", entry.t)
            case JobEnded(outcome="succeeded"):
                yield self._condition("Succeeded", f"{name} succeeded: {entry.reason}", entry.t)
            case JobEnded(outcome="failed") if entry.cause != "stuck":
                yield self._condition("Failed", f"{name} failed: {entry.reason}", entry.t)
            case _:
                yield from self._pod_conditions(entry)

    def _pod_conditions(self, entry: Entry) -> Iterator[Condition]:
        task, policy = entry.task, self._operator.policy_of(role_of(entry.task))
        match entry:
            case TaskStart():
                self._replaced.discard(task)
                yield from self._if_running(entry.t)
            case TaskRunning():
                self._running.add(task)
                yield from self._if_running(entry.t)
            case TaskExit() if entry.fault:
                yield self._restarting(task, entry.t)
            case TaskExit() if policy in ("never", "exit-code") or not (
                entry.exit_code or policy == "always"
            ):
                self._running.discard(task)
            case Restart() if policy == "exit-code":
                yield self._restarting(task, entry.t)

    def _restarting(self, task: str, t: float) -> Condition:
        self._running.discard(task)
        self._replaced.add(task)
        message = f"{self._operator.pod(role_of(task), int(task.rpartition('-')[2]))} is made again"
        return self._condition("Restarting", message, t)

    def _if_running(self, t: float) -> Iterator[Condition]:
        """Yield Running, unless a pod is to be made again: then Restarting stays."""
        first = next((one for one in sorted(self._running) if self._decides(one)), "")
        if first and not self._replaced:
            role, _, index = first.rpartition("-")
            message = f"{self._operator.pod(role, int(index))} runs"
            yield self._condition("Running", message, t)

    def _decides(self, task: str) -> bool:
        return role_of(task) in self._deciding

    def _condition(self, kind: ConditionType, message: str, t: float) -> Condition:
        return Condition(kind, "True", f"{self._operator.kind}{kind}", message, t)
