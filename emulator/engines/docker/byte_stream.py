"""The bytes of an answer of the engine that has no end, as they arrive.

The engine's socket is read itself. What has none, such as a connection over SSH, is passed on by a
thread.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import Any

from emulator.engines.docker.log_stream import ChunkedBody
from emulator.engines.streams import AT_ONCE, PIECE


class ByteStream:
    """Reads the body of an answer without blocking."""

    def __init__(self, response: Any) -> None:  # noqa: ANN401  of requests
        self._response = response
        self._body: ChunkedBody | None = None
        buffered = response.raw._fp.fp
        self._early = b""
        own = getattr(buffered.raw, "_sock", None)
        if isinstance(own, socket.socket):
            self._socket = own
            own.setblocking(False)
            self._early = buffered.peek()  # came with the headers
            if response.headers.get("Transfer-Encoding") == "chunked":
                self._body = ChunkedBody()
        else:
            self._socket, writing = socket.socketpair()
            self._socket.setblocking(False)
            threading.Thread(target=self._pass_on, args=(writing,), daemon=True).start()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def receive(self) -> tuple[bytes, int, bool]:
        """Return the bytes that have arrived, how many came over the wire, and whether it ended."""
        data, closed = self._receive()
        size = len(data)
        if self._body is not None:
            data = self._body.feed(data)
            closed = closed or self._body.ended
        return data, size, closed

    def cut(self) -> None:
        """Have it end now; may be called on any thread."""
        with contextlib.suppress(OSError):  # it has ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._response.close()
        self._socket.close()

    def _receive(self) -> tuple[bytes, bool]:
        """Return the bytes that have arrived, and whether the connection is closed."""
        received, self._early = self._early, b""
        # TLS may have decrypted more than it returned, for which no selector would wake.
        while len(received) < AT_ONCE or self._is_pending():
            try:
                data = self._socket.recv(PIECE)
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            received += data
            if not data:
                return received, True
            if len(data) < PIECE and not self._is_pending():
                break
        return received, False

    def _is_pending(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _pass_on(self, writing: socket.socket) -> None:
        with writing, contextlib.suppress(Exception):  # what ends the answer closes the pair
            for data in self._response.iter_content(None):
                writing.sendall(data)
