"""Servers at the address of a Docker engine that are none."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from emulator.runtime.sockets import accepts

DEFAULT_SOCKET = "/var/run/docker.sock"

ANSWERS = {
    "silent": b"",
    "garbage": b"\x16\x03\x01 this is no HTTP \xff\xfe\r\n\r\n" * 20,
    "another server": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "json of another kind": b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n"
    b'{"ApiVersion": "sixteen"}'[:24],
    "closes": None,
}


@contextlib.contextmanager
def listening(place: str, answer: bytes | None) -> Iterator[str]:
    """Listen on `tcp` or at the path of a unix socket; yield the DOCKER_HOST that leads there.

    Each client gets the answer, and then nothing more; None closes the connection at once.
    """
    one = socket.socket(socket.AF_INET if place == "tcp" else socket.AF_UNIX)
    one.bind(("127.0.0.1", 0) if place == "tcp" else place)
    one.listen(16)
    met: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = one.accept()
                if answer is None:
                    client.close()
                    continue
                met.append(client)
                client.sendall(answer)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{one.getsockname()[1]}" if place == "tcp" else f"unix://{place}"
    finally:
        one.shutdown(socket.SHUT_RDWR)  # wakes accept
        thread.join(60)
        for each in [one, *met]:
            each.close()


def instead_of_docker(socket_there: str = "/dev/null") -> Sequence[str]:
    """Return how to begin a command that sees another default socket than the machine's.

    Without one no engine is configured for it: no program listens on /dev/null. The command has
    its own mount namespace, without effect on others.
    """
    if socket_there == "/dev/null" and not accepts(DEFAULT_SOCKET):
        return []
    if os.geteuid() or not shutil.which("unshare") or not Path(DEFAULT_SOCKET).exists():
        pytest.skip("hiding the machine's engine takes root and unshare")
    bind = f'mount --bind {socket_there} {DEFAULT_SOCKET} && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", bind, "sh"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"the machine's engine can't be hidden: {tried.stderr.strip()}")
    return prefix


def run_python(code: str, prefix: Sequence[str], **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python code to its end, with no engine named by the environment but in `env`."""
    named = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG")
    kept = {name: value for name, value in os.environ.items() if name not in named}
    return subprocess.run(
        [*prefix, sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**kept, **env},
    )
