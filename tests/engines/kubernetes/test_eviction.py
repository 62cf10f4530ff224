"""How Pods are ended, and nodes cordoned: requests as values, and what a real cluster does."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.kubernetes import eviction, nodes
from emulator.engines.kubernetes.connection import ApiError, Cluster, Executed
from emulator.engines.kubernetes.eviction import NotSent, Victim
from emulator.engines.kubernetes.names import FOLDER, HOST, MAIN, RUN, TASK, Common
from emulator.engines.kubernetes.status import Ended, state_of
from emulator.engines.kubernetes.watching import Watcher
from emulator.errors import EngineError
from emulator.scenario.kubernetes import Kubernetes
from tests.clusters import Alone, ForTest

Pod = Mapping[str, Any]
PATIENCE = 90.0
"""Seconds that a busy machine may take for what a quiet one does in two."""

# --- Requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grace", "seconds"), [(0, 1), (0.2, 1), (1, 1), (1.5, 2), (5, 5), (3600.1, 3601)]
)
def test_a_grace_period_is_whole_and_never_none(grace: float, seconds: int) -> None:
    assert eviction.whole(grace) == seconds


def test_an_eviction_hits_the_one_pod_that_was_meant() -> None:
    victim = Victim("worker-0", "run-worker-0", "uid-1")
    body = eviction.eviction(victim, "ns", 5)
    assert body == {
        "metadata": {"name": "run-worker-0", "namespace": "ns"},
        "deleteOptions": {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 5,
            "preconditions": {"uid": "uid-1"},
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
    found = eviction.why_not_sent(Executed(code, "", said))
    assert (found and found[0]) == why


OURS = Common(
    "ns",
    {RUN: "run-1"},
    {RUN: "run-1", FOLDER: "/runs/run-1", HOST: "laptop", "emulator.scenario": "s"},
)
MARKS = {RUN: "run-1", TASK: "worker-0", FOLDER: "/runs/run-1", HOST: "laptop"}


def node(annotations: Mapping[str, str] = {}, *, unschedulable: bool = False) -> dict[str, Any]:
    spec = {"unschedulable": True} if unschedulable else {}
    metadata = {"name": "n1", "resourceVersion": "7", "annotations": {**annotations}}
    return {"metadata": metadata, "spec": spec}


def test_a_cordoned_node_carries_our_mark_and_only_as_it_was_read() -> None:
    assert nodes.cordoning(node(), OURS, "worker-0") == {
        "metadata": {"resourceVersion": "7", "labels": {RUN: "run-1"}, "annotations": MARKS},
        "spec": {"unschedulable": True},
    }
    assert nodes.uncordoning(node(MARKS, unschedulable=True)) == {
        "metadata": {
            "resourceVersion": "7",
            "labels": {RUN: None},
            "annotations": {RUN: None, TASK: None, FOLDER: None, HOST: None},
        },
        "spec": {"unschedulable": None},
    }


def test_a_node_is_cordoned_by_one_only() -> None:
    assert nodes.cordoning(node(MARKS, unschedulable=True), OURS, "worker-0") is None
    for marks, by in (
        ({}, "The node n1 is cordoned already."),
        (MARKS, "The node n1 is cordoned already by the run run-1, for worker-0."),
        ({**MARKS, RUN: "run-2"}, "already by the run run-2, for worker-0."),
    ):
        with pytest.raises(EngineError) as refused:
            nodes.cordoning(node(marks, unschedulable=True), OURS, "worker-1")
        assert refused.value.message.endswith(by)


def test_what_is_left_of_a_mark_that_others_have_undone_is_no_cordon() -> None:
    assert nodes.cordoning(node(MARKS), OURS, "worker-1") is not None


def test_a_drain_concerns_the_tasks_that_run_there() -> None:
    pods = {f"worker-{n}": {"spec": {"nodeName": one}} for n, one in enumerate("abaa")}
    pods["worker-4"] = {"spec": {}}
    running = {"worker-0", "worker-1", "worker-3", "worker-4"}
    assert nodes.tasks_there(pods, "a", running) == ("worker-0", "worker-3")


# --- On a cluster -------------------------------------------------------------------------------


class Pods:
    """Starts Pods of a shell program, and waits for what the watch says of them."""

    def __init__(self, cluster: Cluster, image: str) -> None:
        self.cluster, self._image = cluster, image
        self._seen: dict[str, Pod] = {}
        self._printed: dict[str, bytes] = {}
        self._over: set[str] = set()
        self._gone: set[str] = set()
        self._changed = threading.Condition()
        self._errors: list[EngineError] = []
        path = cluster.namespaced("pods")
        self._watcher = Watcher(cluster, path, "", self._told, self._errors.append)

    def __enter__(self) -> Pods:
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._watcher.close()

    def start(self, program: str, *, sidecar: bool = False, **spec: object) -> Victim:
        """Start a program, with a side-car that sleeps; return when it has said `ready`."""
        name = f"worker-{uuid.uuid4().hex[:6]}"
        main = {"name": MAIN, "image": self._image, "command": ["sh", "-c", program]}
        beside = {"name": "beside", "image": self._image, "command": ["sleep", "1000"]}
        metadata = {"name": name, "labels": {"app": name}}
        body = {
            "restartPolicy": "Never",
            "shareProcessNamespace": True,
            "automountServiceAccountToken": False,
            "containers": [main, beside] if sidecar else [main],
            **spec,
        }
        made = self.cluster.post(
            self.cluster.namespaced("pods"), {"metadata": metadata, "spec": body}
        )
        victim = Victim("worker-0", name, made["metadata"]["uid"])
        self.wait(victim, lambda pod: pod["status"]["phase"] == "Running")
        self._printed[name] = b""
        threading.Thread(target=self._read, args=(name,)).start()
        self._wait(lambda: b" ready\n" in self._printed[name])
        return victim

    def _read(self, name: str) -> None:
        """Read what a program prints, to its end: the log goes with the Pod."""
        path = self.cluster.namespaced("pods", f"{name}/log")
        query = {"container": MAIN, "follow": True, "timestamps": True}
        log = self.cluster.stream(path, silent_for=PATIENCE, **query)
        with contextlib.closing(log):
            while part := log.read1():
                with self._changed:
                    self._printed[name] += part
                    self._changed.notify_all()
        with self._changed:
            self._over.add(name)
            self._changed.notify_all()

    def wait(self, victim: Victim, reached: Callable[[Pod], bool]) -> Pod:
        """Return the Pod once it is so."""

        def found() -> bool:
            pod = self._seen.get(victim.uid)
            return pod is not None and reached(pod)

        self._wait(found)
        return self._seen[victim.uid]

    def _wait(self, reached: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(reached, PATIENCE), (self._seen, self._printed)
            assert not self._errors

    def end_of(self, victim: Victim) -> tuple[int, bool, list[str]]:
        """Wait for its end; return the exit code, whether it was deleted, and what it printed."""
        pod = self.wait(victim, lambda pod: isinstance(state_of(pod), Ended))
        state = state_of(pod)
        assert isinstance(state, Ended)
        self._wait(lambda: victim.pod in self._over)
        # The kubelet adds a line of its own, without a stamp, where the container is gone.
        lines = map(str.split, self._printed[victim.pod].decode().splitlines())
        printed = [words[1] for words in lines if words[0][0].isdigit()]
        # 1.20's kubelet loses the exit code of a deleted Pod now and then, where the log is not.
        is_lost = state.reason == "ContainerStatusUnknown" and "saved" in printed
        code = 7 if is_lost else state.exit_code
        return code, "deletionTimestamp" in pod["metadata"], printed

    def wait_until_gone(self, victim: Victim) -> None:
        """Wait until there is no such object any more."""
        self._wait(lambda: victim.uid in self._gone)

    def _told(self, kind: str, pod: Pod) -> None:
        with self._changed:
            if kind == "DELETED":
                self._gone.add(pod["metadata"]["uid"])
            self._seen[pod["metadata"]["uid"]] = pod
            self._changed.notify_all()


SAVES = "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
STUBBORN = "trap 'echo told' TERM; echo ready; while :; do sleep 0.1; done"


@pytest.fixture
def cluster(kubernetes_cluster: ForTest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster, in a namespace of the test."""
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_cluster.kubeconfig))
    opened = Cluster.open(Kubernetes(namespace=kubernetes_cluster.namespace))
    with contextlib.closing(opened):
        yield opened


@pytest.fixture
def pods(cluster: Cluster, tiny_image: str) -> Iterator[Pods]:
    with Pods(cluster, tiny_image) as found:
        yield found


@pytest.mark.kubernetes
def test_a_program_that_saves_in_its_grace_period_has_its_own_exit_code(pods: Pods) -> None:
    saves, stubborn = pods.start(SAVES), pods.start(STUBBORN)
    done = eviction.preempt(pods.cluster, saves, 30, None)
    assert done == f"the Pod {saves.pod} was deleted with a grace period of 30 s"
    assert eviction.preempt(pods.cluster, stubborn, 1.2, "eviction") == (
        f"the Pod {stubborn.pod} was evicted with a grace period of 2 s"
    )
    assert pods.end_of(saves) == (7, True, ["ready", "saved"])
    assert pods.end_of(stubborn) == (137, True, ["ready", "told"])


@pytest.mark.kubernetes
def test_a_budget_forbids_an_eviction_and_no_deletion(pods: Pods) -> None:
    victim = pods.start(STUBBORN)
    cluster = pods.cluster
    versions = {one["version"] for one in _group(cluster, "policy")["versions"]}
    api = "apis/policy/v1" if "v1" in versions else "apis/policy/v1beta1"
    budget = {
        "metadata": {"name": "never"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": victim.pod}}},
    }
    path = cluster.namespaced("poddisruptionbudgets", api=api)
    made = cluster.post(path, budget)
    counted = threading.Event()

    def told(kind: str, one: Mapping[str, Any]) -> None:
        status = one.get("status") or {}
        is_seen = status.get("observedGeneration") == made["metadata"]["generation"]
        if is_seen and status.get("currentHealthy") == 1:
            counted.set()

    watcher = Watcher(cluster, path, "", told, lambda error: None)
    watcher.start()
    try:
        assert counted.wait(PATIENCE)
    finally:
        watcher.close()
    with pytest.raises(ApiError) as refused:
        eviction.preempt(cluster, victim, 5, "eviction")
    assert refused.value.status == 429
    assert "never" in refused.value.message
    assert "budget" in refused.value.message
    assert refused.value.hint.endswith("`via: delete` does not ask.")
    now = cluster.get(cluster.namespaced("pods", victim.pod))
    assert "deletionTimestamp" not in now["metadata"]
    assert eviction.preempt(cluster, victim, 3, "delete") != ""
    eviction.preempt(cluster, victim, 3, "eviction")  # it is leaving: no budget counts it any more
    assert pods.end_of(victim)[0] == 137


def _group(cluster: Cluster, name: str) -> Mapping[str, Any]:
    groups = cluster.get("/apis")["groups"]
    return next(one for one in groups if one["name"] == name)


@pytest.mark.kubernetes
def test_another_pod_of_the_name_is_never_hit(pods: Pods) -> None:
    victim = pods.start(SAVES)
    before = Victim(victim.task, victim.pod, str(uuid.uuid4()))
    for via in ("delete", "eviction"):
        assert eviction.preempt(pods.cluster, before, 1, via) == ""
    now = pods.cluster.get(pods.cluster.namespaced("pods", victim.pod))
    assert "deletionTimestamp" not in now["metadata"]
    eviction.kill(pods.cluster, victim)
    assert pods.end_of(victim)[0] == 137
    gone = Victim("worker-1", "no-such-pod", before.uid)
    assert eviction.preempt(pods.cluster, gone, 1, "delete") == ""
    assert eviction.preempt(pods.cluster, gone, 1, "eviction") == ""
    eviction.terminate(pods.cluster, gone)
    eviction.kill(pods.cluster, gone)


@pytest.mark.kubernetes
def test_a_terminated_program_is_told_alone_and_its_pod_stays(pods: Pods) -> None:
    """What it has started gets no signal, and neither do other containers."""
    child = "(trap 'echo child' TERM; while :; do sleep 0.1; done) & "
    victim = pods.start(child + SAVES.replace("exit 7", "kill -9 $!; exit 7"), sidecar=True)
    eviction.terminate(pods.cluster, victim)
    assert pods.end_of(victim) == (7, False, ["ready", "saved"])
    pod = pods.cluster.get(pods.cluster.namespaced("pods", victim.pod))
    states = {one["name"]: one["state"] for one in pod["status"]["containerStatuses"]}
    assert "running" in states["beside"]
    eviction.terminate(pods.cluster, victim)  # it has ended: nothing happens


@pytest.mark.kubernetes
@pytest.mark.parametrize("sidecar", [False, True])
def test_a_killed_program_is_not_told_and_its_pod_stays(pods: Pods, *, sidecar: bool) -> None:
    victim = pods.start(f"sleep 1000 & {STUBBORN}", sidecar=sidecar)
    eviction.kill(pods.cluster, victim)
    assert pods.end_of(victim) == (137, False, ["ready"])


@pytest.mark.kubernetes
def test_pid_1_can_only_be_killed_in_the_shortest_grace_period(pods: Pods) -> None:
    victim = pods.start(STUBBORN, shareProcessNamespace=False)
    with pytest.raises(NotSent, match="Can't send SIGKILL to worker-0 alone: it is PID 1"):
        eviction.send(pods.cluster, victim, 9)
    eviction.terminate(pods.cluster, victim)
    eviction.kill(pods.cluster, victim)
    code, is_deleted, printed = pods.end_of(victim)
    assert (code, is_deleted) == (137, True)
    assert printed[:2] == ["ready", "told"]


@pytest.mark.kubernetes
def test_without_a_shell_a_program_can_only_be_ended_with_its_pod(pods: Pods) -> None:
    """A shell that has removed all shells stands for an image without any."""
    remove = "rm /bin/sh /usr/bin/sh /bin/dash /bin/bash 2>/dev/null; "
    victim = pods.start(
        remove + "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
    )
    with pytest.raises(NotSent) as refused:
        eviction.terminate(pods.cluster, victim)
    assert refused.value.message.startswith("Can't send SIGTERM to worker-0 alone: ")
    eviction.kill(pods.cluster, victim)
    assert pods.end_of(victim)[:2] == (7, True)


@pytest.mark.kubernetes
def test_on_a_lost_node_a_pod_is_removed_by_force(pods: Pods, kubernetes_alone: Alone) -> None:
    """Nobody can end its program: what counts is that the run does not wait for ever."""
    victim = pods.start(STUBBORN)
    with kubernetes_alone.node_away():
        assert eviction.preempt(pods.cluster, victim, 1, "delete") != ""
        with pytest.raises(NotSent) as refused:
            eviction.terminate(pods.cluster, victim)
        assert refused.value.node_is_lost
        pods.wait(victim, lambda pod: "deletionTimestamp" in pod["metadata"])
        eviction.kill(pods.cluster, victim)
        pods.wait_until_gone(victim)


# --- Nodes of a cluster -------------------------------------------------------------------------


def run_of(tmp_path: Path) -> Common:
    run = f"run-{uuid.uuid4().hex[:8]}"
    return Common("ns", {RUN: run}, {RUN: run, FOLDER: str(tmp_path), HOST: "laptop"})


def is_cordoned(cluster: Cluster, name: str) -> bool:
    return bool(cluster.get(f"{nodes.NODES}/{name}")["spec"].get("unschedulable"))


@pytest.mark.kubernetes
def test_a_cordoned_node_is_found_by_its_mark_and_freed(
    cluster: Cluster, fake_node: Callable[..., str], tmp_path: Path
) -> None:
    node = fake_node()
    ours, run = run_of(tmp_path), RUN
    run_id = ours.annotations[run]
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
    assert nodes.uncordon(cluster, other.annotations[run]) == 0
    assert nodes.uncordon(cluster, run_id, "worker-1") == 0
    assert is_cordoned(cluster, node)
    assert nodes.uncordon(cluster, run_id, "worker-0") == 1
    assert not is_cordoned(cluster, node)
    assert nodes.find(cluster, run_id) == []
    left = cluster.get(f"{nodes.NODES}/{node}")["metadata"].get("annotations") or {}
    assert not {RUN, TASK, FOLDER, HOST} & left.keys()
    assert nodes.uncordon(cluster, run_id) == 0


@pytest.mark.kubernetes
def test_a_node_that_another_has_cordoned_is_left_as_it_is(
    cluster: Cluster, fake_node: Callable[..., str], tmp_path: Path
) -> None:
    node = fake_node()
    cluster.patch(f"{nodes.NODES}/{node}", {"spec": {"unschedulable": True}})
    ours = run_of(tmp_path)
    with pytest.raises(EngineError, match=f"The node {node} is cordoned already."):
        nodes.cordon(cluster, node, ours, "worker-0")
    assert nodes.uncordon(cluster, ours.annotations[RUN]) == 0
    assert is_cordoned(cluster, node)


@pytest.mark.kubernetes
def test_runs_that_want_a_node_at_once_do_not_both_get_it(
    cluster: Cluster, fake_node: Callable[..., str], tmp_path: Path
) -> None:
    node = fake_node()
    """A heartbeat may change the node at any time, and so may another run."""
    runs = [run_of(tmp_path) for _ in range(8)]
    together = threading.Barrier(len(runs))
    refused: list[EngineError] = []

    def cordon(ours: Common) -> None:
        together.wait()
        try:
            nodes.cordon(cluster, node, ours, "worker-0")
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
    assert not is_cordoned(cluster, node)
