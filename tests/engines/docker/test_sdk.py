"""Requests beside the SDK's own, with the installed SDK against a server of this test."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import NotFound

from emulator.engines.byte_stream import socket_of
from emulator.engines.docker.connection import answer_behind, connect, streamed


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


def test_a_request_has_the_version_the_query_and_the_headers_of_the_sdk(
    api: docker.APIClient,
) -> None:
    query = {"stdout": 1, "since": 5}
    with contextlib.closing(streamed(api, "GET", "/containers/c0/logs", query=query)) as answer:
        assert answer.raw.read() == b'"first"\n"second"\n'
    assert Engine.asked[-1] == ("/v1.41/containers/c0/logs?stdout=1&since=5", "me")


def test_a_refusal_is_the_error_of_the_sdk(api: docker.APIClient) -> None:
    with pytest.raises(NotFound) as refused:
        streamed(api, "POST", "/containers/gone/attach")
    assert refused.value.explanation == "No such container: gone"
