"""Commands in containers, by the API server's websocket (`exec`)."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from websocket import WebSocketException

from emulator.engines.byte_stream import shut
from emulator.engines.inside import Stdio, relay
from emulator.errors import EngineError
from emulator.plugins.kubernetes.connection import CONNECT_TIMEOUT, ApiServer

if TYPE_CHECKING:
    from websocket import WebSocket


PROTOCOL = "v4.channel.k8s.io"
"""Known to all servers since 1.4; the first byte of each message is its channel."""
PROTOCOL_5 = "v5.channel.k8s.io"
"""Of 1.30 and later: one end can close a channel."""
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
NO_COMMAND = 127
"""Exit code of a shell, and of Docker, where there is no such command."""
_NO_COMMAND = re.compile(
    r'exec: "[^"]*": (?:executable file not found|stat .*no such file)'
    r"|executable file `[^`]*` not found",
    re.IGNORECASE,
)
"""What runc says of that, and crun."""


class Executed(NamedTuple):
    """A command that ran in a container."""

    code: int
    stdout: str
    stderr: str


def exit_code(status: Mapping[str, Any]) -> int | None:
    """Return the exit code in the server's last message; None: the command did not run (pure).

    NO_COMMAND also where the command is not in the image: containerd and CRI-O make an internal
    error of that, Docker an exit code.
    """
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [one["message"] for one in causes if one.get("reason") == "ExitCode"]
    if codes:
        return int(codes[0])
    return NO_COMMAND if why_no_command(status) else None


def why_no_command(status: Mapping[str, Any]) -> str:
    """Return what containerd or CRI-O says of a command that is not there; else empty (pure)."""
    found = _NO_COMMAND.search(said := str(status.get("message") or ""))
    return said[found.start() :] if found else ""


def run(
    cluster: ApiServer, pod: str, container: str, command: Sequence[str], *, timeout: float
) -> Executed:
    """Run a command in a container of a Pod that runs, for `timeout` seconds at most.

    Never repeated. Raises ApiError, EngineLost; EngineError if it takes longer.
    """
    path, deadline = _path(cluster, pod), time.monotonic() + timeout
    query: dict[str, Any] = {
        "container": container,
        "command": command,
        "stdout": True,
        "stderr": True,
    }
    what = f"{' '.join(command)[:80]} in {pod}"
    late = EngineError(f"`{what}` did not end within {timeout:g} s.")
    printed = {STDOUT: bytearray(), STDERR: bytearray()}
    patience = min(max(CONNECT_TIMEOUT, timeout), 30)
    with cluster.websocket(path, [PROTOCOL], patience, late, **query) as connection:
        channel = _Channel(connection, deadline)
        for number, data in channel.receive():
            printed[number] += data
    out, err = (printed[one].decode("utf-8", "replace") for one in (STDOUT, STDERR))
    return Executed(_code(cluster, path, channel), out, err)


def interact(
    cluster: ApiServer, pod: str, container: str, command: Sequence[str], stdio: Stdio
) -> int:
    """Run a command with our stdin, stdout and stderr, for as long as it likes.

    Return its exit code. Its stdin is empty where the server can't pass on its end. Raises
    ApiError, EngineLost, also if the connection is lost meanwhile.
    """
    path, terminal = _path(cluster, pod), stdio.is_terminal
    query: dict[str, Any] = {
        "container": container,
        "command": command,
        "stdin": terminal or cluster.ends_stdin,
        "stdout": True,
        "stderr": not terminal,
        "tty": terminal,
    }
    # Only the newer one has a way to say that stdin has ended.
    protocols = [PROTOCOL_5, PROTOCOL]
    with cluster.websocket(path, protocols, CONNECT_TIMEOUT, **query) as connection:
        connection.settimeout(None)
        channel = _Channel(connection)
        relay(channel, stdio, terminal=terminal)
    if why := why_no_command(channel.status):  # which Docker prints itself
        os.write(stdio.stderr, f"{why}\n".encode())
    return _code(cluster, path, channel)


def _path(cluster: ApiServer, pod: str) -> str:
    return cluster.namespaced("pods", f"{pod}/exec")


def _code(cluster: ApiServer, path: str, channel: _Channel) -> int:
    code = exit_code(channel.status)
    if code is None:
        raise cluster.refused("POST", path, 101, channel.status)
    return code


class _Channel:
    """The websocket of a command: the first byte of each message is its channel."""

    def __init__(self, connection: WebSocket, deadline: float | None = None) -> None:
        """`deadline`: until when something is received (monotonic seconds); None: for ever."""
        self._connection, self._deadline = connection, deadline
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
        while message := self._receive():
            data = message.encode() if isinstance(message, str) else bytes(message)
            if data[0] in (STDOUT, STDERR) and data[1:]:
                yield data[0], data[1:]
            elif data[0] == STATUS and data[1:]:
                self.status = json.loads(data[1:])
                return
        raise ConnectionError("the connection was closed before the command ended")

    def cut(self) -> None:
        if (own := self._connection.sock) is not None:
            shut(own)

    def _receive(self) -> str | bytes:
        if self._deadline is not None:
            self._connection.settimeout(max(0.001, self._deadline - time.monotonic()))
        return self._connection.recv()

    def _send(self, channel: int, data: bytes) -> None:
        try:
            self._connection.send_binary(bytes([channel]) + data)
        except WebSocketException as error:
            raise ConnectionError(str(error)) from None
