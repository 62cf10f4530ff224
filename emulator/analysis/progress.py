"""How far a job was at any moment of a run, each question a binary search (pure)."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from emulator.record.events import Entry, Stall, Step, TaskExit, TaskRunning
from emulator.record.timeline import Timeline

__all__ = ["ProgressIndex"]


class ProgressIndex:
    """The steps, starts and ends of a run. A place is the number of an event in the history."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.steps: list[Step] = []
        self.furthest: list[int] = []
        """How far the job was after each of these."""
        self.front: list[Step] = []
        """Those that brought the job further than it ever was."""
        self._step_at: list[int] = []
        self._ends: list[int] = []
        self._places: dict[int, int] = {}
        """By the number of an event's line; of steps none."""
        furthest = -1
        for place, entry in enumerate(timeline.history):
            if isinstance(entry, Step):
                if entry.step > furthest:
                    furthest = entry.step
                    self.front.append(entry)
                self.steps.append(entry)
                self.furthest.append(furthest)
                self._step_at.append(place)
                continue
            self._places[entry.n] = place
            if isinstance(entry, TaskExit | Stall):
                self._ends.append(place)
        self._front_t = [entry.t for entry in self.front]

    def place(self, entry: Entry) -> int:
        """Return the place of an event that is no step."""
        return self._places[entry.n]

    def between(self, since: Entry, until: Entry) -> Sequence[Entry]:
        """Return what happened from one event until before another."""
        return self._timeline.history[self.place(since) : self.place(until)]

    def running(self, task: str, since: Entry) -> TaskRunning | None:
        """Return the event with which a task next runs, after another event."""
        if task not in self._timeline.tasks:
            return None
        after = self.place(since)
        starts = (one.running for one in self._timeline.tasks[task].incarnations)
        return next((one for one in starts if one and self.place(one) > after), None)

    def furthest_before(self, event: Entry) -> int:
        """Return how far the job was before an event; -1 before its first step."""
        steps = bisect_left(self._step_at, self.place(event))
        return self.furthest[steps - 1] if steps else -1

    def step_after(self, event: Entry | None, than: float = -math.inf) -> Step | None:
        """Return the first step event after another event that is further than that."""
        if event is None:
            return None
        first = bisect_left(self._step_at, self.place(event))
        numbers = range(max(first, bisect_right(self.furthest, than)), len(self.steps))
        return next((self.steps[n] for n in numbers if self.steps[n].step > than), None)

    def ends(self, since: Entry, until: Entry | None) -> Iterator[TaskExit | Stall]:
        """Yield the exits and stalls from an event until before another, None: the end."""
        last = len(self._ends) if until is None else bisect_left(self._ends, self.place(until))
        for number in range(bisect_left(self._ends, self.place(since)), last):
            entry = self._timeline.history[self._ends[number]]
            if isinstance(entry, TaskExit | Stall):
                yield entry

    def reached(self, when: float) -> float:
        """Return how far the job was at a time between its first and its last advance."""
        two = max(1, bisect_left(self._front_t, when))
        if two >= len(self.front):
            return float(self.front[-1].step)
        before, after = self.front[two - 1], self.front[two]
        share = (when - before.t) / (after.t - before.t) if after.t > before.t else 1.0
        return before.step + share * (after.step - before.step)
