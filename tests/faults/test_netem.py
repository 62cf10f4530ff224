"""Scripts of tc and iptables, as text; tests/engines/docker/test_faults.py runs them."""

from __future__ import annotations

from emulator.faults.netem import Link, between_all, merged, probe_script, script

ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}


def rules(task: str, *links: Link) -> list[str]:
    """The lines after those that make a clean table."""
    return script(task, links, ADDRESSES).splitlines()[3:]


def test_a_cut_link_drops_what_arrives_and_lets_the_sender_send() -> None:
    cut = Link("a", "b", loss=1.0)
    assert rules("b", cut) == ["iptables -A INPUT -s 10.0.0.1 -j DROP"]
    assert rules("a", cut) == []
    assert rules("c", cut) == []


def test_a_lossy_link_drops_its_share() -> None:
    (rule,) = rules("b", Link("a", "b", loss=0.25))
    assert rule.endswith("-s 10.0.0.1 -m statistic --mode random --probability 0.250000 -j DROP")


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


def test_a_task_without_an_address_is_left_out() -> None:
    assert rules("a", Link("a", "gone", bandwidth=1000), Link("gone", "a", loss=1.0)) == []


def test_without_links_nothing_stays() -> None:
    assert rules("a") == []


def test_links_of_several_faults_add_up() -> None:
    (link,) = merged(
        [
            Link("a", "b", delay=0.01, loss=0.5, bandwidth=100),
            Link("a", "b", delay=0.02, jitter=0.001, loss=0.5, bandwidth=50),
        ]
    )
    assert link == Link("a", "b", delay=0.03, jitter=0.001, loss=0.75, bandwidth=50)
    assert merged([Link("a", "b", loss=1), Link("b", "a", loss=1)]) == [
        Link("a", "b", loss=1),
        Link("b", "a", loss=1),
    ]


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
