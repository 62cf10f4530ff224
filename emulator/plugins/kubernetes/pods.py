"""What the cluster tells of the Pods of a run: how they are, and what it says of them.

One watch tells of the Pods, and one wait is for what becomes of one. Another tells of events:
scheduled, pulled, preempted, node not ready. Those of a namespace can be selected by the kind of
object only, not by our labels: so those of other Pods come as well and are dropped. They are best
effort in Kubernetes: nothing is decided by them, and a run does without where they may not be read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from emulator.errors import shown
from emulator.plugins.kubernetes import names
from emulator.plugins.kubernetes.connection import ApiError, ApiServer
from emulator.plugins.kubernetes.names import MAIN
from emulator.plugins.kubernetes.status import (
    Ended,
    Running,
    State,
    Waiting,
    condition_of,
    disruption_of,
    removed,
    seconds,
    state_of,
)
from emulator.plugins.kubernetes.watching import Kind, Object, Watched, Watcher
from emulator.record.events import EngineNote

if TYPE_CHECKING:
    from emulator.engines.base import Inbox


@dataclass
class Pod:
    """One Pod: one start of a task. What it is changes as the watch tells of it."""

    uid: str
    name: str
    task: str
    seen: Mapping[str, Any]
    """As it was told of last."""
    states: dict[str, State] = field(default_factory=dict)
    """Of its containers."""
    is_gone: bool = False
    """Its object no longer exists."""
    is_deleted: bool = False
    """It is being deleted, by whomever."""

    @property
    def state(self) -> State:
        """That of the task's own program."""
        return self.states.get(MAIN, Waiting(""))

    @property
    def runs(self) -> bool:
        """Whether the task's own program runs."""
        return isinstance(self.state, Running) and not self.is_gone

    def is_initialising(self, ours: frozenset[str]) -> bool:
        """Say whether an init step runs, other than `ours`: it may take as long as it likes."""
        steps = (self.seen.get("status") or {}).get("initContainerStatuses") or ()
        return any(
            "running" in (one.get("state") or {}) and one["name"] not in ours for one in steps
        )


class PodStates(Watched):
    """The Pods of one run; also those that are gone, until they are forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self._pods: dict[str, Pod] = {}
        """By unique id."""
        self._current: dict[str, str] = {}
        """Task -> unique id of its last Pod that was not removed by us."""

    def told(self, kind: Kind, seen: Mapping[str, Any]) -> None:
        """Take what the watch, or the answer to a request, says of a Pod."""
        metadata = seen["metadata"]
        task = (metadata.get("annotations") or {}).get(names.TASK)
        if not task:
            return  # such as what cleans a node up
        with self._changed:
            pod = self._pods.get(metadata["uid"])
            if pod is None:
                if kind == "DELETED":
                    return
                pod = Pod(metadata["uid"], metadata["name"], task, seen)
                self._pods[pod.uid] = pod
            if not pod.is_gone:
                self._update(pod, kind, seen)
            self._changed.notify_all()

    def seen(self, uid: str) -> Mapping[str, Any] | None:
        """Return a Pod as it was told of last; None: it is gone."""
        pod = self._pods.get(uid)
        return None if pod is None or pod.is_gone else pod.seen

    def _update(self, pod: Pod, kind: Kind, seen: Mapping[str, Any]) -> None:
        pod.seen = seen
        pod.is_gone = kind == "DELETED"
        pod.is_deleted |= pod.is_gone or "deletionTimestamp" in seen["metadata"]
        for container in _containers(seen):
            before = pod.states.get(container)
            if isinstance(before, Ended):
                continue
            after: State = state_of(seen, container, before=before)
            if pod.is_gone and not isinstance(after, Ended) and isinstance(before, Running):
                after = removed(seen, container)
            pod.states[container] = after

    def created(self, task: str, made: Mapping[str, Any]) -> Pod:
        """Take the answer to the request that made a task's Pod; the watch may be ahead of it."""
        uid = made["metadata"]["uid"]
        if uid not in self._pods:
            self.told("ADDED", made)
        with self._changed:
            self._current[task] = uid
            return self._pods[uid]

    def adopt(self, pod: Pod) -> None:
        """Take a Pod that another supervisor has made as that of its task's last start."""
        with self._changed:
            self._current[pod.task] = pod.uid

    def pod_of(self, task: str) -> Pod | None:
        """Return the Pod of a task's last start, unless it was removed by us."""
        with self._changed:
            uid = self._current.get(task)
            return None if uid is None else self._pods[uid]

    def all(self) -> list[Pod]:
        """Return every Pod that was told of and is not forgotten."""
        with self._changed:
            return list(self._pods.values())

    def forget(self, pod: Pod) -> None:
        """Forget a Pod that is gone."""
        with self._changed:
            self._pods.pop(pod.uid, None)
            if self._current.get(pod.task) == pod.uid:
                del self._current[pod.task]


def _containers(seen: Mapping[str, Any]) -> Iterator[str]:
    """Yield the containers of a Pod in which something of the scenario runs."""
    spec = seen["spec"]
    for one in (*(spec.get("initContainers") or ()), *spec["containers"]):
        yield one["name"]


# --- What the cluster says of Pods ----------------------------------------------------------------

LONGEST = 1000
"""Characters of a message that are kept."""
DISRUPTION = "DisruptionTarget"
_DULL = frozenset({"Created", "Started"})
"""What the start of a task says as well."""
_DULL_MESSAGES = ("already present on machine", "skip schedule deleting pod")


def note_of(event: Object, task: str) -> EngineNote | None:
    """Return what an event says of a task; None if that is no news (pure)."""
    reason, message = str(event.get("reason") or ""), str(event.get("message") or "")
    if reason in _DULL or any(dull in message for dull in _DULL_MESSAGES):
        return None
    said = shown(message, LONGEST)
    return EngineNote(task=task, reason=reason, message=said, stamp=_wall(event))


def disruption_note(pod: Object, task: str) -> EngineNote | None:
    """Return that a Pod is about to be ended, and why, if its status says so (pure).

    Kubernetes 1.26 and later.
    """
    condition, said = condition_of(pod, DISRUPTION), disruption_of(pod)
    if condition is None or said is None:
        return None
    message = ": ".join(one for one in said if one)
    wall = condition.get("lastTransitionTime")
    stamp, message = seconds(wall) if wall else 0.0, shown(message, LONGEST)
    return EngineNote(task=task, reason=DISRUPTION, message=message, stamp=stamp)


def _wall(event: Object) -> float:
    """Return when an event happened last; newer ones have microseconds, others whole seconds."""
    series: Mapping[str, Any] = event.get("series") or {}
    stamps = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return next((seconds(stamp) for stamp in stamps if stamp), 0.0)


class Notes:
    """Reports what the cluster says of the Pods of one run, each text about a Pod once."""

    def __init__(
        self, cluster: ApiServer, task_of: Callable[[str], str | None], inbox: Inbox
    ) -> None:
        """`task_of` returns the task of a Pod by its name, None if it is not the run's."""
        self._task_of, self._inbox = task_of, inbox
        self._watcher = Watcher(
            cluster,
            cluster.namespaced("events"),
            "",
            self._told,
            self._failed,
            fields="involvedObject.kind=Pod",
            keep=lambda event: {},
        )
        self._lock = threading.Lock()
        self._is_new = False
        """Whether what is reported happened since the start."""
        self._said = set[tuple[str, str, str]]()
        """Unique id of a Pod, reason and message."""
        self._warnings: dict[str, str] = {}
        """The last warning about a Pod, by its unique id."""
        self.error = ""
        """Why nothing more is reported; empty: it is."""

    def start(self) -> None:
        """Report what is said from now on, unless we may not read that."""
        try:
            self._watcher.start()
        except ApiError as error:
            self._failed(error)
        self._is_new = True

    def look_at(self, pod: Object) -> None:
        """Take a Pod's status: it may say why the Pod is about to be ended."""
        metadata = pod["metadata"]
        task = (metadata.get("annotations") or {}).get(names.TASK)
        if task and (note := disruption_note(pod, task)):
            self._report(metadata["uid"], note)

    def warning(self, uid: str) -> str:
        """Return the last warning about a Pod, such as why a volume can't be mounted."""
        with self._lock:
            return self._warnings.get(uid, "")

    def close(self) -> None:
        """Report nothing more."""
        self._watcher.close()

    def _failed(self, error: Exception) -> None:
        self.error = str(error)  # that of the Pods decides whether the run goes on

    def _told(self, kind: Kind, event: Object) -> None:
        if kind == "DELETED":
            return  # it has expired
        about = event.get("involvedObject") or {}
        task = self._task_of(str(about.get("name") or ""))
        note = None if task is None else note_of(event, task)
        if note is None:
            return
        uid = str(about.get("uid") or "")
        if event.get("type") == "Warning":
            with self._lock:
                self._warnings[uid] = note.message
        self._report(uid, note)

    def _report(self, uid: str, note: EngineNote) -> None:
        key = uid, note.reason, note.message
        with self._lock:
            if key in self._said:
                return
            self._said.add(key)
        if self._is_new:
            self._inbox.put(note)
