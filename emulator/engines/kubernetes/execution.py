"""Commands in containers, by the API server's websocket (`exec`)."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import websocket

from emulator.engines.byte_stream import shut
from emulator.engines.inside import Stdio, relay
from emulator.engines.kubernetes.connection import ANSWERS_WITHIN, Executed, proxy_of
from emulator.errors import EngineError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

PROTOCOL = "v4.channel.k8s.io"
"""Known to all servers since 1.4; the first byte of each message is its channel."""
PROTOCOL_5 = "v5.channel.k8s.io"
"""Of 1.30 and later: one end can close a channel."""
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255


def exit_code(status: Mapping[str, Any]) -> int | None:
    """Return the exit code in the server's last message; None: the command did not run (pure)."""
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [one["message"] for one in causes if one.get("reason") == "ExitCode"]
    return int(codes[0]) if codes else None


def run(
    url: str,
    headers: Mapping[str, str],
    tls: ssl.SSLContext | None,
    configuration: Configuration,
    *,
    timeout: float,
    what: str,
) -> tuple[int, Executed | Mapping[str, Any]]:
    """Run a command; return the HTTP status with what it printed, or with the server's refusal.

    Raises OSError if the connection is lost, EngineError after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    connection = _socket(tls, configuration)
    try:
        _connect(connection, url, headers, configuration, [PROTOCOL], min(timeout, 30))
        return 101, _read(connection, deadline, what)
    except websocket.WebSocketBadStatusException as error:
        return _refusal(error)
    except websocket.WebSocketTimeoutException:
        raise EngineError(f"`{what}` did not end within {timeout:g} s.") from None
    except websocket.WebSocketException as error:
        raise ConnectionError(str(error)) from None
    finally:
        connection.close(timeout=1)


def interact(
    url: str,
    headers: Mapping[str, str],
    tls: ssl.SSLContext | None,
    configuration: Configuration,
    stdio: Stdio,
) -> tuple[int, int | Mapping[str, Any]]:
    """Run a command with our stdin, stdout and stderr, for as long as it likes.

    Return the HTTP status with its exit code, or with the server's refusal. Raises OSError if the
    connection is lost.
    """
    connection = _socket(tls, configuration)
    try:
        # Only the newer one has a way to say that stdin has ended.
        protocols = [PROTOCOL_5, PROTOCOL]
        _connect(connection, url, headers, configuration, protocols, ANSWERS_WITHIN)
        connection.settimeout(None)
        channel = _Channel(connection)
        relay(channel, stdio, terminal=stdio.is_terminal)
        code = exit_code(channel.status)
        return 101, channel.status if code is None else code
    except websocket.WebSocketBadStatusException as error:
        return _refusal(error)
    except websocket.WebSocketException as error:
        raise ConnectionError(str(error)) from None
    finally:
        connection.close(timeout=1)


class _Channel:
    """The websocket of a command: the first byte of each message is its channel."""

    def __init__(self, connection: websocket.WebSocket) -> None:
        self._connection = connection
        self.status: Mapping[str, Any] = {}
        """How the command ended, in the server's words."""

    def send(self, data: bytes) -> None:
        self._send(STDIN, data)

    def finish(self) -> None:
        if self._connection.subprotocol == PROTOCOL_5:
            self._send(CLOSE, bytes([STDIN]))

    def resize(self, rows: int, columns: int) -> None:
        self._send(RESIZE, json.dumps({"Width": columns, "Height": rows}).encode())

    def receive(self) -> Iterator[tuple[int, bytes]]:
        while message := self._connection.recv():
            data = message.encode() if isinstance(message, str) else bytes(message)
            if data[0] in (STDOUT, STDERR) and data[1:]:
                yield data[0], data[1:]
            elif data[0] == STATUS and data[1:]:
                self.status = json.loads(data[1:])
                return
        raise ConnectionError("the connection was closed before the command ended")

    def cut(self) -> None:
        if isinstance(own := self._connection.sock, socket.socket):
            shut(own)

    def _send(self, channel: int, data: bytes) -> None:
        try:
            self._connection.send_binary(bytes([channel]) + data)
        except websocket.WebSocketException as error:
            raise ConnectionError(str(error)) from None


def _socket(tls: ssl.SSLContext | None, configuration: Configuration) -> websocket.WebSocket:
    return websocket.WebSocket(
        sslopt={"context": tls, "server_hostname": configuration.tls_server_name or None}
        if tls
        else {}
    )


def _connect(
    connection: websocket.WebSocket,
    url: str,
    headers: Mapping[str, str],
    configuration: Configuration,
    protocols: Sequence[str],
    timeout: float,
) -> None:
    """Open the websocket; the server has `timeout` seconds, and ANSWERS_WITHIN at least."""
    options: dict[str, Any] = {}
    if proxy := urlsplit(proxy_of(configuration)):
        if proxy.hostname:
            options = {"http_proxy_host": proxy.hostname, "http_proxy_port": proxy.port}
            options["proxy_type"] = proxy.scheme or "http"
        else:
            options = {"http_no_proxy": ["*"]}
    connection.settimeout(max(ANSWERS_WITHIN, timeout))
    connection.connect(  # type: ignore[no-untyped-call]
        url,
        header=[f"{name}: {value}" for name, value in headers.items() if name != "accept"],
        subprotocols=list(protocols),
        suppress_origin=True,
        **options,
    )


def _refusal(error: websocket.WebSocketBadStatusException) -> tuple[int, Mapping[str, Any]]:
    """Return the HTTP status, and what the server says of it."""
    body = error.resp_body or b""
    try:
        return error.status_code, json.loads(body)
    except ValueError:
        return error.status_code, {"message": bytes(body[:200]).decode("utf-8", "replace")}


def _read(
    connection: websocket.WebSocket, deadline: float, what: str
) -> Executed | Mapping[str, Any]:
    """Read until the server says how the command ended."""
    printed: dict[int, bytearray] = {STDOUT: bytearray(), STDERR: bytearray()}
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        message = connection.recv()
        if not message:
            raise ConnectionError(f"the connection was closed before `{what}` ended")
        data = message.encode() if isinstance(message, str) else bytes(message)
        channel, text = data[0], data[1:]
        if channel in printed:
            printed[channel] += text
        elif channel == STATUS and text:
            status: Mapping[str, Any] = json.loads(text)
            code = exit_code(status)
            if code is None:
                return status
            out, err = (printed[one].decode("utf-8", "replace") for one in (STDOUT, STDERR))
            return Executed(code, out, err)
