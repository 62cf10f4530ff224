"""What runs have made on a cluster: found by its labels, and removed until nothing is left."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulator.engines.base import Resource
from emulator.engines.kubernetes import names
from emulator.engines.kubernetes.connection import ApiError, has_made, ignoring_missing
from emulator.engines.kubernetes.shared import cleaner, folder_of, node_of
from emulator.engines.kubernetes.watching import Watcher
from emulator.errors import EngineError

if TYPE_CHECKING:
    from emulator.engines.kubernetes.connection import Cluster
    from emulator.engines.kubernetes.watching import Kind

Data = Mapping[str, Any]

KINDS = ("pods", "configmaps", "persistentvolumeclaims", "services")
"""In the order of removal: the Service says what else a run has left."""
WORDS = {
    "pods": "pod",
    "configmaps": "config map",
    "persistentvolumeclaims": "volume claim",
    "services": "service",
}
NO_GRACE = 1
"""Seconds, the least that a kubelet takes: it still says how the containers have ended."""
ENDS_WITHIN = 15.0
"""Seconds after which the object of a Pod is removed whose node has not ended it."""
GONE_WITHIN = 60.0
"""Seconds that the cluster has to remove the objects."""
CLEANS_WITHIN = 60.0
"""Seconds for the Pod that removes a run's folder from a node."""
PARALLEL = 16


@dataclass(frozen=True)
class Found:
    """An object with our label."""

    kind: str
    data: Data

    @property
    def name(self) -> str:
        """Its name in its namespace."""
        return str(self.data["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Where it is."""
        return str(self.data["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """Which no other object ever has."""
        return str(self.data["metadata"]["uid"])

    @property
    def path(self) -> str:
        """Of it in the API."""
        return f"/api/v1/namespaces/{self.namespace}/{self.kind}/{self.name}"

    def resource(self) -> Resource:
        """Return it in the words of all engines."""
        metadata = self.data["metadata"]
        notes, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        run = notes.get(names.RUN, "")
        return Resource(
            # The label is what it is removed by.
            run_id=run if names.label(run) == labels[names.RUN] else labels[names.RUN],
            kind=WORDS[self.kind],
            name=f"{self.namespace}/{self.name}",
            state=str((self.data.get("status") or {}).get("phase", "")).lower(),
            folder=notes.get(names.FOLDER, ""),
            host=notes.get(names.HOST, ""),
        )


def find(cluster: Cluster, run_id: str | None, *, everywhere: bool) -> list[Found]:
    """Return what a run has made, or all runs have.

    `everywhere`: in all namespaces, if we may look at them. Raises EngineError.
    """
    selector = names.selector(run_id)
    with ThreadPoolExecutor(len(KINDS)) as pool:
        lists = pool.map(lambda kind: _list(cluster, kind, selector, everywhere), KINDS)
        return [Found(kind, one) for kind, found in zip(KINDS, lists, strict=True) for one in found]


def _list(cluster: Cluster, kind: str, selector: str, everywhere: bool) -> Iterable[Data]:
    if everywhere:
        try:
            return _items(cluster, f"/api/v1/{kind}", selector)
        except ApiError as error:
            if error.status != 403:
                raise
    return _items(cluster, cluster.namespaced(kind), selector)


def _items(cluster: Cluster, path: str, selector: str) -> list[Data]:
    found: list[Data] = []
    more = ""
    while True:
        query = {"continue": more} if more else {}
        page = cluster.get(path, labelSelector=selector, limit=500, **query)
        found += page.get("items") or ()
        more = (page.get("metadata") or {}).get("continue", "")
        if not more:
            return found


def tear_down(cluster: Cluster, run_id: str, *, everywhere: bool) -> int:
    """Remove everything of a run, and wait until it is gone; return how many objects that were.

    Raises EngineError.
    """
    found = find(cluster, run_id, everywhere=everywhere)
    for namespace in sorted({one.namespace for one in found}):
        here = [one for one in found if one.namespace == namespace]
        _tear_down(cluster, namespace, names.selector(run_id), here)
    return len(found)


def _tear_down(cluster: Cluster, namespace: str, selector: str, found: Sequence[Found]) -> None:
    by_kind = {kind: [one for one in found if one.kind == kind] for kind in KINDS}
    if by_kind["pods"]:
        with _Gone(cluster, namespace, "pods", selector) as gone:
            remove_pods(cluster, gone, by_kind["pods"])
    others = [*by_kind["configmaps"], *by_kind["persistentvolumeclaims"]]
    _each(others, lambda one: delete(cluster, one))
    for service in by_kind["services"]:
        clean_node(cluster, service.data)
        delete(cluster, service)
    if claims := by_kind["persistentvolumeclaims"]:
        # The cluster removes them only when no Pod has them any more.
        with _Gone(cluster, namespace, "persistentvolumeclaims", selector) as gone:
            gone.wait_for([one.uid for one in claims], GONE_WITHIN)


def remove_pods(cluster: Cluster, gone: _Gone, pods: Sequence[Found]) -> None:
    """Delete Pods without grace, and wait until they are gone. Raises EngineError.

    A kubelet removes the object of a Pod only some time after it has ended it: old ones take up to
    a minute. Where it says that the containers have ended, the object is removed at once.
    """
    _each(pods, lambda one: delete(cluster, one, NO_GRACE))
    left, patient_until = {one.uid: one for one in pods}, time.monotonic() + ENDS_WITHIN

    def over() -> list[Found]:
        late = time.monotonic() >= patient_until
        return [one for uid, one in left.items() if late or gone.is_over(uid)]

    while left:
        gone.wait(lambda: bool(over()), patient_until - time.monotonic())
        ended = over()
        _each([one for one in ended if not gone.has(one.uid)], lambda one: delete(cluster, one, 0))
        for one in ended:
            del left[one.uid]
    gone.wait_for([one.uid for one in pods], GONE_WITHIN)


def delete(cluster: Cluster, one: Found, grace: int | None = None) -> bool:
    """Delete an object, and no other of its name; return whether it was there."""
    return ignoring_missing(lambda: cluster.delete(one.path, options(one.uid, grace)))


def options(uid: str, grace: float | None = None) -> dict[str, Any]:
    """Return DeleteOptions for the object with that id and no other of its name (pure)."""
    found: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
    return found if grace is None else {**found, "gracePeriodSeconds": round(grace)}


def clean_node(cluster: Cluster, service: Data) -> None:
    """Remove the folder that a run has left on a node.

    Raises EngineError if it may still be there; the Service then stays, by which it is found.
    """
    request, metadata = cleaner(service), service["metadata"]
    if request is None:
        return
    namespace, name = metadata["namespace"], request["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        made = cluster.post(path, request)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        made = cluster.get(f"{path}/{name}")
        if not has_made(request, made):  # else it is of an emulator that was killed
            raise
    pod = Found("pods", made)
    with _Gone(cluster, namespace, "pods", "", fields=f"metadata.name={name}") as gone:
        # Not `is_over`: a Pod that has no node yet has not done its work.
        gone.wait(lambda: gone.phase(pod.uid) in ("Succeeded", "Failed", None), CLEANS_WITHIN)
        phase = gone.phase(pod.uid)
        delete(cluster, pod, 0)
    if phase != "Succeeded":
        raise EngineError(
            f"The folder {folder_of(request)} may still be on the node {node_of(request)}: the Pod "
            f"that removes it is {(phase or 'gone').lower()} after {CLEANS_WITHIN:g} s.",
            "`emulate clean --engine kubernetes` tries again. If that node is gone for ever, give "
            f"the folder up with `kubectl delete service {metadata['name']} -n {namespace}`.",
        )


class _Gone:
    """Which objects of a kind are gone, by a watch; a context."""

    def __init__(
        self, cluster: Cluster, namespace: str, kind: str, selector: str, fields: str = ""
    ) -> None:
        self._there: dict[str, Data] = {}
        self._changed = threading.Condition()
        self._error: EngineError | None = None
        path = f"/api/v1/namespaces/{namespace}/{kind}"
        self._kind = kind
        self._watcher = Watcher(cluster, path, selector, self._told, self._failed, fields=fields)

    def __enter__(self) -> _Gone:
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._watcher.close()

    def has(self, uid: str) -> bool:
        """Say whether an object is gone."""
        return uid not in self._there

    def phase(self, uid: str) -> str | None:
        """Return the phase of a Pod; None: it is gone."""
        pod = self._there.get(uid)
        return None if pod is None else str((pod.get("status") or {}).get("phase", "Pending"))

    def is_over(self, uid: str) -> bool:
        """Say whether all containers of a Pod have ended, or none was ever started."""
        pod = self._there.get(uid)
        return pod is None or is_over(pod)

    def wait(self, reached: Callable[[], bool], timeout: float) -> bool:
        """Wait until something is reached; return whether it was in time. Raises EngineError."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not reached():
                if self._error is not None:
                    raise self._error
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def wait_for(self, uids: Sequence[str], timeout: float) -> None:
        """Wait until objects are gone. Raises EngineError if some are not in time."""
        if not self.wait(lambda: all(map(self.has, uids)), timeout):
            left = [self._there[uid]["metadata"]["name"] for uid in uids if not self.has(uid)]
            raise EngineError(
                f"The cluster has not removed the {WORDS[self._kind]} {', '.join(left)} within "
                f"{timeout:g} s.",
                f"Look at it with `kubectl describe {self._kind}`; `emulate clean --engine "
                "kubernetes` tries again.",
            )

    def _told(self, kind: Kind, seen: Data) -> None:
        with self._changed:
            if kind == "DELETED":
                self._there.pop(seen["metadata"]["uid"], None)
            else:
                self._there[seen["metadata"]["uid"]] = seen
            self._changed.notify_all()

    def _failed(self, error: EngineError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()


def is_over(pod: Data) -> bool:
    """Say whether no container of a Pod runs or will run any more (pure).

    One that was never on a node has none.
    """
    status, spec = pod.get("status") or {}, pod["spec"]
    if status.get("phase") in ("Succeeded", "Failed") or not spec.get("nodeName"):
        return True
    return not any(
        "running" in (one.get("state") or {}) or "waiting" in (one.get("state") or {})
        for one in _statuses(status)
    ) and any(True for _ in _statuses(status))


def _statuses(status: Data) -> Iterator[Data]:
    for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        yield from status.get(kind) or ()


def _each(found: Sequence[Found], call: Callable[[Found], object]) -> None:
    """Make a call for each object, some at once. Raises the first error, after all were made."""
    if not found:
        return
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(min(PARALLEL, len(found))))
        for done in [pool.submit(call, one) for one in found]:
            done.result()
