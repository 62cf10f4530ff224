"""Actions at a later time, performed by the supervisor's loop."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.runtime.clock import Clock


class Timers:
    """Actions that are due at a time of the clock. Those of the same time keep their order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._clock.now()

    def wall(self) -> float:
        """Return seconds since 1970."""
        return self._clock.wall()

    def at(self, when: float, action: Callable[..., object], *args: object) -> None:
        """Call `action` with `args` at the time `when`; at once if that has passed."""
        when = max(when, self._clock.now())
        due: Callable[[], object] = partial(action, *args)
        heapq.heappush(self._due, (when, next(self._order), due))

    def after(self, delay: float, action: Callable[..., object], *args: object) -> None:
        """Call `action` with `args` after some seconds."""
        self.at(self._clock.now() + delay, action, *args)

    @property
    def next_due(self) -> float | None:
        """When the next action is due; None if there is none."""
        return self._due[0][0] if self._due else None

    def run_due(self) -> None:
        """Perform what is due now."""
        while self._due and self._due[0][0] <= self._clock.now():
            heapq.heappop(self._due)[2]()
