"""Faults of network and memory, and addresses, on a real engine: what arrives, and what is left."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.docker import DockerEngine
from emulator.engines.docker.container_request import probe_labels
from emulator.engines.docker.network import missing_parts
from emulator.errors import EngineError, Unsupported
from emulator.faults.netem import Link
from emulator.planning.context import machine_limits
from emulator.record.events import Entry, FaultEvent
from tests.engines.docker.site import Site
from tests.engines.stage import Stage, shells, staged

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

# Counts the packets of each text, and swallows whatever is sent on a connection.
COUNTER = """
import socket, threading
from collections import Counter
packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10**6)
packets.bind(("", 9000))
server = socket.create_server(("", 9001))
def swallow():
    while True:
        sender, _ = server.accept()
        while sender.recv(65536):
            pass
        sender.close()
threading.Thread(target=swallow, daemon=True).start()
seen = Counter()
print("up", flush=True)
while True:
    text, sender = packets.recvfrom(100)
    if text.startswith(b"count "):
        packets.sendto(b"%d" % seen[text[6:]], sender)
    seen[text] += 1
"""
SEND = """
import socket, sys
to, text, count = sys.argv[1:]
packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(count)):
    packets.sendto(text.encode(), (to, 9000))
"""
# Its question waits behind what has arrived before, so that nothing has to be waited for.
COUNT = """
import socket, sys
packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
packets.sendto(b"count " + sys.argv[1].encode(), ("127.0.0.1", 9000))
print(packets.recv(100).decode())
"""
TRANSFER = """
import socket, sys, time
began = time.monotonic()
with socket.create_connection((sys.argv[1], 9001)) as way:
    way.sendall(bytes(int(sys.argv[2])))
    way.shutdown(socket.SHUT_WR)
    way.recv(1)
print(time.monotonic() - began)
"""


class Cluster:
    """Three tasks that count packets, driven by the engine alone."""

    def __init__(self, stage: Stage) -> None:
        assert isinstance(stage.engine, DockerEngine)
        self.stage, self.engine, self.run_id = stage, stage.engine, stage.plan.run_id
        self._sent = 0

    def start(self, *tasks: str) -> None:
        """Start tasks and wait until they count."""
        self.stage.lines.clear()
        for task in tasks:
            self.stage.start(task)
        for task in tasks:
            self.stage.until_line(task, "up")

    def kill(self, task: str) -> None:
        self.stage.exits.clear()
        self.engine.signal(task, signal.SIGKILL)
        self.stage.until_exit(task)

    def inside(self, task: str, *command: str) -> str:
        made = self.engine.api.exec_create(f"{self.run_id}-{task}", list(command))
        output: bytes = self.engine.api.exec_start(made["Id"])
        assert self.engine.api.exec_inspect(made["Id"])["ExitCode"] == 0, output
        return output.decode().strip()

    def inspect(self, task: str) -> dict[str, Any]:
        return dict(self.engine.api.inspect_container(f"{self.run_id}-{task}"))

    def address(self, task: str) -> str:
        networks = self.inspect(task)["NetworkSettings"]["Networks"]
        return str(networks[self.run_id]["IPAddress"])

    def arrive(self, source: str, target: str, count: int = 5) -> int:
        """Return how many of `count` packets arrive."""
        self._sent += 1
        text = f"packet-{self._sent}"
        self.inside(source, "python3", "-c", SEND, self.address(target), text, str(count))
        return int(self.inside(target, "python3", "-c", COUNT, text))

    def both(self, one: str, other: str) -> tuple[int, int]:
        """Return how many of five packets arrive there, and back."""
        return self.arrive(one, other), self.arrive(other, one)

    def transfer(self, source: str, target: str, size: int) -> float:
        """Return the seconds that a transfer of so many bytes takes."""
        output = self.inside(source, "python3", "-c", TRANSFER, self.address(target), str(size))
        return float(output)

    def cut(self, one: str, other: str) -> None:
        self.engine.shape([Link(one, other, loss=1.0), Link(other, one, loss=1.0)])

    def containers(self) -> list[str]:
        chosen = {"label": f"emulator.run={self.run_id}"}
        found = self.engine.api.containers(all=True, filters=chosen)
        return sorted(container["Names"][0].removeprefix(f"/{self.run_id}-") for container in found)


WORKERS = ("worker-0", "worker-1", "worker-2")


@contextlib.contextmanager
def clustered(folder: Path, image: str, *, memory: str | None = None) -> Iterator[Cluster]:
    command = ["python3", "-c", COUNTER]
    worker = {"replicas": 3, "memory": memory, "command": command}
    # Never; but it has the engine choose addresses.
    faults = [{"preempt": "worker-1", "at": "1h", "address": "new"}]
    engine = DockerEngine()
    engine.images.ensure("network", lambda line: None)
    scenario = shells({}, image, cluster={"worker": worker}, faults=faults)
    with staged(engine, scenario, folder) as stage:
        yield Cluster(stage)


@pytest.fixture(scope="module")
def shared(tiny_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with clustered(tmp_path_factory.mktemp("faults"), tiny_image) as made:
        made.start(*WORKERS)
        yield made


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """A cluster whose network is as it should be, before and after."""
    yield shared
    shared.engine.shape([])
    assert shared.containers() == list(WORKERS)  # no helper is left


# --- The network --------------------------------------------------------------------------------


def test_a_partition_stops_both_directions_until_it_is_healed(cluster: Cluster) -> None:
    assert cluster.arrive("worker-0", "worker-1") == 5
    cluster.cut("worker-0", "worker-1")
    assert cluster.both("worker-0", "worker-1") == (0, 0)
    assert cluster.arrive("worker-0", "worker-2") == 5  # the others are not affected
    assert cluster.arrive("worker-2", "worker-1") == 5
    cluster.engine.shape([])
    assert cluster.both("worker-0", "worker-1") == (5, 5)


def test_one_way_is_cut_and_the_other_is_not(cluster: Cluster) -> None:
    cluster.engine.shape([Link("worker-0", "worker-1", loss=1.0)])
    assert cluster.both("worker-0", "worker-1") == (0, 5)


def test_half_of_the_packets_are_lost(cluster: Cluster) -> None:
    cluster.engine.shape([Link("worker-0", "worker-1", loss=0.5)])
    assert 100 < cluster.arrive("worker-0", "worker-1", 400) < 300
    assert cluster.arrive("worker-1", "worker-0", 400) == 400


def test_a_narrow_network_slows_a_transfer(cluster: Cluster) -> None:
    def times(target: str, count: int) -> Iterator[float]:
        return (cluster.transfer("worker-0", target, 300_000) for _ in range(count))

    cluster.engine.shape([Link("worker-0", "worker-1", bandwidth=1_000_000)])
    narrow = min(times("worker-1", 4))  # A slow machine makes one of them slow, a link all.
    assert narrow > 1.8  # 2.4 s by arithmetic, less a burst that may leave at once (0.3 s seen)
    assert any(time < narrow / 2 for time in times("worker-2", 60))
    cluster.engine.shape([])
    assert any(time < narrow / 2 for time in times("worker-1", 60))


def test_a_task_that_restarts_in_a_partition_is_cut_off_until_it_is_healed(
    cluster: Cluster,
) -> None:
    cluster.cut("worker-0", "worker-1")
    cluster.kill("worker-1")
    cluster.start("worker-1")
    assert cluster.both("worker-0", "worker-1") == (0, 0)
    lines = cluster.inside("worker-1", "sh", "-c", "cat /proc/[0-9]*/status").splitlines()
    assert {line for line in lines if line.startswith("CapEff")} == {"CapEff:\t" + "0" * 16}
    cluster.engine.shape([])
    assert cluster.arrive("worker-0", "worker-1") == 5
    # Also where it is healed while the task is away.
    cluster.cut("worker-0", "worker-1")
    cluster.kill("worker-1")
    cluster.engine.shape([])
    cluster.start("worker-1")
    assert cluster.arrive("worker-1", "worker-0") == 5


def test_a_partition_follows_a_replaced_task_to_its_new_address(cluster: Cluster) -> None:
    before = cluster.address("worker-1")
    cluster.cut("worker-0", "worker-1")
    cluster.kill("worker-1")
    cluster.engine.remove("worker-1")
    cluster.start("worker-1")
    assert cluster.address("worker-1") != before
    assert cluster.both("worker-0", "worker-1") == (0, 0)
    assert cluster.arrive("worker-1", "worker-2") == 5
    cluster.engine.shape([])
    assert cluster.arrive("worker-1", "worker-0") == 5


def test_a_delay_is_made_or_refused_with_the_reason_before_anything_starts(
    cluster: Cluster, site: Site
) -> None:
    slow = Link("worker-0", "worker-1", delay=0.5)
    helper = cluster.engine.images.reference("network")
    try:
        missing_parts(cluster.engine.api, helper, ["delay"], probe_labels("faults"))
    except Unsupported:
        lacks = "This Docker engine can't do delay on the network: its kernel lacks sch_netem"
        with pytest.raises(Unsupported, match=lacks) as refused:
            site.run("true", "faults: [{shape: worker-0, at: 1s, for: 5s, delay: 50ms}]\n")
        assert refused.value.exit_code == 2
        assert not (site.folder / "runs").exists()
        with pytest.raises(EngineError, match="The network could not be changed"):
            cluster.engine.shape([slow])
    else:
        before = cluster.transfer("worker-0", "worker-1", 1)
        cluster.engine.shape([slow])
        assert cluster.transfer("worker-0", "worker-1", 1) >= 0.5 > before / 10


def test_tasks_that_end_at_once_end_no_run_whose_network_is_narrow(site: Site) -> None:
    result = site.run(
        "echo x >> count; [ $(wc -l < count) -eq 4 ]",
        "cluster: {worker: 2}\nsuccess: all-workers\n"
        "network: {bandwidth: 10mbit}\nrestart: {policy: on-failure, backoff: 0}\n",
    )
    assert result.exit_code == 0
    assert [task["restarts"] for task in result.summary["tasks"].values()] == [3, 3]


# --- Memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["256m", None])
def test_a_squeezed_task_is_killed_by_the_kernel_and_runs_again_with_its_limit(
    tmp_path: Path, tiny_image: str, memory: str | None
) -> None:
    with clustered(tmp_path, tiny_image, memory=memory) as cluster:
        cluster.start("worker-0")
        cluster.engine.oom_kill("worker-0")
        ended = cluster.stage.until_exit()
        assert (ended.exit_code, ended.oom_killed) == (137, True)
        limit = cluster.inspect("worker-0")["HostConfig"]["Memory"]
        of_all = machine_limits(cluster.engine.capacity().memory, 32_768, 1).memory
        assert limit == (256 * 2**20 if memory else of_all)
        cluster.start("worker-0")
        assert cluster.arrive("worker-0", "worker-0") == 5
        cluster.kill("worker-0")
        with pytest.raises(EngineError, match="run worker-0 out of memory"):
            cluster.engine.oom_kill("worker-0")  # which has ended


def test_a_task_without_a_shell_can_not_run_out_of_memory_and_its_run_continues(site: Site) -> None:
    stops, failed = list[Callable[[], None]](), list[str | None]()

    def note(entry: Entry) -> None:
        if isinstance(entry, FaultEvent) and entry.stage == "failed":
            failed.append(entry.reason)
            stops[0]()

    result = site.run(
        "mv /bin/sh /bin/gone; while :; do echo gone; sleep 0.1; done",
        "faults: [{oom: worker-0, at: {log: gone}}]\n",
        entry=note,
        stoppable=stops.append,
    )
    (reason,) = failed
    assert "The memory use of worker-0 can't be read in its container" in str(reason)
    assert result.outcome == "interrupted"


# --- Addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["same", "new"])
def test_a_preempted_task_has_the_address_that_its_fault_requests(site: Site, address: str) -> None:
    # The first life of worker-1 waits to be preempted; the second ends all.
    live = (
        "echo address $(hostname -i)\n"
        "if [ $EMULATOR_TASK = worker-1 ] && [ -e /shared/ran ]; then touch /shared/over; fi\n"
        "if [ $EMULATOR_TASK = worker-1 ]; then touch /shared/ran; fi\n"
        "until [ -e /shared/over ]; do echo waiting; sleep 0.1; done"
    )
    result = site.run(
        live,
        "cluster: {worker: 2}\nsuccess: all-workers\n"
        "faults: [{preempt: worker-1, at: {log: waiting, task: worker-1}, grace: 0s, down: 0s, "
        f"address: {address}}}]\n",
    )
    assert result.exit_code == 0
    first, second = addresses(site, "worker-1")
    assert (first == second) is (address == "same")
    assert second not in addresses(site, "worker-0")


def addresses(site: Site, task: str) -> list[str]:
    """Return the addresses that a task printed, one for each start."""
    return [line.split()[-1] for line in site.of(task) if line.startswith("address ")]
