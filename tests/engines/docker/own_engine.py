"""A Docker engine of a test's own: in a network namespace, with nothing on it but a base image.

What its containers reach of "the machine" is that namespace, so a test may put addresses there,
stop the engine, or look at what happens where none of our images is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

from emulator.runtime.sockets import close_unconnected

TOOLS = ("dockerd", "ip", "nsenter", "unshare", "docker")
UP_WITHIN = 60


class OwnEngine:
    """A daemon that only this test uses."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self.namespace, self._folder = namespace, folder
        self._inside = ["nsenter", f"--net=/run/netns/{namespace}"]
        self.host = f"unix://{folder / 'd.sock'}"
        log = (folder / "log").open("wb")
        self._daemon = subprocess.Popen(
            # Its mounts are its own as well. Not `ip netns exec`: that hides the cgroups.
            [
                *(*self._inside, "unshare", "--mount", "dockerd", "--host", self.host),
                *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
                *("--pidfile", str(folder / "pid")),
            ],
            stdout=log,
            stderr=log,
        )
        log.close()
        deadline = time.monotonic() + UP_WITHIN
        while True:  # its socket is all that says when it is ready
            try:
                self.api = docker.APIClient(self.host, version="auto", timeout=120)
                return
            except DockerException as error:
                close_unconnected(error)
                if time.monotonic() > deadline or self._daemon.poll() is not None:
                    self.close()
                    pytest.skip(f"no engine of its own: {(folder / 'log').read_text()[-500:]}")
                time.sleep(0.1)

    def has(self, image: str) -> str:
        """Give it an image of the machine's engine; return its name."""
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
            assert save.stdout is not None
            self.api.load_image(save.stdout)
        return image

    def ip(self, *arguments: str) -> None:
        """Run `ip` in its namespace."""
        subprocess.run(["ip", "-n", self.namespace, *arguments], check=True)

    @contextlib.contextmanager
    def serving(self, address: str) -> Iterator[None]:
        """Add an address there on which a server answers at port 80."""
        place = (f"{address}/{128 if ':' in address else 32}", "dev", "lo")
        self.ip("addr", "add", *place)
        try:
            with answering(self.namespace, address, 80):
                yield
        finally:
            self.ip("addr", "del", *place)

    def freeze(self) -> None:
        """Let it hang: it accepts connections (its kernel does) and answers none."""
        self._daemon.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it run again."""
        self._daemon.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, and what it runs."""
        self.thaw()
        with contextlib.suppress(AttributeError, DockerException, OSError):
            for container in self.api.containers(all=True):
                self.api.remove_container(container["Id"], force=True)
            self.api.close()
        self._daemon.terminate()
        self._daemon.wait(60)


@contextlib.contextmanager
def answering(namespace: str, address: str, port: int) -> Iterator[None]:
    """Run a server at an address of a network namespace."""
    family = "AF_INET6" if ":" in address else "AF_INET"
    serve = (
        f'import socket, time; s = socket.create_server(("{address}", {port}), '
        f'family=socket.{family}); print("up", flush=True); time.sleep(600)'
    )
    command = ["nsenter", f"--net=/run/netns/{namespace}", sys.executable, "-c", serve]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"up\n"
            yield
        finally:
            server.kill()


@contextlib.contextmanager
def own_engine(folder: Path) -> Iterator[OwnEngine]:
    """Yield an engine of the test's own; skips the test where none can be made."""
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if os.geteuid() or missing:
        pytest.skip(f"an engine of its own takes root and {', '.join(TOOLS)}")
    namespace = f"emu-own-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", namespace], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no network namespace can be made: {made.stderr.decode()}")
    try:
        subprocess.run(["ip", "-n", namespace, "link", "set", "lo", "up"], check=True)
        engine = OwnEngine(folder, namespace)
        try:
            yield engine
        finally:
            engine.close()
    finally:
        subprocess.run(["ip", "netns", "del", namespace], check=True)
        shutil.rmtree(folder, ignore_errors=True)
