"""The history of a run that goes on, in bounded memory: what the page is made from (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from emulator.metrics.samples import Sample
from emulator.record.events import Entry, Phase, Step

STEPS = 2400
"""Step events that are kept, about. A page of 25 tasks with so many takes 0.15 s of a core."""
FINEST = 0.25
"""Seconds of steps that are merged, at first."""
AT_ONCE = 60
"""Events of a batch of which none are merged."""
SPAN = 0.5
"""Seconds of steps of a larger batch that become one."""
SAMPLES = 240
"""Samples of usage that are kept, at most."""


class KeptHistory:
    """Every event of a run, but when there are many steps, neighbours merged.

    They are merged as `Coalescer` of the record merges them: steps of one task that ascend, within
    an interval, between which nothing else happened, and never the first one after something else.
    So the times of failures and the numbers of steps stay exact, and rates become coarser, equally
    over the whole run. The interval doubles whenever there are too many again.
    """

    def __init__(self, limit: int = STEPS) -> None:
        self._limit, self._interval = limit, 0.0
        self._begin()

    def _begin(self) -> None:
        self._entries: list[Entry | None] = []
        self._steps = self._holes = 0
        self._before: dict[str, float] = {}
        """By task, when the last step event was made (`wall`) that stays as it is."""
        self._open: dict[str, int] = {}
        """By task, where the one after it is, into which the next step may be merged."""

    @property
    def entries(self) -> list[Entry]:
        """The events, in order."""
        return [entry for entry in self._entries if entry is not None]

    @property
    def is_exact(self) -> bool:
        """Whether nothing was merged here."""
        return not self._interval

    def add(self, entry: Entry) -> None:
        """Take the next event."""
        self._add(entry)
        if self._steps > self._limit:
            self._coarser()
        elif 2 * self._holes > len(self._entries):
            self._again(self.entries)

    def _add(self, entry: Entry) -> None:
        task = entry.task
        if isinstance(entry, Step):
            entry = self._step(entry)
        elif isinstance(entry, Phase):
            self._before.pop(task, None)
            self._open.pop(task, None)
        else:
            self._before.clear()
            self._open.clear()
        self._entries.append(entry)

    def _step(self, entry: Step) -> Step:
        """Return the step, merged with those that it replaces."""
        self._steps += 1
        before = self._before.get(entry.task)
        if before is None:
            self._before[entry.task] = entry.wall
            return entry
        place = self._open.get(entry.task)
        self._open[entry.task] = len(self._entries)
        if place is not None:
            last = self._entries[place]
            assert isinstance(last, Step)
            if last.step < entry.first and entry.wall - before <= self._interval:
                self._entries[place] = None
                self._holes += 1
                self._steps -= 1
                return _one(last, entry)
            self._before[entry.task] = last.wall
        return entry

    def _coarser(self) -> None:
        """Double the interval until there is room for as many steps again."""
        entries = self.entries
        lasted = entries[-1].wall - entries[0].wall
        while self._steps > self._limit // 2 and self._interval <= lasted:
            self._interval = max(2 * self._interval, FINEST)
            self._again(entries)
        # Where little can be merged, as with very many failures, not again at each event.
        self._limit = max(self._limit, 2 * self._steps)

    def _again(self, entries: Sequence[Entry]) -> None:
        self._begin()
        for entry in entries:
            self._add(entry)


def _one(before: Step, entry: Step) -> Step:
    """Return two step events as one."""
    together = {"first": before.first, "count": before.count + entry.count}
    return replace(entry, values={**before.values, **entry.values}, coalesced=together)


class Batches:
    """Batches of events; of very many, steps of one task that follow each other are one.

    They are merged as `KeptHistory` merges them, within SPAN. A page that is told twice a second of
    25 tasks with 10 steps a second each costs a third less.
    """

    def __init__(self, limit: int = AT_ONCE) -> None:
        self._limit = limit
        self._before: dict[str, float] = {}
        """By task whose last event was a step, when the last step was made (`wall`) that stays."""
        self.is_exact = True
        """Nothing was merged."""

    def merged(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the next events, in order."""
        few = len(entries) <= self._limit
        found: dict[int, Entry] = {}
        open_: dict[str, int] = {}
        for place, entry in enumerate(entries):
            task = entry.task
            if isinstance(entry, Step):
                last, before = found.get(open_.get(task, -1)), self._before.get(task)
                if before is None or few:
                    self._before[task] = entry.wall
                else:
                    if isinstance(last, Step):
                        if last.step < entry.first and entry.wall - before <= SPAN:
                            del found[open_[task]]
                            entry, self.is_exact = _one(last, entry), False
                        else:
                            self._before[task] = last.wall
                    open_[task] = place
            else:
                for other in [task] if isinstance(entry, Phase) else [*self._before]:
                    self._before.pop(other, None)
                    open_.pop(other, None)
            found[place] = entry
        return list(found.values())


def thinned(samples: list[Sample], limit: int = SAMPLES) -> list[Sample]:
    """Return samples, of too many every second one; the last one always."""
    return samples if len(samples) <= limit else [*samples[:-1:2], samples[-1]]
