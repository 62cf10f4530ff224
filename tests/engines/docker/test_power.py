"""A task that loses power, on a real engine: what its peer sees, and what is left."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from emulator.engines.base import KnownOutput
from emulator.engines.docker import DockerEngine
from emulator.engines.docker.requests import LOST, container_request, labels
from emulator.planning.plan import make_plan, new_run_id
from emulator.record.events import fields_of
from emulator.record.reader import Record
from emulator.scenario.schema import Scenario
from tests.conftest import Emulate, going_on, left, wait_for_line
from tests.engines.inbox import EachLine

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


def scenario(folder: Path, image: str, faults: str) -> Path:
    (folder / "program.py").write_text(PROGRAM)
    path = folder / "scenario.yaml"
    path.write_text(
        f"name: power\nframework: none\nimage: {image}\ncluster: {{worker: 2}}\n"
        "program: {source: program.py, command: [python3, -u, program.py]}\n"
        f"success: all-workers\ntimeout: 2m\nfaults: [{faults}]\n"
    )
    return path


def seen_in(record: Record) -> list[Seen]:
    printed = (record.path / "logs" / "worker-0.log").read_text().splitlines()
    return [Seen(*json.loads(line)) for line in printed if line.startswith("[")]


def record_of(emulate: Emulate) -> Record:
    (plan,) = emulate.out.glob("*/plan.json")
    return Record(plan.parent)


def silences(record: Record) -> list[Seen]:
    """Return what was seen from the first silence on; check what came before."""
    seen = seen_in(record)
    address = seen[0].addresses[0]
    assert seen[0] == Seen([address], "connected", "open")
    assert seen[1] == Seen([address], "TimeoutError", "open")
    return seen[1:]


def test_its_name_stays_and_connections_time_out_until_its_replacement_is_there(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    loss = "{preempt: worker-1, loss: silent, down: 3s, at: {log: watching, task: worker-0}}"
    done = emulate.up(scenario(tmp_path, tiny_image, loss), "--engine", "docker")
    assert done.returncode == 0, done.stderr
    record = record_of(emulate)
    silent, *later = silences(record)
    assert later[-1].connecting == "connected"
    assert later[-1].addresses != silent.addresses
    for one in later:  # first both addresses, then the new one, whose program is starting
        assert isinstance(one.addresses, list)
        assert one.connecting in ("TimeoutError", "ConnectionRefusedError", "connected")
        assert one.connection == "open"
    (fault,) = done.json["faults"]
    assert (fault["status"], fault["silent"], fault["exit_code"]) == ("applied", True, 137)
    assert fault["restored_after"] - fault["applied_after"] >= 3
    assert left("docker", record.run_id) == []


def test_it_keeps_its_address_if_its_fault_says_so(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    loss = (
        "{preempt: worker-1, loss: silent, down: 2s, address: same, "
        "at: {log: watching, task: worker-0}}"
    )
    done = emulate.up(scenario(tmp_path, tiny_image, loss), "--engine", "docker")
    assert done.returncode == 0, done.stderr
    silent, *later = silences(record_of(emulate))
    assert (later[-1].addresses, later[-1].connecting) == (silent.addresses, "connected")


def test_its_replacement_publishes_the_same_port(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Again and again: a line counts once all tasks are running.
    live = "[ ! -e /shared/ran ] || exit 0; touch /shared/ran; while :; do echo up; sleep 0.1; done"
    path = tmp_path / "scenario.yaml"
    path.write_text(
        f"name: power\nframework: none\nimage: {tiny_image}\n"
        f"program: {{command: [sh, -c, {json.dumps(live)}]}}\n"
        f"cluster: {{worker: {{ports: [{{port: 80, host_port: {port}}}]}}}}\ntimeout: 5m\n"
        "faults: [{preempt: worker-0, loss: silent, down: 0s, at: {log: up}}]\n"
    )
    done = emulate.up(path, "--engine", "docker")
    assert done.returncode == 0, done.stderr


def test_another_network_fault_meanwhile_does_not_let_it_answer(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    faults = (
        "{preempt: worker-1, loss: silent, down: 3s, at: {log: watching, task: worker-0}}, "
        "{shape: worker-1, loss: 1%, for: 1s, at: {after: '0'}}"
    )
    done = emulate.up(scenario(tmp_path, tiny_image, faults), "--engine", "docker")
    assert [fault["status"] for fault in done.json["faults"]] == ["applied"] * 2
    silent, *later = silences(record_of(emulate))
    assert {one.connecting for one in later if one.addresses == silent.addresses} <= {
        "TimeoutError"
    }


def test_a_run_that_is_taken_over_meanwhile_brings_it_back(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    loss = "{preempt: worker-1, loss: silent, down: 6s, at: {log: watching, task: worker-0}}"
    path = scenario(tmp_path, tiny_image, loss)
    process = emulate.start("up", path, "--engine", "docker", "--out", emulate.out, "--json")
    wait_for_line(process, "worker-1 has lost power")
    process.kill()
    process.wait()
    record = record_of(emulate)
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
    sleep = {"command": ["sh", "-c", "echo up; exec sleep 1000"]}
    asked = Scenario.model_validate(
        {"name": "power", "framework": "none", "image": tiny_image, "cluster": {"worker": 1}}
        | {"program": sleep, "faults": [loss]}
    )
    run_id = new_run_id("power")
    plan = make_plan(asked, run_id, docker_engine.plan_context(run_id, tmp_path))
    task = plan.task("worker-0")
    docker_engine.images.ensure("network", lambda line: None)
    with going_on(tmp_path), contextlib.ExitStack() as engines:

        def engine() -> DockerEngine:
            return engines.enter_context(contextlib.closing(DockerEngine()))

        engines.callback(docker_engine.tear_down, run_id)
        first, inbox = engine(), EachLine()
        first.prepare(plan, tmp_path, inbox)
        first.start(task)
        assert inbox.get(timeout=60).text == "up"
        first.cut_power("worker-0")

        second, inbox = engine(), EachLine()
        started = second.reattach(plan, tmp_path, inbox, {"worker-0": KnownOutput(["up"], 0.0)})
        assert list(started) == ["worker-0"]
        end = inbox.get(timeout=60)
        assert (end.task, end.exit_code) == ("worker-0", 137)
        second.remove("worker-0")
        assert containers(run_id) == [f"{run_id}-worker-0{LOST}"]  # its name is still there
        docker_engine.api.create_container_from_config(
            container_request(plan, task, labels(plan, tmp_path)), f"{run_id}-worker-0"
        )
        requested = time.time()
        docker_engine.api.start(f"{run_id}-worker-0")

        third, inbox = engine(), EachLine()
        third.reattach(plan, tmp_path, inbox, {"worker-0": KnownOutput([], requested)})
        assert containers(run_id) == [f"{run_id}-worker-0"]
        assert inbox.get(timeout=60).text == "up"


def containers(run_id: str) -> list[str]:
    """Return the names of the run's containers."""
    found = [name.partition(" ") for name in left("docker", run_id)]
    return [name for kind, _, name in found if kind == "container"]


def test_a_run_that_ends_meanwhile_leaves_nothing(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    loss = (
        "{preempt: worker-1, loss: silent, down: forever, "
        "at: {log: watching, task: worker-0}}, "
        "{kill: worker-0, at: {log: TimeoutError, task: worker-0}}"
    )
    done = emulate.up(scenario(tmp_path, tiny_image, loss), "--engine", "docker")
    assert done.returncode == 1, done.stderr
    assert left("docker", record_of(emulate).run_id) == []


def test_its_processes_are_gone_and_all_that_it_printed_is_read(
    emulate: Emulate, tmp_path: Path, docker_engine: DockerEngine, tiny_image: str
) -> None:
    """Also a child in a session of its own, which ignores signals."""
    # Again and again: a line counts once all tasks are running.
    live = "trap '' TERM; setsid sleep 1000 & while :; do echo up; sleep 0.1; done"
    path = tmp_path / "scenario.yaml"
    path.write_text(
        f"name: power\nframework: none\nimage: {tiny_image}\ncluster: {{worker: 1}}\n"
        f"program: {{command: [sh, -c, {json.dumps(live)}]}}\n"
        "faults: [{preempt: worker-0, loss: silent, down: forever, at: {log: up}}]\ntimeout: 5m\n"
    )
    process = emulate.start("up", path, "--engine", "docker", "--out", emulate.out, "--json")
    wait_for_line(process, "worker-0 has lost power")
    record = record_of(emulate)
    container = f"{record.run_id}-worker-0{LOST}"
    table: Any = docker_engine.api.top(container, "-o pid,stat,args")
    running = [row for row in table["Processes"] if not row[1].startswith("Z")]
    assert [row[1][0] for row in running] == ["T"]  # the init, stopped; all others are zombies
    printed = docker_engine.api.logs(container).decode()
    emulate("down", record.run_id, "--out", emulate.out)
    process.communicate(timeout=120)
    assert (record.path / "logs" / "worker-0.log").read_text() == printed
    assert left("docker", record.run_id) == []
