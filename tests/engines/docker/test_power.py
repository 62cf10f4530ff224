"""A task that loses power, on a real engine: what its peer sees, and what is left."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from emulator.engines.base import ResumePoint
from emulator.engines.docker import DockerEngine
from emulator.engines.docker.container_request import LOST, container_request, labels
from emulator.record.events import fields_of
from emulator.record.reader import Record
from tests.conftest import Emulate, left, wait_for_line
from tests.engines.docker.site import Site
from tests.engines.inbox import EachLine
from tests.engines.stage import shells, staged

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

PROGRAM = '''
"""worker-1 accepts connections; worker-0 says whenever what it sees of worker-1 changes."""
import json, os, socket, sys, threading, time

OVER = "/shared/over"

def serve():
    server = socket.create_server(("", 9000))
    server.settimeout(0.2)
    def swallow(way):
        while way.recv(1000):
            pass
    print("serving", *sys.argv[1:], flush=True)
    while not os.path.exists(OVER):
        try:
            threading.Thread(target=swallow, args=server.accept()[:1], daemon=True).start()
        except TimeoutError:
            pass

def resolve():
    try:
        found = socket.getaddrinfo("worker-1", 9000, type=socket.SOCK_STREAM)
        return sorted(address[0] for *_, address in found)
    except OSError as error:
        return type(error).__name__

def connect():
    try:
        socket.create_connection(("worker-1", 9000), timeout=0.5).close()
        return "connected"
    except OSError as error:
        return type(error).__name__

def use(way):
    """Send on a connection that was made before, and look whether it is still there."""
    try:
        way.send(b"x")
        way.recv(1)
        return "closed"
    except BlockingIOError:
        return "open"
    except OSError as error:
        return type(error).__name__

def watch():
    while connect() != "connected":
        time.sleep(0.1)
    way = socket.create_connection(("worker-1", 9000))
    way.setblocking(False)
    seen = []
    while True:
        now = [resolve(), connect(), use(way)]
        if now not in seen[-1:]:
            seen.append(now)
            print(json.dumps(now), flush=True)
        print("watching", flush=True)  # again and again: a line counts once all tasks are running
        if now[1] == "connected" and "TimeoutError" in [one[1] for one in seen]:
            open(OVER, "w").close()
            return
        time.sleep(0.02)

watch() if os.environ["EMULATOR_TASK"] == "worker-0" else serve()
'''


class Seen(NamedTuple):
    """What worker-0 saw of worker-1."""

    addresses: list[str] | str
    connecting: str
    connection: str
    """The one that was made before."""


LOSS = "{preempt: worker-1, loss: silent, at: {log: watching, task: worker-0}, "


def faults(*those: str) -> str:
    return f"cluster: {{worker: 2}}\nsuccess: all-workers\nfaults: [{', '.join(those)}]\n"


def silences(record: Record) -> list[Seen]:
    """Return what was seen from the first silence on; check what came before."""
    printed = (record.path / "logs" / "worker-0.log").read_text().splitlines()
    seen = [Seen(*json.loads(line)) for line in printed if line.startswith("[")]
    address = seen[0].addresses[0]
    assert seen[0] == Seen([address], "connected", "open")
    assert seen[1] == Seen([address], "TimeoutError", "open")
    return seen[1:]


@pytest.fixture
def site(site: Site) -> Site:
    site.interpreter = "python3"
    return site


@pytest.mark.parametrize(("address", "down"), [("", 3), ("address: same, ", 2)])
def test_its_name_stays_and_connections_time_out_until_its_replacement_is_there(
    site: Site, address: str, down: int
) -> None:
    result = site.run(PROGRAM, faults(f"{LOSS}{address}down: {down}s}}"))
    assert result.exit_code == 0
    silent, *later = silences(Record(result.folder))
    assert later[-1].connecting == "connected"
    assert (later[-1].addresses == silent.addresses) is bool(address)
    # First both addresses, then the new one, whose program is starting. One that gets the same
    # address can start only when the other is gone: for a moment there is no such name.
    for one in later if not address else ():
        assert isinstance(one.addresses, list)
        assert one.connecting in ("TimeoutError", "ConnectionRefusedError", "connected")
        assert one.connection == "open"
    (fault,) = result.summary["faults"]
    assert (fault["status"], fault["silent"], fault["exit_code"]) == ("applied", True, 137)
    assert fault["restored_after"] - fault["applied_after"] >= down
    assert left("docker", result.run_id) == []


def test_another_network_fault_meanwhile_does_not_let_it_answer(site: Site) -> None:
    shaped = "{shape: worker-1, loss: 1%, for: 1s, at: {after: '0'}}"
    result = site.run(PROGRAM, faults(LOSS + "down: 3s}", shaped))
    assert [fault["status"] for fault in result.summary["faults"]] == ["applied"] * 2
    silent, *later = silences(Record(result.folder))
    old = {one.connecting for one in later if one.addresses == silent.addresses}
    assert old <= {"TimeoutError"}


def begun(emulate: Emulate, path: Path) -> tuple[subprocess.Popen[str], Record]:
    """Start a run, and wait until a task has lost its power."""
    process = emulate.start("up", path, "--engine", "docker", "--out", emulate.out, "--json")
    wait_for_line(process, " has lost power")
    (folder,) = emulate.out.iterdir()
    return process, Record(folder)


def test_a_run_that_is_taken_over_meanwhile_brings_it_back(emulate: Emulate, site: Site) -> None:
    process, record = begun(emulate, site.path(PROGRAM, faults(LOSS + "down: 6s}")))
    process.kill()
    process.wait()
    assert [name for name in left("docker", record.run_id) if name.endswith(LOST)]
    done = emulate("attach", record.run_id, "--out", emulate.out)
    assert done.returncode == 0, done.stderr
    silent, *later = silences(record)
    assert later[-1].connecting == "connected"
    assert silent.addresses != later[-1].addresses
    stages = [fields_of(e)["stage"] for e in Record(record.path).history if e.event == "fault"]
    assert stages == ["triggered", "applied", "healed"]
    assert left("docker", record.run_id) == []


def test_a_successor_learns_of_a_loss_that_was_not_recorded(
    tmp_path: Path, docker_engine: DockerEngine, tiny_image: str
) -> None:
    """Its supervisor was killed before the exit reached it; then again before the old one went."""
    loss = {"preempt": "worker-0", "loss": "silent", "at": "1h"}
    asked = shells({"worker": "echo up; exec sleep 1000"}, tiny_image, faults=[loss])
    docker_engine.images.ensure("network", lambda line: None)
    first = DockerEngine()
    with staged(first, asked, tmp_path) as s, contextlib.ExitStack() as engines:
        plan, folder, run_id = s.plan, s.folder, s.plan.run_id

        def engine() -> DockerEngine:
            return engines.enter_context(contextlib.closing(DockerEngine()))

        s.start(until="up")
        first.cut_power("worker-0")

        second, inbox = engine(), EachLine()
        started = second.reattach(plan, folder, inbox, {"worker-0": ResumePoint(["up"], 0.0)})
        assert list(started) == ["worker-0"]
        end = inbox.get(timeout=300)
        assert (end.task, end.exit_code) == ("worker-0", 137)
        second.remove("worker-0")
        assert containers(run_id) == [f"{run_id}-worker-0{LOST}"]  # its name is still there
        docker_engine.api.create_container_from_config(
            container_request(plan, plan.task("worker-0"), labels(plan, folder)),
            f"{run_id}-worker-0",
        )
        requested = time.time()
        docker_engine.api.start(f"{run_id}-worker-0")

        third, inbox = engine(), EachLine()
        third.reattach(plan, folder, inbox, {"worker-0": ResumePoint([], requested)})
        assert containers(run_id) == [f"{run_id}-worker-0"]
        assert inbox.get(timeout=300).text == "up"


def containers(run_id: str) -> list[str]:
    """Return the names of the run's containers."""
    found = [name.partition(" ") for name in left("docker", run_id)]
    return [name for kind, _, name in found if kind == "container"]


def test_a_run_that_ends_meanwhile_leaves_nothing(site: Site) -> None:
    kill = "{kill: worker-0, at: {log: TimeoutError, task: worker-0}}"
    result = site.run(PROGRAM, faults(LOSS + "down: forever}", kill))
    assert (result.exit_code, left("docker", result.run_id)) == (1, [])


def test_its_processes_are_gone_and_all_that_it_printed_is_read(
    emulate: Emulate, site: Site, docker_engine: DockerEngine
) -> None:
    """Also a child in a session of its own, which ignores signals."""
    site.interpreter = "sh"
    # Again and again: a line counts once all tasks are running.
    live = "trap '' TERM; setsid sleep 1000 & while :; do echo up; sleep 0.1; done"
    loss = "faults: [{preempt: worker-0, loss: silent, down: forever, at: {log: up}}]\n"
    process, record = begun(emulate, site.path(live, loss))
    container = f"{record.run_id}-worker-0{LOST}"
    table: Any = docker_engine.api.top(container, "-o pid,stat,args")
    running = [row for row in table["Processes"] if not row[1].startswith("Z")]
    assert [row[1][0] for row in running] == ["T"]  # the init, stopped; all others are zombies
    printed = docker_engine.api.logs(container).decode()
    emulate("down", record.run_id, "--out", emulate.out)
    process.communicate(timeout=120)
    assert (record.path / "logs" / "worker-0.log").read_text() == printed
    assert left("docker", record.run_id) == []
