"""Where a Docker engine is looked for, how long, and what comes of it where none answers."""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.context.config import get_context_id
from docker.errors import APIError, NotFound

from emulator.engines import choose
from emulator.engines.docker.connection import (
    CALL_TIMEOUT,
    REMOVAL_PAUSES,
    answer_behind,
    connect,
    streamed,
    until_killed,
)
from emulator.engines.kit.byte_stream import socket_of
from emulator.errors import EngineMissing
from tests.conftest import Emulate
from tests.engines.docker.listeners import ANSWERS, instead_of_docker, listening, run_python
from tests.engines.docker.site import Site

BOUND = 5
SLACK = 60
"""Seconds that a busy machine adds; without a bound it were two minutes."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Check that no more time passes than an engine gets to answer."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < BOUND + SLACK


@pytest.mark.slow
@pytest.mark.parametrize("place", ["tcp", "unix"])
@pytest.mark.parametrize("kind", list(ANSWERS))
def test_a_server_that_is_no_engine_is_an_error_within_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
) -> None:
    where = "tcp" if place == "tcp" else str(tmp_path / "s")
    with listening(where, ANSWERS[kind]) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        for engine in ("docker",) if kind == "silent" else ("docker", "auto"):
            began = time.monotonic()
            missing = pytest.raises(EngineMissing, match=f"No .* engine answers at .*{host[6:]}")
            with bounded(), missing:
                choose(engine)
        if kind == "silent":
            assert time.monotonic() - began >= BOUND
    gc.collect()  # a socket that is still open would warn of itself, and warnings are errors


def test_an_engine_that_sends_a_byte_now_and_then_is_not_waited_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import socket, sys, time
one = socket.socket(socket.AF_UNIX); one.bind(sys.argv[1]); one.listen()
print("up", flush=True)
client, _ = one.accept()
while True:
    client.sendall(b"H"); time.sleep(1)
"""
    path = str(tmp_path / "s")
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as drips:
        assert drips.stdout is not None
        assert drips.stdout.readline() == b"up\n"
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        with bounded(), pytest.raises(EngineMissing, match="no answer within 5 s"):
            choose("docker")
        drips.kill()


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """The address of a server that never answers."""
    with listening(str(tmp_path / "s"), b"") as host:
        yield host


@pytest.mark.parametrize(
    "command",
    [
        "up quickstart",
        "plan quickstart",
        "up -d quickstart",
        "build network",
        "up ps-loss --vary seed=1,2",
    ],
)
def test_every_command_that_needs_an_engine_has_the_same_bound(
    emulate: Emulate, tmp_path: Path, silent: str, command: str
) -> None:
    with bounded():
        done = emulate(*command.split(), env={"DOCKER_HOST": silent}, cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    (line,) = done.stderr.splitlines()  # and no traceback
    assert f"No Docker engine answers at {silent}, which DOCKER_HOST names" in line
    assert not list(tmp_path.glob("runs/*/plan.json"))


@pytest.mark.parametrize("command", ["ps", "clean --dry-run", "doctor --json"])
def test_commands_that_look_at_every_engine_say_that_one_did_not_answer(
    emulate: Emulate, tmp_path: Path, silent: str, command: str
) -> None:
    with bounded():
        done = emulate(*command.split(), env={"DOCKER_HOST": silent}, cwd=tmp_path)
    assert "no docker engine answers" in (done.stderr + done.stdout).lower()
    assert "Traceback" not in done.stderr
    if "doctor" in command:
        (docker,) = (one for one in json.loads(done.stdout) if one["what"] == "Docker engine")
        assert docker["status"] == "fatal"
        assert silent in docker["found"]
        assert done.returncode == 4  # as `up`, which takes no other engine then


def test_what_the_sdk_lacks_for_an_address_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    # As where paramiko is not installed.
    monkeypatch.delattr(docker.api.client, "SSHHTTPAdapter", raising=False)
    monkeypatch.setenv("DOCKER_HOST", "ssh://nobody@127.0.0.1:1")
    with pytest.raises(EngineMissing, match="Install paramiko package to enable ssh:// support"):
        choose("docker")


@pytest.mark.docker
def test_a_limit_that_the_kernel_does_not_allow_is_said(
    tmp_path: Path, tiny_image: str, emulate: Emulate
) -> None:
    path = Site(tmp_path, tiny_image).path("true", "ulimits: {nofile: 99999999999}\n")
    done = emulate("up", path, "--out", emulate.out, "--engine", "docker")
    assert done.returncode == 4
    assert "error setting rlimit" in done.stderr
    assert "Lower its `ulimits:`" in done.stderr


# --- Which engine `auto` is ---------------------------------------------------------------------

CHOOSE = "from emulator.engines import choose; print(choose('auto').name)"


def test_auto_is_processes_where_no_engine_is_configured_and_says_so() -> None:
    done = run_python(CHOOSE, instead_of_docker())
    assert done.stdout == "process\n", done.stderr
    assert done.stderr == "no Docker engine answers; tasks run as processes on this machine\n"


@pytest.mark.parametrize("kind", ["silent", "closes"])
def test_a_program_on_the_default_socket_must_answer(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "s")
    with listening(path, ANSWERS[kind]):
        done = run_python(CHOOSE, instead_of_docker(path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "EngineMissing: No Docker engine answers (" in done.stderr


@pytest.mark.parametrize("variable", ["DOCKER_HOST", "DOCKER_CONTEXT", "current"])
@pytest.mark.parametrize("there", [True, False])
def test_an_engine_that_is_named_must_answer(tmp_path: Path, variable: str, there: bool) -> None:
    host = f"unix://{tmp_path / 'unused.sock'}"
    config = {"currentContext": "mine"} if variable == "current" else {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    named = {"DOCKER_HOST": host, "DOCKER_CONTEXT": "mine"}
    env = {"DOCKER_CONFIG": str(tmp_path)} | {k: v for k, v in named.items() if k == variable}
    if there and variable != "DOCKER_HOST":
        folder = tmp_path / "contexts" / "meta" / get_context_id("mine")
        folder.mkdir(parents=True)
        meta = {"Name": "mine", "Metadata": {}, "Endpoints": {"docker": {"Host": host}}}
        (folder / "meta.json").write_text(json.dumps(meta))
    done = run_python(CHOOSE, [], **env)
    assert done.stdout == ""
    assert "EngineMissing: No Docker engine answers at" in done.stderr
    named_by = "which DOCKER" if variable.startswith("DOCKER") else "which the "
    assert named_by in done.stderr


@pytest.mark.docker
@pytest.mark.usefixtures("docker_engine")
def test_an_engine_that_answered_has_longer_for_its_calls() -> None:
    with contextlib.closing(connect()) as client:
        assert client.timeout == CALL_TIMEOUT


UNKILLED = (
    "cannot remove container c: Could not kill running container c, cannot remove - "
    "tried to kill container, but did not receive an exit event"
)
"""What the engine said of a container with 29,000 processes."""


@pytest.mark.parametrize(
    ("text", "fails", "pauses", "is_given_up"),
    [
        (UNKILLED, 0, (), False),
        (UNKILLED, 2, REMOVAL_PAUSES[:2], False),
        (UNKILLED, 6, REMOVAL_PAUSES, False),
        (UNKILLED, 99, REMOVAL_PAUSES, True),
        ("busy", 99, (), True),  # for another reason at once
    ],
)
def test_a_container_that_could_not_be_killed_is_removed_again_for_a_while(
    text: str, fails: int, pauses: Sequence[float], is_given_up: bool
) -> None:
    slept: list[float] = []
    tried: list[str] = []

    def remove() -> None:
        tried.append(text)
        if len(tried) <= fails:
            raise APIError(text)

    with pytest.raises(APIError, match=text[:4]) if is_given_up else contextlib.nullcontext():
        until_killed(remove, sleep=slept.append)
    assert (slept, len(tried)) == ([*pauses], len(pauses) + 1)


# --- Requests beside the SDK's own, with the installed SDK against a server of this test ----------


class Engine(BaseHTTPRequestHandler):
    """Answers as an engine: its version, a pull in two messages, a log, and 404."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:  # its name in the standard library
        self._answer()

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        self.asked.append((self.path, self.headers["X-Proxy-Login"]))
        bodies: dict[str, list[Any]] = {
            "/version": [{"ApiVersion": "1.41"}],
            "/v1.41/images/create?tag=1&fromImage=base": [{"status": "a"}, {"status": "b"}],
            "/v1.41/containers/c0/logs?stdout=1&since=5": ["first", "second"],
        }
        body = bodies.get(self.path)
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in body or [{"message": "No such container: gone"}]:
            data = json.dumps(part).encode() + b"\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[docker.APIClient]:
    """A client of such an engine; ~/.docker/config.json names a header for all requests."""
    (tmp_path / "config.json").write_text(json.dumps({"HttpHeaders": {"X-Proxy-Login": "me"}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(Engine, "asked", [], raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        with contextlib.closing(connect()) as client:
            yield client
        server.shutdown()
        thread.join()


def test_the_answer_behind_a_generator_of_the_installed_sdk_is_found(api: docker.APIClient) -> None:
    output = api.pull("base", tag="1", stream=True, decode=True)
    assert next(output) == {"status": "a"}
    answer = answer_behind(output)
    assert answer is not None
    connection = socket_of(answer.raw)
    assert connection is not None
    assert connection.getpeername()[1] == int(str(api.base_url).rpartition(":")[2])
    assert list(output) == [{"status": "b"}]
    assert answer_behind(output) is None


def test_a_request_has_the_version_query_and_headers_of_the_sdk_and_a_refusal_its_error(
    api: docker.APIClient,
) -> None:
    query = {"stdout": 1, "since": 5}
    with contextlib.closing(streamed(api, "GET", "/containers/c0/logs", query=query)) as answer:
        assert answer.raw.read() == b'"first"\n"second"\n'
    assert Engine.asked[-1] == ("/v1.41/containers/c0/logs?stdout=1&since=5", "me")
    with pytest.raises(NotFound) as refused:
        streamed(api, "POST", "/containers/gone/attach")
    assert refused.value.explanation == "No such container: gone"
