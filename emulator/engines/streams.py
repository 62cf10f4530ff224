"""One thread that reads the output of all tasks of a run, and reports it in batches.

A thread for each task would be woken for each line, and wake the supervisor for each. This one reads
whatever has arrived from any of them, passes it on at once as one event, and then waits for EVERY
seconds: so there are no more than 1/EVERY wake-ups a second, however many tasks print.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections.abc import Callable
from typing import Protocol

from emulator.engines.base import Inbox, Line

__all__ = ["EVERY", "PIECE", "Source", "Streams"]

EVERY = 0.01
"""Seconds between two batches, at most 100 a second: a line is reported so much later at worst."""
PIECE = 256 * 1024
"""Bytes that a source reads at once, at most."""


class Source(Protocol):
    """The output of one start of a task, until it ends."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when something has arrived."""

    def read(self) -> list[Line] | None:
        """Return the lines that have arrived, without blocking; None at the end.

        May raise any error; that ends the source as well.
        """

    def ended(self, error: Exception | None) -> None:
        """Take the end: called once, on a thread of its own, which may block."""


class Streams:
    """Reads sources on one thread, which runs as long as there are any."""

    def __init__(self, inbox: Inbox, sleep: Callable[[float], None] = time.sleep) -> None:
        self._inbox, self._sleep = inbox, sleep
        self._lock = threading.Lock()
        self._selector: selectors.BaseSelector | None = None
        self._waker = -1

    def add(self, source: Source) -> None:
        """Read a source from now on."""
        with self._lock:
            if self._selector is None:
                self._selector = selectors.DefaultSelector()
                woken, self._waker = os.pipe()
                self._selector.register(woken, selectors.EVENT_READ, None)
                threading.Thread(
                    target=self._run, args=(self._selector, woken), name="streams", daemon=True
                ).start()
            self._selector.register(source, selectors.EVENT_READ, source)
            os.write(self._waker, b"+")  # `select` looks at what was added when it is woken

    def _run(self, selector: selectors.BaseSelector, woken: int) -> None:
        while True:
            batch: list[Line] = []
            finished: list[tuple[Source, Exception | None]] = []
            for key, _ in selector.select():
                source: Source | None = key.data
                if source is None:
                    os.read(woken, PIECE)
                    continue
                error = None
                try:
                    lines = source.read()
                except Exception as raised:  # any: without its output the run must end
                    lines, error = None, raised
                if lines is None:
                    finished.append((source, error))
                else:
                    batch += lines
            if batch:
                self._inbox.put_lines(batch)
            for source, error in finished:
                with self._lock, contextlib.suppress(KeyError, ValueError):
                    selector.unregister(source)
                threading.Thread(
                    target=source.ended, args=(error,), name="ended", daemon=True
                ).start()
            if finished and self._closed_unless_needed(selector, woken):
                return
            self._sleep(EVERY)

    def _closed_unless_needed(self, selector: selectors.BaseSelector, woken: int) -> bool:
        """Close everything if no source is left; return whether that was so."""
        with self._lock:
            if len(selector.get_map()) > 1:
                return False
            selector.close()
            os.close(woken)
            os.close(self._waker)
            self._selector, self._waker = None, -1
            return True
