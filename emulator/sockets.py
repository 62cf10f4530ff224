"""Sockets that libraries forget where nobody answers."""

from __future__ import annotations

import socket
import traceback

__all__ = ["close_unconnected"]


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
