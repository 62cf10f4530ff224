"""Faults of a run on a real cluster: what they do there, what is recorded, and what is left."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from emulator.engines.kubernetes import nodes
from emulator.engines.kubernetes.connection import Cluster
from emulator.engines.kubernetes.engine import KubernetesEngine
from emulator.engines.kubernetes.role import permissions, rules
from emulator.execution import up
from emulator.record.events import EngineNote, Entry, FaultEvent, TaskExit, TaskRunning, TaskStart
from emulator.record.reader import Record
from emulator.results import Result, RunCallbacks
from emulator.scenario.kubernetes import Kubernetes
from emulator.scenario.loader import parse
from tests.clusters import Alone, ForTest, changes
from tests.conftest import Emulate

pytestmark = pytest.mark.kubernetes

PROGRAM = """\
trap 'echo saved; exit 7' TERM
echo start >>/shared/$HOSTNAME
begun() { [ -e /shared/$1 ] && [ "$(wc -l </shared/$1)" -ge $2 ]; }
step=0
while ! { [ "$HOSTNAME" = worker-0 ] && until_then; }; do
  step=$((step + 1))
  echo "{\\"emulate\\": \\"step\\", \\"step\\": $step}"
  sleep 0.2
done
"""
"""A program that was started is told nothing before its trap is set: hence the delays of faults.
The job ends when `until_then` says so: when its tasks were started as often as they must be."""


def scenario(
    image: str, cluster: ForTest, until: str, workers: int, rest: str, more: str = ""
) -> str:
    program = json.dumps(["sh", "-c", f"until_then() {{ {until}; }}\n{PROGRAM}"])
    return (
        f"name: faults\nframework: none\nimage: {image}\nprogram: {{command: {program}}}\n"
        f"cluster: {{worker: {workers}}}\nkubernetes: {{namespace: {cluster.namespace}{more}}}\n"
        f"timeout: 5m\n{rest}"
    )


def run(
    cluster: ForTest,
    text: str,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    entry: Callable[[Entry], None] | None = None,
) -> tuple[list[Entry], Result]:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    callbacks = RunCallbacks() if entry is None else RunCallbacks(entry=entry)
    with contextlib.closing(KubernetesEngine()) as engine:
        result = up(parse(text), engine, text=text, out=out, callbacks=callbacks)
        assert engine.find(Record(result.folder).run_id) == []
    return list(Record(result.folder).history), result


def of(history: Sequence[Entry], fault: str) -> list[str]:
    return [one.stage for one in history if isinstance(one, FaultEvent) and one.id == fault]


def at(history: Sequence[Entry], fault: str, stage: str) -> FaultEvent:
    (found,) = [
        one
        for one in history
        if isinstance(one, FaultEvent) and (one.id, one.stage) == (fault, stage)
    ]
    return found


def codes(history: Sequence[Entry], task: str) -> list[int]:
    """Return the exit codes of a task's Pods, each of which saves and ends with 7 if it is told.

    1.20's kubelet loses that of a Pod now and then: all that it knows is when that ended.
    """
    ends = [one for one in history if isinstance(one, TaskExit) and one.task == task]
    lost = [(one.exit_code, one.reason) == (143, "ContainerStatusUnknown") for one in ends]
    return [7 if is_lost else one.exit_code for one, is_lost in zip(ends, lost, strict=True)]


def ids(history: Sequence[Entry], task: str) -> list[str]:
    return [one.id for one in history if isinstance(one, TaskRunning) and one.task == task]


def test_a_task_is_ended_in_each_way_and_comes_back(
    kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = scenario(
        tiny_image,
        kubernetes_cluster,
        "begun worker-2 3",  # which is after all that the supervisor waits for
        3,
        "restart: on-failure\nfaults:\n"
        "- {name: first, preempt: worker-1, at: {step: 5, task: worker-1}, grace: 20s, down: 1s}\n"
        "- {name: next, preempt: worker-1, at: {recovery: first, delay: 3s}, via: eviction,"
        " grace: 30s, down: 0s}\n"
        "- {name: third, restart: worker-1, at: {recovery: next, delay: 3s}, grace: 20s}\n"
        "- {name: dead, kill: worker-2, at: {recovery: third}}\n"
        "- {terminate: worker-2, at: {recovery: dead, delay: 3s}}\n",
    )
    history, result = run(kubernetes_cluster, text, tmp_path, monkeypatch)
    assert result.end.outcome == "succeeded", result.end
    for fault in "012":
        assert of(history, fault) == ["triggered", "applied", "healed"]
        assert at(history, fault, "applied").killed is False
    assert str(at(history, "0", "applied").effect).endswith("deleted with a grace period of 20 s")
    assert str(at(history, "1", "applied").effect).endswith("evicted with a grace period of 30 s")
    assert of(history, "3") == of(history, "4") == ["triggered", "applied"]
    assert at(history, "3", "applied").exit_code == 137
    assert at(history, "4", "applied").exit_code == 7
    assert codes(history, "worker-1")[:3] == [7, 7, 7]
    assert codes(history, "worker-2")[:2] == [137, 7]
    log = Record(result.folder).log("worker-1")
    assert [line for line in log if line == "saved"][:3] == ["saved"] * 3
    assert len(set(ids(history, "worker-1"))) == 4  # each a Pod of its own
    assert result.analysis.tasks["worker-1"].restarts == 0
    assert result.analysis.tasks["worker-2"].restarts == 2
    said = [one for one in history if isinstance(one, EngineNote) and one.task == "worker-1"]
    assert {"Scheduled", "Killing"} <= {one.reason for one in said}
    faults = {one.id: one for one in result.analysis.faults}
    assert any(words.startswith("Killing: ") for words in faults["0"].notes)


def test_a_program_that_ignores_its_notice_is_killed_by_the_kubelet(
    kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = scenario(
        tiny_image,
        kubernetes_cluster,
        "begun worker-1 2",
        2,
        "faults: [{preempt: worker-1, at: {step: 5, task: worker-1}, grace: 3s, down: 0s}]\n",
    ).replace("trap 'echo saved; exit 7' TERM", "trap 'echo told' TERM")
    history, result = run(kubernetes_cluster, text, tmp_path, monkeypatch)
    assert result.end.outcome == "succeeded", result.end
    event = at(history, "0", "applied")
    assert (event.exit_code, event.killed) == (137, True)
    assert event.seconds is not None
    assert event.seconds >= 3
    assert "told" in list(Record(result.folder).log("worker-1"))


def test_a_disruption_budget_is_the_reason_why_a_fault_has_failed(
    kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = scenario(
        tiny_image,
        kubernetes_cluster,
        "begun worker-1 1 && [ $step -ge 60 ]",
        2,
        "faults: [{preempt: worker-1, at: {step: 25}, via: eviction, down: 0s}]\n"
        "expect: {max_lost_steps: 10}\n",
    )
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_cluster.kubeconfig))
    place = Kubernetes(namespace=kubernetes_cluster.namespace)
    with contextlib.closing(Cluster.open(place)) as cluster:
        cluster.post(
            cluster.namespaced("poddisruptionbudgets", api="apis/policy/v1beta1"),
            {
                "metadata": {"name": "all-or-nothing"},
                "spec": {
                    "maxUnavailable": 0,
                    "selector": {"matchLabels": {"emulator.task": "worker-1"}},
                },
            },
        )
        history, result = run(kubernetes_cluster, text, tmp_path, monkeypatch)
    assert of(history, "0") == ["triggered", "failed"]
    assert "disruption budget" in str(at(history, "0", "failed").reason)
    assert result.end.outcome == "succeeded"
    assert {one.expectation: one.status for one in result.verdicts}["max_lost_steps"] == "unknown"
    assert result.exit_code == 3
    assert len(ids(history, "worker-1")) == 1


# --- Nodes --------------------------------------------------------------------------------------


def is_cordoned(cluster: ForTest) -> bool:
    with cluster.core() as core:
        return any(one.spec.unschedulable for one in core.list_node().items)


def test_a_drained_node_takes_its_tasks_back_when_it_is_healed(
    kubernetes_cluster: ForTest,
    kubernetes_alone: Alone,
    tiny_image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is one node, so that all tasks are there and none has another place to go to."""
    cordoned: list[bool] = []

    def look(entry: Entry) -> None:
        if isinstance(entry, TaskStart) and entry.fresh:
            cordoned.append(is_cordoned(kubernetes_cluster))

    text = scenario(
        tiny_image,
        kubernetes_cluster,
        "begun worker-1 3",  # which is after all that the supervisor waits for
        2,
        "restart: on-failure\nfaults:\n"
        "- {name: upkeep, drain: worker-1, at: {step: 5}, grace: 20s, for: 6s}\n"
        "- {kill: worker-1, at: {recovery: upkeep}}\n",
    )
    history, result = run(kubernetes_cluster, text, tmp_path, monkeypatch, look)
    assert result.end.outcome == "succeeded", result.end
    assert of(history, "0") == ["triggered", "applied", "healed"]
    assert str(at(history, "0", "applied").effect).endswith(
        "is cordoned, where worker-0, worker-1 of this run ran"
    )
    for task in ("worker-0", "worker-1"):
        assert of(history, f"0:{task}") == ["planned", "triggered", "applied", "healed"]
        assert codes(history, task)[0] == 7
        back = [one.t for one in history if isinstance(one, TaskRunning) and one.task == task]
        assert back[1] > at(history, "0", "healed").t
    reasons = {one.reason for one in history if isinstance(one, EngineNote)}
    assert "FailedScheduling" in reasons
    assert cordoned == [True, True]
    assert not is_cordoned(kubernetes_cluster)
    assert {one.status for one in result.analysis.faults} == {"applied"}


def test_a_node_is_freed_also_when_the_job_fails(
    kubernetes_cluster: ForTest,
    kubernetes_alone: Alone,
    tiny_image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = scenario(
        tiny_image,
        kubernetes_cluster,
        "false",
        2,
        "faults:\n- {name: upkeep, cordon: worker-1, at: {step: 5}, for: forever}\n"
        "- {terminate: worker-1, at: {after: upkeep}}\n",
    )
    history, result = run(kubernetes_cluster, text, tmp_path, monkeypatch)
    assert (result.end.outcome, result.end.task) == ("failed", "worker-1")
    assert of(history, "0") == ["triggered", "applied", "healed"]
    assert not is_cordoned(kubernetes_cluster)


def test_a_killed_emulator_s_node_is_freed_by_down(
    kubernetes_cluster: ForTest,
    kubernetes_alone: Alone,
    tiny_image: str,
    tmp_path: Path,
    emulate: Emulate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "cordoned.yaml"
    fault = "faults: [{cordon: worker-0, at: {step: 5}, for: forever}]\n"
    path.write_text(scenario(tiny_image, kubernetes_cluster, "false", 1, fault))
    env, arguments = kubernetes_cluster.environment, ["--engine", "kubernetes"]
    process = emulate.start("up", path, "--out", emulate.out, *arguments, env=env, unread=True)
    with kubernetes_cluster.core() as core:
        for change in changes(core.list_node):
            if change["object"].spec.unschedulable:
                break
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder,) = emulate.out.iterdir()
    place = Kubernetes(namespace=kubernetes_cluster.namespace)
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_cluster.kubeconfig))
    with contextlib.closing(Cluster.open(place)) as cluster:
        (left,) = nodes.find(cluster, folder.name)
    assert (left.kind, left.state, left.folder) == ("node", "cordoned", str(folder))
    done = emulate("down", folder.name, "--out", emulate.out, env=env)
    assert done.returncode == 0, done.stderr
    assert not is_cordoned(kubernetes_cluster)


def test_without_the_right_to_nodes_a_drain_is_refused_before_the_start(
    kubernetes_cluster: ForTest,
    kubernetes_user: Callable[..., Path],
    tiny_image: str,
    tmp_path: Path,
    emulate: Emulate,
) -> None:
    fault = "faults: [{drain: worker-0, at: {step: 5}, for: 1s}]\n"
    path = tmp_path / "drained.yaml"
    path.write_text(scenario(tiny_image, kubernetes_cluster, "false", 1, fault))
    may_run = kubernetes_user(rules(permissions("run")))
    arguments = ["--engine", "kubernetes"]
    done = emulate.up(path, *arguments, env={"KUBECONFIG": str(may_run)})
    assert done.returncode == 2, done.stderr
    assert "You may not get nodes, list nodes, patch nodes of the cluster" in done.stderr
    assert not emulate.out.exists()
    of_nodes = rules(permissions("nodes", "eviction"))
    may_drain = kubernetes_user(rules(permissions("run")), cluster_rules=of_nodes)
    done = emulate("plan", path, *arguments, env={"KUBECONFIG": str(may_drain)})
    assert done.returncode == 0, done.stderr
