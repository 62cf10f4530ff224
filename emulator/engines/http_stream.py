"""The connection below an answer of an HTTP server that has no end."""

from __future__ import annotations

import socket
from typing import Any


def socket_of(response: Any) -> socket.socket | None:  # noqa: ANN401  of urllib3 or http.client
    """Return the socket of an answer of urllib3, or None if it has none of its own, as with SSH.

    Over TLS it is the SSLSocket.
    """
    raw = getattr(getattr(getattr(response, "_fp", None), "fp", None), "raw", None)
    own = getattr(raw, "_sock", None)
    return own if isinstance(own, socket.socket) else None
