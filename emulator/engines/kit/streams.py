"""One thread that reads the output of all tasks of a run, and reports it in batches.

A thread for each task would be woken for each line, and wake the supervisor for each. This one
reads what has arrived from any of them, passes it on at once as one event, and then waits, as
`Pace` decides: as a rule there are at most 1/EVERY wake-ups a second, however many tasks print.
Waking up costs far more than reading a line. So it waits longer, for UNHURRIED seconds, while the
supervisor is not in a hurry and the engine stamps the lines, so that the time of a step does not
depend on when it is read. It waits less where much arrives: who writes to a full socket stands
still.
"""

from __future__ import annotations

import heapq
import math
import os
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from emulator.engines.base import EngineDown, Inbox, Line, Lines
from emulator.errors import EngineLost

EVERY = 0.01
"""Seconds between two batches: a line is reported so much later at worst."""
UNHURRIED = 0.25
"""The same while nothing waits for what a line may cause; it ends as soon as something does."""
PIECE = 64 * 1024
"""Bytes that a source requests at once."""
AT_ONCE = 4 * PIECE
"""Bytes after which a source lets the next one read."""
IN_AN_EVENT = 5000
"""Lines in an event at most: no request to the supervisor waits for many more. AT_ONCE bytes may be
a hundred thousand lines."""
MUCH = 4 * 1024
"""Bytes of one source in a batch after which its socket may be full before the next batch. The
kernel counts 768 bytes and more for each line of 2, so a socket of 208 KiB holds 12 KB of them."""
LEAST = 0.0002
"""Seconds between two batches after one with MUCH of a source; in that time an engine sends some
hundred lines."""


class Arrived(NamedTuple):
    """What a source has read."""

    lines: list[Line]
    size: int
    """In bytes, those of an unfinished line included."""
    has_ended: bool


class Source(Protocol):
    """The output of one start of a task, until it ends."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when something has arrived."""

    def read(self) -> Arrived:
        """Return the lines that have arrived, without blocking, and whether this was the end.

        May raise any error; that ends the source as well.
        """

    def give_up(self) -> None:
        """Report no more lines but the last ones: it is more than anybody wants to wait for.

        Called once, on the thread that reads. The end follows as without it.
        """

    def ended(self, error: Exception | None) -> None:
        """Take the end: called once, on a thread of its own, which may block."""


class Pace:
    """How long to wait between two batches (pure).

    A batch with MUCH is followed by the next at once, and each other by a wait that is twice as
    long as the one before. So the waits settle where no socket is full for long: at the speed of
    the engine. Little after a short wait is no sign that a task prints little.
    """

    def __init__(self) -> None:
        self._wait = math.inf

    def after(self, largest: int, *, calm: bool) -> float:
        """Return the seconds to wait after a batch with so many bytes of one source."""
        longest = UNHURRIED if calm else EVERY
        self._wait = LEAST if largest >= MUCH else min(2 * self._wait, longest)
        return self._wait


class Streams:
    """Reads sources on one thread, which runs as long as there are any."""

    def __init__(
        self, inbox: Inbox, sleep: Callable[[float], None] | None = None, *, stamped: bool = False
    ) -> None:
        """`stamped`: the lines have the time at which they were printed, not read.

        `sleep` replaces both waits between two batches.
        """
        self._inbox, self._stamped = inbox, stamped
        self._sleep = sleep or time.sleep
        self._sleep_calmly = sleep or inbox.wait_until_hurried
        self._lock = threading.Lock()
        self._selector: selectors.BaseSelector | None = None
        self._waker = -1
        self._sources: dict[int, Source] = {}
        """Those whose end was not seen yet, by identity."""
        self._due: list[Source] = []
        """To be read, whether or not anything has arrived."""
        self._came: dict[int, float] = {}
        """Bytes that came of each source since only a rest is wanted, by identity; infinite: it was
        given up."""

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
            self._sources[id(source)] = source
            self._due.append(source)
            os.write(self._waker, b"+")

    def look_at(self, source: Source) -> None:
        """Read a source that was added, although nothing may have arrived from it.

        Nothing happens if its end was seen already: its descriptor may be another file's by now.
        """
        with self._lock:
            if id(source) in self._sources:
                self._due.append(source)
                os.write(self._waker, b"+")

    def _run(self, selector: selectors.BaseSelector, woken: int) -> None:
        try:
            self._read(selector, woken)
        except Exception as error:  # any: a run without its output and exits would never end
            lost = EngineLost(f"Reading the output of tasks failed: {error!r}.")
            self._inbox.put(EngineDown(lost))

    def _read(self, selector: selectors.BaseSelector, woken: int) -> None:
        pace = Pace()
        while True:
            ready: dict[int, Source] = {}
            for key, _ in selector.select():
                if key.data is not None:
                    ready[id(key.data)] = key.data
                    continue
                os.read(woken, PIECE)
                with self._lock:
                    ready.update({id(source): source for source in self._due})
                    self._due.clear()
            batch: list[list[Line]] = []
            largest = 0
            ends: list[tuple[Source, Exception | None]] = []
            for source in ready.values():
                error: Exception | None = None
                try:
                    arrived = source.read()
                except Exception as raised:  # any: without its output the run must end
                    arrived, error = Arrived([], 0, has_ended=True), raised
                largest = max(largest, arrived.size)
                if not arrived.has_ended and self._is_too_much(source, arrived.size):
                    source.give_up()
                if arrived.lines:
                    batch.append(arrived.lines)
                if arrived.has_ended:
                    ends.append((source, error))
            if batch:
                lines = _in_order(batch)
                for start in range(0, len(lines), IN_AN_EVENT):
                    self._inbox.put(Lines(lines[start : start + IN_AN_EVENT]))
            for source, error in ends:
                with self._lock:
                    selector.unregister(source)
                    del self._sources[id(source)]
                    self._came.pop(id(source), None)
                    self._due = [one for one in self._due if one is not source]
                threading.Thread(
                    target=source.ended, args=(error,), name="ended", daemon=True
                ).start()
            if ends and self._closed_unless_needed(selector, woken):
                return
            calm = self._stamped and not self._inbox.hurried
            wait = pace.after(largest, calm=calm)
            (self._sleep_calmly if calm else self._sleep)(wait)

    def _is_too_much(self, source: Source, size: int) -> bool:
        """Return whether more has come of a source than is still wanted; only once is that so."""
        if (rest := self._inbox.rest) is None:
            return False
        before = self._came.get(id(source), 0)
        came = before + size
        self._came[id(source)] = math.inf if came > rest else came
        return before < came > rest

    def _closed_unless_needed(self, selector: selectors.BaseSelector, woken: int) -> bool:
        """Close everything if no source is left; return whether that was so."""
        with self._lock:
            if self._sources:
                return False
            selector.close()
            os.close(woken)
            os.close(self._waker)
            self._selector, self._waker = None, -1
            return True


def _in_order(batch: Sequence[list[Line]]) -> list[Line]:
    """Return the lines of several tasks by time, those of each task in their order (pure).

    A task may have two sources: what was read first comes first.
    """
    if len(batch) == 1:
        return batch[0]
    tasks: dict[str, list[Line]] = {}
    for lines in batch:
        tasks.setdefault(lines[0].task, []).extend(lines)
    return list(heapq.merge(*tasks.values(), key=attrgetter("wall")))
