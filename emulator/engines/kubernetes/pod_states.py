"""The Pods of a run as the watch last told of them, and waiting for what becomes of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator.engines.kubernetes import names
from emulator.engines.kubernetes.names import MAIN
from emulator.engines.kubernetes.status import Ended, Running, State, Waiting, removed, state_of
from emulator.engines.kubernetes.watching import Kind, Watched


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
