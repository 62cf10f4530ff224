"""stdout and stderr of a command: what can't be written there stops no work, and is known later.

A closed descriptor or a full disk would raise at any `print`, in the middle of a run. After `own`
it does not: the first error is kept for the end of the command. A closed pipe still raises
BrokenPipeError, so that `| head` ends a command that has been read; a closed terminal is no error.
"""

from __future__ import annotations

import errno
import io
import os
import sys

TYPE_CHECKING = False  # `typing` takes as long to load as all of the rest
if TYPE_CHECKING:
    from typing import TextIO

    from _typeshed import ReadableBuffer


class _File(io.FileIO):
    """A descriptor that takes whatever it is given."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.failure: OSError | None = None
        self._is_terminal = self.isatty()

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]  # typeshed: int
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            if not (self._is_terminal and error.errno == errno.EIO):  # it was closed: nobody reads
                self.failure = self.failure or error
            return memoryview(data).nbytes


def set_up() -> None:
    """Set up stdout and stderr of this process. Call it first: no file may get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: what is opened next would get this number, and be printed to
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
    sys.stdout = _stream(1, sys.stdout)
    sys.stderr = _stream(2, sys.stderr)


def _stream(number: int, before: TextIO | None) -> io.TextIOWrapper:
    """Return a stream that never fails, otherwise like the one before; None: it was closed."""
    raw = io.BufferedWriter(_File(number))
    if not isinstance(before, io.TextIOWrapper):
        return io.TextIOWrapper(raw, encoding="utf-8", line_buffering=number == 2)
    return io.TextIOWrapper(
        raw,
        encoding=before.encoding,
        errors=before.errors,
        # With PYTHONUNBUFFERED Python has no buffer below; this one would keep each line.
        line_buffering=before.line_buffering or before.write_through,
    )


def close() -> OSError | None:
    """Write what is buffered; return why something that was printed to stdout was not written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:  # at its exit Python would report it
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _File) else None
