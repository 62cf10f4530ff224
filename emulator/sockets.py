"""Sockets inside of libraries: those that are forgotten, and those that must be closed early."""

from __future__ import annotations

import contextlib
import inspect
import socket
import ssl
import traceback
from collections.abc import Generator, Iterator
from typing import Any

from emulator import signals
from emulator.waiting import each

__all__ = ["close_unconnected", "progress"]

ENDS_WITHIN = 30.0
"""Seconds that the engine gets to kill and remove the container of a build that is stopped."""


def close_unconnected(error: BaseException | None) -> None:
    """Close the sockets in an error's frames that never got a connection.

    httpcore (1.0.9) and the Docker SDK (7.1) make one, fail to connect it, and leave it to the
    garbage collector, which warns of it: whoever treats warnings as errors gets one more.
    """
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            for value in frame.f_locals.values():
                if isinstance(value, socket.socket) and not _is_connected(value):
                    value.close()
        error = error.__cause__ or error.__context__


def _is_connected(one: socket.socket) -> bool:
    try:
        one.getpeername()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def progress(
    output: Generator[dict[str, Any], None, None],
) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield what a Docker engine says of a build or a pull; a block that is left early ends it.

    The engine ends it when our half of the connection is closed: it removes the container of the
    step, and then ends its answer, which is read to its end. With TLS a half can't be closed.
    """
    response = inspect.getgeneratorlocals(output).get("response")

    def hang_up() -> None:
        with contextlib.suppress(AttributeError, OSError):  # it has ended by itself
            raw: Any = response.raw._fp.fp.raw  # type: ignore[union-attr]  # see CancellableStream
            connection = raw.sock if hasattr(raw, "sock") else raw._sock
            whole = isinstance(connection, ssl.SSLSocket)
            connection.shutdown(socket.SHUT_RDWR if whole else socket.SHUT_WR)

    messages = each(output, cancel=hang_up, check=signals.check, leaves_within=ENDS_WITHIN)
    with contextlib.closing(messages):
        yield messages
