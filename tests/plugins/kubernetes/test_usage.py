"""Usage of Pods: answers read; and of a real cluster's nodes, metrics.k8s.io."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator.metrics.catalog import Usage
from emulator.metrics.samples import series
from emulator.plugins.kubernetes.connection import ApiServer
from emulator.plugins.kubernetes.readings import (
    Rate,
    accumulated,
    rates,
    seconds_of,
    usage_in_summary,
)
from emulator.plugins.kubernetes.rights import role
from emulator.plugins.kubernetes.usage import (
    EVERY,
    MeasuredPod,
    Measurement,
    newer,
    why_no_metrics,
    why_no_summary,
)
from emulator.record.reader import Record
from tests.clusters import ForTest
from tests.conftest import Emulate, Finished, own
from tests.plugins.kubernetes.kinds import added

RUN = own("usage")
AT = 1_795_386_522.0
"""2026-11-22T22:28:42Z."""


def test_of_two_measurements_the_later_one_counts() -> None:
    old, new = Usage(1.0, measured=10.0), Usage(2.0, measured=11.0)
    assert newer(old, new) is new
    assert newer(new, old) is new
    assert newer(None, new) is new
    assert newer(old, None) is old
    assert newer(old, Usage(1.0, received=7, measured=10.0)) is old


@pytest.mark.parametrize(
    ("status", "text"),
    [(404, "has no metrics.k8s.io"), (403, "may not read"), (503, "not answer"), (500, "Oh")],
)
def test_why_there_are_no_metrics_and_the_nodes_do_not_say(status: int, text: str) -> None:
    assert text in why_no_metrics(status, "Oh.")
    assert why_no_summary(403, "No.") == "we may not ask its nodes (get nodes/proxy)"
    assert "(No)" in why_no_summary(500, "No.")


# --- Answers of metrics.k8s.io and of kubelets, read ----------------------------------------------

RECORDED = Path(__file__).parent / "recorded"
UID = "7a99ed47-1f19-481e-ab46-309c7ce3a701"


def summary() -> Any:
    return json.loads((RECORDED / "summary.json").read_text())


def test_a_kubelets_summary_has_counters_of_the_task_and_of_its_pods_network() -> None:
    assert usage_in_summary(summary()) == {
        UID: Usage(cpu=5.628927751, memory=702464, received=988, sent=0, measured=AT)
    }
    one, two = usage_in_summary(summary())[UID], usage_in_summary(summary())[UID]
    assert one == two  # a reading that is repeated is the same
    assert one != replace(two, measured=AT + 1)


def test_bytes_are_those_of_all_interfaces_but_loopback_where_they_are_counted() -> None:
    answer = summary()
    pod = answer["pods"][0]
    network = pod.pop("network")
    used = usage_in_summary(answer)[UID]
    assert (used.received, used.sent) == (None, None)  # the runtime does not count them
    interfaces = (("lo", 7, 7), ("eth0", 100, 10), ("eth1", 1000, 20))
    counted = [{"name": name, "rxBytes": rx, "txBytes": tx} for name, rx, tx in interfaces]
    pod["network"] = {**network, "interfaces": counted}
    used = usage_in_summary(answer)[UID]
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
    for known in (AT, AT - 15):  # such a window adds nothing
        assert accumulated(first, Rate(known, 9.0, 999), 0) is first
    second = accumulated(first, Rate(AT + 15, 1.0, 200), AT - 20)
    assert second == Usage(cpu=25.0, memory=200, measured=AT + 15)
    # A window was missed: the later one stands for it.
    third = accumulated(second, Rate(AT + 45, 2.0, 50), AT - 20)
    assert third == Usage(cpu=85.0, memory=50, measured=AT + 45)


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


# --- A real cluster -------------------------------------------------------------------------------

BUSY = """
name: busy
framework: none
image: {image}
program:
  command: [sh, -c, 'echo up; while [ $(cut -d. -f1 /proc/uptime) -lt $END ]; do :; done; times']
  env: {{END: "{end}"}}
cluster: {{worker: {{replicas: 1, cpus: 0.2, memory: 64m}}}}
"""


Measured = Callable[..., tuple[Finished, Record]]


@pytest.fixture
def measured(
    emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> Measured:
    """Return what runs a busy task for some seconds."""

    def run(seconds: int, *sets: str, user: Path | None = None) -> tuple[Finished, Record]:
        uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
        path = tmp_path / "busy.yaml"
        path.write_text(BUSY.format(image=tiny_image, end=uptime + seconds))
        env = {"KUBECONFIG": str(user or kubernetes_cluster.kubeconfig)}
        done = emulate.up(path, *kubernetes_cluster.arguments, "--run-id", RUN, *sets, env=env)
        assert done.returncode == 0, done.stderr
        return done, Record(emulate.out / RUN)

    return run


def why_not(record: Record) -> list[str]:
    events = map(json.loads, (record.path / "history.jsonl").read_text().splitlines())
    return [one["reason"] for one in events if one["event"] == "sampling-failed"]


@pytest.mark.kubernetes
def test_the_nodes_say_what_a_task_uses(measured: Measured) -> None:
    done, record = measured(60)
    assert why_not(record) == []
    used = [sample.tasks["worker-0"] for sample in record.samples]
    assert len({usage.measured for usage in used}) >= 2
    assert all(0 < (usage.memory or 0) < 64 * 2**20 for usage in used)
    assert {(usage.cpus, usage.memory_limit) for usage in used} == {(0.2, 64 * 2**20)}
    assert all(usage.received is not None for usage in used)
    cores = [rates.cpu for _, rates in series(record.samples, "worker-0") if rates.cpu is not None]
    assert cores
    # As much as the task itself says at its end: its limit, or less on a busy machine, give or take
    # what a node lends, the seconds of its stamps, and what it used after the last sample.
    minutes = re.findall(r"(\d+)m([\d.]+)s", " ".join(record.log("worker-0")))
    said = sum(60 * int(whole) + float(rest) for whole, rest in minutes)
    assert 0.5 * said / 60 < max(cores) < 0.35
    assert done.json["usage"]["worker-0"]["cpu_seconds"] < min(1.1 * said, 0.35 * 60)


@pytest.mark.kubernetes
def test_one_line_says_why_nothing_is_measured(
    measured: Measured, kubernetes_cluster: ForTest, kubernetes_user: Callable[..., Path]
) -> None:
    user = kubernetes_user(role(kubernetes_cluster.namespace)["rules"])
    _, record = measured(40, user=user)  # on a busy machine a Pod takes a while to begin
    assert record.samples == ()
    assert why_not(record) == [
        "CPU and memory are not measured: we may not read metrics.k8s.io (list pods), if there is "
        "one, and we may not ask its nodes (get nodes/proxy)."
    ]


class Clock:
    """Goes on when told."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def pod(name: str = "run-worker-0", node: str = "localhost", **more: Any) -> MeasuredPod:
    return MeasuredPod(name, f"uid-{name}", node, AT - 20, **more)


def metrics(name: str, stamp: str, cpu: str, memory: str, run: str = "run") -> dict[str, Any]:
    return {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "PodMetrics",
        "metadata": {"name": name, "labels": {"emulator.run": run}},
        "timestamp": stamp,
        "window": "15s",
        "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}],
    }


@pytest.mark.kubernetes
@pytest.mark.usefixtures("kubernetes_alone")
def test_metrics_of_the_cluster_come_first(cluster: ApiServer) -> None:
    """The API server serves metrics.k8s.io, though nobody measures: its objects are the test's."""
    clock = Clock()
    measurement = Measurement(cluster, "emulator.run=run", now=clock)
    pods = {"worker-0": pod(cpus=0.5), "worker-1": pod("run-worker-1")}
    with added(cluster, "pods", "PodMetrics", "metrics.k8s.io", "v1beta1") as path:
        assert measurement.usage(pods) == {}  # nothing is measured yet
        cluster.post(path, metrics("run-worker-0", "2026-11-22T22:28:42Z", "100m", "8Mi"))
        cluster.post(path, metrics("other", "2026-11-22T22:28:42Z", "1", "1Gi", run="other"))
        assert measurement.usage(pods) == {}  # it is too early to ask
        clock.time += EVERY
        assert measurement.usage(pods) == {"worker-0": Usage(2.0, 8 * 2**20, cpus=0.5, measured=AT)}
        clock.time += EVERY
        assert measurement.usage(pods) == {}  # nothing is new
        cluster.patch(
            f"{path}/run-worker-0", metrics("run-worker-0", "2026-11-22T22:28:52Z", "1", "9Mi")
        )
        cluster.post(path, metrics("run-worker-1", "2026-11-22T22:28:42Z", "0", "1Mi"))
        clock.time += EVERY
        assert measurement.usage(pods) == {
            "worker-0": Usage(12.0, 9 * 2**20, cpus=0.5, measured=AT + 10),
            "worker-1": Usage(0.0, 2**20, measured=AT),
        }
