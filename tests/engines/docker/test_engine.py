"""What the Docker engine adds to the contract: isolation, limits, labels, what a task costs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from emulator.engines.base import Inbox
from emulator.engines.docker import DockerEngine
from emulator.engines.docker.task_containers import OF_KUBELET
from emulator.planning.planner import make_plan
from emulator.record.events import AllRunning, Entry
from emulator.scenario.loader import parse
from tests.conftest import own
from tests.engines.docker.own_engine import answering
from tests.engines.docker.site import Site
from tests.histories import a_plan

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]


def test_tasks_are_confined_and_their_limits_reach_the_kernel(site: Site) -> None:
    site.run(
        "grep -E '^(CapBnd|CapEff|NoNewPrivs)' /proc/self/status | sort; hostname; echo $$\n"
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null\n"
        "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null; true",
        "cluster: {worker: {cpus: 0.5, memory: 256m}}\n",
    )
    *confined, pid, memory, cpu = site.of("worker-0")
    assert confined == [
        "CapBnd:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "worker-0",
    ]
    assert pid != "1"  # an init is
    assert (memory, cpu.split()[0]) == (str(256 * 2**20), "50000")


def test_an_image_is_known_by_the_id_that_the_engine_has(
    docker_engine: DockerEngine, tiny_image: str
) -> None:
    command = ["docker", "image", "inspect", "--format", "{{.Id}}", tiny_image]
    inspected = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    missing = own("image:none")
    two = f"worker: {{replicas: 2, image: '{tiny_image}'}}"
    plan = a_plan(f"{{{two}, ps: {{replicas: 1, image: '{missing}'}}}}")
    found = docker_engine.software(plan)
    assert found[tiny_image]["id"] == inspected
    assert found[missing] == {}


HERE, OUTSIDE = (IPv4Address("198.18.0.0") + 4 * (os.getpid() % 2**14) + n for n in (1, 2))
"""Addresses outside of every Docker network: ours, and that of a host in a network namespace."""


@pytest.fixture
def outside_host() -> Iterator[None]:
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("a host outside of Docker takes root and iproute2")
    here, there = f"emu-{os.getpid()}", f"inside-{os.getpid()}"
    setup = [
        f"ip netns add {there}",
        f"ip link add {here} type veth peer name eth0 netns {there}",
        f"ip addr add {HERE}/30 dev {here}",
        f"ip link set {here} up",
        f"ip -n {there} addr add {OUTSIDE}/30 dev eth0",
        f"ip -n {there} link set eth0 up",
    ]
    for command in setup:
        subprocess.run(command.split(), check=True)
    with answering(there, str(OUTSIDE), 8000):
        yield
    subprocess.run(["ip", "link", "del", here], check=True)
    subprocess.run(["ip", "netns", "del", there], check=True)


@pytest.mark.parametrize(("internet", "answer"), [("true", "reached"), ("false", "shut off")])
@pytest.mark.usefixtures("outside_host")
def test_egress_is_off_where_the_scenario_says_so(site: Site, internet: str, answer: str) -> None:
    site.interpreter = "python3"
    look = f"""
import socket
try:
    socket.create_connection(("{OUTSIDE}", 8000), timeout=5)
    print("reached")
except OSError:
    print("shut off")
"""
    site.run(look, f"network: {{internet: {internet}}}\n")
    assert site.of("worker-0") == [answer]


def test_a_volume_that_the_engine_makes_again_is_found_as_well(
    site: Site, docker_engine: DockerEngine
) -> None:
    run_id = own("volume")
    folder = site.folder / run_id
    scenario = parse(site.text("true"), folder=site.folder)
    plan = make_plan(scenario, run_id, docker_engine.plan_context(run_id, folder))
    try:
        docker_engine.prepare(plan, folder, Inbox())
        docker_engine.api.remove_volume(run_id)
        docker_engine.start(plan.tasks[0])
        found = {thing.kind for thing in docker_engine.find(run_id)}
        assert found == {"container", "network", "volume"}
    finally:
        docker_engine.tear_down(run_id)
    assert run_id not in [one["Name"] for one in docker_engine.api.volumes()["Volumes"] or []]


def test_containers_of_a_kubelet_are_left_to_it(
    docker_engine: DockerEngine, tiny_image: str
) -> None:
    """They have the labels of their Pods, which are ours where a run is on that cluster."""
    run_id = own("kubelet")
    labels = {"emulator.run": run_id, OF_KUBELET: "3f2a"}
    container = docker_engine.api.create_container(tiny_image, ["true"], labels=labels)["Id"]
    try:
        assert docker_engine.find(run_id) == []
        assert run_id not in {one.run_id for one in docker_engine.find()}
        assert docker_engine.tear_down(run_id) == 0
        assert docker_engine.api.inspect_container(container)
    finally:
        docker_engine.api.remove_container(container, force=True)


def test_a_task_that_runs_costs_no_thread(site: Site) -> None:
    """Threads of a pool are as many as it allows; one that was begun for a call ends with it."""
    names: list[Counter[str]] = []
    passing = ("ThreadPool", "ended", "aside")

    def note(entry: Entry) -> None:
        if isinstance(entry, AllRunning):
            new = {*threading.enumerate()} - before
            names.append(Counter(t.name for t in new if not t.name.startswith(passing)))

    for tasks in (2, 10):
        before = {*threading.enumerate()}
        last = f"/shared/worker-{tasks - 1}"
        go = f"touch /shared/$EMULATOR_TASK; until [ -e {last} ]; do sleep 0.1; done; sleep 1"
        site.run(go, f"cluster: {{worker: {tasks}}}\nsuccess: all-workers\n", entry=note)
    few, many = names
    assert few["streams"] == 1
    assert few == many


def test_a_task_that_ends_costs_eight_calls_and_one_says_what_it_has_saved(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    send = requests.Session.send

    def counted(
        session: requests.Session, request: requests.PreparedRequest, **options: Any
    ) -> requests.Response:
        path = urlsplit(str(request.path_url)).path
        what = re.sub(r"/v[\d.]+/containers/[0-9a-f]{64}", "", path)
        if what != path or path.endswith("/containers/create"):
            calls[f"{request.method} {what.rpartition('/containers')[2]}"] += 1
        return send(session, request, **options)

    monkeypatch.setattr(requests.Session, "send", counted)
    extra = "cluster: {worker: 3}\nsuccess: all-workers\nmetrics: {interval: 1d}\n"
    result = site.run("sleep 0.5", extra)
    assert result.outcome == "succeeded"
    waited = calls.pop("POST /wait", 0)  # its output may end a moment before the container does
    assert calls == {
        "POST /create": 3 + 1,  # the witness
        "PUT /archive": 3,
        "POST /attach": 3 + 1,
        "POST /start": 3 + 1,
        "GET /logs": 6,  # followed, and once again at its end
        "GET /json": 3 + waited,
        "DELETE ": 3 + 1,
        "GET /changes": 1,  # of the first, since nothing was saved on /shared
    }
