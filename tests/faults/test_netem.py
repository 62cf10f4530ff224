"""Scripts of tc and iptables, as text; tests/engines/docker/test_faults.py runs them."""

from __future__ import annotations

import pytest

from emulator.faults.netem import Link, between_all, merged, probe_script, script

ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}


def rules(task: str, *links: Link) -> list[str]:
    """The lines after those that make a clean table."""
    return script(task, links, ADDRESSES).splitlines()[3:]


CUT = Link("a", "b", loss=1.0)
DROP = "iptables -A INPUT -s 10.0.0.1"
SHARE = "-m statistic --mode random --probability"


@pytest.mark.parametrize(
    ("task", "links", "expected"),
    [
        # The sender of a link that is cut may send: what arrives is dropped.
        ("b", [CUT], [f"{DROP} -j DROP"]),
        ("a", [CUT], []),
        ("c", [CUT], []),
        ("b", [Link("a", "b", loss=0.25)], [f"{DROP} {SHARE} 0.250000 -j DROP"]),
        # A task without an address is left out.
        ("a", [Link("a", "gone", bandwidth=1000), Link("gone", "a", loss=1.0)], []),
        ("a", [], []),
    ],
)
def test_what_is_lost_is_dropped_where_it_arrives(
    task: str, links: list[Link], expected: list[str]
) -> None:
    assert rules(task, *links) == expected


def test_a_narrow_network_is_shared_by_all_its_targets() -> None:
    lines = rules("a", Link("a", "b", bandwidth=10_000_000), Link("a", "c", bandwidth=10_000_000))
    assert [line for line in lines if " class " in line] == [
        "tc class add dev eth0 parent 1: classid 1:1 htb rate 10000000bit quantum 60000"
    ]
    filters = [line.rpartition("match ")[2] for line in lines if " filter " in line]
    assert filters == ["ip dst 10.0.0.2/32 flowid 1:1", "ip dst 10.0.0.3/32 flowid 1:1"]


def test_links_that_differ_get_a_class_each() -> None:
    lines = rules("a", Link("a", "b", delay=0.005, jitter=0.001), Link("a", "c", delay=0.02))
    assert [line.partition("netem ")[2] for line in lines if "netem" in line] == [
        "delay 5000us 1000us limit 100000",
        "delay 20000us limit 100000",
    ]


def test_links_of_several_faults_add_up() -> None:
    first = Link("a", "b", delay=0.01, loss=0.5, bandwidth=100)
    second = Link("a", "b", delay=0.02, jitter=0.001, loss=0.5, bandwidth=50)
    assert merged([first, second]) == [
        Link("a", "b", delay=0.03, jitter=0.001, loss=0.75, bandwidth=50)
    ]
    apart = [Link("a", "b", loss=1), Link("b", "a", loss=1)]
    assert merged(apart) == apart


def test_a_link_says_what_it_needs_of_the_kernel() -> None:
    assert Link("a", "b", loss=1).parts == {"iptables"}
    assert Link("a", "b", loss=0.1).parts == {"iptables", "loss"}
    assert Link("a", "b", bandwidth=1).parts == {"bandwidth"}
    assert Link("a", "b", delay=0.1).parts == {"bandwidth", "delay"}
    assert Link("a", "b").parts == set()


def test_a_whole_network_is_every_ordered_pair() -> None:
    assert between_all("ab", 0.01, 50) == (
        Link("a", "b", 0.01, 0, 0, 50),
        Link("b", "a", 0.01, 0, 0, 50),
    )
    assert len(between_all("abc", 0.01, None)) == 6
    assert between_all("ab", 0.0, 50)[1:] == (Link("b", "a", bandwidth=50),)
    assert between_all("abc", 0.0, None) == ()


def test_a_script_sets_the_whole_state_of_a_task() -> None:
    links = [Link("a", "b", delay=0.005), Link("a", "c", bandwidth=1000), Link("c", "a", loss=1)]
    clean = ["iptables -F INPUT 2> /dev/null", "tc qdisc del dev eth0 root 2> /dev/null", "set -e"]
    assert script("a", links, ADDRESSES).splitlines() == [
        *clean,
        "iptables -A INPUT -s 10.0.0.3 -j DROP",
        "tc qdisc add dev eth0 root handle 1: htb",
        "tc class add dev eth0 parent 1: classid 1:1 htb rate 100000000000bit quantum 60000",
        "tc qdisc add dev eth0 parent 1:1 handle 2: netem delay 5000us limit 100000",
        "tc filter add dev eth0 parent 1: protocol ip prio 1 u32 "
        "match ip dst 10.0.0.2/32 flowid 1:1",
        "tc class add dev eth0 parent 1: classid 1:2 htb rate 1000bit quantum 60000",
        "tc filter add dev eth0 parent 1: protocol ip prio 1 u32 "
        "match ip dst 10.0.0.3/32 flowid 1:2",
    ]
    alone = {"a": "10.0.0.1", "b": "10.0.0.2"}  # none but the two of the link
    assert script("b", [CUT], alone).splitlines() == [*clean, f"{DROP} -j DROP"]


def test_a_probe_names_what_it_found() -> None:
    found = "> /dev/null 2>&1 && echo {}; tc qdisc del dev lo root 2> /dev/null"
    assert probe_script({"iptables", "delay"}).splitlines() == [
        f"tc qdisc add dev lo root netem delay 1ms {found.format('delay')}",
        f"iptables -A INPUT -s 192.0.2.1 -j DROP {found.format('iptables')}",
        "true",
    ]
