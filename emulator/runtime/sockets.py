"""Sockets of this machine: where programs listen, and those that libraries forget."""

from __future__ import annotations

import socket
import traceback

from emulator.errors import EngineError


def is_free(port: int, host: str = "") -> bool:
    """Return whether a program could listen on a port; by default on all addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def require_free(port: int, task: str, advice: str, host: str = "") -> None:
    """Raise EngineError if a port that a task should have is in use."""
    if not is_free(port, host):
        raise EngineError(f"Port {port} of this machine, for {task}, is already in use.", advice)


def accepts(path: str) -> bool | None:
    """Say whether a program listens on a unix socket, even if it does not answer.

    False: there is a socket, on which none does. None: that can't be told, or there is no socket.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(path)
        except TimeoutError:
            return True  # it listens, but is too slow to accept
        except ConnectionRefusedError:
            return False
        except OSError:
            return None
        return True


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
