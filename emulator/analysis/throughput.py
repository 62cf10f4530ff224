"""How fast a job and its tasks train (pure): from the step events of a run alone.

Times are seconds since the run began.

Work is a list of stretches: the times between two successive step events of one incarnation of a
task. A start, an exit or a step that goes back begins a new one, so no rate is negative, and no
stretch contains a time in which the task did not run. A program that reports every tenth step has
stretches of ten steps; merged steps (`record/coalesce.py`) make a longer one.

- A task's steps are all that it did, including repeated ones.
- The job's steps are those that were further than all before them, each made by the task that
  reported it first, at that task's rate.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from emulator.planning.plan import Plan
from emulator.record.events import Phase, Step
from emulator.record.timeline import Incarnation, Timeline


@dataclass(frozen=True)
class StepTimes:
    """Seconds that a step took; each step counts once, also if several were reported together."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Rate:
    """How fast a task or the job trained, from its first to its last step; None: unknown."""

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


def rates(plan: Plan, work: Mapping[str, Work]) -> Throughput:
    """Return how fast the job and each of its tasks trained, from the result of `follow`.

    The job's rate is its progress from its first step to its last advance, a task's is all its
    steps from the first to the last, including the time of failures. Examples are those that a task
    reports, else `examples_per_step` for each step; a synchronous step has the examples of all
    workers, so the rates of tasks don't add up.
    """
    examples = plan.scenario.metrics.examples_per_step
    tasks = {name: one.rate(examples) for name, one in work.items() if name != JOB}
    return Throughput(work[JOB].rate(examples), tasks)


def curve(timeline: Timeline, duration: float, *, bins: int = 600, examples: bool = False) -> Curve:
    """Return the steps per second over a run's time; `duration` in seconds, as `Analysis` has it.

    The steps of a stretch are spread evenly over its time. Steps before the first report of the
    job, or of a task's incarnation, are not in it. At most `bins` bins until `duration`, each at
    least a second wide; narrower in runs of less than a minute. With `examples`, the examples that
    were reported with steps.
    """
    work = follow(timeline, examples=examples)
    last = max((one.last for one in work.values() if one.last is not None), default=0.0)
    width = duration / bins if duration > bins else _bin_width(duration)
    number = max(1, math.ceil(max(duration, last) / width - 1e-9))
    binned = {name: _binned(one.stretches, width, number) for name, one in work.items()}
    return Curve(0.0, width, binned.pop(JOB), binned)


def scaling_efficiency(
    rate: Rate, workers: int, baseline: Rate, baseline_workers: int
) -> tuple[float, str] | None:
    """Return the parallel efficiency relative to a baseline, and the unit: `examples` or `steps`.

    efficiency = (rate / rate of the baseline) / (workers / workers of the baseline)

    Steps per second are comparable if a step is the same work in both runs: with a fixed global
    batch (strong scaling), or with asynchronous workers that count one global step. With a fixed
    batch per worker (weak scaling) a synchronous step grows with the workers. So examples are used
    if both runs have them. None: unknown.
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
    """Return how many tasks of a plan train."""
    return sum(plan.roles.trains(task.role) for task in plan.tasks)


# --- Stretches of work --------------------------------------------------------------------------

JOB = ""
"""The job's name among the tasks'."""


@dataclass(frozen=True)
class _Stretch:
    begin: float
    end: float
    steps: float
    measured: bool = True
    """Both ends were reported; else it is unknown when its first step began."""


@dataclass
class Work:
    """What one task did, or the job. Query it only when all steps have been added."""

    stretches: list[_Stretch] = field(default_factory=list)
    first: float | None = None
    last: float | None = None
    """When its first and its last step were reported."""
    examples: float = 0.0
    examples_first: float | None = None
    examples_last: float | None = None
    """When it reported examples first and last."""

    def add_step(self, when: float) -> None:
        """Add the time of a step."""
        self.first = when if self.first is None else self.first
        self.last = when

    def add_examples(self, when: float, more: float | None) -> None:
        """Add examples; `more` since the last report, None at the first one."""
        self.examples_first = when if self.examples_first is None else self.examples_first
        self.examples_last = when
        self.examples += more or 0.0

    def rate(self, examples_per_step: float | None) -> Rate:
        """Return its rate from first to last."""
        step_times = _step_times(self.stretches)
        steps = _per_second(sum(one.steps for one in self.stretches), self.first, self.last)
        if not self.stretches or steps is None:
            return Rate(step_times=step_times)
        examples = _per_second(self.examples, self.examples_first, self.examples_last)
        if examples is None and examples_per_step:
            examples = steps * examples_per_step
        return Rate(steps, examples, step_times)

    def rate_within(self, begin: float, end: float) -> float | None:
        """Return its steps per second in a time; None unless it reported steps around it."""
        if self.first is None or self.last is None or not self.first <= begin < end <= self.last:
            return None
        return (self._done(end) - self._done(begin)) / (end - begin)

    def _done(self, when: float) -> float:
        number = bisect_right(self._begins, when)
        if not number:
            return 0.0
        one = self.stretches[number - 1]
        share = min(1.0, (when - one.begin) / (one.end - one.begin)) if one.end > one.begin else 1.0
        return self._steps_before[number - 1] + share * one.steps

    @cached_property
    def _begins(self) -> list[float]:
        return [one.begin for one in self.stretches]

    @cached_property
    def _steps_before(self) -> list[float]:
        return list(accumulate((one.steps for one in self.stretches), initial=0.0))


def _per_second(count: float, since: float | None, until: float | None) -> float | None:
    if since is None or until is None or until <= since:
        return None
    return count / (until - since)


@dataclass
class _Position:
    """The last step of one incarnation, or the furthest of the job."""

    step: int | None = None
    when: float = 0.0
    """When it was reported first."""
    examples: float | None = None


def follow(timeline: Timeline, *, examples: bool = False) -> dict[str, Work]:
    """Return what the job (under the name JOB) and each task did.

    With `examples`, examples are counted in place of steps, and steps without them are left out.
    """
    work = {name: Work() for name in (JOB, *(task.name for task in timeline.plan.tasks))}
    positions: dict[int, _Position] = defaultdict(_Position)
    resumed = {
        id(step)
        for task in timeline.tasks.values()
        for one in task.incarnations
        for step in _resumed(one)
    }
    job = _Position()
    for incarnation, reported in timeline.steps:
        step = _in_examples(reported) if examples else reported
        if step is None or step.task not in work:
            continue
        if id(reported) in resumed:
            positions[id(incarnation)] = _Position()
        position = positions[id(incarnation)]
        started = incarnation.running.t if incarnation.running else None
        _advance_job(work[JOB], job, position, started, step)
        _advance_task(work[step.task], position, step)
    return work


def _resumed(incarnation: Incarnation) -> Iterator[Step]:
    """Yield the first step after each restore with which a task went back as it ran.

    That may be the step that it reported last: it was done again, and took its own time.
    """
    furthest, back = -1, False
    for report in incarnation.reports:
        match report:
            case Phase(phase="restore", step=int(step)):
                back = step < furthest
            case Step():
                if back:
                    yield report
                furthest, back = report.step, False


def _in_examples(step: Step) -> Step | None:
    """Return a step event that counts examples, so that rates of both are computed alike."""
    count = _number(step.values.get("examples"))
    if count is None or not math.isfinite(count):
        return None
    return replace(step, step=int(count), values={}, coalesced=None)


def _advance_task(work: Work, position: _Position, entry: Step) -> None:
    step, when, before = entry.step, entry.t, position.step
    if step == before:
        return  # reported again, with an accuracy: it took no time of its own
    if before is not None and step > before:
        work.stretches.append(_Stretch(min(position.when, when), when, step - before))
    work.add_step(when)
    position.step, position.when = step, when
    examples = _number(entry.values.get("examples"))
    if examples is not None:
        known = position.examples
        work.add_examples(when, None if known is None else max(0.0, examples - known))
        position.examples = examples


def _advance_job(
    work: Work, job: _Position, position: _Position, started: float | None, entry: Step
) -> None:
    """Add a step to the job's work; `position` is that of the task before this step."""
    step, when, furthest = entry.step, entry.t, job.step
    if furthest is not None and step <= furthest:
        return
    work.add_step(when)
    examples = _number(entry.values.get("examples"))
    if examples is not None:
        work.add_examples(when, None if job.examples is None else examples - job.examples)
        job.examples = examples
    if furthest is not None:
        if position.step is None:
            begin, measured = max(job.when, started or job.when), False
        else:  # when the task, at its own rate, reached the position of the job
            share = (furthest - position.step) / (step - position.step)
            begin, measured = position.when + share * (when - position.when), True
        work.stretches.append(_Stretch(min(begin, when), when, step - furthest, measured))
    job.step, job.when = step, when


def _number(value: object) -> float | None:
    """Return a value that a program reported if it is a number that fits a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


# --- Statistics ---------------------------------------------------------------------------------


def _step_times(stretches: Sequence[_Stretch]) -> StepTimes | None:
    """Return the mean and the percentiles (by nearest rank) of measured stretches."""
    times = sorted(((s.end - s.begin) / s.steps, s.steps) for s in stretches if s.measured)
    if not times:
        return None
    ranks = list(accumulate(steps for _, steps in times))

    def percentile(share: float) -> float:
        return times[bisect_left(ranks, share * ranks[-1])][0]

    return StepTimes(
        count=round(ranks[-1]),
        mean=sum(seconds * steps for seconds, steps in times) / ranks[-1],
        p50=percentile(0.5),
        p90=percentile(0.9),
        p99=percentile(0.99),
        max=times[-1][0],
    )


def _bin_width(duration: float) -> float:
    """Return the seconds of a bin for a run of up to ten minutes."""
    return 1.0 if duration >= 60 else 0.5 if duration >= 30 else 0.2


def _binned(stretches: Sequence[_Stretch], width: float, number: int) -> Sequence[float]:
    steps = [0.0] * number
    for one in stretches:
        for index, share in _shares(one, width, number):
            steps[index] += share * one.steps
    return [count / width for count in steps]


def _shares(stretch: _Stretch, width: float, number: int) -> Iterator[tuple[int, float]]:
    """Yield the bins of a stretch, each with the share of the stretch that is in it."""
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
