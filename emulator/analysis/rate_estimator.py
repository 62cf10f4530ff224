"""The current rate of steps, and the rate of undisturbed training (pure).

Times are seconds since the run began. Memory use does not grow with the run.
"""

from __future__ import annotations

from collections import deque

WINDOW = 10.0
"""Seconds over which the current rate is measured."""
RECENT = 60.0
"""Seconds of undisturbed training over which the rate for an estimate is measured."""
ENOUGH = 3.0
"""The least seconds of undisturbed training for such a rate."""
STALL = 10.0
"""Seconds without a step, and as many usual gaps, that are a stall. The same factor as in
goodput.py, where the least is one second, because later steps are known there."""
FINE = 0.1
"""Seconds; of steps that are closer together only the last is kept."""
STRETCH = 1.0
"""The least seconds of a stretch of undisturbed training."""


class RateEstimator:
    """The steps of one task, or of the job's furthest task, as they are reported."""

    def __init__(self) -> None:
        self.step: float | None = None
        self.at = 0.0
        """When the last step was reported."""
        self._steps: deque[tuple[float, float]] = deque()
        """(time, step) over the WINDOW before the last."""
        self._stretches: deque[tuple[float, float]] = deque()
        """(seconds, steps) of undisturbed training."""
        self._begin: tuple[float, float] | None = None
        """Where the current stretch began; None after an interruption."""

    @property
    def is_continuous(self) -> bool:
        """Whether the next step continues the training of the last one."""
        return self._begin is not None

    def interrupt(self) -> None:
        """Exclude the time between the last step and the next: it is no training."""
        self._steps.clear()
        self._begin = None

    def advance(self, t: float, step: float) -> None:
        """Add a step."""
        if self._begin is None or self.step is None or step < self.step or self.stalled(t):
            self._steps.clear()
            self._begin = (t, step)
        elif t - self._begin[0] >= STRETCH:
            self._stretches.append((t - self._begin[0], step - self._begin[1]))
            self._begin = (t, step)
            while len(self._stretches) > 2 and self._seconds() - self._stretches[0][0] >= RECENT:
                self._stretches.popleft()
        if len(self._steps) > 1 and t - self._steps[-2][0] < FINE:
            self._steps.pop()
        self._steps.append((t, step))
        # At least two are kept: a step may take minutes.
        while len(self._steps) > 2 and self._steps[1][0] < t - WINDOW:
            self._steps.popleft()
        self.step, self.at = step, t

    def _seconds(self) -> float:
        return sum(seconds for seconds, _ in self._stretches)

    @property
    def usual_gap(self) -> float | None:
        """The mean seconds between two reported steps, over the WINDOW before the last."""
        if len(self._steps) < 2:
            return None
        return (self._steps[-1][0] - self._steps[0][0]) / (len(self._steps) - 1)

    def stalled(self, t: float) -> bool:
        """Return whether the next step is much later than usual at time `t`."""
        gap = self.usual_gap
        return gap is not None and t - self.at > max(STALL, STALL * gap)

    def rate(self, t: float) -> float | None:
        """Return steps per second over the WINDOW before `t`; None before the second step.

        The time since the last step counts once it exceeds the usual gap. So the rate of a task
        that hangs falls, and is 0 once it has stalled.
        """
        if (gap := self.usual_gap) is None:
            return None
        if self.stalled(t):
            return 0.0
        (begin, first), (end, last) = self._steps[0], self._steps[-1]
        seconds = end - begin + max(0.0, t - end - gap)
        return (last - first) / seconds if seconds > 0 else None

    @property
    def undisturbed(self) -> float | None:
        """Steps per second of the last minute of training; None: too little training yet.

        The mean over stretches of a second or more, newest first, until they add up to a minute. It
        includes the time of checkpoints, but not that of failures and stalls, which does not show
        how fast the training will continue.
        """
        seconds = self._seconds()
        if seconds < ENOUGH:
            return None
        return sum(steps for _, steps in self._stretches) / seconds
