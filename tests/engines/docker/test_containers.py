"""Mounts, ports, limits and helpers of a scenario, in real containers."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
import pytest

from emulator.engines.docker import DockerEngine
from emulator.errors import EngineError
from emulator.record.events import Entry, HelperEvent, PortPublished
from emulator.record.reader import Record
from emulator.results import Result
from tests.conftest import Emulate
from tests.engines.docker.site import Site
from tests.engines.stage import free_port

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

WEB = r"""
import http.server, os, pathlib, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        while not os.path.exists("/shared/greeting"):  # the job starts after its helpers
            time.sleep(0.05)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(pathlib.Path("/shared/greeting").read_bytes())
        pathlib.Path("/shared/over").touch()

print("serving as", os.environ["EMULATOR_TASK"], flush=True)
http.server.HTTPServer(("", 8000), Handler).serve_forever()
"""
"""Serves a file of the job, which ends when it has been read."""
JOB = """
python3 -c 'import socket; print("web is", bool(socket.gethostbyname("web")))'
echo hello from the job > /shared/new && mv /shared/new /shared/greeting
until [ -e /shared/over ]; do sleep 0.05; done
"""


@pytest.fixture
def volume(docker_engine: DockerEngine) -> Iterator[str]:
    """The name of a volume that does not exist yet."""
    name = f"emulator-test-{os.getpid()}-{secrets.token_hex(4)}"
    yield name
    with contextlib.suppress(docker.errors.NotFound):
        docker_engine.api.remove_volume(name)


def listens(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((host, int(port))) == 0


# --- Limits -----------------------------------------------------------------------------------


def test_a_task_can_write_as_much_to_dev_shm_as_the_scenario_says(site: Site) -> None:
    """As the workers of a DataLoader do, which hand over their batches in /dev/shm."""
    write = "dd if=/dev/zero of=/dev/shm/batch bs=1M count=100 2>&1; wc -c < /dev/shm/batch"
    site.run(write, "cluster: {large: {shm_size: 256m}, usual: 1}\n")
    assert f"large-0: {100 * 2**20}" in site.printed
    assert f"usual-0: {64 * 2**20}" in site.printed


LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((5_000_000,), float(index))

print("sum", sum(batch[:, 0].sum().item() for batch in DataLoader(Rows(), 2, num_workers=3)))
"""


@pytest.mark.parametrize(("size", "code"), [("64m", 1), ("512m", 0)])
def test_a_data_loader_with_workers_needs_more_than_docker_gives(
    tmp_path: Path, size: str, code: int
) -> None:
    site = Site(tmp_path, "pytorch")
    (tmp_path / "load.py").write_text(LOADER)
    role = f"{{shm_size: {size}, command: [python, /data/load.py]}}"
    result = site.run("", f"cluster: {{worker: {role}}}\nmounts: {{/data: .}}\n")
    assert result.exit_code == code
    assert ("worker-0: sum 66.0" in site.printed) == (code == 0)
    assert any("No space left on device" in line for line in site.printed) == (code == 1)


def test_ulimits_reach_the_program(site: Site) -> None:
    extra = (
        "ulimits: {nofile: 2048, core: {soft: 0, hard: 1m}}\n"
        "cluster: {few: {ulimits: {nofile: {soft: 100, hard: 200}}}, usual: 1}\n"
    )
    site.run("echo $(ulimit -Sn) $(ulimit -Hn) $(ulimit -Sc) $(ulimit -Hc)", extra)
    # The shell counts core files in blocks of 512 bytes.
    assert sorted(site.printed) == ["few-0: 100 200 0 2048", "usual-0: 2048 2048 0 2048"]


# --- Mounts -----------------------------------------------------------------------------------


def test_a_folder_is_read_and_only_written_where_the_scenario_says_so(site: Site) -> None:
    for name in ("data", "results"):
        (site.folder / name).mkdir()
        (site.folder / name).chmod(0o777)
    (site.folder / "data" / "set.csv").write_text("1,2,3\n")
    (site.folder / "one.txt").write_text("one file\n")
    result = site.run(
        "cat data/set.csv /one.txt; echo x 2>/dev/null > data/new || echo refused\n"
        "rm -f data/set.csv 2>/dev/null || echo kept\n"
        "df -k /scratch | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2; echo y > /scratch/y\n"
        "echo done > /results/out.txt\n",
        "mounts:\n  /job/data: data\n  /one.txt: {path: one.txt}\n  /scratch: {tmpfs: 16m}\n"
        "  /results: {path: results, writable: true}\n",
    )
    assert site.printed == [
        f"worker-0: {line}" for line in ("1,2,3", "one file", "refused", "kept", "16384")
    ]
    assert result.exit_code == 0
    # After the run has removed what it made.
    assert (site.folder / "data" / "set.csv").read_text() == "1,2,3\n"
    assert (site.folder / "results" / "out.txt").read_text() == "done\n"


def test_a_volume_outlives_the_run_that_made_it(
    site: Site, volume: str, docker_engine: DockerEngine
) -> None:
    extra = f"mounts: {{/cache: {{volume: {volume}}}}}\n"
    first = site.run("echo kept > /cache/model", extra)
    assert volume not in {one.name for one in docker_engine.find()}  # `clean` never sees it
    assert docker_engine.api.volumes(filters={"label": f"emulator.run={first.run_id}"})[
        "Volumes"
    ] in ([], None)
    site.run("cat /cache/model", extra)
    assert site.printed == ["worker-0: kept"]
    extra = f"cluster: {{worker: {{mounts: {{/cache: {{volume: {volume}, writable: false}}}}}}}}\n"
    site.run("touch /cache/more 2>/dev/null || echo read-only", extra)
    assert site.printed[1:] == ["worker-0: read-only"]
    assert docker_engine.api.inspect_volume(volume)["Name"] == volume


def test_a_volume_that_a_run_removes_is_not_mounted_by_name(
    site: Site, volume: str, docker_engine: DockerEngine
) -> None:
    docker_engine.api.create_volume(volume, labels={"emulator.run": "other-run"})
    with pytest.raises(EngineError, match=f"The volume {volume} is of the run other-run"):
        site.run("true", f"mounts: {{/cache: {{volume: {volume}}}}}\n")
    assert docker_engine.api.inspect_volume(volume)["Name"] == volume


# --- Ports and helpers ------------------------------------------------------------------------

HELPERS = """
helpers:
  web: {source: web.py, command: [python3, web.py], ports: [8000]}
  dies: {command: [sh, -c, "echo no disk; exit 3"]}
"""


def test_runs_beside_one_another_publish_the_port_of_a_helper(site: Site) -> None:
    """Each reads its own helper, which never ends by itself and does not keep its job from that."""
    (site.folder / "web.py").write_text(WEB)

    def one(number: int) -> tuple[Result, str, str]:
        found: list[str] = []
        answers: list[str] = []

        def visit(address: str) -> None:
            with contextlib.suppress(TimeoutError):
                answers.append(_read_when_up(address))

        def entry(entry: Entry) -> None:
            if isinstance(entry, PortPublished):
                found.append(entry.address)
                threading.Thread(target=visit, args=[entry.address]).start()

        result = site.run(JOB, HELPERS, entry=entry)
        return result, found[0], answers[0]

    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(one, range(2)))
    assert len({address for _, address, _ in runs}) == 2
    for result, address, answer in runs:
        assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
        assert answer == "hello from the job\n"
        assert not listens(address)  # the run is over
        assert (result.outcome, result.exit_code) == ("succeeded", 0)
        assert result.summary["tasks"].keys() == {"worker-0"}
        helpers = result.summary["helpers"]
        assert helpers["web"]["state"] == "stopped"
        assert (helpers["dies"]["state"], helpers["dies"]["exit_code"]) == ("failed", 3)
        assert tuple(helpers["dies"]["last_words"]) == ("no disk",)
        assert "serving as web" in Record(result.folder).log("web")
    assert site.printed.count("worker-0: web is True") == 2


def _read_when_up(address: str) -> str:
    """Read a page; the program that serves it may still be starting."""
    for _ in range(400):
        page = f"http://{address}/"
        with contextlib.suppress(OSError), urllib.request.urlopen(page, timeout=300) as answer:
            return str(answer.read(), "utf-8")
        threading.Event().wait(0.05)
    raise TimeoutError(address)


def test_a_port_that_is_in_use_is_refused_before_a_task_starts(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        extra = f"cluster: {{worker: {{ports: [{{port: 8000, host_port: {port}}}]}}}}\n"
        expected = f"Port {port} of this machine, for worker-0, is already in use"
        with pytest.raises(EngineError, match=expected) as refused:
            site.run("true", extra)
    assert "host_port" in str(refused.value)
    (folder,) = (site.folder / "runs").iterdir()
    assert not [e for e in Record(folder).history if e.event == "start"]


@pytest.mark.parametrize(
    ("first", "how"),
    [
        ("sleep 1; exit 1", "restart: {policy: on-failure, backoff: 0}"),
        ("sleep 60", "faults: [{preempt: worker-0, at: 500ms, grace: 0s, down: 1s}]"),
        ("sleep 60", "faults: [{preempt: worker-0, at: 500ms, loss: silent, down: 1s}]"),
    ],
)
def test_a_task_has_the_same_port_of_this_machine_in_its_second_life(
    site: Site, first: str, how: str
) -> None:
    port = free_port()
    result = site.run(
        f"[ -e /shared/again ] || {{ touch /shared/again; {first}; }}; sleep 1",
        f"cluster: {{worker: {{ports: [{{port: 80, host_port: {port}}}, 81]}}}}\n{how}\n",
    )
    assert (result.outcome, result.exit_code) == ("succeeded", 0)
    found = [e for e in Record(result.folder).history if isinstance(e, PortPublished)]
    assert [e.address for e in found if e.port == 80] == [f"127.0.0.1:{port}"] * 2
    assert not listens(f"127.0.0.1:{port}")


def test_a_helper_is_taken_over_with_its_run(emulate: Emulate, site: Site) -> None:
    (site.folder / "web.py").write_text(WEB)
    path = site.path(JOB, HELPERS)
    first = emulate.start("up", path, "--out", emulate.out)
    address = _line(first, r"port 8000 of web is at (\S+)")
    _line(first, r"worker-0 \| (web is)")
    status = emulate("ps", "last", "--json", "--out", emulate.out).json
    assert status["ports"] == [{"name": "web", "port": 8000, "address": address}]
    assert status["helpers"]["web"] == {"state": "running", "exit_code": None}
    shown = emulate("ps", "last", "--out", emulate.out).stdout
    assert re.search(rf"web +8000 +{address}", shown)
    assert "serving as web" in emulate("logs", "last", "web", "--out", emulate.out).stdout
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = emulate.start("attach", "last", "--out", emulate.out)
    assert _line(second, r"port 8000 of web is at (\S+)") == address
    assert _read_when_up(address) == "hello from the job\n"
    _, stderr = second.communicate(timeout=300)
    assert second.returncode == 0, stderr
    (folder,) = emulate.out.iterdir()
    helpers = [e for e in Record(folder).history if isinstance(e, HelperEvent)]
    ends = [(e.task, e.exit_code) for e in helpers if e.stage == "ended"]
    assert [task for task, _ in ends].count("web") == 1
    assert ("dies", 3) in ends
    assert not listens(address)


def _line(process: Any, pattern: str) -> str:
    for line in process.stderr:
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(f"no line matches {pattern}")
