"""Nodes that take no new Pods for a time: cordoned and uncordoned, as `kubectl cordon` does.

Nodes belong to no namespace and to no run. So what a run has cordoned is marked on the node itself:
another process finds it there, and a node without our mark is never touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from emulator.engines.base import Resource
from emulator.errors import EngineError
from emulator.planning.claims import Capacity
from emulator.plugins.kubernetes.connection import ApiError, ApiServer
from emulator.plugins.kubernetes.names import FOLDER, HOST, RUN, TASK, Common, selector
from emulator.validation.quantities import parse_quantity

NODES = "/api/v1/nodes"
ATTEMPTS = 10
"""To change a node, which its kubelet changes as well every few seconds."""
_MARKS = (RUN, TASK, FOLDER, HOST)


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the node that a Pod was given; empty: none yet (pure)."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def capacity_of(nodes: Iterable[Mapping[str, Any]], gpu_resource: str) -> Capacity:
    """Return what Pods can get of these nodes together, used or not (pure).

    GPUs have numbers as ids.
    """
    there = [(node.get("status") or {}).get("allocatable") or {} for node in nodes]

    def total(resource: str) -> float:
        return float(sum(parse_quantity(str(one.get(resource, "0"))) for one in there))

    gpus = tuple(str(number) for number in range(int(total(gpu_resource))))
    return Capacity(total("cpu"), int(total("memory")), gpus)


def any_number(gpus: int) -> Capacity:
    """Return more than enough, in place of what a cluster has: it decides itself what fits."""
    return Capacity(cpus=1000.0, memory=2**50, gpus=tuple(map(str, range(gpus))))


def tasks_there(
    pods: Mapping[str, Mapping[str, Any]], node: str, running: Collection[str]
) -> tuple[str, ...]:
    """Return the running tasks on a node, of those whose Pods are given, in their order (pure)."""
    return tuple(task for task, pod in pods.items() if node_of(pod) == node and task in running)


def cordoning(node: Mapping[str, Any], common: Common, task: str) -> dict[str, Any] | None:
    """Return the change that cordons a node for a task's fault; None: it has done so (pure).

    Raises EngineError where somebody else has.
    """
    name = node["metadata"]["name"]
    marks = {**common.annotations, TASK: task}
    carried = node["metadata"].get("annotations") or {}
    if node["spec"].get("unschedulable"):
        if all(carried.get(key) == marks[key] for key in (RUN, TASK)):
            return None
        run, other = carried.get(RUN), carried.get(TASK)
        by = f" by the run {run}, for {other}" if run else ""
        raise EngineError(
            f"The node {name} is cordoned already{by}.",
            "It takes no new Pods: nothing would change, and a heal would undo what is another's.",
        )
    return _change(
        node,
        {RUN: common.labels[RUN]},
        {key: marks[key] for key in _MARKS},
        unschedulable=True,
    )


def uncordoning(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change that undoes `cordoning` (pure).

    A node that somebody else has uncordoned meanwhile only loses our mark.
    """
    return _change(node, {RUN: None}, dict.fromkeys(_MARKS), unschedulable=None)


def _change(
    node: Mapping[str, Any],
    labels: Mapping[str, str | None],
    annotations: Mapping[str, str | None],
    *,
    unschedulable: bool | None,
) -> dict[str, Any]:
    """Return a merge patch that only fits the node as it was read."""
    return {
        "metadata": {
            "resourceVersion": node["metadata"]["resourceVersion"],
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"unschedulable": unschedulable},
    }


def cordon(cluster: ApiServer, node: str, common: Common, task: str) -> None:
    """Let a node take no new Pods, and mark it as ours. Raises EngineError."""
    for is_last in _attempts():
        found = cluster.get(f"{NODES}/{node}")
        change = cordoning(found, common, task)
        if change is None or _patched(cluster, node, change, is_last=is_last):
            return


def uncordon(cluster: ApiServer, run_id: str | None, task: str | None = None) -> int:
    """Let nodes take Pods again that faults of a run, or of one of its tasks, have cordoned.

    Returns how many. Raises EngineError; who may not list nodes has cordoned none.
    """
    nodes = [one for one in _marked(cluster, run_id) if task in (None, _mark(one, TASK))]
    for node in nodes:
        _uncordon(cluster, node)
    return len(nodes)


def find(cluster: ApiServer, run_id: str | None) -> list[Resource]:
    """Return the nodes that a run, or any run, has cordoned."""
    return [
        Resource(
            run_id=_mark(node, RUN),
            kind="node",
            name=node["metadata"]["name"],
            state="cordoned",
            folder=_mark(node, FOLDER),
            host=_mark(node, HOST),
        )
        for node in _marked(cluster, run_id)
    ]


def _uncordon(cluster: ApiServer, node: Mapping[str, Any]) -> None:
    """Undo `cordon`, unless that was done meanwhile."""
    name, run = node["metadata"]["name"], _mark(node, RUN)
    for is_last in _attempts():
        if _patched(cluster, name, uncordoning(node), is_last=is_last):
            return
        node = cluster.get(f"{NODES}/{name}")
        if _mark(node, RUN) != run:
            return


def _attempts() -> Iterator[bool]:
    yield from (number == ATTEMPTS for number in range(1, ATTEMPTS + 1))


def _patched(cluster: ApiServer, node: str, change: Mapping[str, Any], *, is_last: bool) -> bool:
    """Change a node; return whether it still was as it had been read."""
    try:
        cluster.patch(f"{NODES}/{node}", change)
    except ApiError as error:
        if error.status != 409 or is_last:
            raise
        return False
    return True


def _marked(cluster: ApiServer, run_id: str | None) -> Sequence[dict[str, Any]]:
    """Return the nodes that carry our mark."""
    try:
        answer = cluster.get(NODES, labelSelector=selector(run_id))
    except ApiError as error:
        if error.status == 403:
            return ()
        raise
    items: Sequence[dict[str, Any]] = answer.get("items") or ()
    return items


def _mark(node: Mapping[str, Any], key: str) -> str:
    return str((node["metadata"].get("annotations") or {}).get(key) or "")
