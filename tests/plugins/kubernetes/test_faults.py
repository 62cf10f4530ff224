"""Faults of a run on a real cluster: what they do there, what is recorded, and what is left."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from emulator.planning.requested import RunOptions
from emulator.plugins.kubernetes import nodes
from emulator.plugins.kubernetes.engine import KubernetesEngine
from emulator.plugins.kubernetes.rights import permissions, rules
from emulator.record.events import EngineNote, Entry, FaultEvent, TaskExit, TaskRunning, TaskStart
from emulator.record.reader import Record
from emulator.results import Result, RunCallbacks
from emulator.session.run import up
from tests.asked import asked
from tests.clusters import ForTest, changes
from tests.conftest import Emulate
from tests.plugins.kubernetes.relay import opened

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


class Site:
    """Runs jobs with faults in the namespace of the test."""

    def __init__(self, cluster: ForTest, image: str, out: Path) -> None:
        self._cluster, self._image, self._out = cluster, image, out

    def scenario(self, until: str, workers: int, rest: str) -> str:
        program = json.dumps(["sh", "-c", f"until_then() {{ {until}; }}\n{PROGRAM}"])
        return (
            f"name: faults\nframework: none\nimage: {self._image}\ntimeout: 5m\n"
            f"program: {{command: {program}}}\ncluster: {{worker: {workers}}}\n"
            f"kubernetes: {{namespace: {self._cluster.namespace}}}\n{rest}"
        )

    def run(
        self,
        until: str,
        workers: int,
        rest: str,
        entry: Callable[[Entry], None] = lambda entry: None,
    ) -> tuple[list[Entry], Result]:
        text = self.scenario(until, workers, rest)
        with contextlib.closing(KubernetesEngine()) as engine:
            callbacks = RunCallbacks(entry=entry)
            result = up(asked(text), engine, RunOptions(out=self._out), callbacks=callbacks)
            record = Record(result.folder)
            assert engine.find(record.run_id) == []
        assert result.end.outcome == "succeeded", result.end
        return list(record.history), result


@pytest.fixture
def site(
    kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Site:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_cluster.kubeconfig))
    return Site(kubernetes_cluster, tiny_image, tmp_path)


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

    1.20's kubelet loses that of a Pod now and then: all that it knows is when it looked, which a
    busy one may do 20 s later. Hence the long grace periods.
    """
    ends = [one for one in history if isinstance(one, TaskExit) and one.task == task]
    lost = [(one.exit_code, one.reason) == (143, "ContainerStatusUnknown") for one in ends]
    return [7 if is_lost else one.exit_code for one, is_lost in zip(ends, lost, strict=True)]


def test_a_task_is_ended_in_each_way_and_comes_back(site: Site) -> None:
    history, result = site.run(
        "begun worker-2 3",  # which is after all that the supervisor waits for
        3,
        "restart: on-failure\nfaults:\n"
        "- {name: first, preempt: worker-1, at: {step: 5, task: worker-1}, grace: 60s, down: 1s}\n"
        "- {name: next, preempt: worker-1, at: {recovery: first, delay: 3s}, via: eviction,"
        " grace: 90s, down: 0s}\n"
        "- {name: third, restart: worker-1, at: {recovery: next, delay: 3s}, grace: 60s}\n"
        "- {name: dead, kill: worker-2, at: {recovery: third}}\n"
        "- {terminate: worker-2, at: {recovery: dead, delay: 3s}}\n",
    )
    for fault in "012":
        assert of(history, fault) == ["triggered", "applied", "healed"]
        assert at(history, fault, "applied").killed is False
    assert str(at(history, "0", "applied").effect).endswith("deleted with a grace period of 60 s")
    assert str(at(history, "1", "applied").effect).endswith("evicted with a grace period of 90 s")
    assert of(history, "3") == of(history, "4") == ["triggered", "applied"]
    assert at(history, "3", "applied").exit_code == 137
    assert at(history, "4", "applied").exit_code == 7
    assert codes(history, "worker-1")[:3] == [7, 7, 7]
    assert codes(history, "worker-2")[:2] == [137, 7]
    log = Record(result.folder).log("worker-1")
    assert [line for line in log if line == "saved"][:3] == ["saved"] * 3
    running = [one for one in history if isinstance(one, TaskRunning) and one.task == "worker-1"]
    assert len({one.id for one in running}) == 4  # each a Pod of its own
    assert result.analysis.tasks["worker-1"].restarts == 0
    assert result.analysis.tasks["worker-2"].restarts == 2
    said = [one for one in history if isinstance(one, EngineNote) and one.task == "worker-1"]
    assert {"Scheduled", "Killing"} <= {one.reason for one in said}
    faults = {one.id: one for one in result.analysis.faults}
    assert any(words.startswith("Killing: ") for words in faults["0"].notes)


# --- Nodes --------------------------------------------------------------------------------------


def is_cordoned(cluster: ForTest) -> bool:
    with cluster.core() as core:
        return any(one.spec.unschedulable for one in core.list_node().items)


@pytest.mark.usefixtures("kubernetes_alone")
def test_a_drained_node_takes_its_tasks_back_when_it_is_healed(
    site: Site, kubernetes_cluster: ForTest
) -> None:
    """There is one node, so that all tasks are there and none has another place to go to.

    It is cordoned long enough for a busy kubelet, which took 18 s to end a Pod.
    """
    cordoned: list[bool] = []

    def look(entry: Entry) -> None:
        if isinstance(entry, TaskStart) and entry.fresh:
            cordoned.append(is_cordoned(kubernetes_cluster))

    history, result = site.run(
        "begun worker-1 3",  # which is after all that the supervisor waits for
        2,
        "restart: on-failure\nfaults:\n"
        "- {name: upkeep, drain: worker-1, at: {step: 5}, grace: 60s, for: 30s}\n"
        "- {kill: worker-1, at: {recovery: upkeep}}\n",
        look,
    )
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


@pytest.mark.usefixtures("kubernetes_alone")
def test_a_killed_emulator_s_node_is_freed_by_down(
    site: Site, kubernetes_cluster: ForTest, tmp_path: Path, emulate: Emulate
) -> None:
    path = tmp_path / "cordoned.yaml"
    fault = "faults: [{cordon: worker-0, at: {step: 5}, for: forever}]\n"
    path.write_text(site.scenario("false", 1, fault))
    arguments = ("up", path, "--engine", "kubernetes", "--out", emulate.out)
    process = emulate.start(*arguments, unread=True)
    with kubernetes_cluster.core() as core:
        assert any(change["object"].spec.unschedulable for change in changes(core.list_node))
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder,) = emulate.out.iterdir()
    with opened(kubernetes_cluster) as cluster:
        (left,) = nodes.find(cluster, folder.name)
    assert (left.kind, left.state, left.folder) == ("node", "cordoned", str(folder))
    done = emulate("down", folder.name, "--out", emulate.out)
    assert done.returncode == 0, done.stderr
    assert not is_cordoned(kubernetes_cluster)


def test_without_the_right_to_nodes_a_drain_is_refused_before_the_start(
    site: Site, kubernetes_user: Callable[..., Path], tmp_path: Path, emulate: Emulate
) -> None:
    path = tmp_path / "drained.yaml"
    path.write_text(
        site.scenario("false", 1, "faults: [{drain: worker-0, at: {step: 5}, for: 1s}]\n")
    )
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
