"""Steps told of together, so that the history of a long run stays small (pure).

The first FREE step events of a run are written one by one, so a short run is exact. After that a
task's steps are held back until an interval has passed since the last that was written, and then
told of by one event, which is that of the last of them with what the others were:

    {"event": "step", "step": 1200, "loss": 0.41, "coalesced": {"first": 1191, "count": 10}}

`first` is the first and `count` how many were told. Where the steps between are not evenly spaced,
`gaps` has how often each difference came (`{"1": 7, "3": 2}`), and where the last is not the
furthest, `furthest` is. So steps that were left out, told twice or gone back to are counted as
exactly as without. Other values are those that were told last, each.

The interval is a second, and doubles with every further EACH step events. So that the times that
matter stay exact, all that is held back is written before any other event but a phase (before that
the task's own), and the first step after it at once; and so is a pause: a gap that is far longer
than the steps before it, of a second and a 16th of the interval at least.

How much that is. Each interval a task's steps make 1 event as a rule, and 32 at worst (16 pauses).
At N events per task and interval, T tasks and an interval of 2**k s, EACH events take
EACH * 2**k / (N * T) seconds, so a run of S seconds has doubled K = log2(1 + S * N * T / EACH)
times, and has FREE + K * EACH step events. A day of 25 tasks: K = 5.5, 373,000 events; at worst
K = 10.4, 622,000. A line has about 160 bytes: 60 MB and 100 MB. Twice the time is 50,000 events
more, however many steps the tasks make a second. What else happens is not thinned: an event makes
at most two step events for each task, a phase two for its task, and these count as any others.

A supervisor that is killed loses no more than what it held back; who attaches reads it again from
the tasks' logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from emulator.record.events import Entry

__all__ = ["EACH", "FREE", "Coalescer"]

FREE = 100_000
"""Step events of a run that are written one by one."""
EACH = 50_000
"""Step events after which the interval doubles."""
PAUSE, PAUSE_TIMES, PAUSES = 1.0, 10, 16
"""A pause has so many seconds, so many usual steps, and so many fit into an interval."""
KINDS = 32
"""Differences between steps that are counted apart; a further one counts as the nearest."""


@dataclass
class _Held:
    """Steps of one task that wait for being written."""

    last: Entry
    """The last that was seen, held back or written."""
    since: float
    """When the last step was made that was written (`wall`)."""
    usual: float | None = None
    """Seconds between the steps before that."""
    at_once: bool = False
    """Something else has happened: the next step is written whenever it comes."""
    first: int = 0
    count: int = 0
    furthest: int = 0
    gaps: Counter[int] = field(default_factory=Counter)
    said: dict[str, Any] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        if self.count:
            self._add_gap(entry.step - self.last.step)
            self.furthest = max(self.furthest, entry.step)
        else:
            self.first = self.furthest = entry.step
        self.count += 1
        self.said.update(entry.data)
        self.last = entry

    def _add_gap(self, gap: int) -> None:
        if gap not in self.gaps and len(self.gaps) == KINDS:
            gap = min(self.gaps, key=lambda known: abs(known - gap))
        self.gaps[gap] += 1

    def follows_a_pause(self, entry: Entry, interval: float) -> bool:
        usual = self.pace()
        if usual is None:
            return False
        least = max(PAUSE, interval / PAUSES, PAUSE_TIMES * usual)
        return entry.wall - self.last.wall >= least

    def pace(self) -> float | None:
        """Return the seconds between two of the steps that are held, or were held before them."""
        return abs(self.last.wall - self.since) / self.count if self.count else self.usual

    def together(self) -> Entry:
        """Return the one event that tells of all."""
        told: dict[str, Any] = {"first": self.first, "count": self.count}
        if len(self.gaps) > 1 or min(self.gaps, default=0) < 0:
            told["gaps"] = {str(gap): times for gap, times in sorted(self.gaps.items())}
        if self.furthest > self.last.step:
            told["furthest"] = self.furthest
        return replace(
            self.last, data={**self.said, "coalesced": told} if self.count > 1 else self.said
        )


class Coalescer:
    """Says what is to be written of a run's events, as they come."""

    def __init__(self, written: int = 0) -> None:
        """Begin, or go on after so many step events were `written`."""
        self._written = written
        self._held: dict[str, _Held] = {}

    @property
    def interval(self) -> float:
        """Seconds between two step events of a task; 0 as long as each is written."""
        return 2.0 ** ((self._written - FREE) // EACH) if self._written >= FREE else 0.0

    def take(self, entry: Entry) -> list[Entry]:
        """Return what is to be written now that this has happened, in order."""
        if entry.event == "step":
            due = list(self._step(entry))
            self._written += len(due)
            return due
        due = list(self._before(entry))
        self._written += len(due)
        return [*due, entry]

    def _step(self, entry: Entry) -> Iterator[Entry]:
        held, interval = self._held.get(entry.task), self.interval
        if held is None:
            yield self._alone(entry, None)
        elif not interval:
            yield self._alone(entry, entry.wall - held.last.wall)
        elif held.at_once or held.follows_a_pause(entry, interval):
            usual = held.pace()
            if held.count:
                yield self._together(held)
            yield self._alone(entry, usual)
        else:
            held.add(entry)
            # The engine's clock may have been set back: then what was held is written too.
            if abs(entry.wall - held.since) >= interval:
                yield self._together(held)

    def _before(self, entry: Entry) -> Iterator[Entry]:
        """Yield what is held back when something else happens: of all, or of a phase's task."""
        for task in [entry.task] if entry.event == "phase" else list(self._held):
            if (held := self._held.get(task)) is None:
                continue
            if held.count:
                yield self._together(held)
            self._held[task].at_once = True

    def _alone(self, entry: Entry, usual: float | None) -> Entry:
        self._held[entry.task] = _Held(entry, entry.wall, usual)
        return entry

    def _together(self, held: _Held) -> Entry:
        self._held[held.last.task] = _Held(held.last, held.last.wall, held.pace())
        return held.together()
