"""What the cluster itself says of a run's Pods: scheduled, pulled, preempted, node not ready.

Events of a namespace can be selected by the kind of object only, not by our labels: so those of
other Pods come as well and are dropped. They are best effort in Kubernetes: nothing is decided by
them, and a run does without where they may not be read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from emulator.engines.kubernetes import names
from emulator.engines.kubernetes.status import condition_of, disruption_of, seconds
from emulator.engines.kubernetes.watching import Kind, Object, Watcher
from emulator.errors import shown
from emulator.record.events import EngineNote

if TYPE_CHECKING:
    from emulator.engines.base import Inbox
    from emulator.engines.kubernetes.connection import ApiServer

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
        from emulator.engines.kubernetes.connection import ApiError

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
