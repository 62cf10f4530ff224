"""How fast a job and its tasks train (pure): from the step events of a run alone.

All that tells of steps, JSON or a pattern, becomes a `step` event; so all sources are equal here.
Times are seconds since the run began.

The work is cut into stretches: what lies between two step events of one task and one life of it.
A start, an exit, or a step that goes back begins anew, so that no rate is negative and nothing is
spread over a time in which the task was not there. A program that tells of every tenth step has
stretches of ten steps; what is told once for many steps (see `record/coalesce.py`) is just a
longer one.

- A task's steps are all that it did, those that it did again too.
- The job's steps are those that brought it further than it ever was, each made by the task that
  told of it first, at that task's pace.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from emulator.planning.plan import Plan
from emulator.record.events import Step
from emulator.record.timeline import Timeline

__all__ = [
    "JOB",
    "Curve",
    "Rate",
    "StepTimes",
    "Throughput",
    "Work",
    "curve",
    "follow",
    "rates",
    "scaling_efficiency",
    "throughput",
    "workers",
]

TRAINING = frozenset({"chief", "master", "worker"})
"""Roles that do the work that is scaled."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds that a step took; each step counts once, however many were told of at a time."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Rate:
    """How fast somebody trained, from the first step that was told to the last; None: unknown."""

    steps_per_second: float | None = None
    examples_per_second: float | None = None
    step_times: StepTimes | None = None


@dataclass(frozen=True)
class Throughput:
    """How fast the job trained, and each of its tasks."""

    job: Rate = Rate()
    tasks: Mapping[str, Rate] = field(default_factory=dict)


@dataclass(frozen=True)
class Curve:
    """Steps per second in bins of equal width; a bin's rate times the width are its steps."""

    begin: float
    """Where the first bin begins, in seconds since the run began."""
    width: float
    """Seconds of a bin."""
    job: Sequence[float]
    tasks: Mapping[str, Sequence[float]]


def throughput(timeline: Timeline) -> Throughput:
    """Return how fast the job and each of its tasks trained.

    The job's rate is its progress from the first step that was told to the last that brought it
    further, a task's is all steps that it did from its first to its last, both with the time in
    which nobody trained. Examples are those that a task tells of, else `examples_per_step` for
    each step; a synchronous step has all workers' examples, so tasks' rates don't add up.
    """
    return rates(timeline.plan, follow(timeline))


def rates(plan: Plan, work: Mapping[str, Work]) -> Throughput:
    """Return `throughput` of what was followed already."""
    examples = plan.scenario.metrics.examples_per_step
    tasks = {name: one.rate(examples) for name, one in work.items() if name != JOB}
    return Throughput(work[JOB].rate(examples), tasks)


def curve(timeline: Timeline, duration: float, *, bins: int = 600, examples: bool = False) -> Curve:
    """Return the steps per second over a run's time; `duration` in seconds, as `Analysis` has it.

    A stretch's steps are spread evenly over its time. Together they are all steps that were made
    after the first that was told (for a task: the first of each of its lives). Bins are at least
    a second wide, in runs of less than a minute less. No more than `bins`, but for steps that were
    told after the job's end. With `examples`, of the examples that steps reported.
    """
    followed = follow(timeline, examples=examples)
    last = max((one.last for one in followed.values() if one.last is not None), default=0.0)
    width = duration / bins if duration > bins else _fine(duration)
    number = max(1, math.ceil(max(duration, last) / width - 1e-9))
    binned = {name: _binned(one.stretches, width, number) for name, one in followed.items()}
    return Curve(0.0, width, binned.pop(JOB), binned)


def scaling_efficiency(
    rate: Rate, workers: int, baseline: Rate, baseline_workers: int
) -> tuple[float, str] | None:
    """Return the share of a perfect speed-up over a baseline, and by what it was taken.

    efficiency = (rate / rate of the baseline) / (workers / workers of the baseline),

    the parallel efficiency of Amdahl's and Gustafson's literature (speed-up over the number of
    processors). The rate has to be one of work. `examples` per second always is. Steps per second
    are where a step is the same work in both runs: with a fixed global batch (strong scaling), or
    with asynchronous workers who count one global step. With a fixed batch for each worker (weak
    scaling) a synchronous step grows with the workers, and steps alone would say 1 / workers of
    the truth; only the examples can tell. So it is by `examples` where both runs have them, else
    by `steps`, and says which. None: not known.
    """
    if not workers or not baseline_workers:
        return None
    ratio = workers / baseline_workers
    if rate.examples_per_second is not None and baseline.examples_per_second:
        return rate.examples_per_second / baseline.examples_per_second / ratio, "examples"
    if rate.steps_per_second is not None and baseline.steps_per_second:
        return rate.steps_per_second / baseline.steps_per_second / ratio, "steps"
    return None


def workers(plan: Plan) -> int:
    """Return how many tasks of a plan train: its chief or master and its workers."""
    return sum(task.role in TRAINING for task in plan.tasks)


# --- Following ----------------------------------------------------------------------------------

JOB = ""
"""The job's name among the tasks'."""


@dataclass(frozen=True)
class _Stretch:
    begin: float
    end: float
    steps: float
    measured: bool = True
    """Both ends were told of; else nobody knows when its first step began."""


@dataclass
class Work:
    """What one task did, or the job, as it was told; ask only when all is."""

    stretches: list[_Stretch] = field(default_factory=list)
    first: float | None = None
    last: float | None = None
    """When the first and the last step was told that counts."""
    examples: float = 0.0
    told_since: float | None = None
    told_until: float | None = None
    """Between which of its steps it told of examples."""

    def stepped(self, when: float) -> None:
        """Note a step that counts."""
        self.first = when if self.first is None else self.first
        self.last = when

    def has_seen(self, when: float, more: float | None) -> None:
        """Note that it told of examples, and how many more these are than before."""
        self.told_since = when if self.told_since is None else self.told_since
        self.told_until = when
        self.examples += more or 0.0

    def rate(self, examples_per_step: float | None) -> Rate:
        """Return how fast it was in all."""
        steps = _over(sum(one.steps for one in self.stretches), self.first, self.last)
        if not self.stretches or steps is None:
            return Rate(step_times=_step_times(self.stretches))
        told = _over(self.examples, self.told_since, self.told_until)
        by_step = steps * examples_per_step if examples_per_step else None
        return Rate(steps, told if told is not None else by_step, _step_times(self.stretches))

    def rate_within(self, begin: float, end: float) -> float | None:
        """Return its steps per second in a time; None where it told of none around it."""
        if self.first is None or self.last is None or not self.first <= begin < end <= self.last:
            return None
        return (self._done(end) - self._done(begin)) / (end - begin)

    def _done(self, when: float) -> float:
        number = bisect_right(self._begins, when)
        if not number:
            return 0.0
        one = self.stretches[number - 1]
        share = min(1.0, (when - one.begin) / (one.end - one.begin)) if one.end > one.begin else 1.0
        return self._before[number - 1] + share * one.steps

    @cached_property
    def _begins(self) -> list[float]:
        return [one.begin for one in self.stretches]

    @cached_property
    def _before(self) -> list[float]:
        """The steps before each stretch."""
        return list(accumulate((one.steps for one in self.stretches), initial=0.0))


def _over(count: float, since: float | None, until: float | None) -> float | None:
    if since is None or until is None or until <= since:
        return None
    return count / (until - since)


@dataclass
class _Life:
    """Where one task is since it was started."""

    began: float | None = None
    step: int | None = None
    when: float = 0.0
    """It told of that step for the first time."""
    examples: float | None = None


def follow(timeline: Timeline, *, examples: bool = False) -> dict[str, Work]:
    """Return what the job (under an empty name) and each task did.

    With `examples`, a step is as many as the examples that were reported with it; steps without
    them are left out.
    """
    followed = {name: Work() for name in (JOB, *(task.name for task in timeline.plan.tasks))}
    lives: dict[int, _Life] = defaultdict(_Life)
    job = _Life()
    for incarnation, reported in timeline.steps:
        step = _in_examples(reported) if examples else reported
        if step is None or step.task not in followed:
            continue
        life = lives[id(incarnation)]
        life.began = incarnation.running.t if incarnation.running else None
        _advance(followed[JOB], job, life, step)
        _step(followed[step.task], life, step)
    return followed


def _in_examples(step: Step) -> Step | None:
    """Return a step event that counts examples; their rate is the same sum as that of steps."""
    seen = _number(step.values.get("examples"))
    if seen is None or not math.isfinite(seen):
        return None
    return replace(step, step=int(seen), values={}, coalesced=None)


def _step(task: Work, life: _Life, entry: Step) -> None:
    """Note what a task did until one of its steps."""
    step, when = entry.step, entry.t
    before = life.step
    done = max(0, step - before) if before is not None else step - entry.first
    if before is not None and done:
        task.stretches.append(_Stretch(min(life.when, when), when, done))
    # A step that is told again, with an accuracy, took no time of its own.
    if step != before or done:
        task.stepped(when)
        life.step, life.when = step, when
        examples = _number(entry.values.get("examples"))
        if examples is not None:
            more = None if life.examples is None else max(0.0, examples - life.examples)
            task.has_seen(when, more)
            life.examples = examples


def _advance(followed: Work, job: _Life, life: _Life, entry: Step) -> None:
    """Note what brought the job further; `life` is that of the task, before this step of it."""
    step, when = entry.step, entry.t
    furthest = job.step
    if furthest is not None and step <= furthest:
        return
    followed.stepped(when)
    examples = _number(entry.values.get("examples"))
    if examples is not None:
        followed.has_seen(when, None if job.examples is None else examples - job.examples)
        job.examples = examples
    if furthest is not None:
        if life.step is None:
            begin, measured = max(job.when, life.began or job.when), False
        else:  # when the task, at its own pace, came to where the job was
            share = (furthest - life.step) / (step - life.step)
            begin, measured = life.when + share * (when - life.when), True
        followed.stretches.append(_Stretch(min(begin, when), when, step - furthest, measured))
    job.step, job.when = step, when


def _number(said: object) -> float | None:
    """Return a program's value where it is a number that a float can hold."""
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    try:
        return float(said)
    except OverflowError:
        return None


# --- Summing up ---------------------------------------------------------------------------------


def _step_times(stretches: Sequence[_Stretch]) -> StepTimes | None:
    """Return the percentiles by nearest rank: the least time that so many of the steps kept to."""
    times = sorted(((s.end - s.begin) / s.steps, s.steps) for s in stretches if s.measured)
    if not times:
        return None
    ranks = list(accumulate(steps for _, steps in times))

    def percentile(share: float) -> float:
        return next(
            seconds
            for (seconds, _), rank in zip(times, ranks, strict=True)
            if rank >= share * ranks[-1]
        )

    return StepTimes(
        count=round(ranks[-1]),
        mean=sum(seconds * steps for seconds, steps in times) / ranks[-1],
        p50=percentile(0.5),
        p90=percentile(0.9),
        p99=percentile(0.99),
        max=times[-1][0],
    )


def _fine(duration: float) -> float:
    """Return the width of a bin for a run of up to ten minutes: a plain number."""
    return 1.0 if duration >= 60 else 0.5 if duration >= 30 else 0.2


def _binned(stretches: Sequence[_Stretch], width: float, number: int) -> Sequence[float]:
    steps = [0.0] * number
    for one in stretches:
        for index, share in _shares(one, width, number):
            steps[index] += share * one.steps
    return [count / width for count in steps]


def _shares(stretch: _Stretch, width: float, number: int) -> Iterator[tuple[int, float]]:
    """Yield the bins that a stretch is in, and which share of it; together they are 1."""
    begin, end = max(0.0, stretch.begin), max(0.0, stretch.end)
    first = min(int(begin / width), number - 1)
    last = min(int(end / width), number - 1)
    if first == last:
        yield first, 1.0
        return
    for index in range(first, last + 1):
        since = begin if index == first else index * width
        until = end if index == last else (index + 1) * width
        yield index, (until - since) / (end - begin)
