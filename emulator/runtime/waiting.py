"""Waits that a signal reliably interrupts.

Python runs signal handlers on the main thread, between two bytecodes. A signal that arrives just
before a blocking call blocks, or that the kernel delivers to another thread, does not interrupt the
call: its handler runs when the call returns. With `Thread.join`, `flock` or `recv` without timeout
that may be never. So the main thread blocks for at most SLICE seconds at a time; that costs two
wake-ups a second.

`Thread.join` is not used at all: after an interrupted `join`, CPython 3.11 takes the thread for
finished.
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

SLICE = 0.5
"""Seconds until a signal is handled that did not wake the main thread."""
AHEAD = 1000
"""Items that are read in advance."""
LEAVE_TIMEOUT = 1.0
"""Seconds to wait for a reader after its source was cancelled."""

T = TypeVar("T")


def _nothing() -> None:
    pass


class Event:
    """A `threading.Event` that is safe with signal handlers that raise.

    `threading.Event.wait` is Python code: if a handler raises within it, a RuntimeError of its lock
    may replace the exception. This one waits in a single C call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._is_set = False

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Wake all waiting threads; it can't be unset."""
        self._is_set = True
        with contextlib.suppress(RuntimeError):  # already set
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; return whether it is set."""
        if not self._is_set and self._lock.acquire(timeout=timeout):
            # If a handler raises here, other waiting threads see `is_set` after their slice.
            with contextlib.suppress(RuntimeError):  # set again meanwhile
                self._lock.release()
        return self._is_set


def pause(seconds: float, check: Callable[[], None] = _nothing) -> None:
    """Wait for so many seconds; exceptions from `check` propagate."""
    until, never = time.monotonic() + seconds, Event()
    while (left := until - time.monotonic()) > 0:
        never.wait(min(left, SLICE))
        check()


def start(call: Callable[[], None]) -> None:
    """Run a call on a daemon thread, without waiting until it has started."""
    _thread.start_new_thread(call, ())


def for_event(event: Event, check: Callable[[], None] = _nothing) -> None:
    """Wait until an event is set; exceptions from `check` propagate."""
    while not event.wait(SLICE):
        check()


def result_of(call: Callable[[], T], check: Callable[[], None] = _nothing) -> T:
    """Return the result of a call that may block, or raise its exception.

    On the main thread the call runs on another thread. If a signal or `check` ends the wait, the
    call keeps running there: it must be harmless then.
    """
    if not _handles_signals():
        return call()
    results: list[T] = []
    errors: list[BaseException] = []
    done = Event()

    def perform() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    start(perform)
    for_event(done, check)
    if errors:
        raise errors[0]
    return results[0]


def for_lock(file: int, how: int, check: Callable[[], None] = _nothing) -> None:
    """Take a lock of an open file (flock); `how` is LOCK_SH or LOCK_EX.

    If a signal or `check` ends the wait, closing the file releases the lock, even if it is acquired
    later.
    """
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, how | fcntl.LOCK_NB)
        return
    # flock belongs to the open file, not to the descriptor, which may be closed meanwhile.
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
    leaves_within: float = LEAVE_TIMEOUT,
) -> Generator[T, None, None]:
    """Yield the items of `source`, which may block.

    On the main thread another thread reads the source, and `check` is called before each item and
    while waiting; its exceptions propagate. If this generator ends before the source, or
    with an exception, it calls `cancel`, which should end the source, and waits at most
    `leaves_within` seconds for that.
    """
    reader = _Reader(source) if _handles_signals() else None
    finished = False
    try:
        yield from source if reader is None else reader.items(check)
        finished = True
    finally:
        if not finished:
            cancel()
            if reader is not None:
                reader.stop(leaves_within)


def _handles_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


@dataclass(frozen=True)
class _End:
    """The source has ended, or has raised an exception."""

    error: BaseException | None


class _Reader(Generic[T]):
    """Reads a source on a separate thread."""

    def __init__(self, source: Iterable[T]) -> None:
        self._source = source
        self._items: queue.Queue[T | _End] = queue.Queue(AHEAD)
        self._stopped = False
        self._ended = threading.Event()

    def items(self, check: Callable[[], None]) -> Iterator[T]:
        """Yield the source's items; raise its exception."""
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
        if item.error is not None:
            raise item.error

    def stop(self, within: float) -> None:
        """Drop further items, and wait at most `within` seconds until the source ends."""
        self._stopped = True
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
        while not self._stopped:
            with contextlib.suppress(queue.Full):
                self._items.put(item, timeout=SLICE)
                return
