"""What processes print: a named pipe a task, read until the task has ended and no further."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator
from pathlib import Path

__all__ = ["open_pipe", "read_until", "split_lines"]


def split_lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Turn chunks of output into lines; the last one may lack its newline (pure)."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "surrogateescape").removesuffix("\r")
    if rest:
        yield rest.decode("utf-8", "surrogateescape")


def read_until(pipe: int, ended: int) -> Iterator[bytes]:
    """Yield what comes out of the pipe until `ended` is closed, and then what is still in it."""
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        ready.register(ended, selectors.EVENT_READ)
        while True:
            descriptors = {key.fd for key, _ in ready.select()}
            if pipe in descriptors:
                yield os.read(pipe, 65536)
            elif ended in descriptors:
                return


def open_pipe(path: Path) -> int:
    """Open a named pipe for reading and writing: who writes to it never finds it broken."""
    if not path.exists():
        os.mkfifo(path, 0o600)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor
