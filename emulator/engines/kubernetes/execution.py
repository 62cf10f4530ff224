"""Commands in containers, by the API server's websocket (`exec`)."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import websocket

from emulator.engines.kubernetes.connection import ANSWERS_WITHIN, Executed, proxy_of
from emulator.errors import EngineError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

PROTOCOL = "v4.channel.k8s.io"
"""Known to all servers since 1.4; the first byte of each message is its channel."""
STDOUT, STDERR, STATUS = 1, 2, 3


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
    options: dict[str, Any] = {}
    if proxy := urlsplit(proxy_of(configuration)):
        if proxy.hostname:
            options = {"http_proxy_host": proxy.hostname, "http_proxy_port": proxy.port}
            options["proxy_type"] = proxy.scheme or "http"
        else:
            options = {"http_no_proxy": ["*"]}
    connection = websocket.WebSocket(
        sslopt={"context": tls, "server_hostname": configuration.tls_server_name or None}
        if tls
        else {}
    )
    try:
        connection.settimeout(max(ANSWERS_WITHIN, min(timeout, 30)))
        connection.connect(  # type: ignore[no-untyped-call]
            url,
            header=[f"{name}: {value}" for name, value in headers.items() if name != "accept"],
            subprotocols=[PROTOCOL],
            suppress_origin=True,
            **options,
        )
        return 101, _read(connection, deadline, what)
    except websocket.WebSocketBadStatusException as error:
        body = error.resp_body or b""
        try:
            return error.status_code, json.loads(body)
        except ValueError:
            return error.status_code, {"message": bytes(body[:200]).decode("utf-8", "replace")}
    except websocket.WebSocketTimeoutException:
        raise EngineError(f"`{what}` did not end within {timeout:g} s.") from None
    except websocket.WebSocketException as error:
        raise ConnectionError(str(error)) from None
    finally:
        connection.close(timeout=1)


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
