"""What containers use: the daemon's answers as text, and both ways to measure, for real."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import TaskProcess
from emulator.engines.docker import DockerEngine
from emulator.engines.docker.usage import ContainerUsage, arranged, usage_of
from emulator.metrics.catalog import Usage
from tests.engines.stage import Stage, shells, staged


def stats(inactive: str) -> dict[str, Any]:
    return {
        "cpu_stats": {
            "cpu_usage": {"total_usage": 1_500_000_000},
            "throttling_data": {"periods": 2, "throttled_time": 2_500_000_000},
        },
        "memory_stats": {"usage": 1000, "limit": 4096, "stats": {inactive: 400}},
        "networks": {
            "eth0": {"rx_bytes": 1200, "tx_bytes": 300},
            "eth1": {"rx_bytes": 34, "tx_bytes": 5},
        },
        "blkio_stats": {
            "io_service_bytes_recursive": [
                {"major": 8, "minor": 0, "op": "Read", "value": 100},
                {"major": 8, "minor": 16, "op": "read", "value": 1},
                {"major": 8, "minor": 0, "op": "Write", "value": 202},
            ]
        },
        "pids_stats": {"current": 3},
    }


@pytest.mark.parametrize("inactive", ["total_inactive_file", "inactive_file"])
def test_the_daemons_answer_is_read_as_the_files_are(inactive: str) -> None:
    assert usage_of(stats(inactive)) == Usage(
        cpu=1.5,
        memory=600,
        throttled=2.5,
        received=1234,
        sent=305,
        read=101,
        written=202,
        processes=3,
    )


def test_without_a_network_or_disks_none_is_used_and_after_its_end_nothing() -> None:
    answer = {**stats("inactive_file"), "networks": None}
    answer["blkio_stats"] = {"io_service_bytes_recursive": None}
    usage = usage_of(answer)
    assert usage is not None
    assert (usage.received, usage.sent, usage.read, usage.written) == (0, 0, 0, 0)
    assert usage_of({**stats("inactive_file"), "memory_stats": {}}) is None
    assert usage_of({**stats("inactive_file"), "memory_stats": None}) is None


# --- For real -----------------------------------------------------------------------------------

JOB = r"""
import glob, os, re, socket, sys, time
if os.path.exists("/shared/file"): time.sleep(600)  # its second start
hold = b"x" * 30_000_000
(account,) = glob.glob("/sys/fs/cgroup/cpu.stat") or glob.glob("/sys/fs/cgroup/cpu/cpu.stat")
def throttled(): return re.search("^throttled_(usec|time) [1-9]", open(account).read(), re.M)
until = time.process_time() + 0.4  # and until a busy machine lets it have what it must not
while time.process_time() < until or not throttled(): pass
with open("/shared/file", "wb") as file:
    file.write(hold[:5_000_000]); os.fsync(file.fileno())
server = socket.create_server(("", 9000))
print("ready", flush=True)
peer, _ = server.accept()
while peer.recv(65536): pass
print("received", flush=True)
time.sleep(600)
"""
PEER = r"""
import os, socket, time
print("ready", flush=True)
while not os.path.exists("/shared/file"): time.sleep(0.05)
while True:
    try: peer = socket.create_connection(("worker-0", 9000)); break
    except OSError: time.sleep(0.05)
peer.sendall(b"x" * 3_000_000); peer.close()
time.sleep(600)
"""


@pytest.fixture
def job(tiny_image: str, tmp_path: Path) -> Iterator[Stage]:
    limited = {"command": ["python3", "-c", JOB], "cpus": 0.5, "memory": "256m"}
    cluster = {"worker": limited, "peer": {"command": ["python3", "-c", PEER]}}
    with staged(DockerEngine(), shells({}, tiny_image, cluster=cluster), tmp_path) as stage:
        yield stage


@pytest.mark.docker
def test_both_ways_measure_what_was_done_and_agree(job: Stage) -> None:
    engine = job.engine
    assert isinstance(engine, DockerEngine)
    job.start("worker-0")
    job.start("peer-0")
    job.until_line("worker-0", "received")
    here = engine.usage()["worker-0"]
    assert here.cpu >= 0.4
    assert (here.throttled or 0) > 0  # it would use a whole core and has half of one
    assert 30_000_000 <= (here.memory or 0) <= 256 * 2**20
    assert (here.received or 0) >= 3_000_000
    assert (engine.usage()["peer-0"].sent or 0) >= 3_000_000
    assert (here.cpus, here.memory_limit) == (0.5, 256 * 2**20)
    assert (here.processes or 0) >= 2  # the program and its init
    pids = engine.pids()["worker-0"]
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]
    assert any(b"python3" in command for command in commands)

    stream = ContainerUsage(engine.api, local=False)
    container = engine._created["worker-0"]
    stream.started(container, 0.5, 256 * 2**20)
    there = first_answer(stream, container)
    assert there.cpu == pytest.approx(here.cpu, abs=0.2)
    assert there.memory == pytest.approx(here.memory, rel=0.2)
    assert there.received == pytest.approx(here.received, rel=0.05)
    assert here.written is not None
    assert (there.written or 0) >= here.written
    assert there.written == pytest.approx(here.written, rel=0.05)  # more may have got to the disk
    assert (there.cpus, there.memory_limit) == (here.cpus, here.memory_limit)
    stream.set_cpu_limit(container, None)
    assert stream.usage_of({"worker-0": container})["worker-0"].cpus is None
    stream.ended(container)
    assert stream.usage_of({"worker-0": container}) == {}


def first_answer(stream: ContainerUsage, container: str) -> Usage:
    """The daemon's first answer takes it a second or two: wait for that, not for a time."""
    pause = threading.Event()
    for _ in range(600):
        if found := stream.usage_of({"t": container}):
            return found["t"]
        pause.wait(0.05)
    raise AssertionError("the daemon never answered")


@pytest.mark.docker
def test_limits_follow_a_throttle_and_counters_begin_at_zero_with_a_start(job: Stage) -> None:
    engine = job.engine
    assert isinstance(engine, DockerEngine)
    job.start(until="ready")
    before = engine.usage()["worker-0"]
    engine.throttle("worker-0", 0.25)
    assert engine.usage()["worker-0"].cpus == 0.25
    engine.throttle("worker-0", None)
    assert engine.usage()["worker-0"].cpus is None
    engine.signal("worker-0", 9)
    job.until_exit()
    assert engine.usage() == {}
    assert engine.pids() == {"worker-0": []}
    job.start()
    again = engine.usage()["worker-0"]
    assert again.cpu < before.cpu


def test_the_main_process_is_the_first_that_the_first_one_of_a_container_has_started() -> None:
    rows = [
        ["900", "5", "Ss", "0", "0", "docker-init"],
        ["931", "900", "S", "0000000000000000", "0000000000000000", "sleep"],  # its parent ended
        ["907", "900", "Sl", "0000000000004002", "0000000000001000", "python3"],
        ["908", "907", "S", "-", "-", "my", "worker"],
        ["909", "907", "Z", "0", "0", "gone", "<defunct>"],
        ["950", "5", "R", "?", "?", "ps"],  # by `docker exec`; a `ps` without masks
    ]
    assert arranged(900, rows) == [
        TaskProcess(907, "python3", main=True, handled=frozenset({2, 13, 15})),
        TaskProcess(931, "sleep", main=False, handled=frozenset()),
        TaskProcess(908, "my worker", main=False, handled=None),
        TaskProcess(950, "ps", main=False, handled=None),
    ]
    assert arranged(900, rows[:1]) == []
