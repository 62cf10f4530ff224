"""What runs have made on a cluster: found by its labels, and removed until nothing is left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from emulator.engines.base import Resource
from emulator.engines.kubernetes import names
from emulator.engines.kubernetes.connection import ApiError, ApiServer, ignoring_missing
from emulator.engines.kubernetes.shared import cleaner, folder_of, node_of
from emulator.engines.kubernetes.status import is_over
from emulator.engines.kubernetes.watching import Watched, Watcher
from emulator.errors import EngineError

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
REMOVAL_TIMEOUT = 60.0
"""Seconds that the cluster has to remove the objects."""
CLEAN_TIMEOUT = 60.0
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


def find(cluster: ApiServer, run_id: str | None, *, everywhere: bool) -> list[Found]:
    """Return what a run has made, or all runs have.

    `everywhere`: in all namespaces, if we may look at them. Raises EngineError.
    """
    selector = names.selector(run_id)
    with ThreadPoolExecutor(len(KINDS)) as pool:
        lists = pool.map(lambda kind: _list(cluster, kind, selector, everywhere), KINDS)
        return [Found(kind, one) for kind, found in zip(KINDS, lists, strict=True) for one in found]


def _list(cluster: ApiServer, kind: str, selector: str, everywhere: bool) -> Iterable[Data]:
    if everywhere:
        try:
            return cluster.list_all(f"/api/v1/{kind}", labelSelector=selector)[0]
        except ApiError as error:
            if error.status != 403:
                raise
    return cluster.list_all(cluster.namespaced(kind), labelSelector=selector)[0]


def tear_down(cluster: ApiServer, run_id: str, *, everywhere: bool) -> int:
    """Remove everything of a run, and wait until it is gone; return how many objects that were.

    Raises EngineError.
    """
    found = find(cluster, run_id, everywhere=everywhere)
    for namespace in sorted({one.namespace for one in found}):
        here = [one for one in found if one.namespace == namespace]
        _tear_down(cluster, namespace, names.selector(run_id), here)
    return len(found)


def _tear_down(cluster: ApiServer, namespace: str, selector: str, found: Sequence[Found]) -> None:
    by_kind = {kind: [one for one in found if one.kind == kind] for kind in KINDS}
    if by_kind["pods"]:
        with _watched(cluster, namespace, "pods", selector) as there:
            remove_pods(cluster, there, by_kind["pods"])
    others = [*by_kind["configmaps"], *by_kind["persistentvolumeclaims"]]
    _each(others, lambda one: delete(cluster, one))
    for service in by_kind["services"]:
        clean_node(cluster, service.data)
        delete(cluster, service)
    if claims := by_kind["persistentvolumeclaims"]:
        # The cluster removes them only when no Pod has them any more.
        with _watched(cluster, namespace, "persistentvolumeclaims", selector) as there:
            _wait_until_gone(there, claims)


@contextlib.contextmanager
def _watched(
    cluster: ApiServer, namespace: str, kind: str, selector: str, fields: str = ""
) -> Iterator[Watched]:
    """Have a watch of the objects of a kind within the block. Raises EngineError."""
    there, path = Watched(), f"/api/v1/namespaces/{namespace}/{kind}"
    watcher = Watcher(cluster, path, selector, there.told, there.fail, fields=fields)
    with contextlib.closing(watcher):
        watcher.start()
        yield there


def remove_pods(cluster: ApiServer, there: Watched, pods: Sequence[Found]) -> None:
    """Delete Pods without grace, and wait until they are gone. Raises EngineError.

    A kubelet removes the object of a Pod only some time after it has ended it: old ones take up to
    a minute. Where it says that the containers have ended, the object is removed at once.
    """
    _each(pods, lambda one: delete(cluster, one, NO_GRACE))
    left, patient_until = {one.uid: one for one in pods}, time.monotonic() + ENDS_WITHIN

    def over() -> list[Found]:
        late = time.monotonic() >= patient_until
        seen = [(one, there.seen(uid)) for uid, one in left.items()]
        return [one for one, pod in seen if late or pod is None or is_over(pod)]

    while left:
        there.wait_for(lambda: bool(over()), patient_until - time.monotonic())
        ended = over()
        still = [one for one in ended if there.seen(one.uid) is not None]
        _each(still, lambda one: delete(cluster, one, 0))
        for one in ended:
            del left[one.uid]
    _wait_until_gone(there, pods)


def _wait_until_gone(there: Watched, found: Sequence[Found]) -> None:
    """Wait for objects of one kind. Raises EngineError if some are not gone in time."""

    def left() -> list[Found]:
        return [one for one in found if there.seen(one.uid) is not None]

    if not there.wait_for(lambda: not left(), REMOVAL_TIMEOUT):
        kind = found[0].kind
        raise EngineError(
            f"The cluster has not removed the {WORDS[kind]} "
            f"{', '.join(one.name for one in left())} within {REMOVAL_TIMEOUT:g} s.",
            f"Look at it with `kubectl describe {kind}`; `emulate clean --engine "
            "kubernetes` tries again.",
        )


def delete(cluster: ApiServer, one: Found, grace: int | None = None) -> bool:
    """Delete an object, and no other of its name; return whether it was there."""
    return ignoring_missing(lambda: cluster.delete(one.path, options(one.uid, grace)))


def options(uid: str, grace: int | None = None) -> dict[str, Any]:
    """Return DeleteOptions for the object with that id and no other of its name (pure)."""
    found: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
    return found if grace is None else {**found, "gracePeriodSeconds": grace}


def clean_node(cluster: ApiServer, service: Data) -> None:
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
        made = cluster.made_before(path, request, error)  # by an emulator that was killed
    pod = Found("pods", made)
    with _watched(cluster, namespace, "pods", "", f"metadata.name={name}") as there:

        def phase() -> str:
            seen = there.seen(pod.uid)
            return "Gone" if seen is None else (seen.get("status") or {}).get("phase", "Pending")

        # Not `is_over`: a Pod that has no node yet has not done its work.
        there.wait_for(lambda: phase() in ("Succeeded", "Failed", "Gone"), CLEAN_TIMEOUT)
        end = phase()
        delete(cluster, pod, 0)
    if end != "Succeeded":
        raise EngineError(
            f"The folder {folder_of(request)} may still be on the node {node_of(request)}: the Pod "
            f"that removes it is {end.lower()} after {CLEAN_TIMEOUT:g} s.",
            "`emulate clean --engine kubernetes` tries again. If that node is gone for ever, give "
            f"the folder up with `kubectl delete service {metadata['name']} -n {namespace}`.",
        )


def _each(found: Sequence[Found], call: Callable[[Found], object]) -> None:
    """Make a call for each object, some at once. Raises the first error, after all were made."""
    if found:
        with ThreadPoolExecutor(min(PARALLEL, len(found))) as pool:
            for done in [pool.submit(call, one) for one in found]:
                done.result()
