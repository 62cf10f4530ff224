"""A TCP relay before a server: connections through it can be cut, held, and refused."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import pytest
import yaml

from emulator.plugins.kubernetes.connection import ApiServer
from emulator.plugins.kubernetes.section import Kubernetes
from tests.clusters import ForTest

__all__ = ["Relay", "Relayed", "opened", "relayed"]


class Relay:
    """Listens on a free port of this machine, and passes bytes on in both directions."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._listening = self._listen(0)
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self.bytes_passed = 0
        """From the server to clients."""
        self._limit: int | None = None

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.away()

    def cut(self) -> None:
        """Reset every connection, wherever in a line it may be."""
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            with contextlib.suppress(OSError):
                # So that closing sends a reset.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def cut_after(self, size: int) -> None:
        """Cut all connections once so many more bytes have come from the server."""
        with self._lock:
            self._limit = self.bytes_passed + size

    def away(self) -> None:
        """Refuse connections, and reset those that there are."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def back(self) -> None:
        """Accept connections again, at the same port."""
        self._listening = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listening = socket.create_server(("127.0.0.1", port), reuse_port=False)
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()
        return listening

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = listening.accept()
                server = socket.create_connection(self._to)
                with self._lock:
                    self._connections += [client, server]
                for one, other, counts in ((client, server, False), (server, client, True)):
                    threading.Thread(
                        target=self._pass_on, args=(one, other, counts), daemon=True
                    ).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):  # either is closed
            while data := one.recv(1024):
                other.sendall(data)
                if counts and self._is_enough(len(data)):
                    self.cut()
            other.shutdown(socket.SHUT_WR)

    def _is_enough(self, size: int) -> bool:
        with self._lock:
            self.bytes_passed += size
            if self._limit is None or self.bytes_passed < self._limit:
                return False
            self._limit = None
            return True


Relayed = tuple[ApiServer, Relay]


@contextlib.contextmanager
def opened(found: ForTest, kubeconfig: Path | None = None) -> Iterator[ApiServer]:
    """Open a test's cluster, by its own kubeconfig or another."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KUBECONFIG", str(kubeconfig or found.kubeconfig))
        cluster = ApiServer.open(Kubernetes(namespace=found.namespace))
    with contextlib.closing(cluster):
        yield cluster


@contextlib.contextmanager
def relayed(found: ForTest, folder: Path) -> Iterator[Relayed]:
    """Open the same cluster through a relay; `folder` gets the kubeconfig for that."""
    config = yaml.safe_load(found.kubeconfig.read_text())
    place = config["clusters"][0]["cluster"]
    address = urlsplit(place["server"])
    assert address.hostname is not None
    assert address.port is not None
    with Relay(address.hostname, address.port) as relay:
        place["server"] = f"{address.scheme}://{address.hostname}:{relay.port}"
        through = folder / "relayed.kubeconfig"
        through.touch(mode=0o600)
        through.write_text(yaml.safe_dump(config))
        with opened(found, through) as cluster:
            yield cluster, relay
