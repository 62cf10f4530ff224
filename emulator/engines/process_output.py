"""What processes print: a named pipe a task, read until the task has ended and no further."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from emulator.engines.lines import LONGEST_LINE, UnfinishedLine

__all__ = ["open_pipe", "read_until", "split_lines"]


def split_lines(chunks: Iterable[bytes], longest: int = LONGEST_LINE) -> Iterator[str]:
    """Turn chunks of output into lines of `longest` bytes; the last may lack its newline (pure).

    A longer line is cut and marked, see `lines.py`. The work grows with the number of bytes, and
    the memory does not.
    """
    line = UnfinishedLine(longest)
    for chunk in chunks:
        *finished, rest = chunk.split(b"\n")
        for piece in finished:
            line.add(piece)
            yield line.finish()
        line.add(rest)
    if line:
        yield line.finish()


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
    """Open a named pipe for reading and writing: who writes to it never finds it broken.

    Raises OSError, also where something else has been put in its place.
    """
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "its output pipe was replaced")
    os.set_blocking(descriptor, True)
    return descriptor
