"""Closes sockets that libraries forget after a failed connection."""

from __future__ import annotations

import socket
import traceback


def close_unconnected(error: BaseException | None) -> None:
    """Close the sockets in an error's frames that were never connected.

    httpcore (1.0.9) and the Docker SDK (7.1) leave such a socket to the garbage collector, which
    issues a ResourceWarning. In a user's pytest session with `-W error` an unrelated test would
    fail because no Docker answers.
    """
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            for value in frame.f_locals.values():
                # One that could not be made, for want of descriptors, can't be closed either.
                if (
                    isinstance(value, socket.socket)
                    and value.fileno() >= 0
                    and not _is_connected(value)
                ):
                    value.close()
        error = error.__cause__ or error.__context__


def _is_connected(one: socket.socket) -> bool:
    try:
        one.getpeername()
    except OSError:
        return False
    return True
