"""How fast steps come, at the moment and without what disturbed them (pure).

Times are seconds since the run began. Nothing here grows with the run: a day of steps takes the
room of a minute.
"""

from __future__ import annotations

from collections import deque

__all__ = ["STALL", "WINDOW", "RateEstimator"]

WINDOW = 10.0
"""Seconds that the rate of the moment is taken over."""
RECENT = 60.0
"""Seconds of undisturbed time that the rate for an estimate is taken over."""
ENOUGH = 3.0
"""Seconds of undisturbed time without which there is no such rate."""
STALL = 10.0
"""Seconds without a step, and as many usual gaps between two, that are a stall (goodput.py has
the same factor; one second is its bound, because it knows what came after)."""
FINE = 0.1
"""Seconds; of steps that come faster only the last of each such time is kept."""
STRETCH = 1.0
"""Seconds at least of an undisturbed stretch that is counted as one."""


class RateEstimator:
    """The steps of one task, or of the job's furthest task, as they are told."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.at = 0.0
        """When the last step was told."""
        self._told: deque[tuple[float, int]] = deque()
        self._stretches: deque[tuple[float, int]] = deque()
        self._from: tuple[float, int] | None = None

    @property
    def going(self) -> bool:
        """Whether the next step goes on from the last one."""
        return self._from is not None

    def break_off(self) -> None:
        """Say that what lies between the last step and the next is no training."""
        self._told.clear()
        self._from = None

    def advance(self, t: float, step: int) -> None:
        """Take a step."""
        if self._from is None or self.step is None or step < self.step or self.stalled(t):
            self._told.clear()
            self._from = (t, step)
        else:
            self._count(self._from, t, step)
        if len(self._told) > 1 and t - self._told[-2][0] < FINE:
            self._told.pop()
        self._told.append((t, step))
        # Two are kept however old they are: some steps take minutes.
        while len(self._told) > 2 and self._told[1][0] < t - WINDOW:
            self._told.popleft()
        self.step, self.at = step, t

    def _count(self, since: tuple[float, int], t: float, step: int) -> None:
        begin, reached = since
        if t - begin < STRETCH:
            return
        self._stretches.append((t - begin, step - reached))
        self._from = (t, step)
        while len(self._stretches) > 2 and self._seconds() - self._stretches[0][0] >= RECENT:
            self._stretches.popleft()

    def _seconds(self) -> float:
        return sum(seconds for seconds, _ in self._stretches)

    @property
    def usual_gap(self) -> float | None:
        """Seconds between two that were told, over the WINDOW before the last."""
        if len(self._told) < 2:
            return None
        return (self._told[-1][0] - self._told[0][0]) / (len(self._told) - 1)

    def stalled(self, t: float) -> bool:
        """Say whether nothing has come for much longer than usual."""
        if (gap := self.usual_gap) is None:
            return False
        return t - self.at > max(STALL, STALL * gap)

    def rate(self, t: float) -> float | None:
        """Return steps per second over the WINDOW before `t`; None before the second step.

        What has passed since the last step counts as soon as it is more than usual: so the rate of
        a task that hangs falls, and is 0 once it is stalled.
        """
        if (gap := self.usual_gap) is None:
            return None
        if self.stalled(t):
            return 0.0
        (begin, first), (end, last) = self._told[0], self._told[-1]
        seconds = end - begin + max(0.0, t - end - gap)
        return (last - first) / seconds if seconds > 0 else None

    @property
    def undisturbed(self) -> float | None:
        """Steps per second of the last minute of training; None where there was too little.

        It is the plain mean over stretches of a second or more, newest first, until they make a
        minute; so a checkpoint now and then is in it with its share. What lies around a failure or
        a stall is in no stretch: it does not say how fast the training goes on.
        """
        seconds = self._seconds()
        if seconds < ENOUGH:
            return None
        return sum(steps for _, steps in self._stretches) / seconds
