"""Which ports of this machine are free."""

from __future__ import annotations

import socket

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
