"""The API on a port of this machine: which requests are served."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import emulator
from emulator.api.client import Cluster
from emulator.api.tcp import VARIABLE, TcpEndpoint, require_token
from emulator.errors import UsageError
from emulator.record.events import fields_of
from emulator.record.remains import PORT, TOKEN
from tests.api.test_server import client
from tests.cli.typed import refusal
from tests.conftest import Emulate
from tests.report.test_live_view import RUN, end_of, scenario

# --- The guard alone ------------------------------------------------------------------------------


def asked(headers: dict[str, str], *, tcp: bool = True) -> tuple[int, str]:
    """Return status and body of what a guarded application answers to a request."""
    sent: list[MutableMapping[str, Any]] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"inside"})

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "server": ("127.0.0.1", 1) if tcp else ("/run/api.sock", None),
        "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
    }

    guarded: Any = require_token(behind, "secret-token")
    asyncio.run(guarded(scope, None, send))
    start, body = sent
    return start["status"], body["body"].decode()


GOOD = {"Host": "127.0.0.1:1234", "Authorization": "Bearer secret-token"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:9"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Authorization": "bearer secret-token"}, 200),
        ({"Host": "evil.example:1234"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "evil.example:127.0.0.1"}, 421),
        ({"Host": ""}, 421),
        ({"Authorization": "Bearer secret-toke"}, 401),
        ({"Authorization": "Bearer secret-token2"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Basic secret-token"}, 401),
        ({"Authorization": "secret-token"}, 401),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer \xfc"}, 401),
    ],
)
def test_which_requests_are_served(change: dict[str, str], status: int) -> None:
    got, body = asked({**GOOD, **change})
    assert got == status
    if status != 200:
        sentence = json.loads(body)["error"]
        assert sentence.endswith(".")
        assert "secret" not in sentence


def test_the_unix_socket_needs_no_token() -> None:
    assert asked({"Host": "run"}, tcp=False) == (200, "inside")


def test_a_port_in_use_is_reported_before_anything_starts() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(UsageError, match=r"Can't take port .* `--api-port 0`"):
            TcpEndpoint(other.getsockname()[1])
    mine = TcpEndpoint(0)  # of a run whose tasks do not run yet
    with mine.socket, pytest.raises(UsageError, match=f"Can't take port {mine.port}"):
        TcpEndpoint(mine.port)
    with pytest.raises(UsageError, match="There is no port 70000"):
        TcpEndpoint(70000)


def test_a_token_of_the_users_own_is_not_written_and_not_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "my-own")
    endpoint = TcpEndpoint(0)
    assert endpoint.token == "my-own"
    assert VARIABLE not in os.environ
    with endpoint.listening(tmp_path):
        assert (tmp_path / PORT).read_text() == f"{endpoint.port}\n"
        assert not (tmp_path / TOKEN).exists()
    assert list(tmp_path.iterdir()) == []
    for nonsense in ("", "two words", "t\xf6ken", "line\n"):
        monkeypatch.setenv(VARIABLE, nonsense)
        with pytest.raises(UsageError, match="is no token"):
            TcpEndpoint(0)


def test_a_token_of_ours_is_for_the_owner_only_and_another_each_time(tmp_path: Path) -> None:
    (tmp_path / TOKEN).write_text("of a supervisor that was killed")
    (tmp_path / TOKEN).chmod(0o644)
    one, two = TcpEndpoint(0), TcpEndpoint(0)
    assert one.token != two.token
    assert len(one.token) >= 32
    two.socket.close()
    with one.listening(tmp_path):
        assert stat.S_IMODE((tmp_path / TOKEN).stat().st_mode) == 0o600
        assert (tmp_path / TOKEN).read_text() == f"{one.token}\n"
        with pytest.raises(UsageError):
            TcpEndpoint(one.port)


# --- For real -------------------------------------------------------------------------------------


def up(emulate: Emulate, tmp_path: Path, *arguments: str, **env: str) -> Cluster:
    path = scenario(tmp_path, extra="metrics: {interval: 100ms}\n")
    where = ("--engine", "process", "--run-id", RUN, "--out", emulate.out)
    done = emulate("up", "-d", path, *where, *arguments, env=env).ended()
    if arguments:
        assert "emulate: API and /metrics on http://127.0.0.1:" in done.stderr
    return emulator.connect(RUN, emulate.out)


def test_the_api_answers_on_a_port(emulate: Emulate, tmp_path: Path) -> None:
    with up(emulate, tmp_path, "--api-port", "0") as cluster:
        port = int((cluster.folder / PORT).read_text())
        token = (cluster.folder / TOKEN).read_text().strip()
        assert stat.S_IMODE((cluster.folder / TOKEN).stat().st_mode) == 0o600
        cluster.wait_for(step=3, task="worker-1")
        next(cluster.samples())
        base = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base, timeout=300) as http:
            refused = http.get("/v1/run")
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert refused.json()["error"].count(". ") == 0
            known = {"Authorization": f"Bearer {token}"}
            assert http.post("/v1/stop").status_code == 401
            evil = http.get("/v1/run", headers={**known, "Host": "evil.example"})
            assert evil.status_code == 421
            assert http.get("/v1/run", headers=known).json()["state"] == "running"
        pid = int(fields_of(cluster.wait_for(event="run"))["pid"])
        listening = psutil.Process(pid).net_connections()
        assert {c.laddr[0] for c in listening if c.status == "LISTEN"} == {"127.0.0.1"}
        end_of(emulate)
        cluster.wait()
        assert not (cluster.folder / PORT).exists()
        assert not (cluster.folder / TOKEN).exists()


@pytest.mark.parametrize("port", [("--api-port", "0"), ()])
def test_the_api_is_there_without_a_port_too_and_tasks_do_not_get_the_users_token(
    emulate: Emulate, tmp_path: Path, port: tuple[str, ...]
) -> None:
    with up(emulate, tmp_path, *port, **{VARIABLE: "my-own-token"}) as cluster:
        assert not (cluster.folder / TOKEN).exists()
        if port:
            base = f"http://127.0.0.1:{(cluster.folder / PORT).read_text().strip()}"
            known = {"Authorization": "Bearer my-own-token"}
            assert httpx.get(f"{base}/v1/run", headers=known, timeout=300).status_code == 200
        else:
            assert not (cluster.folder / PORT).exists()
            with client(cluster.folder / "api.sock") as http:
                assert http.get("/v1/run").json()["state"] == "running"
        pid = int(fields_of(cluster.wait_for(event="running"))["id"])
        assert VARIABLE not in psutil.Process(pid).environ()
        end_of(emulate)
        cluster.wait()


def test_a_bad_port_starts_nothing(emulate: Emulate, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        for arguments in (("--api-port", port), ("-d", "--api-port", port)):
            where = ("--engine", "process", "--out", emulate.out)
            line = refusal("up", scenario(tmp_path), *where, *arguments)
            assert f"Can't take port {port}" in line
            assert list(emulate.out.glob("*/plan.json")) == []
    vary = ("--vary", "cluster.worker=1,2", "--api-port", "0")
    refusal("up", scenario(tmp_path), *vary)
