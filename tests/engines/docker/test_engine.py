"""What the Docker engine adds to the contract: isolation, limits, networks, copied programs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from emulator.engines.base import Inbox
from emulator.engines.docker import DockerEngine
from emulator.engines.docker.engine import OF_KUBELET
from emulator.execution import up
from emulator.planning.plan import make_plan
from emulator.record.events import AllRunning, Entry
from emulator.results import RunCallbacks
from emulator.scenario.loader import load
from tests.conftest import Emulate, own
from tests.histories import a_plan

RUN = own("labels")

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]


def write(tmp_path: Path, image: str, command: str, cluster: str, extra: str = "") -> Path:
    path = tmp_path / "scenario.yaml"
    script = tmp_path / "job.sh"
    script.write_text(command)
    path.write_text(
        f"name: docker\nframework: none\nimage: {image}\n"
        f"program: {{source: job.sh, command: [sh, job.sh]}}\n"
        f"cluster: {cluster}\nsuccess: all-workers\n{extra}"
    )
    return path


def printed(stderr: str, task: str) -> list[str]:
    return [line.partition(" | ")[2] for line in stderr.splitlines() if line.startswith(f"{task} ")]


def test_tasks_are_confined(emulate: Emulate, tmp_path: Path, tiny_image: str) -> None:
    look = "grep -E '^(CapBnd|CapEff|NoNewPrivs)' /proc/self/status | sort; hostname; echo $$"
    done = emulate.up(write(tmp_path, tiny_image, look, "{worker: 1}"), "--engine", "docker")
    *status, name, pid = printed(done.stderr, "worker-0")
    assert status == [
        "CapBnd:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
    ]
    assert name == "worker-0"
    assert pid != "1"  # an init is


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


def test_limits_reach_the_kernel(emulate: Emulate, tmp_path: Path, tiny_image: str) -> None:
    look = (
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; "
        "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null; true"
    )
    path = write(tmp_path, tiny_image, look, "{worker: {cpus: 0.5, memory: 256m}}")
    lines = printed(emulate.up(path, "--engine", "docker").stderr, "worker-0")
    assert lines[0] == str(256 * 2**20)
    assert lines[1].split()[0] == "50000"


def test_tasks_find_each_other_by_name_and_share_a_volume(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    talk = (
        "echo from $EMULATOR_TASK > $EMULATOR_TASK && mv $EMULATOR_TASK /shared/\n"
        "until [ -e /shared/worker-0 ] && [ -e /shared/worker-1 ]; do sleep 0.05; done\n"
        "cat /shared/worker-0 /shared/worker-1\n"
        "python3 -c \"import socket; print(socket.gethostbyname('worker-0') != "
        "socket.gethostbyname('worker-1'))\"\n"
        "echo done > /shared/done-$EMULATOR_TASK\n"
        "until [ -e /shared/done-worker-0 ] && [ -e /shared/done-worker-1 ]; do sleep 0.05; done\n"
    )
    done = emulate.up(write(tmp_path, tiny_image, talk, "{worker: 2}"), "--engine", "docker")
    assert done.returncode == 0, done.stderr
    for task in ("worker-0", "worker-1"):
        assert printed(done.stderr, task) == ["from worker-0", "from worker-1", "True"]


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
    serve = f"""import socket, time
server = socket.create_server(("{OUTSIDE}", 8000))
print("up", flush=True)
time.sleep(600)"""
    callbacks = subprocess.Popen(
        ["nsenter", f"--net=/run/netns/{there}", "python3", "-c", serve],
        stdout=subprocess.PIPE,
    )
    assert callbacks.stdout is not None
    assert callbacks.stdout.readline() == b"up\n"
    yield
    callbacks.kill()
    callbacks.communicate()
    subprocess.run(["ip", "link", "del", here], check=True)
    subprocess.run(["ip", "netns", "del", there], check=True)


@pytest.mark.parametrize(("internet", "answer"), [(True, "reached"), (False, "shut off")])
def test_egress_is_off_where_the_scenario_says_so(
    emulate: Emulate,
    tmp_path: Path,
    tiny_image: str,
    outside_host: None,
    internet: bool,
    answer: str,
) -> None:
    look = f"""python3 -c '
import socket
try:
    socket.create_connection(("{OUTSIDE}", 8000), timeout=5)
    print("reached")
except OSError:
    print("shut off")
'"""
    extra = f"network: {{internet: {str(internet).lower()}}}"
    path = write(tmp_path, tiny_image, look, "{worker: 1}", extra)
    done = emulate.up(path, "--engine", "docker")
    assert printed(done.stderr, "worker-0") == [answer]


def test_no_port_is_published_and_labels_say_whose_it_is(
    emulate: Emulate, tmp_path: Path, tiny_image: str, docker_engine: DockerEngine
) -> None:
    path = write(tmp_path, tiny_image, "true", "{worker: 1}")
    done = emulate.up(path, "--engine", "docker", "--keep", "--run-id", RUN)
    assert done.returncode == 0, done.stderr
    try:
        found = docker_engine.api.inspect_container(f"{RUN}-worker-0")
        assert found["HostConfig"]["PortBindings"] in (None, {})
        labels = found["Config"]["Labels"]
        assert labels["emulator.run"] == RUN
        assert labels["emulator.task"] == "worker-0"
        assert labels["emulator.folder"] == str(emulate.out / RUN)
    finally:
        docker_engine.tear_down(RUN)


def test_a_volume_that_the_engine_makes_again_is_found_as_well(
    tmp_path: Path, docker_engine: DockerEngine, tiny_image: str
) -> None:
    path = write(tmp_path, tiny_image, "true", "{worker: 1}")
    folder = tmp_path / RUN
    plan = make_plan(load(path), RUN, docker_engine.plan_context(RUN, folder))
    try:
        docker_engine.prepare(plan, folder, Inbox())
        docker_engine.api.remove_volume(RUN)
        docker_engine.start(plan.tasks[0])
        assert {thing.kind for thing in docker_engine.find(RUN)} == {
            "container",
            "network",
            "volume",
        }
    finally:
        docker_engine.tear_down(RUN)
    assert RUN not in [one["Name"] for one in docker_engine.api.volumes()["Volumes"] or []]


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


def test_a_folder_is_copied_into_the_working_directory(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    (tmp_path / "program" / "inner").mkdir(parents=True)
    (tmp_path / "program" / "main.sh").write_text("pwd; cat inner/data")
    (tmp_path / "program" / "inner" / "data").write_text("payload\n")
    path = tmp_path / "s.yaml"
    path.write_text(
        f"name: s\nframework: none\nimage: {tiny_image}\n"
        "program: {source: program, command: [sh, main.sh]}\ncluster: {worker: 1}\n"
    )
    done = emulate.up(path, "--engine", "docker")
    assert printed(done.stderr, "worker-0") == ["/job", "payload"]


def test_a_restarted_task_keeps_its_disk(emulate: Emulate, tmp_path: Path, tiny_image: str) -> None:
    count = "echo x >> count; wc -l < count; [ $(wc -l < count) -eq 3 ]"
    extra = "restart: {policy: on-failure, backoff: 0}"
    path = write(tmp_path, tiny_image, count, "{worker: 1}", extra)
    done = emulate.up(path, "--engine", "docker")
    assert done.returncode == 0, done.stderr
    assert [line.strip() for line in printed(done.stderr, "worker-0")] == ["1", "2", "3"]


def test_a_task_that_runs_costs_no_thread(tmp_path: Path, tiny_image: str) -> None:
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
        path = write(tmp_path, tiny_image, go, f"{{worker: {tasks}}}")
        with contextlib.closing(DockerEngine()) as engine:
            text, callbacks = path.read_text(), RunCallbacks(entry=note)
            up(load(path), engine, text=text, out=tmp_path, reports=False, callbacks=callbacks)
    few, many = names
    assert few["streams"] == 1
    assert few == many


def test_a_task_that_ends_costs_eight_calls(
    tmp_path: Path, tiny_image: str, monkeypatch: pytest.MonkeyPatch
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
    path = write(tmp_path, tiny_image, "sleep 0.5", "{worker: 3}", "metrics: {interval: 1d}\n")
    with contextlib.closing(DockerEngine()) as engine:
        result = up(load(path), engine, text=path.read_text(), out=tmp_path, reports=False)
    assert result.outcome == "succeeded"
    waited = calls.pop("POST /wait", 0)  # its output may end a moment before the container does
    assert calls == {
        "POST /create": 3,
        "PUT /archive": 3,
        "POST /attach": 3,
        "POST /start": 3,
        "GET /logs": 6,  # followed, and once again at its end
        "GET /json": 3 + waited,
        "DELETE ": 3,
    }
