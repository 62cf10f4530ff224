"""How Pods are ended: requests as values; and that, and cordoned nodes, on a real cluster."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.kubernetes import eviction, nodes
from emulator.engines.kubernetes.connection import ApiError, ApiServer
from emulator.engines.kubernetes.eviction import NotSent, Victim
from emulator.engines.kubernetes.execution import Executed
from emulator.engines.kubernetes.names import FOLDER, HOST, MAIN, RUN, TASK, Common
from emulator.engines.kubernetes.watching import Watcher
from emulator.errors import EngineError
from tests.clusters import Alone
from tests.engines.kubernetes.pods import Pods

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


# --- On a cluster -------------------------------------------------------------------------------


def started(pods: Pods, program: str, *, sidecar: bool = False, **spec: object) -> Victim:
    """Start a program, with a side-car that sleeps; return when it has said `ready`."""
    name = f"worker-{uuid.uuid4().hex[:6]}"
    main, beside = pods.container(MAIN, program, "sh"), pods.container("beside", "sleep 1000", "sh")
    containers = [main, beside] if sidecar else [main]
    spec = {"shareProcessNamespace": True, "containers": containers, **spec}
    pod = pods.start(name, "", **spec)
    pods.until_line(name, "ready")
    return Victim("worker-0", name, pod["metadata"]["uid"])


def end_of(pods: Pods, victim: Victim) -> tuple[int, bool, list[str]]:
    """Wait for its end; return the exit code, whether it was deleted, and what it printed."""
    end, printed = pods.until_exit(victim.pod), pods.texts(victim.pod)
    # 1.20's kubelet loses the exit code of a deleted Pod now and then, where the log is not.
    is_lost = end.reason == "ContainerStatusUnknown" and "saved" in printed
    code = 7 if is_lost else end.exit_code
    return code, "deletionTimestamp" in pods.last[victim.pod]["metadata"], printed


SAVES = "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
STUBBORN = "trap 'echo told' TERM; echo ready; while :; do sleep 0.1; done"


@pytest.mark.kubernetes
def test_a_program_that_saves_in_its_grace_period_has_its_own_exit_code(pods: Pods) -> None:
    saves, stubborn = started(pods, SAVES), started(pods, STUBBORN)
    done = eviction.preempt(pods.cluster, saves, 30, None)
    assert done == f"the Pod {saves.pod} was deleted with a grace period of 30 s"
    assert eviction.preempt(pods.cluster, stubborn, 1.2, "eviction") == (
        f"the Pod {stubborn.pod} was evicted with a grace period of 2 s"
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

    with contextlib.closing(Watcher(cluster, path, "", told, lambda error: None)) as watcher:
        watcher.start()
        assert counted.wait(PATIENCE)
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
    assert end_of(pods, victim)[0] == 137


@pytest.mark.kubernetes
def test_another_pod_of_the_name_is_never_hit(pods: Pods) -> None:
    victim = started(pods, SAVES)
    before = Victim(victim.task, victim.pod, str(uuid.uuid4()))
    for via in ("delete", "eviction"):
        assert eviction.preempt(pods.cluster, before, 1, via) == ""
    now = pods.cluster.get(pods.cluster.namespaced("pods", victim.pod))
    assert "deletionTimestamp" not in now["metadata"]
    eviction.kill(pods.cluster, victim)
    assert end_of(pods, victim)[0] == 137
    gone = Victim("worker-1", "no-such-pod", before.uid)
    assert eviction.preempt(pods.cluster, gone, 1, "delete") == ""
    assert eviction.preempt(pods.cluster, gone, 1, "eviction") == ""
    eviction.terminate(pods.cluster, gone)
    eviction.kill(pods.cluster, gone)


@pytest.mark.kubernetes
def test_a_terminated_program_is_told_alone_and_its_pod_stays(pods: Pods) -> None:
    """What it has started gets no signal, and neither do other containers."""
    child = "(trap 'echo child' TERM; while :; do sleep 0.1; done) & "
    victim = started(pods, child + SAVES.replace("exit 7", "kill -9 $!; exit 7"), sidecar=True)
    eviction.terminate(pods.cluster, victim)
    assert end_of(pods, victim) == (7, False, ["ready", "saved"])
    pod = pods.cluster.get(pods.cluster.namespaced("pods", victim.pod))
    states = {one["name"]: one["state"] for one in pod["status"]["containerStatuses"]}
    assert "running" in states["beside"]
    eviction.terminate(pods.cluster, victim)  # it has ended: nothing happens


@pytest.mark.kubernetes
@pytest.mark.parametrize("sidecar", [False, True])
def test_a_killed_program_is_not_told_and_its_pod_stays(pods: Pods, *, sidecar: bool) -> None:
    """Nor does it see that what it waits for was killed: a shell would say so."""
    waits = "trap 'echo told' TERM; sleep 1000 & echo ready; sleep 1000; echo after"
    victim = started(pods, waits, sidecar=sidecar)
    eviction.kill(pods.cluster, victim)
    assert end_of(pods, victim) == (137, False, ["ready"])


@pytest.mark.kubernetes
def test_pid_1_can_only_be_killed_in_the_shortest_grace_period(pods: Pods) -> None:
    victim = started(pods, STUBBORN, shareProcessNamespace=False)
    with pytest.raises(NotSent, match="Can't send SIGKILL to worker-0 alone: it is PID 1"):
        eviction.send(pods.cluster, victim, 9)
    eviction.terminate(pods.cluster, victim)
    eviction.kill(pods.cluster, victim)
    code, is_deleted, printed = end_of(pods, victim)
    assert (code, is_deleted) == (137, True)
    assert printed[:2] == ["ready", "told"]


@pytest.mark.kubernetes
def test_without_a_shell_a_program_can_only_be_ended_with_its_pod(pods: Pods) -> None:
    """A shell that has removed all shells stands for an image without any."""
    remove = "rm /bin/sh /usr/bin/sh /bin/dash /bin/bash 2>/dev/null; "
    victim = started(pods, remove + SAVES)
    with pytest.raises(NotSent) as refused:
        eviction.terminate(pods.cluster, victim)
    assert refused.value.message.startswith("Can't send SIGTERM to worker-0 alone: ")
    eviction.kill(pods.cluster, victim)
    assert end_of(pods, victim)[:2] == (7, True)


@pytest.mark.kubernetes
def test_on_a_lost_node_a_pod_is_removed_by_force(pods: Pods, kubernetes_alone: Alone) -> None:
    """Nobody can end its program: what counts is that the run does not wait for ever."""
    victim = started(pods, STUBBORN)
    with kubernetes_alone.node_away():
        assert eviction.preempt(pods.cluster, victim, 1, "delete") != ""
        with pytest.raises(NotSent) as refused:
            eviction.terminate(pods.cluster, victim)
        assert refused.value.node_is_lost
        pods.until(victim.pod, lambda kind, pod: "deletionTimestamp" in pod["metadata"])
        eviction.kill(pods.cluster, victim)
        pods.until_gone(victim.pod)


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
