"""Time as a parameter: the same supervisor runs in real time and in no time at all.

A clock gives the time, waits for the next event of an inbox, and has the workers on which calls
that take time are made. `RealClock` sleeps until something arrives. `ManualClock` never sleeps:
when the inbox is empty it jumps to the next thing that was scheduled with `call_at`, and its
workers make each call at once; so an hour of training passes in a millisecond of testing.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from emulator.waiting import SLICE

__all__ = ["Clock", "ManualClock", "RealClock", "Waiting", "Workers"]

CALLS_AT_ONCE = 32
"""Calls that are made at the same time."""

Event_co = TypeVar("Event_co", covariant=True)
Event = TypeVar("Event")


class Waiting(Protocol[Event_co]):
    """A queue of events, as far as a clock has to know it."""

    def get(self, *, timeout: float | None = None) -> Event_co:
        """Return the next event; raises queue.Empty after `timeout` seconds."""

    def empty(self) -> bool:
        """Say whether nothing is there."""


class Workers(Protocol):
    """Make calls while the supervisor handles other events."""

    def submit(self, call: Callable[..., object], /, *args: object) -> object:
        """Make a call; `close` waits for it."""

    def aside(self, call: Callable[[], object], /) -> object:
        """Make a call that nothing waits for."""

    def close(self) -> None:
        """Wait for the calls that were begun, and drop the others."""


class Clock(Protocol):
    """What the supervisor asks of time."""

    @property
    def is_real(self) -> bool:
        """Whether time passes by itself, for other processes as well: only then can they follow."""

    def workers(self) -> Workers:
        """Return workers for calls that take time."""

    def now(self) -> float:
        """Return monotonic seconds; only differences mean anything."""

    def wall(self) -> float:
        """Return seconds since 1970 (UTC)."""

    def next_event(self, inbox: Waiting[Event], until: float | None) -> Event | None:
        """Wait for the inbox until the time `until` (None: for ever); None when it comes first."""


class Threads:
    """Workers that are threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(CALLS_AT_ONCE)

    def submit(self, call: Callable[..., object], /, *args: object) -> None:
        """Make a call on a thread of the pool."""
        self._pool.submit(call, *args)

    def aside(self, call: Callable[[], object], /) -> None:
        """Make a call on a thread of its own, which ends with the program if not before."""
        threading.Thread(target=call, name="aside", daemon=True).start()

    def close(self) -> None:
        """Wait for the calls that were begun, and drop the others."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class AtOnce:
    """Workers that make each call at once: on a manual clock nothing takes time."""

    def submit(self, call: Callable[..., object], /, *args: object) -> None:
        """Make a call now."""
        call(*args)

    def aside(self, call: Callable[[], object], /) -> None:
        """Make a call now."""
        call()

    def close(self) -> None:
        """Nothing is under way."""


class RealClock:
    """The machine's own clock."""

    is_real = True

    def workers(self) -> Workers:
        """Return threads."""
        return Threads()

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Return seconds since 1970 (UTC)."""
        return time.time()

    def next_event(self, inbox: Waiting[Event], until: float | None) -> Event | None:
        """Sleep until an event arrives or the time `until` is reached.

        It wakes each SLICE seconds, so that the handler of a signal surely runs: see `waiting.py`.
        """
        while True:
            left = SLICE if until is None else max(0.0, until - self.now())
            try:
                return inbox.get(timeout=min(SLICE, left))
            except queue.Empty:
                if left <= SLICE and until is not None:
                    return None


class ManualClock:
    """A clock that moves only when everybody waits, and then straight to the next appointment.

    `wall` is its time in seconds since 1970 when it is made. Its `now` begins at BEGAN, as that of
    a real machine is no 0 either: who forgets to subtract the beginning of a run is found out.
    """

    BEGAN = 1000.0
    is_real = False

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._now = self.BEGAN
        self._wall = wall
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def workers(self) -> Workers:
        """Return workers that make each call at once."""
        return AtOnce()

    def now(self) -> float:
        """Return seconds since BEGAN before the clock was made."""
        return self._now

    def wall(self) -> float:
        """Return the wall time that belongs to `now`."""
        return self._wall + self._now - self.BEGAN

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Run `action` once `now` reaches `when`; ties keep their order."""
        heapq.heappush(self._due, (when, next(self._order), action))

    def next_event(self, inbox: Waiting[Event], until: float | None) -> Event | None:
        """Jump from appointment to appointment until an event is there or `until` is reached.

        Raises RuntimeError where nothing is left that could ever happen: a real program would
        hang there, a test must not.
        """
        while inbox.empty():
            if self._due and (until is None or self._due[0][0] <= until):
                when, _, action = heapq.heappop(self._due)
                self._now = max(self._now, when)
                action()
            elif until is None:
                raise RuntimeError("nothing is scheduled any more: this run would wait for ever")
            else:
                self._now = max(self._now, until)
                return None
        return inbox.get()
