"""Follows the streams of a run's API from an event loop, in batches; see `application.py`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

from emulator.errors import UsageError
from emulator.record.remains import SOCKET


class Gone(Exception):
    """The API does not answer (any more): it is not up yet, the run is over, or was killed."""


def has_socket(folder: Path) -> bool:
    """Return whether a run has a socket: its API answers, will in a moment, or was killed."""
    return (folder / SOCKET).exists()


async def follow(
    folder: Path, stream: str, *, every: float, **query: object
) -> AsyncIterator[list[bytes]]:
    """Yield what a stream sends, as whole lines, until it ends.

    `every` is the seconds between two batches; what is None of `query` is left out. Raises Gone,
    and UsageError for a request that makes no sense.
    """
    import httpx

    given = {"every": every, **query}
    params = {key: str(value) for key, value in given.items() if value is not None}
    # The path of the socket may be too long; that of the file that it links to is not.
    transport = httpx.AsyncHTTPTransport(uds=os.path.realpath(folder / SOCKET))
    try:
        async with (
            httpx.AsyncClient(transport=transport, timeout=None) as client,
            client.stream("GET", f"http://run/v1/{stream}", params=params) as answer,
        ):
            if answer.is_error:
                await answer.aread()
                if answer.status_code == 422:
                    raise UsageError(str(answer.json()["error"]))
                raise Gone
            rest = b""
            async for piece in answer.aiter_bytes():
                *lines, rest = (rest + piece).split(b"\n")
                if lines:
                    yield lines
    except (httpx.TransportError, OSError):
        raise Gone from None
