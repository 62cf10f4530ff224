"""Cordoned nodes: requests as values, and an API server of which only the answers exist."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import pytest

from emulator.engines.base import Resource
from emulator.engines.kubernetes import nodes
from emulator.engines.kubernetes.connection import ApiError, ApiServer
from emulator.engines.kubernetes.names import FOLDER, HOST, RUN, TASK, Common, selector
from emulator.engines.kubernetes.role import permissions
from emulator.errors import EngineError, Unsupported

OF_RUN = {RUN: "run-1", FOLDER: "/runs/run-1", HOST: "laptop"}
OURS = Common("ns", {RUN: "run-1"}, {**OF_RUN, "emulator.scenario": "s"})
MARKS = {**OF_RUN, TASK: "worker-0"}


def node(name: str, marks: Mapping[str, str] | None = None, *, free: bool = False) -> Any:
    metadata = {"name": name, "resourceVersion": "1", "annotations": marks}
    return {"metadata": metadata, "spec": {} if free else {"unschedulable": True}}


def test_a_cordoned_node_carries_our_mark_and_only_as_it_was_read() -> None:
    assert nodes.cordoning(node("n1", free=True), OURS, "worker-0") == {
        "metadata": {"resourceVersion": "1", "labels": {RUN: "run-1"}, "annotations": MARKS},
        "spec": {"unschedulable": True},
    }
    assert nodes.uncordoning(node("n1", MARKS)) == {
        "metadata": {
            "resourceVersion": "1",
            "labels": {RUN: None},
            "annotations": {RUN: None, TASK: None, FOLDER: None, HOST: None},
        },
        "spec": {"unschedulable": None},
    }


def test_a_node_is_cordoned_by_one_only() -> None:
    assert nodes.cordoning(node("n1", MARKS), OURS, "worker-0") is None
    for marks, by in (
        ({}, "The node n1 is cordoned already."),
        (MARKS, "The node n1 is cordoned already by the run run-1, for worker-0."),
        ({**MARKS, RUN: "run-2"}, "already by the run run-2, for worker-0."),
    ):
        with pytest.raises(EngineError) as refused:
            nodes.cordoning(node("n1", marks), OURS, "worker-1")
        assert refused.value.message.endswith(by)


def test_what_is_left_of_a_mark_that_others_have_undone_is_no_cordon() -> None:
    assert nodes.cordoning(node("n1", MARKS, free=True), OURS, "worker-1") is not None


def test_a_drain_concerns_the_tasks_that_run_there() -> None:
    pods = {f"worker-{n}": {"spec": {"nodeName": one}} for n, one in enumerate("abaa")}
    pods["worker-4"] = {"spec": {}}
    running = {"worker-0", "worker-1", "worker-3", "worker-4"}
    assert nodes.tasks_there(pods, "a", running) == ("worker-0", "worker-3")


class Server:
    """Has nodes, and refuses so many changes; what it is told is noted."""

    context = "home"

    def __init__(self, *there: Any, conflicts: int = 0, status: int = 409) -> None:
        self.nodes = {one["metadata"]["name"]: one for one in there}
        self.conflicts, self.status = conflicts, status
        self.told: list[str] = []
        self.listing = 200

    def get(self, path: str, **query: str) -> Any:
        self.told.append(" ".join(["get", path, *query.values()]))
        if path != nodes.NODES:
            return copy.deepcopy(self.nodes[path.removeprefix(f"{nodes.NODES}/")])
        if self.listing != 200:
            raise ApiError("No.", status=self.listing)
        every = [one for one in self.nodes.values() if one["metadata"]["annotations"]]
        return {"items": every or None}

    def patch(self, path: str, change: Mapping[str, Any]) -> None:
        self.told.append(f"patch {path}")
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError("Changed meanwhile.", status=self.status)
        one = self.nodes[path.removeprefix(f"{nodes.NODES}/")]
        one["spec"] |= change["spec"]
        one["metadata"]["annotations"] = {
            key: value for key, value in change["metadata"]["annotations"].items() if value
        }

    @property
    def cluster(self) -> ApiServer:
        return cast("ApiServer", self)


N1, PATCH = "get /api/v1/nodes/n1", "patch /api/v1/nodes/n1"


@pytest.mark.parametrize("undo", [False, True])
def test_a_node_that_others_change_as_well_is_changed_at_the_tenth_attempt_at_last(
    undo: bool,
) -> None:
    def change(server: Server) -> int | None:
        if undo:
            return nodes.uncordon(server.cluster, "run-1")
        nodes.cordon(server.cluster, "n1", OURS, "worker-0")
        return None

    def of(**how: int) -> Server:
        return Server(node("n1", MARKS if undo else None, free=not undo), **how)

    first = [f"get /api/v1/nodes {selector('run-1')}"] if undo else [N1]
    server = of(conflicts=9)
    assert change(server) == (1 if undo else None)
    assert server.told == first + [PATCH, N1] * 9 + [PATCH]
    assert server.nodes["n1"]["spec"] == {"unschedulable": None if undo else True}
    assert server.nodes["n1"]["metadata"]["annotations"] == ({} if undo else MARKS)
    for refusing in (of(conflicts=10), of(conflicts=1, status=500)):
        with pytest.raises(ApiError, match="Changed meanwhile"):
            change(refusing)
        assert refusing.told[-1] == PATCH
        assert not refusing.conflicts


def test_a_node_that_is_ours_or_of_others_is_not_changed() -> None:
    server = Server(node("n1", MARKS))
    nodes.cordon(server.cluster, "n1", OURS, "worker-0")
    with pytest.raises(EngineError, match="is cordoned already by the run run-1, for worker-0"):
        nodes.cordon(server.cluster, "n1", OURS, "worker-1")
    assert server.told == [N1] * 2
    conflict = Server(node("n1", MARKS), conflicts=1)
    conflict.get = lambda path, **query: (  # type: ignore[method-assign]
        {"items": [node("n1", MARKS)]} if query else node("n1", {**MARKS, RUN: "run-2"})
    )
    assert nodes.uncordon(conflict.cluster, "run-1") == 1
    assert conflict.told == [PATCH]  # it was undone meanwhile: it is another's now


def test_a_run_finds_and_frees_the_nodes_of_its_tasks() -> None:
    server = Server(node("n1", MARKS), node("n2", {**MARKS, TASK: "worker-1"}), node("n3"))
    found = nodes.find(server.cluster, None)
    assert found[0] == Resource("run-1", "node", "n1", "cordoned", "/runs/run-1", "laptop")
    assert [one.name for one in found] == ["n1", "n2"]
    assert server.told == [f"get /api/v1/nodes {selector(None)}"]
    assert nodes.uncordon(server.cluster, "run-1", "worker-2") == 0
    assert nodes.uncordon(server.cluster, "run-1", "worker-1") == 1
    assert [one.name for one in nodes.find(server.cluster, "run-1")] == ["n1"]
    assert nodes.uncordon(server.cluster, "run-1") == 1
    assert nodes.find(server.cluster, "run-1") == []
    server.listing = 403  # who may not list nodes has cordoned none
    assert nodes.uncordon(server.cluster, "run-1") == 0
    server.listing = 500
    with pytest.raises(ApiError):
        nodes.find(server.cluster, "run-1")


def test_faults_of_nodes_need_a_role_that_allows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    answers: list[Any] = []

    def reviewed(cluster: object, wanted: object) -> list[Any]:
        asked.append(wanted)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers

    monkeypatch.setattr(nodes, "reviewed", reviewed)
    (one,) = {one for one in permissions("nodes") if one.resource == "nodes"}
    answers[:] = [(one, "get", True)]
    nodes.require(Server().cluster)
    assert asked == [permissions("nodes")]
    answers[:] = [(one, "get", True), (one, "list", False), (one, "patch", False)]
    with pytest.raises(Unsupported) as refused:
        nodes.require(Server().cluster)
    assert refused.value.message.startswith("You may not list nodes, patch nodes of the cluster ho")
    answers[:] = [ApiError("You may not ask.", status=403)]
    nodes.require(Server().cluster)
    answers[:] = [ApiError("It is broken.", status=500)]
    with pytest.raises(ApiError):
        nodes.require(Server().cluster)
