"""Output and exits of real Pods: every line once, in order, before the exit."""

from __future__ import annotations

import contextlib
import itertools
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import EngineDown, Exited, KnownOutput, Line, Note
from emulator.engines.kubernetes.connection import Cluster
from emulator.engines.kubernetes.log_lines import PIECE
from emulator.engines.kubernetes.logs import Output
from emulator.engines.kubernetes.watching import Kind, Object, Watcher
from emulator.errors import EngineError, EngineLost
from tests.clusters import Alone, ForTest
from tests.engines.inbox import EachLine
from tests.engines.kubernetes.relay import Relay, opened, relayed

pytestmark = pytest.mark.kubernetes


class Pods:
    """Starts Pods of a shell, and collects what is reported of them."""

    def __init__(self, cluster: Cluster, image: str) -> None:
        self.cluster, self._image = cluster, image
        self.inbox = EachLine()
        self.output = Output(cluster)
        self.output.report_to(self.inbox)
        self.seen: queue.SimpleQueue[tuple[Kind, Object]] = queue.SimpleQueue()
        self.errors: queue.SimpleQueue[EngineError] = queue.SimpleQueue()
        self._path = cluster.namespaced("pods")
        self._watcher = Watcher(cluster, self._path, "", self._look, self.errors.put)
        self._watcher.start()
        self.lines: dict[str, list[Line]] = {}
        self.exits: dict[str, Exited] = {}
        self.notes: list[Note] = []

    def close(self) -> None:
        self.output.close()
        self._watcher.close()

    def _look(self, kind: Kind, pod: Object) -> None:
        self.output.look_at(kind, pod)
        self.seen.put((kind, pod))

    def make(self, name: str, script: str, **more: Any) -> dict[str, Any]:
        main = self.container("main", script)
        spec = {"restartPolicy": "Never", "containers": [main], **more}
        body = {"metadata": {"name": name}, "spec": spec}
        return self.cluster.post(self._path, body)

    def container(self, name: str, script: str) -> dict[str, Any]:
        command = ["bash", "-c", script]
        image = {"image": self._image, "imagePullPolicy": "Never"}
        return {"name": name, "command": command, **image}

    def start(self, name: str, script: str, **more: Any) -> dict[str, Any]:
        pod = self.make(name, script, **more)
        self.output.follow(name, pod)
        return pod

    def delete(self, name: str, grace: int | None = None) -> None:
        body = None if grace is None else {"gracePeriodSeconds": grace}
        self.cluster.delete(f"{self._path}/{name}", body)

    def take(self) -> Line | Exited | Note:
        event: Line | Exited | Note | EngineDown = self.inbox.get(timeout=120)
        if isinstance(event, Line):
            assert event.task not in self.exits, "a line after the exit"
            self.lines.setdefault(event.task, []).append(event)
        elif isinstance(event, Exited):
            assert event.task not in self.exits, "two exits"
            self.exits[event.task] = event
        elif isinstance(event, Note):
            self.notes.append(event)
        else:
            raise event.error
        return event

    def until_line(self, name: str, text: str) -> None:
        while self.texts(name)[-1:] != [text]:
            self.take()

    def until_exit(self, name: str) -> Exited:
        while name not in self.exits:
            self.take()
        return self.exits[name]

    def until_gone(self, name: str) -> None:
        while True:
            kind, pod = self.seen.get(timeout=120)
            if kind == "DELETED" and pod["metadata"]["name"] == name:
                return

    def until_failed(self, name: str) -> None:
        while True:
            _, pod = self.seen.get(timeout=120)
            if (pod["metadata"]["name"], pod["status"]["phase"]) == (name, "Failed"):
                return

    def texts(self, name: str) -> list[str]:
        return [line.text for line in self.lines.get(name, ())]


@pytest.fixture
def pods(kubernetes_cluster: ForTest, tiny_image: str) -> Iterator[Pods]:
    with opened(kubernetes_cluster) as cluster:
        found = Pods(cluster, tiny_image)
        with contextlib.closing(found):
            yield found
            assert found.errors.empty()


@pytest.fixture
def relayed_pods(
    kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> Iterator[tuple[Pods, Relay]]:
    """The same through a relay: it comes between the emulator and the API server."""
    with relayed(kubernetes_cluster, tmp_path) as (cluster, relay):
        found = Pods(cluster, tiny_image)
        with contextlib.closing(found):
            yield found, relay


def in_order(lines: list[Line]) -> bool:
    return all(one.wall <= other.wall for one, other in itertools.pairwise(lines))


NUMBERS = """
for number in $(seq 1 {count}); do
  echo "$number"
  (( number % {every} )) || sleep {pause}
done
"""


def test_lines_of_every_shape(pods: Pods) -> None:
    """What Docker's log makes of them: a character that is not finished is replaced there."""
    script = r"""
    echo first; echo; printf 'carriage\r\n'; printf 'caf\303\251\n'
    head -c 40000 /dev/zero | tr '\0' x; echo
    head -c 16384 /dev/zero | tr '\0' y; echo
    head -c 40000 /dev/zero | tr '\0' ' '; echo end
    for i in 1 2 3; do echo "out $i"; done
    printf 'caf\303\n'; printf 'no newline'
    """
    pods.start("shapes", script)
    assert pods.until_exit("shapes").exit_code == 0
    assert pods.texts("shapes") == [
        *("first", "", "carriage", "café", "x" * 40000, "y" * PIECE, " " * 40000 + "end"),
        *("out 1", "out 2", "out 3", "caf\N{REPLACEMENT CHARACTER}", "no newline"),
    ]
    assert in_order(pods.lines["shapes"])
    assert pods.exits["shapes"].wall >= pods.lines["shapes"][-1].wall
    assert not pods.notes


def test_long_lines_of_characters_of_two_bytes(pods: Pods) -> None:
    script = "import sys; sys.stdout.write('a' + 'ä' * 20000 + '\\n' + '2026-01-01T00:00:00Z b')"
    pods.start("long", f'python3 -c "{script}"')
    pods.until_exit("long")
    long, last = pods.texts("long")
    # Docker splits characters where it cuts lines, and replaces the halves.
    assert long.replace("\N{REPLACEMENT CHARACTER}", "") == "a" + "ä" * (len(long) - 1 - 4)
    assert last == "2026-01-01T00:00:00Z b"


def test_both_streams_end_without_a_newline(pods: Pods) -> None:
    pods.start("both", "echo one >&2; printf 'the last of out'; printf 'the last of err' >&2")
    pods.until_exit("both")
    assert sorted(pods.texts("both")) == ["one", "the last of err", "the last of out"]


@pytest.mark.parametrize("exit_code", [0, 3, 130])
def test_the_exit_code(pods: Pods, exit_code: int) -> None:
    pods.start("coded", f"echo hello; exit {exit_code}")
    exited = pods.until_exit("coded")
    assert (exited.exit_code, exited.reason, exited.oom_killed) == (exit_code, "", False)
    assert pods.texts("coded") == ["hello"]


def test_a_pod_that_had_ended_is_read_as_well(pods: Pods) -> None:
    pod = pods.make("early", "seq 1 2000; exit 4")
    pods.until_failed("early")
    pods.output.follow("early", pod)
    assert pods.until_exit("early").exit_code == 4
    assert pods.texts("early") == [str(number) for number in range(1, 2001)]


def test_a_task_that_runs_out_of_memory(pods: Pods) -> None:
    limited = pods.container("main", "echo begin; x=$(head -c 200000000 /dev/zero | tr '\\0' x)")
    limits = {"limits": {"memory": "48Mi"}}
    pods.start("greedy", "", containers=[{**limited, "resources": limits}])
    exited = pods.until_exit("greedy")
    assert (exited.oom_killed, exited.reason) == (True, "OOMKilled")
    assert pods.texts("greedy") == ["begin"]


def test_streams_that_are_cut_lose_and_repeat_nothing(
    relayed_pods: tuple[Pods, Relay],
) -> None:
    pods, relay = relayed_pods
    pods.start("cut", NUMBERS.format(count=3000, every=100, pause=0.1))
    pods.until_line("cut", "1")
    cuts = 0
    while "cut" not in pods.exits:
        event = pods.take()
        if isinstance(event, Line) and len(pods.lines["cut"]) % 300 == 0:
            relay.cut_after(100 * cuts)  # in a line, in a stamp, in the size of a chunk
            cuts += 1
    assert pods.texts("cut") == [str(number) for number in range(1, 3001)]
    assert in_order(pods.lines["cut"])
    assert pods.cluster.requests["get pods/log"] > 4
    assert not pods.notes


def test_long_lines_that_are_cut_lose_and_repeat_nothing(
    relayed_pods: tuple[Pods, Relay],
) -> None:
    pods, relay = relayed_pods
    line = "head -c 40000 /dev/zero | tr '\\0' x; echo"
    pods.start("long", f"for i in $(seq 1 30); do echo $i; {line}; sleep 0.1; done; printf last")
    pods.until_line("long", "1")
    while "long" not in pods.exits:
        if isinstance(pods.take(), Line) and len(pods.lines["long"]) % 10 == 0:
            relay.cut_after(50_000)
    expected = [text for number in range(1, 31) for text in (str(number), "x" * 40000)]
    assert pods.texts("long") == [*expected, "last"]
    assert pods.cluster.requests["get pods/log"] > 3


def test_an_outage_of_the_api_server_loses_nothing(
    relayed_pods: tuple[Pods, Relay], pods: Pods
) -> None:
    there = pods
    pods, relay = relayed_pods
    pods.start("goes-on", NUMBERS.format(count=200, every=10, pause=0.2))
    pods.start("ends", "echo 1; sleep 1; printf 2; exit 5")
    pods.until_line("goes-on", "10")
    relay.away()
    there.until_failed("ends")
    relay.back()
    assert pods.until_exit("goes-on").exit_code == 0
    assert pods.until_exit("ends").exit_code == 5
    assert pods.texts("goes-on") == [str(number) for number in range(1, 201)]
    assert pods.texts("ends") == ["1", "2"]


def test_an_outage_that_lasts_ends_the_run(relayed_pods: tuple[Pods, Relay]) -> None:
    pods, relay = relayed_pods
    pods.start("goes-on", "echo 1; sleep 1000")
    pods.until_line("goes-on", "1")
    pods.cluster.outage_timeout = 0.2
    relay.away()
    with pytest.raises(EngineLost, match="No Kubernetes API server answers"):
        pods.take()
    relay.back()
    pods.delete("goes-on", grace=0)


def test_last_words_come_before_the_exit(pods: Pods) -> None:
    trap = "trap 'echo saving; sleep 1; printf saved; exit 7' TERM"
    pods.start("warned", f"{trap}; echo ready; while :; do sleep 0.1; done")
    pods.until_line("warned", "ready")
    pods.delete("warned", grace=20)
    exited = pods.until_exit("warned")
    assert pods.texts("warned") == ["ready", "saving", "saved"]
    # Kubelets before 1.22 may collect the container before they have looked at its exit code.
    assert (exited.exit_code, exited.reason) in [(7, ""), (143, "ContainerStatusUnknown")]
    assert not pods.notes


def test_last_words_without_a_newline_outlive_their_container(pods: Pods) -> None:
    """A kubelet that removes many Pods at once tells their ends seconds after it has."""
    names = [f"warned-{number}" for number in range(10)]
    trap = "trap 'echo saving; printf saved; exit 7' TERM"
    for name in names:
        pods.start(name, f"{trap}; echo ready; while :; do sleep 0.1; done")
    for name in names:
        pods.until_line(name, "ready")
    for name in names:
        pods.delete(name, grace=20)
    for name in names:
        pods.until_exit(name)
    assert [pods.texts(name) for name in names] == [["ready", "saving", "saved"]] * len(names)


def test_a_pod_deleted_without_grace_was_killed(pods: Pods) -> None:
    pods.start("killed", "echo ready; sleep 1000")
    pods.until_line("killed", "ready")
    pods.delete("killed", grace=0)
    exited = pods.until_exit("killed")
    assert exited.exit_code == 137
    assert exited.wall >= pods.lines["killed"][-1].wall


def test_a_pod_deleted_before_it_ran_was_killed(pods: Pods) -> None:
    pods.start("nowhere", "echo ready", nodeSelector={"emulator": "nowhere"})
    pods.delete("nowhere")
    assert pods.until_exit("nowhere").exit_code == 137
    assert pods.texts("nowhere") == []


def test_a_name_is_another_pod_the_second_time(pods: Pods) -> None:
    pods.start("again", "echo one; sleep 1000")
    pods.until_line("again", "one")
    pods.delete("again", grace=0)
    pods.until_exit("again")
    first = pods.exits.pop("again")
    pods.until_gone("again")
    pods.start("again", "echo two; exit 2")
    second = pods.until_exit("again")
    assert (first.exit_code, second.exit_code) == (137, 2)
    assert pods.texts("again") == ["one", "two"]


def test_another_supervisor_goes_on_where_one_stopped(pods: Pods) -> None:
    pod = pods.start("taken", NUMBERS.format(count=300, every=10, pause=0.2) + "printf end")
    pods.until_line("taken", "25")
    pods.output.close()
    printed = pods.texts("taken")
    second = Output(pods.cluster)
    inbox = EachLine()
    second.report_to(inbox)
    second.follow("taken", pod, known=KnownOutput(printed, 0.0))
    pods.output, pods.inbox = second, inbox
    second.look_at("MODIFIED", pods.cluster.get(pods.cluster.namespaced("pods", "taken")))
    pods.until_exit("taken")
    assert pods.texts("taken") == [*(str(number) for number in range(1, 301)), "end"]


def test_a_known_end_is_not_repeated(pods: Pods) -> None:
    pod = pods.make("known", "echo one; printf two; exit 3")
    pods.until_failed("known")
    pods.output.follow("known", pod, known=KnownOutput(["zero", "one", "two"], 0.0))
    assert pods.until_exit("known").exit_code == 3
    assert pods.texts("known") == []


def test_init_steps_and_side_cars_have_lines_and_exits_too(pods: Pods) -> None:
    ends: queue.SimpleQueue[Exited] = queue.SimpleQueue()
    step = pods.container("step", "echo fetched; exit 0")
    containers = [
        pods.container("main", "echo training; sleep 2; exit 3"),
        pods.container("proxy", "echo proxying; exit 1"),
    ]
    pod = pods.start("task", "", initContainers=[step], containers=containers)
    pods.output.follow("task.step", pod, "step", then=ends.put)
    pods.output.follow("task.proxy", pod, "proxy", then=ends.put)
    assert pods.until_exit("task").exit_code == 3
    assert {(one.task, one.exit_code) for one in (ends.get(timeout=60), ends.get(timeout=60))} == {
        ("task.step", 0),
        ("task.proxy", 1),
    }
    assert [pods.texts(name) for name in ("task.step", "task", "task.proxy")] == [
        ["fetched"],
        ["training"],
        ["proxying"],
    ]


def test_an_init_step_that_fails_is_the_exit_of_the_task(pods: Pods) -> None:
    step = pods.container("step", "echo cannot; exit 9")
    pod = pods.start("never", "echo training", initContainers=[step])
    pods.output.follow("never.step", pod, "step", then=lambda exited: None)
    assert pods.until_exit("never").exit_code == 9
    assert pods.texts("never") == []


def test_what_is_forgotten_is_reported_no_more(pods: Pods) -> None:
    pod = pods.start("forgotten", "while :; do echo on; sleep 0.1; done")
    pods.until_line("forgotten", "on")
    pods.output.forget(pod)
    pods.delete("forgotten", grace=0)
    pods.until_gone("forgotten")
    pods.start("other", "echo done")
    pods.until_exit("other")
    assert "forgotten" not in pods.exits


def test_an_api_server_that_starts_again_loses_nothing(kubernetes_alone: Alone, pods: Pods) -> None:
    pods.start("goes-on", NUMBERS.format(count=300, every=10, pause=0.2))
    pods.start("ends", "echo 1; sleep 1; printf 2; exit 5")
    pods.until_line("goes-on", "10")
    with kubernetes_alone.api_away():
        pass
    assert pods.until_exit("ends").exit_code == 5
    assert pods.until_exit("goes-on").exit_code == 0
    assert pods.texts("goes-on") == [str(number) for number in range(1, 301)]
    assert pods.texts("ends") == ["1", "2"]
    assert pods.cluster.requests["list pods"] <= 2


def test_a_kubelet_that_starts_again_loses_nothing(kubernetes_alone: Alone, pods: Pods) -> None:
    pods.start("goes-on", NUMBERS.format(count=300, every=10, pause=0.2))
    pods.until_line("goes-on", "10")
    with kubernetes_alone.node_away():
        pass
    assert pods.until_exit("goes-on").exit_code == 0
    assert pods.texts("goes-on") == [str(number) for number in range(1, 301)]
