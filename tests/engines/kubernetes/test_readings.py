"""Answers of metrics.k8s.io and of kubelets, read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.kubernetes.readings import (
    Rate,
    accumulated,
    rates,
    seconds_of,
    usage_in_summary,
)
from emulator.metrics.catalog import Usage

RECORDED = Path(__file__).parent / "recorded"
AT = 1_795_386_522.0
"""2026-11-22T22:28:42Z."""
BUSY = "7a99ed47-1f19-481e-ab46-309c7ce3a701"


def summary() -> Any:
    return json.loads((RECORDED / "summary.json").read_text())


def test_a_kubelets_summary_has_counters_of_the_task_and_of_its_pods_network() -> None:
    assert usage_in_summary(summary()) == {
        BUSY: Usage(cpu=5.628927751, memory=702464, received=988, sent=0, measured=AT)
    }


def test_bytes_are_those_of_all_interfaces_but_loopback_where_they_are_counted() -> None:
    answer = summary()
    pod = answer["pods"][0]
    network = pod.pop("network")
    used = usage_in_summary(answer)[BUSY]
    assert (used.received, used.sent) == (None, None)  # the runtime does not count them
    interfaces = (("lo", 7, 7), ("eth0", 100, 10), ("eth1", 1000, 20))
    counted = [{"name": name, "rxBytes": rx, "txBytes": tx} for name, rx, tx in interfaces]
    pod["network"] = {**network, "interfaces": counted}
    used = usage_in_summary(answer)[BUSY]
    assert (used.received, used.sent) == (1100, 30)
    assert usage_in_summary({"node": {}}) == {}


METRICS = {
    "kind": "PodMetricsList",
    "apiVersion": "metrics.k8s.io/v1beta1",
    "items": [
        {
            "metadata": {"name": "run-worker-0", "namespace": "team"},
            "timestamp": "2026-11-22T22:28:42Z",
            "window": "15.012s",
            "containers": [
                {"name": "proxy", "usage": {"cpu": "1", "memory": "1Gi"}},
                {"name": "main", "usage": {"cpu": "187624973n", "memory": "8020Ki"}},
            ],
        },
        {
            "metadata": {"name": "run-worker-1", "namespace": "team"},
            "timestamp": "2026-11-22T22:28:42Z",
            "window": "15s",
            "containers": [{"name": "main", "usage": {"cpu": "0", "memory": "1048576"}}],
        },
        {"metadata": {"name": "run-worker-2"}, "timestamp": "2026-11-22T22:28:42Z"},
    ],
}


def test_metrics_are_cores_and_bytes_of_the_task() -> None:
    assert rates(METRICS) == {
        "run-worker-0": Rate(AT, 0.187624973, 8020 * 1024),
        "run-worker-1": Rate(AT, 0.0, 2**20),
    }
    assert rates({"items": None}) == {}


def test_windows_add_up_to_what_was_used_since_the_start() -> None:
    assert accumulated(None, Rate(AT, 0.5, 100), AT + 1) is None  # it is of an earlier Pod
    first = accumulated(None, Rate(AT, 0.5, 100), AT - 20)
    assert first == Usage(cpu=10.0, memory=100, measured=AT)
    second = accumulated(first, Rate(AT + 15, 1.0, 200), AT - 20)
    assert second == Usage(cpu=25.0, memory=200, measured=AT + 15)
    # A window was missed: the later one stands for it.
    third = accumulated(second, Rate(AT + 45, 2.0, 50), AT - 20)
    assert third == Usage(cpu=85.0, memory=50, measured=AT + 45)


@pytest.mark.parametrize("stamp", [AT, AT - 15])
def test_a_window_that_is_known_already_adds_nothing(stamp: float) -> None:
    before = Usage(cpu=10.0, memory=100, measured=AT)
    assert accumulated(before, Rate(stamp, 9.0, 999), 0) is before


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("2026-11-22T22:28:42Z", AT),
        ("2026-11-22T22:28:42.123456789Z", AT + 0.123456),
        ("2026-11-22T23:28:42+01:00", AT),
    ],
)
def test_times_of_the_api(stamp: str, seconds: float) -> None:
    assert seconds_of(stamp) == pytest.approx(seconds, abs=1e-6)


def test_a_reading_that_is_repeated_is_the_same() -> None:
    one, two = usage_in_summary(summary())[BUSY], usage_in_summary(summary())[BUSY]
    assert one == two
    assert one != replace(two, measured=AT + 1)
