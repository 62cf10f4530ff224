"""How Pods are ended and nodes cordoned: requests as values; and that on a real cluster."""

from __future__ import annotations

import contextlib
import copy
import signal
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from emulator.engines.base import Resource
from emulator.errors import EngineError, Unsupported
from emulator.plugins.kubernetes import nodes, removal, rights
from emulator.plugins.kubernetes.connection import ApiError, ApiServer
from emulator.plugins.kubernetes.exec import Executed
from emulator.plugins.kubernetes.names import FOLDER, HOST, MAIN, RUN, TASK, Common, selector
from emulator.plugins.kubernetes.pods import Pod
from emulator.plugins.kubernetes.rights import permissions
from emulator.plugins.kubernetes.watching import Watcher
from tests.clusters import Alone
from tests.plugins.kubernetes.pods import Pods

PATIENCE = 90.0
"""Seconds that a busy machine may take for what a quiet one does in two."""

# --- Requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grace", "seconds"), [(0, 1), (0.2, 1), (1, 1), (1.5, 2), (5, 5), (3600.1, 3601)]
)
def test_a_grace_period_is_whole_and_never_none(grace: float, seconds: int) -> None:
    assert removal.whole(grace) == seconds


def test_an_eviction_hits_the_one_pod_that_was_meant() -> None:
    assert removal.eviction(Pod("uid-1", "run-worker-0", "worker-0", {}), "ns", 5) == {
        "metadata": {"name": "run-worker-0", "namespace": "ns"},
        "deleteOptions": {
            "gracePeriodSeconds": 5,
            "preconditions": {"uid": "uid-1"},
            "propagationPolicy": "Background",
        },
    }


@pytest.mark.parametrize(
    ("code", "said", "why"),
    [
        (0, "", None),
        (3, "", None),
        (4, "sh: kill: (7) - Operation not permitted", "its program runs as another user"),
        (5, "", "it is PID 1, which the kernel protects"),
        (127, "", "its image has no shell"),
        (1, "no /proc\nhere.\n", "no /proc"),
        (2, "", "the shell ended with 2"),
    ],
)
def test_why_no_signal_was_sent(code: int, said: str, why: str | None) -> None:
    found = removal.why_not_sent(Executed(code, "", said))
    assert (found and found[0]) == why


# --- Cordoned nodes: an API server of which only the answers exist --------------------------------

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
    # What is left of a mark that others have undone is no cordon.
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

    monkeypatch.setattr(rights, "reviewed", reviewed)
    (one,) = {one for one in permissions("nodes") if one.resource == "nodes"}
    answers[:] = [(one, "get", True)]
    rights.require_nodes(Server().cluster)
    assert asked == [permissions("nodes")]
    answers[:] = [(one, "get", True), (one, "list", False), (one, "patch", False)]
    with pytest.raises(Unsupported) as refused:
        rights.require_nodes(Server().cluster)
    assert refused.value.message.startswith("You may not list nodes, patch nodes of the cluster ho")
    answers[:] = [ApiError("You may not ask.", status=403)]
    rights.require_nodes(Server().cluster)
    answers[:] = [ApiError("It is broken.", status=500)]
    with pytest.raises(ApiError):
        rights.require_nodes(Server().cluster)


# --- On a cluster -------------------------------------------------------------------------------


def started(pods: Pods, program: str, *, sidecar: bool = False, **spec: object) -> Pod:
    """Start a program, perhaps beside a side-car of the cluster's; return when it said `ready`."""
    name = f"worker-{uuid.uuid4().hex[:6]}"
    main, beside = pods.container(MAIN, program, "sh"), pods.container("beside", "sleep 1000", "sh")
    containers = [main, beside] if sidecar else [main]
    spec = {"shareProcessNamespace": True, "containers": containers, **spec}
    pod = pods.start(name, "", **spec)
    pods.until_line(name, "ready")
    return Pod(pod["metadata"]["uid"], name, "worker-0", pod)


def end_of(pods: Pods, victim: Pod) -> tuple[int, bool, list[str]]:
    """Wait for its end; return the exit code, whether it was deleted, and what it printed."""
    end, printed = pods.until_exit(victim.name), pods.texts(victim.name)
    # 1.20's kubelet loses the exit code of a deleted Pod now and then, where the log is not.
    is_lost = end.reason == "ContainerStatusUnknown" and "saved" in printed
    code = 7 if is_lost else end.exit_code
    return code, "deletionTimestamp" in pods.last[victim.name]["metadata"], printed


SAVES = "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
STUBBORN = "trap 'echo told' TERM; echo ready; while :; do sleep 0.1; done"


@pytest.mark.kubernetes
def test_a_program_that_saves_in_its_grace_period_has_its_own_exit_code(pods: Pods) -> None:
    saves, stubborn = started(pods, SAVES), started(pods, STUBBORN)
    done = removal.preempt(pods.cluster, saves, 30, None)
    assert done == f"the Pod {saves.name} was deleted with a grace period of 30 s"
    # Long enough for a shell on a busy machine to say that it was told.
    assert removal.preempt(pods.cluster, stubborn, 9.2, "eviction") == (
        f"the Pod {stubborn.name} was evicted with a grace period of 10 s"
    )
    assert end_of(pods, saves) == (7, True, ["ready", "saved"])
    assert end_of(pods, stubborn) == (137, True, ["ready", "told"])


@pytest.mark.kubernetes
def test_a_budget_forbids_an_eviction_and_no_deletion(pods: Pods) -> None:
    victim = started(pods, STUBBORN)
    cluster = pods.cluster
    (policy,) = [one for one in cluster.get("/apis")["groups"] if one["name"] == "policy"]
    versions = {one["version"] for one in policy["versions"]}
    api = "apis/policy/v1" if "v1" in versions else "apis/policy/v1beta1"
    budget = {
        "metadata": {"name": "never"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": victim.name}}},
    }
    path = cluster.namespaced("poddisruptionbudgets", api=api)
    made = cluster.post(path, budget)
    counted = threading.Event()

    def told(kind: str, one: Mapping[str, Any]) -> None:
        status = one.get("status") or {}
        is_seen = status.get("observedGeneration") == made["metadata"]["generation"]
        if is_seen and status.get("currentHealthy") == 1:
            counted.set()

    with contextlib.closing(Watcher(cluster, path, "", told, lambda error: None)) as watcher:
        watcher.start()
        assert counted.wait(PATIENCE)
    with pytest.raises(ApiError) as refused:
        removal.preempt(cluster, victim, 5, "eviction")
    assert refused.value.status == 429
    assert "never" in refused.value.message
    assert "budget" in refused.value.message
    assert refused.value.hint.endswith("`via: delete` does not ask.")
    now = cluster.get(cluster.namespaced("pods", victim.name))
    assert "deletionTimestamp" not in now["metadata"]
    assert removal.preempt(cluster, victim, 3, "delete") != ""
    removal.preempt(cluster, victim, 3, "eviction")  # it is leaving: no budget counts it any more
    assert end_of(pods, victim)[0] == 137


@pytest.mark.kubernetes
def test_another_pod_of_the_name_is_never_hit(pods: Pods) -> None:
    victim = started(pods, SAVES)
    before = Pod(str(uuid.uuid4()), victim.name, victim.task, {})
    for via in ("delete", "eviction"):
        assert removal.preempt(pods.cluster, before, 1, via) == ""
    now = pods.cluster.get(pods.cluster.namespaced("pods", victim.name))
    assert "deletionTimestamp" not in now["metadata"]
    removal.kill(pods.cluster, victim)
    assert end_of(pods, victim)[0] == 137
    gone = Pod(before.uid, "no-such-pod", "worker-1", {})
    assert removal.preempt(pods.cluster, gone, 1, "delete") == ""
    assert removal.preempt(pods.cluster, gone, 1, "eviction") == ""
    removal.send(pods.cluster, gone, signal.SIGTERM)
    removal.kill(pods.cluster, gone)


@pytest.mark.kubernetes
def test_a_terminated_program_is_told_alone_and_its_pod_stays(pods: Pods) -> None:
    """What it has started gets no signal, and neither do other containers."""
    child = "(trap 'echo child' TERM; while :; do sleep 0.1; done) & "
    victim = started(pods, child + SAVES.replace("exit 7", "kill -9 $!; exit 7"), sidecar=True)
    removal.send(pods.cluster, victim, signal.SIGTERM)
    assert end_of(pods, victim) == (7, False, ["ready", "saved"])
    pod = pods.cluster.get(pods.cluster.namespaced("pods", victim.name))
    states = {one["name"]: one["state"] for one in pod["status"]["containerStatuses"]}
    assert "running" in states["beside"]
    removal.send(pods.cluster, victim, signal.SIGTERM)  # it has ended: nothing happens


@pytest.mark.kubernetes
@pytest.mark.parametrize("sidecar", [False, True])
def test_a_killed_program_is_not_told_and_its_pod_stays(pods: Pods, *, sidecar: bool) -> None:
    """Nor does it see that what it waits for was killed: a shell would say so."""
    waits = "trap 'echo told' TERM; sleep 1000 & echo ready; sleep 1000; echo after"
    victim = started(pods, waits, sidecar=sidecar)
    assert removal.kill(pods.cluster, victim) == ""
    assert end_of(pods, victim) == (137, False, ["ready"])


@pytest.mark.kubernetes
def test_pid_1_can_only_be_killed_in_the_shortest_grace_period(pods: Pods) -> None:
    victim = started(pods, STUBBORN, shareProcessNamespace=False)
    with pytest.raises(removal.NotSent, match="Can't send SIGKILL to worker-0 alone: it is PID 1"):
        removal.send(pods.cluster, victim, 9)
    removal.send(pods.cluster, victim, signal.SIGTERM)
    assert removal.kill(pods.cluster, victim).endswith(
        "was deleted with a grace period of 1 s: it is PID 1, which the kernel protects"
    )
    code, is_deleted, printed = end_of(pods, victim)
    assert (code, is_deleted) == (137, True)
    assert printed[:2] == ["ready", "told"]


@pytest.mark.kubernetes
def test_without_a_shell_a_program_can_only_be_ended_with_its_pod(pods: Pods) -> None:
    """A shell that has removed all shells stands for an image without any."""
    remove = "rm /bin/sh /usr/bin/sh /bin/dash /bin/bash 2>/dev/null; "
    victim = started(pods, remove + SAVES)
    with pytest.raises(removal.NotSent) as refused:
        removal.send(pods.cluster, victim, signal.SIGTERM)
    assert refused.value.message.startswith("Can't send SIGTERM to worker-0 alone: ")
    removal.kill(pods.cluster, victim)
    assert end_of(pods, victim)[:2] == (7, True)


@pytest.mark.kubernetes
def test_on_a_lost_node_a_pod_is_removed_by_force(pods: Pods, kubernetes_alone: Alone) -> None:
    """Nobody can end its program: what counts is that the run does not wait for ever."""
    victim = started(pods, STUBBORN)
    with kubernetes_alone.node_away():
        assert removal.preempt(pods.cluster, victim, 1, "delete") != ""
        with pytest.raises(removal.NotSent) as refused:
            removal.send(pods.cluster, victim, signal.SIGTERM)
        assert refused.value.node_is_lost
        pods.until(victim.name, lambda kind, pod: "deletionTimestamp" in pod["metadata"])
        removal.kill(pods.cluster, victim)
        pods.until_gone(victim.name)


# --- Nodes of a cluster -------------------------------------------------------------------------


def run_of(tmp_path: Path) -> Common:
    run = f"run-{uuid.uuid4().hex[:8]}"
    return Common("ns", {RUN: run}, {RUN: run, FOLDER: str(tmp_path), HOST: "laptop"})


def is_cordoned(cluster: ApiServer, name: str) -> bool:
    return bool(cluster.get(f"{nodes.NODES}/{name}")["spec"].get("unschedulable"))


@pytest.mark.kubernetes
def test_a_cordoned_node_is_found_by_its_mark_and_freed(
    cluster: ApiServer, fake_node: str, tmp_path: Path
) -> None:
    node, ours = fake_node, run_of(tmp_path)
    run_id = ours.annotations[RUN]
    nodes.cordon(cluster, node, ours, "worker-0")
    nodes.cordon(cluster, node, ours, "worker-0")  # again, after a take-over
    assert is_cordoned(cluster, node)
    (found,) = nodes.find(cluster, run_id)
    assert (found.kind, found.name, found.state) == ("node", node, "cordoned")
    assert (found.run_id, found.folder, found.host) == (run_id, str(tmp_path), "laptop")
    assert found in nodes.find(cluster, None)
    assert nodes.find(cluster, "another-run") == []
    other = run_of(tmp_path)
    with pytest.raises(EngineError, match=f"is cordoned already by the run {run_id}"):
        nodes.cordon(cluster, node, other, "worker-0")
    assert nodes.uncordon(cluster, other.annotations[RUN]) == 0
    assert nodes.uncordon(cluster, run_id, "worker-1") == 0
    assert is_cordoned(cluster, node)
    assert nodes.uncordon(cluster, run_id, "worker-0") == 1
    assert not is_cordoned(cluster, node)
    assert nodes.find(cluster, run_id) == []
    left = cluster.get(f"{nodes.NODES}/{node}")["metadata"].get("annotations") or {}
    assert not {RUN, TASK, FOLDER, HOST} & left.keys()
    assert nodes.uncordon(cluster, run_id) == 0


@pytest.mark.kubernetes
def test_runs_that_want_a_node_at_once_do_not_both_get_it(
    cluster: ApiServer, fake_node: str, tmp_path: Path
) -> None:
    """A heartbeat may change the node at any time, and so may another run."""
    runs = [run_of(tmp_path) for _ in range(8)]
    together = threading.Barrier(len(runs))
    refused: list[EngineError] = []

    def cordon(ours: Common) -> None:
        together.wait()
        try:
            nodes.cordon(cluster, fake_node, ours, "worker-0")
        except EngineError as error:
            refused.append(error)

    threads = [threading.Thread(target=cordon, args=(ours,)) for ours in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == len(runs) - 1
    assert all("is cordoned already by the run" in error.message for error in refused)
    freed = [nodes.uncordon(cluster, ours.annotations[RUN]) for ours in runs]
    assert sorted(freed) == [0] * (len(runs) - 1) + [1]
    assert not is_cordoned(cluster, fake_node)
