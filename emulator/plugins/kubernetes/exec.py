"""Commands in containers: over the API server's websocket (`exec`), or by kubectl."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from emulator.errors import EngineError
from emulator.plugins.kubernetes.connection import CONNECT_TIMEOUT, OF_THIS_POD, ApiServer

if TYPE_CHECKING:
    from websocket import WebSocket


PROTOCOL = "v4.channel.k8s.io"
"""Known to all servers since 1.4; the first byte of each message is its channel."""
STDOUT, STDERR, STATUS = 1, 2, 3
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
    return NO_COMMAND if _NO_COMMAND.search(str(status.get("message") or "")) else None


def run(
    cluster: ApiServer, pod: str, container: str, command: Sequence[str], *, timeout: float
) -> Executed:
    """Run a command in a container of a Pod that runs, for `timeout` seconds at most.

    Never repeated. Raises ApiError, EngineLost; EngineError if it takes longer.
    """
    path, deadline = cluster.namespaced("pods", f"{pod}/exec"), time.monotonic() + timeout
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
        status = _received(connection, deadline, printed)
    if (code := exit_code(status)) is None:
        raise cluster.refused("POST", path, 101, status)
    out, err = (printed[one].decode("utf-8", "replace") for one in (STDOUT, STDERR))
    return Executed(code, out, err)


def _received(
    connection: WebSocket, deadline: float, printed: Mapping[int, bytearray]
) -> Mapping[str, Any]:
    """Append what a command prints to `printed`; return how it ended, in the server's words.

    `deadline` is monotonic. Raises ConnectionError if the connection was closed before.
    """
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        if not (message := connection.recv()):
            raise ConnectionError("the connection was closed before the command ended")
        data = message.encode() if isinstance(message, str) else bytes(message)
        if data[0] in printed:
            printed[data[0]] += data[1:]
        elif data[0] == STATUS and data[1:]:
            status: Mapping[str, Any] = json.loads(data[1:])
            return status


def kubectl_exec(
    cluster: ApiServer, pod: str, container: str, command: Sequence[str], *, terminal: bool
) -> list[str]:
    """Return the arguments of kubectl that run a command with our stdin, stdout and stderr (pure).

    It reads the same kubeconfig, or is in the same Pod.
    """
    context = [] if cluster.context == OF_THIS_POD else ["--context", cluster.context]
    place = [*context, "-n", cluster.namespace]
    how = "-it" if terminal else "-i"
    return ["kubectl", *place, "exec", how, pod, "-c", container, "--", *command]
