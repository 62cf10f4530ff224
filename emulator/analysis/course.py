"""A history with what is asked of it again and again, so that each question is a search (pure)."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from emulator.record.events import Entry, FaultEvent, Stall, Step, TaskExit, TaskRunning

__all__ = ["Course"]


class Course:
    """The steps, starts and ends of a run. A place is the number of an entry in the history."""

    def __init__(self, history: Sequence[Entry]) -> None:
        self.history = history
        self.steps: list[Step] = []
        self.furthest: list[int] = []
        """How far the job was after each of these."""
        self.front: list[Step] = []
        """Those that brought the job further than it ever was."""
        self._step_at: list[int] = []
        self._ends: list[int] = []
        self._running: dict[str, list[int]] = defaultdict(list)
        self.faults: dict[str, dict[str, int]] = defaultdict(dict)
        """Where in the history each fault's stages are."""
        for number, entry in enumerate(history):
            if isinstance(entry, Step):
                self._add(number, entry)
            elif isinstance(entry, TaskRunning):
                self._running[entry.task].append(number)
            elif isinstance(entry, TaskExit | Stall):
                self._ends.append(number)
            elif isinstance(entry, FaultEvent):
                self.faults[entry.id][entry.stage] = number
        self._front_t = [entry.t for entry in self.front]

    def _add(self, number: int, entry: Step) -> None:
        before = self.furthest[-1] if self.furthest else -1
        if entry.step > before:
            self.front.append(entry)
        self.steps.append(entry)
        self.furthest.append(max(before, entry.step))
        self._step_at.append(number)

    def running(self, task: str, since: int) -> int | None:
        """Return where the task next runs."""
        found = self._running.get(task, [])
        number = bisect_left(found, since)
        return found[number] if number < len(found) else None

    def furthest_before(self, place: int) -> int:
        """Return how far the job was before that place."""
        steps = bisect_left(self._step_at, place)
        return self.furthest[steps - 1] if steps else -1

    def step_after(self, place: int | None, than: float = -math.inf) -> Step | None:
        """Return the first step event after a place that is further than that."""
        if place is None:
            return None
        first = max(bisect_left(self._step_at, place), bisect_right(self.furthest, than))
        numbers = range(first, len(self.steps))
        return next((self.steps[n] for n in numbers if self.steps[n].step > than), None)

    def ends(self, since: int, until: int | None) -> Iterator[Entry]:
        """Yield the exits and stalls from a place until before another, None: the end."""
        last = len(self._ends) if until is None else bisect_left(self._ends, until)
        for number in range(bisect_left(self._ends, since), last):
            yield self.history[self._ends[number]]

    def reached(self, when: float) -> float:
        """Return how far the job was at a time between its first and its last advance."""
        two = max(1, bisect_left(self._front_t, when))
        if two >= len(self.front):
            return float(self.front[-1].step)
        before, after = self.front[two - 1], self.front[two]
        share = (when - before.t) / (after.t - before.t) if after.t > before.t else 1.0
        return before.step + share * (after.step - before.step)
