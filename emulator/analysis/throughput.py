"""How fast a job and its tasks train (pure): from the step events of a run alone.

Times are seconds since the run began. `steps_made.py` says which steps count, and when they were
made: as stretches of time, each with its steps. A program that reports every tenth step has
stretches of ten steps; merged steps (`Coalescer` in `record/writer.py`) make a longer one.

A rate is the steps that were made in a time, divided by the time. A task may also have made steps
that it did not report: before its first one, and after its last one until it ended. As long as it
usually takes from one report to the next, that is unknown, and this time is left out. In all other
time without a stretch it is known that no step was made.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from emulator.analysis.steps_made import Life, Span, StepsMade, Stretch, without
from emulator.record.events import Phase, Step

if TYPE_CHECKING:
    from emulator.planning.plan import Plan
    from emulator.record.timeline import Timeline


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

    A rate is of all steps that were made from the first to the last, also those that were done
    again, and includes the time of failures. Examples are those that a task reports, else
    `examples_per_step` for each step; a synchronous step has the examples of all workers, so the
    rates of tasks don't add up.
    """
    examples = plan.scenario.metrics.examples_per_step
    tasks = {name: one.rate(examples) for name, one in work.items() if name != JOB}
    return Throughput(work[JOB].rate(examples), tasks)


def curve(timeline: Timeline, duration: float, *, bins: int = 600, examples: bool = False) -> Curve:
    """Return the steps per second over a run's time; `duration` in seconds, as `Analysis` has it.

    The steps of a stretch are spread evenly over its time, and no others are in it. At most `bins`
    bins until `duration`, each at least a second wide; narrower in runs of less than a minute. With
    `examples`, the examples that were reported with steps.
    """
    work = follow(timeline)
    if examples:
        work = {name: one.examples or Work() for name, one in work.items()}
    last = max((one.last for one in work.values() if one.last is not None), default=0.0)
    width = max(duration / bins, _bin_width(duration))
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
AT_ONCE = 0.01
"""Seconds between the stamps of lines that may have been read at once."""


@dataclass
class Work:
    """What one task did, or the job. Query it only when all steps have been added."""

    stretches: list[Stretch] = field(default_factory=list)
    """In the order of the reports."""
    first: float | None = None
    last: float | None = None
    """When its first and its last step were reported."""
    gaps: int = 0
    """Pairs of successive reports between which it made steps."""
    unknown: list[Span] = field(default_factory=list)
    """When it may have made steps that it did not report; stretches tell more."""
    examples: Work | None = None
    """The same in examples, if it reports them."""

    def add(self, when: float, stretches: Sequence[Stretch]) -> None:
        """Add a step event, and the stretches that end with it."""
        self.first = when if self.first is None else self.first
        self.last = when
        self.gaps += bool(stretches)
        self.stretches += stretches

    def rate(self, examples_per_step: float | None) -> Rate:
        """Return its rate from first to last."""
        steps = self._rate()
        step_times = _step_times(self.stretches) if steps is not None else None
        examples = None if self.examples is None else self.examples._rate()
        if examples is None and steps is not None and examples_per_step:
            examples = steps * examples_per_step
        return Rate(steps, examples, step_times)

    def _rate(self) -> float | None:
        if not self.stretches or self.first is None or self.last is None:
            return None
        if self.last - self.first < AT_ONCE:  # when they were made is not known
            return None
        return sum(one.steps for one in self.stretches) / (self.last - self.first)

    def rate_within(self, begin: float, end: float) -> float | None:
        """Return its steps per second in a time after its first report; None: unknown."""
        if self.first is None or not self.stretches or not self.first <= begin < end:
            return None
        stretches = self._around(begin, end)
        made = sum(_share(one, begin, end) * one.steps for one in stretches)
        unknown = [one for one in self.unknown if one[0] < end and one[1] > begin]
        known = end - begin
        if unknown:
            silent = without((begin, end), [(one.begin, one.end) for one in stretches])
            none_made = [span for one in silent for span in without(one, unknown)]
            known -= _length(silent) - _length(none_made)
        return made / known if known > 1e-6 else None

    @property
    def usual_gap(self) -> float | None:
        """The mean seconds from one report to the next, without those in which it stood still."""
        if not self.gaps:
            return None
        return sum(one.end - one.begin for one in self.stretches) / self.gaps

    def _around(self, begin: float, end: float) -> Sequence[Stretch]:
        first = bisect_right(self._earlier_ends, begin)
        return self.stretches[first : bisect_right(self._later_begins, end)]

    @cached_property
    def _earlier_ends(self) -> list[float]:
        """For each stretch, the latest end of it and of all before it."""
        return list(accumulate((one.end for one in self.stretches), max))

    @cached_property
    def _later_begins(self) -> list[float]:
        """For each stretch, the earliest begin of it and of all after it."""
        begins = (one.begin for one in reversed(self.stretches))
        return list(accumulate(begins, min))[::-1]


def _length(spans: Sequence[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def _share(one: Stretch, begin: float, end: float) -> float:
    """Return the share of a stretch that is in a time; one that took no time is at its end."""
    if one.end <= one.begin:
        return float(begin < one.end <= end)
    return max(0.0, min(one.end, end) - max(one.begin, begin)) / (one.end - one.begin)


def follow(timeline: Timeline) -> dict[str, Work]:
    """Return what the job (under the name JOB) and each task did."""
    names = (JOB, *(task.name for task in timeline.plan.tasks))
    work, of_examples = ({name: Work() for name in names} for _ in range(2))
    steps, examples = StepsMade(timeline.plan), StepsMade(timeline.plan)
    for entry in timeline.history:
        if isinstance(entry, Step):
            if entry.task in work:
                _add(work, steps, entry)
                if (counted := _in_examples(entry)) is not None:
                    _add(of_examples, examples, counted)
            continue
        life = steps.lives.get(entry.task)
        steps.add(entry)
        if not isinstance(entry, Phase):
            examples.add(entry)
        elif steps.lives.get(entry.task) is not life:
            examples.begin(entry.task, entry.t)
    end, gaps = timeline.end, {name: one.usual_gap for name, one in work.items()}
    for name, life in (*steps.over, *steps.lives.items()):
        unknown = list(_unreported(life, gaps.get(name), end))
        if unknown:
            for whose in (name, JOB) if steps.counts(name) else (name,):
                work[whose].unknown += unknown
    for name, one in of_examples.items():
        work[name].examples = None if one.first is None else one
    return work


def _add(work: dict[str, Work], steps: StepsMade, entry: Step) -> None:
    made = steps.add(entry)
    if made.is_first_of_job:
        work[JOB] = Work()
    if made.is_new:
        work[entry.task].add(entry.t, made.task)
    if made.brings_job_on:
        work[JOB].add(entry.t, made.job)


def _unreported(life: Life, gap: float | None, end: float) -> Iterator[Span]:
    """Yield when a task may have made steps that it did not report, if it reports any."""
    if gap is None:
        return
    end = end if life.ended is None else life.ended
    if life.first is not None:
        begin = life.first - gap if life.running is None else max(life.running, life.first - gap)
        yield begin, life.first
        yield life.when, min(end, life.when + gap)
    elif life.running is not None:
        yield max(life.running, end - gap), end


def _in_examples(step: Step) -> Step | None:
    """Return a step event that counts examples, so that rates of both are computed alike."""
    count = step.number("examples")
    return None if count is None else replace(step, step=int(count), values={}, coalesced=None)


# --- Statistics ---------------------------------------------------------------------------------


def _step_times(stretches: Sequence[Stretch]) -> StepTimes | None:
    """Return the mean and the percentiles (by nearest rank) of the time from step to step."""
    times = sorted((one.pace, one.steps) for one in stretches)
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


def _binned(stretches: Sequence[Stretch], width: float, number: int) -> Sequence[float]:
    steps = [0.0] * number
    for one in stretches:
        for index, share in _shares(one, width, number):
            steps[index] += share * one.steps
    return [count / width for count in steps]


def _shares(stretch: Stretch, width: float, number: int) -> Iterator[tuple[int, float]]:
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
