"""A line with what is under way and for how long, on a terminal; nothing elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from rich.cells import set_cell_size

from emulator.report.text import printable
from emulator.validation.units import format_duration

EVERY = 0.5
"""Seconds between two updates of the time."""
_CLEAR = "\r\x1b[K"


class Progress:
    """What is under way, with the time since it began; it leaves no trace when it ends.

    The cursor stays visible: a signal may end this process at any time.
    """

    def __init__(
        self, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._is_terminal = self._stream.isatty() and os.environ.get("TERM") not in (
            None,
            "dumb",
            "unknown",
        )
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.latest = ""
        """The latest news of it, shown behind the time."""

    def begin(self, latest: str = "") -> None:
        """Begin to count, and to show."""
        self.end()
        self.latest = latest
        if self._is_terminal:
            self._ending = threading.Event()
            show = self._show
            self._thread = threading.Thread(target=show, args=[self._ending, self._clock()])
            self._thread.daemon = True
            self._thread.start()

    def end(self) -> None:
        """Remove it; nothing to do if it was not begun."""
        if self._thread is not None:
            self._ending.set()
            self._thread.join()
            self._thread = None
            self._write(_CLEAR)

    def _show(self, ending: threading.Event, began: float) -> None:
        while not ending.wait(EVERY):
            self._write(_CLEAR + self.line(self._clock() - began, _width(self._stream)))

    def line(self, seconds: float, width: int) -> str:
        """Return the line; it is one cell narrower than the terminal, and never wrapped."""
        text = f"{format_duration(seconds)}  {printable(self.latest)}"
        return set_cell_size(text, max(width - 1, 1)).rstrip()

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal is gone
            self._stream.write(text)
            self._stream.flush()


def _width(stream: IO[str]) -> int:
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80


@contextmanager
def under_way(text: str) -> Iterator[None]:
    """Show a text with the time for as long as the block takes."""
    progress = Progress()
    progress.begin(text)
    try:
        yield
    finally:
        progress.end()
