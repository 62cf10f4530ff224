"""How far a job was at any moment of a run (pure)."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from emulator.analysis.detected import SIGNS
from emulator.analysis.steps_made import JobSteps, beside
from emulator.record.events import Entry, Step, TaskRunning

if TYPE_CHECKING:
    from emulator.record.timeline import Timeline


class ProgressIndex:
    """How far a job was at any moment of a run; each query is a binary search.

    It has the steps of the job (`JobSteps`), starts and exits. A place is an index of
    `timeline.history`.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.steps: list[Step] = []
        self.furthest: list[int] = []
        """The job's furthest step after each of `steps`."""
        self.advances: list[Step] = []
        """The steps that were further than all before them."""
        self._step_places: list[int] = []
        self._signs: list[Entry] = []
        self._sign_places: list[int] = []
        self._places: dict[int, int] = {}
        """By the event's `n`; without steps."""
        self.beside = beside(timeline.plan, (step.task for _, step in timeline.steps))
        """The tasks whose steps are not the job's."""
        of_job = JobSteps(self.beside)
        furthest = -1
        for place, entry in enumerate(timeline.history):
            goes_on = of_job.add(entry)
            if isinstance(entry, Step):
                if not goes_on:
                    continue
                if entry.step > furthest:
                    furthest = entry.step
                    self.advances.append(entry)
                self.steps.append(entry)
                self.furthest.append(furthest)
                self._step_places.append(place)
                continue
            self._places[entry.n] = place
            if isinstance(entry, SIGNS):
                self._signs.append(entry)
                self._sign_places.append(place)

    def place(self, entry: Entry) -> int:
        """Return the place of an event that is no step."""
        return self._places[entry.n]

    def between(self, since: Entry, until: Entry | None) -> Sequence[Entry]:
        """Return the events from `since` until before `until` (None: the end)."""
        last = None if until is None else self.place(until)
        return self._timeline.history[self.place(since) : last]

    def running(self, task: str, after: Entry) -> TaskRunning | None:
        """Return the first event after `after` with which a task runs."""
        if task not in self._timeline.tasks:
            return None
        place = self.place(after)
        starts = (one.running for one in self._timeline.tasks[task].incarnations)
        return next((start for start in starts if start and self.place(start) > place), None)

    def furthest_before(self, event: Entry) -> int:
        """Return the job's furthest step before an event; -1 before its first step."""
        count = bisect_left(self._step_places, self.place(event))
        return self.furthest[count - 1] if count else -1

    def step_after(self, event: Entry | None, than: float = -math.inf) -> Step | None:
        """Return the first step event after an event that is further than `than`."""
        if event is None:
            return None
        first = bisect_left(self._step_places, self.place(event))
        numbers = range(max(first, bisect_right(self.furthest, than)), len(self.steps))
        return next((self.steps[n] for n in numbers if self.steps[n].step > than), None)

    def signs(self, since: Entry, until: Step | None) -> Sequence[Entry]:
        """Return what may be the sign of a fault (`SIGNS`), from `since` until before a step.

        None: until the end.
        """
        first = bisect_left(self._sign_places, self.place(since))
        if until is None:
            return self._signs[first:]
        return [one for one in self._signs[first:] if one.t < until.t]
