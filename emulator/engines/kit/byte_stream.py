"""The bytes of an HTTP answer that has no end, as they arrive, and the connection below it.

The server's socket is read itself, also over TLS. What has none, such as a connection over SSH, is
passed on by a thread.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from emulator.engines.kit.streams import AT_ONCE, PIECE


class ByteStream:
    """Reads the body of an answer without blocking."""

    def __init__(
        self,
        response: Any,  # noqa: ANN401  of urllib3
        close: Callable[[], None] | None = None,
    ) -> None:
        """`response` has an unread body; `close` closes what it belongs to [default: itself]."""
        self._response = response
        self._close: Callable[[], None] = close or response.close
        self._is_chunked = False
        self._waiting = bytearray()
        """Bytes of a chunk that is not whole."""
        self.is_complete = False
        """Whether the server has said that this is all; if not, the connection may have ended."""
        self._early = b""
        own = socket_of(response)
        if own is not None:
            self._socket = own
            own.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):  # as an OSError it tells nothing
                self._early = reader_of(response).peek()  # came with the headers
            self._is_chunked = response.headers.get("Transfer-Encoding") == "chunked"
        else:
            self._socket, writing = socket.socketpair()
            self._socket.setblocking(False)
            threading.Thread(target=self._pass_on, args=(writing,), daemon=True).start()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def receive(self) -> tuple[bytes, int, bool]:
        """Return the bytes that have arrived, how many came over the wire, and whether it ended.

        Raises ValueError where they should be chunks (RFC 9112, section 7.1) and are none.
        """
        data, closed = self._receive()
        if not self._is_chunked:
            return data, len(data), closed
        waiting = self._waiting
        waiting += data
        chunks, at = [], 0
        while not self.is_complete and (newline := waiting.find(b"\r\n", at)) >= 0:
            size = int(waiting[at:newline].partition(b";")[0], 16)
            begin, end = newline + 2, newline + 2 + size
            if len(waiting) < end + 2:
                break
            chunks.append(waiting[begin:end])
            at = end + 2
            self.is_complete = not size
        del waiting[:at]
        return b"".join(chunks), len(data), closed or self.is_complete

    def cut(self) -> None:
        """Have it end now; may be called on any thread."""
        shut(self._socket)

    def close(self) -> None:
        """Close the connection."""
        self._close()
        self._socket.close()

    def _receive(self) -> tuple[bytes, bool]:
        """Return the bytes that have arrived, and whether the connection is closed."""
        received, self._early = bytearray(self._early), b""
        tls = self._socket if isinstance(self._socket, ssl.SSLSocket) else None
        # TLS may have decrypted more than it returned, for which no selector would wake.
        while len(received) < AT_ONCE or (tls and tls.pending()):
            try:
                data = self._socket.recv(PIECE)
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            received += data
            if not data:
                return bytes(received), True
            # Over TLS only one record is returned: one line, where a server flushes each.
            if len(data) < PIECE and not tls:
                break
        return bytes(received), False

    def _pass_on(self, writing: socket.socket) -> None:
        with writing, contextlib.suppress(Exception):  # what ends the answer closes the pair
            for data in self._response.stream(None, decode_content=True):
                writing.sendall(data)


def shut(connection: socket.socket) -> None:
    """Have what another thread reads from a connection end now."""
    with contextlib.suppress(OSError):  # it has ended
        # Not the method of an SSLSocket: that lets go of what the other thread reads from.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


# --- Below an HTTP answer -------------------------------------------------------------------------
#
# All that is known of urllib3's inside: it has no public way to an SSLSocket, nor to the bytes that
# came with the headers. A test runs these with the installed urllib3 and http.client, with and
# without TLS.


def reader_of(response: Any) -> io.BufferedReader:  # noqa: ANN401  of urllib3
    """Return what an answer is read from: first the bytes that came with its headers."""
    reader: io.BufferedReader = response._fp.fp
    return reader


def socket_of(response: Any) -> socket.socket | None:  # noqa: ANN401  of urllib3
    """Return the socket of an answer; None if it has ended, or has none of its own, as with SSH.

    Over TLS it is the SSLSocket.
    """
    own = getattr(getattr(reader_of(response), "raw", None), "_sock", None)
    return own if isinstance(own, socket.socket) else None
