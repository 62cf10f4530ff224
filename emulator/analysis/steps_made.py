"""Which steps were made when: the one rule for every rate, of finished and of live runs (pure).

Steps count when they were made, also those that are done again. Two successive step events of one
life of a task show that the steps between them were made between their times. A life begins with a
start, or with a step back, and ends with an exit. So no time in which a task did not run is step
time, and neither is the time in which it was paused. When the first event of a life arrives, it is
unknown when its steps were made; they are not counted.

A task may also have waited for others between two events, as in synchronous training. It did if
others were away, paused or cut off meanwhile, are back, and the time is longer than usual by at
least half of that. Then no step is counted in that time either.

The job is as far as the furthest of the tasks that run and are not paused. Its steps are those
beyond that, each made by the task that reported it first, at that task's pace. If the furthest task
goes away, the job goes on from where the others are: what they report later counts from that time.
An evaluator's steps are those of the checkpoints that it reads, and count only if no other task
reports any (`beside`). A step that its task has just reported is none (`JobSteps`). So it is with
everything that a step shows, not with rates alone: how far the job came, when it goes on after a
fault, that it hangs. What acts while the job runs can't know who will report steps: it never goes
by an evaluator.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from emulator.faults.held import Pause
from emulator.faults.kinds import FAULTS
from emulator.record.events import (
    Entry,
    FaultEvent,
    JobEnded,
    Phase,
    Step,
    StepSource,
    TaskExit,
    TaskRunning,
    TaskStart,
)

if TYPE_CHECKING:
    from emulator.planning.plan import Plan

Span = tuple[float, float]
"""A time from one moment to another, in seconds since the run began."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps that were made evenly over a time in which their task ran."""

    begin: float
    end: float
    steps: float
    pace: float
    """Seconds from one step to the next, as they were reported: with the time of pauses."""


@dataclass
class Life:
    """A task from a start, or a step back, until its exit or the next one."""

    running: float | None = None
    """When it ran; None: since before it is known."""
    first: float | None = None
    """When it reported its first step."""
    step: int | None = None
    """The last step that it reported."""
    when: float = 0.0
    """When it reported that first."""
    ended: float | None = None
    freezes: list[Span] = field(default_factory=list)
    """Since the last step: when it was paused; until infinity if it is now."""

    @property
    def is_awake(self) -> bool:
        """Whether it has not ended, and is not paused."""
        return self.ended is None and not (self.freezes and self.freezes[-1][1] == math.inf)

    @property
    def is_present(self) -> bool:
        """Whether it may be making steps, and it is known how far it is."""
        return self.step is not None and self.is_awake


@dataclass(frozen=True, slots=True)
class Made:
    """What a step event shows; no stretches where it begins a life."""

    is_new: bool = False
    """It does not repeat the step before."""
    task: Sequence[Stretch] = ()
    job: Sequence[Stretch] = ()
    leads: bool = False
    """The job is further than before, or begins anew."""
    is_first_of_job: bool = False
    """The training begins here; the steps before were those of evaluators."""

    @property
    def brings_job_on(self) -> bool:
        """Whether it is a step of the job."""
        return self.leads or bool(self.job)


NOTHING = Made()


def beside(plan: Plan, reporting: Iterable[str]) -> frozenset[str]:
    """Return the tasks whose steps are not the job's, given those that report any."""
    evaluators = plan.evaluators
    return evaluators if any(task not in evaluators for task in reporting) else frozenset()


class JobSteps:
    """Tells which steps show that the job goes on, without the times at which they were made."""

    def __init__(self, beside: Collection[str]) -> None:
        self._beside = beside
        self._last: dict[str, int] = {}
        """By task, the step that it reported last since it began or went back."""

    def add(self, entry: Entry) -> bool:
        """Take the next event, and say whether it is a step with which the job goes on.

        That is no evaluator's, and none that is repeated, unless its task has gone back.
        """
        match entry:
            case Step():
                is_new = self._last.get(entry.task) != entry.step
                self._last[entry.task] = entry.step
                return is_new and entry.task not in self._beside
            case TaskExit() | StepSource(retracts=True):
                self._last.pop(entry.task, None)
            case Phase(phase="restore", step=int(step)):
                if self._last.get(entry.task, step) > step:
                    del self._last[entry.task]
            case _:
                pass
        return False


def steps_of_job(history: Iterable[Entry], beside: Collection[str]) -> list[Entry]:
    """Return the steps of a history with which the job goes on."""
    of_job = JobSteps(beside)
    return [entry for entry in history if of_job.add(entry)]


class StepsMade:
    """Follows a run event by event."""

    def __init__(self, plan: Plan) -> None:
        self._evaluators = plan.evaluators
        self._trains = False
        """A task that is no evaluator has reported a step."""
        self._is_over = False
        """The outcome of the job is settled: what is made after that is not its."""
        self._reporting: set[str] = set()
        """The tasks that have ever reported a step."""
        self._paused: dict[str, set[str]] = {}
        """By task, the pauses that are in force."""
        self._lives: dict[str, Life] = {}
        self._away: dict[str, float] = {}
        """Since when tasks are away, by name, and faults block the job, by id."""
        self._were_away: list[Span] = []
        """When they were, in the order of the ends."""
        self._usual: dict[str, tuple[float, float]] = {}
        """By task, the seconds and the steps of its stretches."""
        self._left_at, self._left_by = 0.0, ""
        """When who led the job went away: since then, the steps of the others count."""
        self.over: list[tuple[str, Life]] = []
        """The lives that others followed, each with its task."""
        self.front: int | None = None
        """How far the job is; None while no task is known to train."""

    @property
    def lives(self) -> Mapping[str, Life]:
        """The current life of each task."""
        return self._lives

    @property
    def some_may_step(self) -> bool:
        """Whether a task that reports steps runs, and is not paused."""
        lives = (self._lives[task] for task in self._reporting)
        return any(life.running is not None and life.is_awake for life in lives)

    def counts(self, task: str) -> bool:
        """Say whether a task's steps may be the job's."""
        return task not in self._evaluators or not self._trains

    def add(self, entry: Entry) -> Made:
        """Take the next event, and return what was made."""
        match entry:
            case Step():
                return self._step(entry)
            case TaskStart():
                self._paused.pop(entry.task, None)
                self.begin(entry.task, entry.t).running = None
            case TaskRunning():
                life = self._lives.get(entry.task)
                if life is None or life.ended is not None or life.running is not None:
                    life = self.begin(entry.task, entry.t)
                life.running = entry.t
                self._back(entry.task, entry.t)
            case TaskExit():
                self._exit(entry)
            case JobEnded():
                self._is_over = True
            case Phase(phase="restore", step=int(step)):
                life = self._lives.get(entry.task)
                if life is not None and life.step is not None and step < life.step:
                    self.begin(entry.task, entry.t)
            case StepSource(retracts=True):
                life = self._lives.get(entry.task)
                if life is not None and life.step is not None:  # the steps were of something else
                    self.begin(entry.task, entry.t)
            case FaultEvent(stage="applied" | "reapplied") if FAULTS[entry.kind].blocks_job:
                self._away.setdefault(entry.id, entry.t)
                if entry.kind == Pause.kind:
                    self._freeze(entry)
            case FaultEvent(stage="healed" | "failed") if FAULTS[entry.kind].blocks_job:
                self._back(entry.id, entry.t)
                if entry.kind == Pause.kind:
                    self._thaw(entry)
            case _:
                pass
        return NOTHING

    def _exit(self, entry: TaskExit) -> None:
        life = self._lives.get(entry.task)
        if life is not None and life.ended is None:
            life.ended = self._away[entry.task] = entry.t
            self._paused.pop(entry.task, None)  # what replaces its processes is not paused yet
            self._left(entry.task, life.step, entry.t)

    def _back(self, who: str, t: float) -> None:
        if who in self._away:
            self._were_away.append((self._away.pop(who), t))

    def begin(self, task: str, t: float) -> Life:
        """Begin a life; one that has not ended goes back as it runs."""
        before, life = self._lives.get(task), Life()
        self._lives[task] = life
        if self._paused.get(task):
            life.freezes.append((t, math.inf))
        if before is not None:
            self.over.append((task, before))
            if before.ended is None:
                before.ended = life.running = t
                self._left(task, before.step, t)
        return life

    def _left(self, task: str, step: int | None, t: float) -> None:
        """Find who is the furthest, now that a task that was at `step` is gone."""
        if step is None or self.front is None or step < self.front:
            return
        others = [
            life.step
            for name, life in self._lives.items()
            if life.is_present and life.step is not None and self.counts(name)
        ]
        front = max(others, default=None)
        if front != self.front:
            self.front, self._left_at, self._left_by = front, t, task

    def _freeze(self, fault: FaultEvent) -> None:
        paused = self._paused.setdefault(fault.task, set())
        life = self._lives.get(fault.task)
        if not paused and life is not None and life.ended is None:
            was_present = life.is_present
            life.freezes.append((fault.t, math.inf))
            if was_present:
                self._left(fault.task, life.step, fault.t)
        paused.add(fault.id)

    def _thaw(self, fault: FaultEvent) -> None:
        paused, life = self._paused.get(fault.task, set()), self._lives.get(fault.task)
        paused.discard(fault.id)
        if paused or life is None or not life.freezes:
            return
        begin, end = life.freezes[-1]
        life.freezes[-1] = begin, min(end, fault.t)
        if life.is_present and life.step is not None and self.counts(fault.task):
            self.front = life.step if self.front is None else max(self.front, life.step)

    def _step(self, entry: Step) -> Made:
        task, t, step = entry.task, entry.t, entry.step
        life = self._lives.get(task) or self.begin(task, t)
        self._reporting.add(task)
        begins = not self._trains and task not in self._evaluators
        if begins:
            self._trains = True
            if self.front is not None:  # only evaluators have told of it
                self.front, self._left_at, self._left_by = None, t, ""
        if step == life.step:
            return NOTHING  # reported again, with an accuracy: it took no time of its own
        before, since, ended = life.step, life.when, life.ended
        if before is not None and step < before:
            life, before = self.begin(task, t), None
            life.ended = ended
        life.step, life.when, still = step, max(since, t), life.freezes
        life.freezes = [one for one in still if one[1] > t]
        if before is None:
            life.first = life.when = t
            return Made(True, leads=self._leads(task, life, step), is_first_of_job=begins)
        made = self._made(task, still, (min(since, t), t), step - before)
        if self._is_over or ended is not None or not self.counts(task):
            return Made(True, made)
        front = before if self.front is None else max(before, self.front)
        return Made(
            True,
            made,
            self._last_steps_of_job(task, made, step - front),
            self._leads(task, life, step),
        )

    def _leads(self, task: str, life: Life, step: int) -> bool:
        """Set how far the job is, and say whether that is further."""
        if self._is_over or not life.is_present or not self.counts(task):
            return False
        leads = self.front is None or step > self.front
        self.front = step if self.front is None else max(step, self.front)
        return leads

    def _made(self, task: str, still: Sequence[Span], gap: Span, steps: int) -> Sequence[Stretch]:
        """Return steps that were made evenly over the time in which a task did not stand still.

        If there was none, they were made at its end.
        """
        begin, end = gap
        pace = (end - begin) / steps
        waited = self._waited(task, gap, steps)
        ran = without(gap, [*still, *waited])
        took = sum(until - since for since, until in ran)
        if not waited:
            seconds, count = self._usual.get(task, (0.0, 0.0))
            self._usual[task] = seconds + took, count + steps
        if took <= 0:
            return [Stretch(end, end, steps, pace)]
        return [Stretch(b, e, steps * (e - b) / took, pace) for b, e in ran if e > b]

    def _waited(self, task: str, gap: Span, steps: int) -> Sequence[Span]:
        """Return when others were away between two events of a task, if it waited for them."""
        if not self._were_away or self._were_away[-1][1] <= gap[0]:
            return ()
        seconds, count = self._usual.get(task, (0.0, 0.0))
        past = reversed(self._were_away)
        away = [one for one in takewhile(lambda one: one[1] > gap[0], past) if one[1] <= gap[1]]
        if not away or not count:
            return ()
        lasted = gap[1] - gap[0] - sum(end - begin for begin, end in without(gap, away))
        longer = gap[1] - gap[0] - steps * seconds / count
        return away if lasted > 0 and longer >= lasted / 2 else ()

    def _last_steps_of_job(
        self, task: str, made: Sequence[Stretch], steps: float
    ) -> Sequence[Stretch]:
        """Return the last so many steps, as far as they were made since the task leads."""
        since = -math.inf if task == self._left_by else self._left_at
        found: list[Stretch] = []
        for one in reversed(made):
            of, steps = min(1.0, steps / one.steps), steps - one.steps
            begin = max(one.end - of * (one.end - one.begin), since)
            took = one.end - one.begin
            share = (one.end - begin) / took if took > 0 else of
            if one.end >= begin and share > 0:
                found.append(Stretch(begin, one.end, share * one.steps, one.pace))
        return found[::-1]


def without(span: Span, others: Sequence[Span]) -> list[Span]:
    """Return what is left of a time without others, in order of time; if nothing, its end."""
    return list(_without(span, others)) or [(span[1], span[1])]


def _without(span: Span, others: Sequence[Span]) -> Iterator[Span]:
    since, end = span
    for one in sorted(others):
        if one[0] > since and since < end:
            yield since, min(one[0], end)
        since = max(since, one[1])
    if since < end:
        yield since, end
