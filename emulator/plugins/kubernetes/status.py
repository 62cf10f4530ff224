"""What a Pod's status says of one of its containers (pure).

A task is one Pod, and its program the container `main`. Its state is `Waiting`, `Running` or
`Ended`; the reasons are those of the scheduler and of the kubelet, which are worth more to a user
than any text of ours. Stamps of a status are whole seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from emulator.plugins.kubernetes.names import MAIN

KILLED = 137
"""Exit code of a program that was ended with its Pod, before anyone could ask for its own."""

ASKED_TO_END = 143
"""Exit code of a program that ended after SIGTERM, where the kubelet has lost its own."""

_UNKNOWN = "ContainerStatusUnknown"
"""What kubelets before 1.22 say, with 137, of a container that they removed before they looked how
it ended: now and then, where a Pod is deleted."""
_NO_GRACE = 2
"""Seconds that a kubelet gives at the least, whatever was asked for."""
_NEVER_RUNS = frozenset(
    {
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "RunContainerError",
    }
)
"""Reasons of a waiting container that the kubelet repeats until someone changes something."""
NEVER_RAN = frozenset({"ContainerCannotRun", "StartError"})
"""Reasons of an end, in Docker's words and in containerd's: the runtime could not start it."""
_MAY_PASS = re.compile(r"timed out|failed to sync", re.IGNORECASE)
"""What the kubelet says with such a reason while it has not read a ConfigMap or Secret yet."""
_NO_REASON = frozenset({"", "Completed", "Error"})
"""Reasons of an end that say no more than the exit code."""
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff")
_NO_SUCH_IMAGE = re.compile(
    r"not found|manifest unknown|does not exist|unauthorized|denied|forbidden|invalid reference"
    r"|no match for platform|authentication required|no basic auth credentials",
    re.IGNORECASE,
)
"""Answers of registries that no second attempt changes. Others, such as a timeout, may pass."""


@dataclass(frozen=True)
class Waiting:
    """The container has not started yet."""

    reason: str
    """`Unschedulable`, `ContainerCreating`, `ErrImagePull`, …; empty: nobody has looked at it."""
    message: str = ""
    """What the scheduler, the kubelet or the registry says."""
    is_final: bool = False
    """Whether waiting longer is of no use."""


@dataclass(frozen=True)
class Running:
    """The container runs."""

    since: float
    """Seconds since 1970, whole, by the node's clock."""


@dataclass(frozen=True)
class Ended:
    """The container has ended, or never will run because an init step before it has failed."""

    exit_code: int
    """128 + the signal's number where a signal ended it."""
    oom_killed: bool
    reason: str
    """`OOMKilled`, `Evicted`, `PreemptionByScheduler`, …; empty if the exit code says it all."""
    wall: float
    """Seconds since 1970, whole, by the node's clock: the end was within the second after it."""
    message: str = ""
    """What the cluster says of it."""
    container: str = MAIN
    """Which container ended; an init step's name if that has failed."""
    is_reported: bool = True
    """Whether the kubelet reported the end; if not, it follows from that of the Pod, which may
    come before that of its containers."""

    @property
    def never_ran(self) -> bool:
        """Whether the program was not started at all: it is not in the image, say."""
        return self.reason in NEVER_RAN


State = Waiting | Running | Ended


def state_of(
    pod: Mapping[str, Any], container: str = MAIN, *, before: State | None = None
) -> State:
    """Return the state of one container of a Pod.

    `before` is its last known state: a kubelet that waits before it pulls an image again no longer
    says why the last attempt failed.
    """
    status = pod.get("status") or {}
    own = _status_of(status, container)
    state = (own or {}).get("state") or {}
    if (end := state.get("terminated")) is not None:
        return _ended(pod, container, end)
    if (running := state.get("running")) is not None and status.get("phase") not in _OVER:
        return Running(_seconds(running.get("startedAt")) or _created(pod))
    if (failed := _failed_step(status, container)) is not None:
        return _ended(pod, *failed)
    if status.get("phase") in _OVER:
        last = ((own or {}).get("lastState") or {}).get("terminated")
        if last is not None:  # a kubelet that no longer finds the container
            return replace(_ended(pod, container, last), is_reported=False)
        return _ended_without_container(pod, was_made=own is not None)
    return _waiting(status, state.get("waiting") or {}, before)


def removed(pod: Mapping[str, Any], container: str = MAIN) -> Ended:
    """Return how a container ended whose Pod is gone; `pod` is the last that was seen of it.

    Where its end was never reported, as of a lost node, it counts as killed.
    """
    state = state_of(pod, container)
    if isinstance(state, Ended):
        return state
    deleted = _seconds((pod.get("metadata") or {}).get("deletionTimestamp"))
    reason, message = _reason(pod, "")
    wall = deleted or _last_change(pod)
    return Ended(KILLED, False, reason, wall, message, container, is_reported=False)


def is_over(pod: Mapping[str, Any]) -> bool:
    """Say whether no container of a Pod runs or will run any more.

    One that was never on a node has none.
    """
    status = pod.get("status") or {}
    if status.get("phase") in _OVER or not pod["spec"].get("nodeName"):
        return True
    states = [one.get("state") or {} for one in _statuses(status)]
    return bool(states) and not any("running" in one or "waiting" in one for one in states)


def seconds(stamp: str) -> float:
    """Return the seconds since 1970 of an RFC 3339 stamp."""
    return datetime.fromisoformat(stamp).timestamp()


_OVER = ("Succeeded", "Failed")


def _status_of(status: Mapping[str, Any], container: str) -> Mapping[str, Any] | None:
    return next((one for one in _statuses(status) if one.get("name") == container), None)


def _statuses(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        yield from status.get(kind) or ()


def _failed_step(status: Mapping[str, Any], container: str) -> tuple[str, Mapping[str, Any]] | None:
    """Return the init step that has failed, if a container waits for it; no one repeats it."""
    for step in status.get("initContainerStatuses") or ():
        if step.get("name") == container:
            return None
        end = (step.get("state") or {}).get("terminated")
        if end is not None and end.get("exitCode") != 0:
            return str(step["name"]), end
    return None


def _ended(pod: Mapping[str, Any], container: str, end: Mapping[str, Any]) -> Ended:
    code, number = int(end.get("exitCode", KILLED)), int(end.get("signal") or 0)
    told = str(end.get("reason") or "")
    if told == _UNKNOWN and _ended_in_grace(pod):
        code = ASKED_TO_END
    reason, message = _reason(pod, told)
    return Ended(
        exit_code=128 + number if number and not code else code,
        oom_killed=told == "OOMKilled",
        reason=reason,
        wall=_seconds(end.get("finishedAt")) or _last_change(pod),
        message=str(end.get("message") or "") or message,
        container=container,
    )


def _ended_in_grace(pod: Mapping[str, Any]) -> bool:
    """Say whether a deleted Pod was seen to have ended before its grace period was over."""
    metadata = pod.get("metadata") or {}
    grace = int(metadata.get("deletionGracePeriodSeconds") or 0)
    return grace > _NO_GRACE and _last_change(pod) < _seconds(metadata.get("deletionTimestamp"))


def _ended_without_container(pod: Mapping[str, Any], *, was_made: bool) -> State:
    """Return the state of a container in a Pod that is over without a word about its end.

    A kubelet may refuse a Pod that it got (`OutOfcpu`, `NodeAffinity`): it never ran.
    """
    status = pod.get("status") or {}
    reason, message = _reason(pod, "")
    if not was_made and not status.get("podIP") and reason not in ("Evicted", "DeadlineExceeded"):
        return Waiting(reason or str(status["phase"]), message, is_final=True)
    code = 0 if status["phase"] == "Succeeded" else KILLED
    return Ended(code, False, reason, _last_change(pod), message, is_reported=False)


def _reason(pod: Mapping[str, Any], told: str) -> tuple[str, str]:
    """Return why a container ended, the most telling reason first, and what was said of it.

    `told` is the container's own.
    """
    status = pod.get("status") or {}
    if told == "OOMKilled":
        return told, ""
    if status.get("reason"):  # Evicted, DeadlineExceeded, NodeLost, Preempting, Terminated, …
        return str(status["reason"]), str(status.get("message") or "")
    if disruption := disruption_of(pod):
        return disruption
    return ("" if told in _NO_REASON else told), ""


def disruption_of(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return reason and message of the condition `DisruptionTarget`, if a Pod has it.

    Since Kubernetes 1.26: it is about to be ended by the scheduler, an eviction, a taint or the
    kubelet.
    """
    condition = condition_of(pod, "DisruptionTarget")
    if condition is None or condition.get("status") != "True":
        return None
    return str(condition.get("reason") or ""), str(condition.get("message") or "")


def condition_of(pod: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return a condition of a Pod, if its status has one of that kind."""
    return _condition(pod.get("status") or {}, kind)


def _waiting(
    status: Mapping[str, Any], waiting: Mapping[str, Any], before: State | None
) -> Waiting:
    scheduled = _condition(status, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return Waiting(str(scheduled.get("reason") or ""), str(scheduled.get("message") or ""))
    if step := _waiting_step(status):  # the main container only waits for it
        waiting = step
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    told_before = isinstance(before, Waiting) and before.reason in _NO_IMAGE
    if reason == "ImagePullBackOff" and told_before and "ErrImagePull" not in message:
        assert isinstance(before, Waiting)
        return replace(before, reason=reason)
    is_final = (reason in _NEVER_RUNS and not _MAY_PASS.search(message)) or (
        reason in _NO_IMAGE and bool(_NO_SUCH_IMAGE.search(message))
    )
    return Waiting(reason, message, is_final)


def _waiting_step(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return why the first init step that has not ended waits, or that it runs."""
    for step in status.get("initContainerStatuses") or ():
        state = step.get("state") or {}
        if (waiting := state.get("waiting")) and waiting.get("reason") != "PodInitializing":
            return dict(waiting)
        if "running" in state:
            return {"reason": "PodInitializing", "message": f"the init step {step['name']} runs"}
    return None


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    return next((one for one in status.get("conditions") or () if one.get("type") == kind), None)


def _created(pod: Mapping[str, Any]) -> float:
    return _seconds((pod.get("metadata") or {}).get("creationTimestamp"))


def _last_change(pod: Mapping[str, Any]) -> float:
    """Return when a Pod's conditions changed last: the kubelet's stamp nearest to an end."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    changes = [_seconds(one.get("lastTransitionTime")) for one in conditions]
    return max([*changes, _created(pod)])


def _seconds(stamp: str | None) -> float:
    """Return the seconds since 1970; 0 if it is not known: a kubelet may say 0001 or 1970."""
    return max(0.0, seconds(stamp)) if stamp else 0.0
