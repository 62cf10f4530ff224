"""Commands in containers: `exec` of the Docker engine."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from docker.errors import APIError

from emulator.engines.byte_stream import reader_of, shut, socket_of
from emulator.engines.docker.connection import Frames, streamed, translate_errors
from emulator.engines.docker.requests import PART, RUN, TASK
from emulator.engines.inside import PIECE, Stdio, not_running, relay
from emulator.errors import EngineError

if TYPE_CHECKING:
    import docker

    from emulator.planning.plan import Plan


def execute(
    client: docker.APIClient, plan: Plan, task: str, command: Sequence[str], io: Stdio
) -> int:
    """Run a command in a task's container; return its exit code.

    The container is found by its labels. Raises UsageError if it does not run, EngineError.
    """
    api: Any = client  # its own way to the socket loses what came with the headers
    labels = [f"{RUN}={plan.resources}", f"{PART if '.' in task else TASK}={task}"]
    with translate_errors(f"look for {task}"):
        found = api.containers(filters={"label": labels, "status": "running"})
    if not found:
        raise not_running(task, plan.run_id)
    terminal = io.is_terminal
    # One that was started warm has not all of the variables.
    env = next((dict(one.env) for one in plan.everything if one.name == task), {})
    with translate_errors(f"run {command[0]} in {task}"):
        made = api.exec_create(
            found[0]["Id"],
            list(command),
            stdin=True,
            tty=terminal,
            environment=env,
        )["Id"]
        response = streamed(
            client,
            "POST",
            f"/exec/{made}/start",
            headers={"Connection": "Upgrade", "Upgrade": "tcp"},
            json={"Tty": terminal, "Detach": False},
            timeout=None,
        )
        channel = _Connection(api, made, response, terminal=terminal)
        with contextlib.closing(response):
            relay(channel, io, terminal=terminal)
        return int(api.exec_inspect(made)["ExitCode"] or 0)


class _Connection:
    """The socket of a command."""

    def __init__(self, api: docker.APIClient, made: str, response: Any, *, terminal: bool) -> None:  # noqa: ANN401
        self._api, self._id, self._response = api, made, response
        own = socket_of(response.raw)
        if own is None:
            raise EngineError(
                "`emulate exec` needs a direct connection to the Docker engine.",
                "Over SSH, run `docker exec` yourself.",
            )
        self._socket: socket.socket = own
        self._socket.settimeout(None)
        self._frames = None if terminal else Frames()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def finish(self) -> None:
        # Not over TLS, where both ways end together.
        if type(self._socket) is socket.socket:
            self._socket.shutdown(socket.SHUT_WR)

    def resize(self, rows: int, columns: int) -> None:
        with contextlib.suppress(APIError):  # it has not begun, or has ended
            self._api.exec_resize(self._id, height=rows, width=columns)

    def receive(self) -> Iterator[tuple[int, bytes]]:
        while data := reader_of(self._response.raw).read1(PIECE):
            if self._frames is None:
                yield 1, data
            else:
                yield from self._frames.feed(data)

    def cut(self) -> None:
        shut(self._socket)
