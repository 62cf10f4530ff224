"""Clocks: the supervisor runs in real time or in simulated time.

A clock returns the time, waits for the next event of an inbox, and has the workers that make calls
which take time. `RealClock` sleeps until something arrives. `ManualClock` never sleeps: if the
inbox is empty, it advances to the next action scheduled with `call_at`, and its workers make each
call at once. So tests run an hour of training in milliseconds.
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

from emulator.runtime.waiting import SLICE

CALLS_AT_ONCE = 32
"""Calls that are made at the same time."""

Event_co = TypeVar("Event_co", covariant=True)
Event = TypeVar("Event")


class EventQueue(Protocol[Event_co]):
    """A queue of events, as a clock uses it."""

    def get(self, *, timeout: float | None = None) -> Event_co:
        """Return the next event; raises queue.Empty after `timeout` seconds."""

    def empty(self) -> bool:
        """Return whether there is no event."""


class Workers(Protocol):
    """Make calls while the supervisor handles other events."""

    def submit(self, call: Callable[..., object], /, *args: object) -> object:
        """Make a call; `close` waits for it."""

    def aside(self, call: Callable[[], object], /) -> object:
        """Make a call that nothing waits for."""

    def close(self) -> None:
        """Wait for the calls that were begun, and drop the others."""


class Clock(Protocol):
    """The time, and waiting for events."""

    @property
    def is_real(self) -> bool:
        """Whether time passes by itself, for other processes as well: only then can they follow."""

    def workers(self) -> Workers:
        """Return workers for calls that take time."""

    def now(self) -> float:
        """Return monotonic seconds from an arbitrary origin."""

    def wall(self) -> float:
        """Return seconds since 1970 (UTC)."""

    def next_event(self, inbox: EventQueue[Event], until: float | None) -> Event | None:
        """Return the next event, or None at the time `until` (None: no limit)."""


class Threads(ThreadPoolExecutor):
    """Workers that are threads."""

    def __init__(self) -> None:
        super().__init__(CALLS_AT_ONCE)

    def aside(self, call: Callable[[], object], /) -> None:
        """Make a call on a thread of its own, which ends with the program if not before."""
        threading.Thread(target=call, name="aside", daemon=True).start()

    def close(self) -> None:
        """Wait for the calls that were begun, and drop the others."""
        self.shutdown(wait=True, cancel_futures=True)


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


APART = 0.0005
"""Seconds within which the two times of a moment are read, if this process gets to run at all."""
READINGS = 50
"""How often they are read at most until they are that close; the best readings count."""


def both_times(clock: Clock) -> tuple[float, float]:
    """Return the monotonic and the wall time of one moment, in seconds.

    Between the two readings this process may have to wait for its CPU. Their difference relates
    the stamps of an engine to our times: every stamp would be early by as long. So they are read
    again until they are close to each other.
    """
    best, moment = float("inf"), (0.0, 0.0)
    for _ in range(READINGS):
        before, wall, after = clock.now(), clock.wall(), clock.now()
        if after - before < best:
            best, moment = after - before, (before, wall)
        if best <= APART:
            break
    return moment


class RealClock:
    """The machine's clock."""

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

    def next_event(self, inbox: EventQueue[Event], until: float | None) -> Event | None:
        """Return the next event, or None at the time `until` (None: no limit).

        Wakes every SLICE seconds, so that signal handlers run: see `waiting.py`.
        """
        while True:
            left = SLICE if until is None else max(0.0, until - self.now())
            try:
                return inbox.get(timeout=min(SLICE, left))
            except queue.Empty:
                if left <= SLICE and until is not None:
                    return None


class ManualClock:
    """A clock that advances only while waiting, straight to the next scheduled action.

    `wall` is the initial time in seconds since 1970. `now` starts at BEGAN and not at 0, so that
    tests detect code that does not subtract the start of the run.
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
        """Return BEGAN plus the simulated seconds since the clock was made."""
        return self._now

    def wall(self) -> float:
        """Return the wall time at `now`, in seconds since 1970."""
        return self._wall + self._now - self.BEGAN

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Run `action` when `now` reaches `when`; actions at the same time keep their order."""
        heapq.heappush(self._due, (when, next(self._order), action))

    def next_event(self, inbox: EventQueue[Event], until: float | None) -> Event | None:
        """Run scheduled actions until there is an event or `until` is reached.

        Raises RuntimeError if nothing is scheduled and there is no limit: it would wait for ever.
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
