"""Waits that a signal surely ends.

Python runs the handler of a signal on the main thread, between two steps of its interpreter. A
signal that arrives after the last look for one and before a blocking call has begun to block, or
that the kernel gives to another thread, does not wake that call: the handler runs when the call
returns. In `Thread.join`, `flock` or `recv` without a limit that may be never. So the main thread
blocks for SLICE seconds at most and then looks again; that costs two wake-ups a second.

`Thread.join` is not used for this at all: CPython 3.11 takes a thread whose `join` was interrupted
for one that has ended.
"""

from __future__ import annotations

import _thread
import contextlib
import fcntl
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["SLICE", "Event", "each", "for_event", "for_lock", "pause", "result_of", "start"]

SLICE = 0.5
"""Seconds that a signal may go unseen where it did not wake the main thread."""
AHEAD = 1000
"""Items that are read before somebody asks for them."""
LEAVES_WITHIN = 1.0
"""Seconds that a reader gets to end once its source was cancelled."""

T = TypeVar("T")


def _nothing() -> None:
    pass


class Event:
    """An event as `threading.Event`, but for handlers of signals that raise.

    That one is Python code: where a handler raises in the middle of its `wait`, what comes out may
    be a RuntimeError of its lock instead. This one waits in a single call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._is_set = False

    def is_set(self) -> bool:
        """Say whether it has happened."""
        return self._is_set

    def set(self) -> None:
        """Let everybody go on who waits; for good."""
        self._is_set = True
        with contextlib.suppress(RuntimeError):  # it was set before
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Wait for so many seconds at most; say whether it has happened."""
        if not self._is_set and self._lock.acquire(timeout=timeout):
            # Where a handler raises here, others that wait see `is_set` after their slice.
            with contextlib.suppress(RuntimeError):  # it was set once more meanwhile
                self._lock.release()
        return self._is_set


def pause(seconds: float, check: Callable[[], None] = _nothing) -> None:
    """Wait for so many seconds; whatever `check` raises meanwhile is passed on."""
    until, never = time.monotonic() + seconds, Event()
    while (left := until - time.monotonic()) > 0:
        never.wait(min(left, SLICE))
        check()


def start(call: Callable[[], None]) -> None:
    """Run a call on a thread that nothing waits for, not even until it has begun."""
    _thread.start_new_thread(call, ())


def for_event(event: Event, check: Callable[[], None] = _nothing) -> None:
    """Wait until an event is set; whatever `check` raises meanwhile is passed on."""
    while not event.wait(SLICE):
        check()


def result_of(call: Callable[[], T], check: Callable[[], None] = _nothing) -> T:
    """Return what a call returns that may block for as long as it likes, or raise what it raises.

    On the main thread the call is made by a thread of its own. Where a signal or `check` ends the
    wait, the call is left to itself: it must be one that does no harm then.
    """
    if not _handles_signals():
        return call()
    results: list[T] = []
    errors: list[BaseException] = []
    over = Event()

    def perform() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            over.set()

    start(perform)
    for_event(over, check)
    if errors:
        raise errors[0]
    return results[0]


def for_lock(file: int, how: int, check: Callable[[], None] = _nothing) -> None:
    """Take a lock of an open file (flock); `how` is LOCK_SH or LOCK_EX.

    Where a signal or `check` ends the wait, closing the file gives up the lock, also if it comes
    later.
    """
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, how | fcntl.LOCK_NB)
        return
    # A lock belongs to what was opened, not to the number: this one may be closed meanwhile.
    other = os.dup(file)

    def take() -> None:
        try:
            fcntl.flock(other, how)
        finally:
            os.close(other)

    result_of(take, check)


def each(
    source: Iterable[T],
    *,
    cancel: Callable[[], None] = _nothing,
    check: Callable[[], None] = _nothing,
    leaves_within: float = LEAVES_WITHIN,
) -> Generator[T, None, None]:
    """Yield what `source` yields, which may block for as long as it likes.

    On the main thread it is read by a thread of its own, and `check` is called before each item and
    while none comes; what it raises is passed on. Where this ends before the source does, `cancel`
    is called: it should make the source end, which is waited for `leaves_within` seconds.
    """
    if not _handles_signals():
        reader: _Direct[T] | _Reader[T] = _Direct(source)
    else:
        reader = _Reader(source)
    try:
        yield from reader.items(check)
    finally:
        if not reader.over:
            cancel()
            reader.leave(leaves_within)


def _handles_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


@dataclass(frozen=True)
class _End:
    """A source has ended, or has raised something."""

    error: BaseException | None


class _Direct(Generic[T]):
    """Reads a source where it is asked for."""

    def __init__(self, source: Iterable[T]) -> None:
        self._source = source
        self.over = False

    def items(self, check: Callable[[], None]) -> Iterator[T]:
        """Yield what the source yields."""
        yield from self._source
        self.over = True

    def leave(self, within: float) -> None:
        """Nothing waits."""


class _Reader(Generic[T]):
    """Reads a source on a thread of its own."""

    def __init__(self, source: Iterable[T]) -> None:
        self._source = source
        self._items: queue.Queue[T | _End] = queue.Queue(AHEAD)
        self._left = False
        self._ended = threading.Event()
        self.over = False
        """Whether the source has ended and all of it was taken."""

    def items(self, check: Callable[[], None]) -> Iterator[T]:
        """Yield what the source yields; raise what it raises."""
        threading.Thread(target=self._read, name="reads", daemon=True).start()
        while True:
            check()
            try:
                item = self._items.get(timeout=SLICE)
            except queue.Empty:
                continue
            if isinstance(item, _End):
                break
            yield item
        self.over = True
        if item.error is not None:
            raise item.error

    def leave(self, within: float) -> None:
        """Give the source some seconds to end; what it still yields is dropped."""
        self._left = True
        self._ended.wait(within)

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._source:
                self._put(item)
        except BaseException as raised:
            error = raised
        finally:
            self._put(_End(error))
            self._ended.set()

    def _put(self, item: T | _End) -> None:
        while not self._left:
            with contextlib.suppress(queue.Full):
                self._items.put(item, timeout=SLICE)
                return
