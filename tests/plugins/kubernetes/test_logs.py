"""Output and exits of real Pods: every line once, in order, before the exit."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from emulator.engines.base import Line, ResumePoint
from emulator.errors import EngineLost
from emulator.plugins.kubernetes.log_lines import PIECE
from tests.clusters import Alone
from tests.plugins.kubernetes.pods import Pods
from tests.plugins.kubernetes.relay import Relay, Relayed

pytestmark = pytest.mark.kubernetes

GRACE = 120
"""Seconds that no program here needs. Where a kubelet has lost an exit code, what stands for it
depends on whether it looked within the grace period: a busy one may be 20 s late."""


@pytest.fixture
def relayed_pods(through_relay: Relayed, tiny_image: str) -> Iterator[tuple[Pods, Relay]]:
    cluster, relay = through_relay
    with contextlib.closing(Pods(cluster, tiny_image)) as found:
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
    """A character that is not finished is replaced in Docker's log; containerd keeps its byte."""
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
    assert [one.replace("\udcc3", "\N{REPLACEMENT CHARACTER}") for one in pods.texts("shapes")] == [
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
    # Docker splits characters where it cuts lines, and replaces the halves; containerd does not.
    halves = long.count("\N{REPLACEMENT CHARACTER}")
    assert halves in (0, 4)
    assert long.replace("\N{REPLACEMENT CHARACTER}", "") == "a" + "ä" * (20000 - halves // 2)
    assert last == "2026-01-01T00:00:00Z b"


def test_both_streams_end_without_a_newline(pods: Pods) -> None:
    pods.start("both", "echo one >&2; printf 'the last of out'; printf 'the last of err' >&2")
    pods.until_exit("both")
    # Of containerd, the last line of one stream and the next of the other are one.
    assert "".join(sorted(pods.texts("both"))) in (
        *("onethe last of errthe last of out", "onethe last of outthe last of err"),
    )


def test_a_pod_that_had_ended_is_read_as_well(pods: Pods) -> None:
    pod = pods.make("early", "seq 1 2000; exit 4")
    pods.until_failed("early")
    pods.output.follow("early", pod)
    assert pods.until_exit("early").exit_code == 4
    assert pods.texts("early") == [str(number) for number in range(1, 2001)]


def test_a_task_that_runs_out_of_memory(pods: Pods) -> None:
    limited = pods.container("main", "echo begin; x=$(head -c 200000000 /dev/zero | tr '\\0' x)")
    limits = {"limits": {"memory": "48Mi"}}
    # A kubelet hears of the cause apart from the exit: on a busy machine it may miss it.
    for number in range(5):
        task = f"greedy-{number}"
        pods.start(task, "", containers=[{**limited, "resources": limits}])
        exited = pods.until_exit(task)
        assert (exited.exit_code, pods.texts(task)) == (137, ["begin"])
        if exited.oom_killed:
            break
    assert (exited.oom_killed, exited.reason) == (True, "OOMKilled")


def test_streams_that_are_cut_lose_and_repeat_nothing(relayed_pods: tuple[Pods, Relay]) -> None:
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
    # On a busy machine many lines come at once: then some of the cuts are of one stream.
    assert pods.cluster.requests["get pods/log"] > 1
    assert not pods.notes


def test_long_lines_that_are_cut_lose_and_repeat_nothing(relayed_pods: tuple[Pods, Relay]) -> None:
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
    there, (pods, relay) = pods, relayed_pods
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
    assert pods.cluster.requests["list pods"] <= 2


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
    pods.delete("warned", grace=GRACE)
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
        pods.delete(name, grace=GRACE)
    for name in names:
        pods.until_exit(name)
    assert [pods.texts(name) for name in names] == [["ready", "saving", "saved"]] * len(names)


def test_a_pod_deleted_without_grace_or_before_it_ran_was_killed(pods: Pods) -> None:
    pods.start("killed", "echo ready; sleep 1000")
    pods.start("nowhere", "echo ready", nodeSelector={"emulator": "nowhere"})
    pods.until_line("killed", "ready")
    pods.delete("killed", grace=0)
    pods.delete("nowhere")
    assert pods.until_exit("killed").exit_code == 137
    assert pods.until_exit("nowhere").exit_code == 137
    assert pods.exits["killed"].wall >= pods.lines["killed"][-1].wall
    assert pods.texts("nowhere") == []


def test_a_known_end_is_not_repeated(pods: Pods) -> None:
    pod = pods.make("known", "echo one; printf two; exit 3")
    pods.until_failed("known")
    pods.output.follow("known", pod, known=ResumePoint(["zero", "one", "two"], 0.0))
    assert pods.until_exit("known").exit_code == 3
    assert pods.texts("known") == []


def test_what_is_forgotten_is_reported_no_more(pods: Pods) -> None:
    pod = pods.start("forgotten", "while :; do echo on; sleep 0.1; done")
    pods.until_line("forgotten", "on")
    pods.output.forget(pod)
    pods.delete("forgotten", grace=0)
    pods.until_gone("forgotten")
    pods.start("other", "echo done")
    pods.until_exit("other")
    assert "forgotten" not in pods.exits


def test_a_kubelet_that_starts_again_loses_nothing(kubernetes_alone: Alone, pods: Pods) -> None:
    pods.start("goes-on", NUMBERS.format(count=300, every=10, pause=0.2))
    pods.until_line("goes-on", "10")
    with kubernetes_alone.node_away():
        pass
    assert pods.until_exit("goes-on").exit_code == 0
    assert pods.texts("goes-on") == [str(number) for number in range(1, 301)]
