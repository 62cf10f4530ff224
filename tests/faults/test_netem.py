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
    assert len(between_all("abc", 0.01, None)) == 6
    assert between_all("abc", 0.0, None) == ()


def test_a_probe_names_what_it_found() -> None:
    text = probe_script({"delay", "iptables"})
    assert "&& echo delay;" in text
    assert "&& echo iptables;" in text
    assert text.endswith("true")
