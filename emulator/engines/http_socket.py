"""The socket and the unread bytes below an HTTP answer: all that is known of urllib3's inside.

urllib3 has no public way to an SSLSocket, nor to the bytes that came with the headers. A test runs
this module with the installed urllib3 and http.client, with and without TLS.
"""

from __future__ import annotations

import io
import socket
from typing import Any


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
