"""Charts of what programs report with their steps: loss, accuracy and other values (pure)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from emulator.analysis.progress import ProgressIndex
from emulator.analysis.values import Lives, Reported, histories
from emulator.report.charts import SECONDS, STEPS, Axis, Chart, Group, Mark, groups_of, line_chart
from emulator.report.data import Facts
from emulator.report.tables import range_label
from emulator.report.timeline_chart import fault_marks

HEIGHT = 220
"""Pixels of one chart."""
DRAWN = 8
"""Values with charts; the page names the others."""


@dataclass(frozen=True)
class ValueCharts:
    """One value, over the steps and over the time."""

    name: str
    over_steps: Chart
    over_time: Chart
    tasks: Sequence[str]


@dataclass(frozen=True)
class Once:
    """A value that each task reported once, such as the accuracy at the end."""

    name: str
    text: str


def values_of(facts: Facts) -> tuple[list[ValueCharts], list[Once]]:
    """Return two charts of each number that tasks reported several times, and the other numbers.

    The loss comes first.
    """
    several, once = {}, []
    for name, of in histories(facts.timeline).items():
        if any(sum(map(len, lives)) > 1 for lives in of.values()):
            several[name] = of
        else:
            once.append(Once(name, _once(of)))
    return list(_value_charts(facts, several)), once


def _once(of: Mapping[str, Lives]) -> str:
    """Return what tasks reported once: `0.975 at step 2000 by worker-0, worker-1`."""
    reported: dict[tuple[str, int], list[str]] = {}
    for task, lives in of.items():
        for one in (one for life in lives for one in life):
            text = "no number" if one.value is None else f"{one.value:.3g}"
            reported.setdefault((text, one.step), []).append(task)
    parts = [
        f"{text} at step {step} by {range_label(tasks) if len(tasks) > 3 else ', '.join(tasks)}"
        for (text, step), tasks in reported.items()
    ]
    return "; ".join(parts[:4] + (["…"] if len(parts) > 4 else []))


def _value_charts(facts: Facts, found: Mapping[str, Mapping[str, Lives]]) -> Iterator[ValueCharts]:
    groups = groups_of([task.name for task in facts.plan.tasks])
    marks = fault_marks(facts)
    over_steps = Axis(STEPS, *_range(facts), marks=step_marks(facts, marks))
    over_time = Axis(SECONDS, 0.0, facts.end, marks)
    for name, of in found.items():
        yield ValueCharts(
            name,
            _chart(of, groups, over_steps, lambda one: one.step),
            _chart(of, groups, over_time, lambda one: one.t),
            list(of),
        )


def step_marks(facts: Facts, marks: Sequence[Mark]) -> list[Mark]:
    """Return the job's furthest step at each fault; faults before the first step are left out."""
    progress = ProgressIndex(facts.timeline)
    found = []
    for mark in marks:
        reached = [step.step for step in progress.advances if step.t <= mark.at]
        if reached:
            found.append(replace(mark, at=float(reached[-1]), until=None))
    return found


def _range(facts: Facts) -> tuple[float, float]:
    """Return the first and the last step of the run."""
    steps = [step.step for _, step in facts.timeline.steps]
    first, last = min(steps, default=0), max(steps, default=0)
    return (0.0 if first <= last / 10 else float(first)), float(max(last, first + 1))


def _chart(
    of: Mapping[str, Lives],
    groups: Sequence[Group],
    axis: Axis,
    place: Callable[[Reported], float],
) -> Chart:
    lines = {task: list(_points(lives, place)) for task, lives in of.items()}
    return line_chart(lines, groups, "", HEIGHT, axis, from_zero=False)


def _points(
    lives: Lives, place: Callable[[Reported], float]
) -> Iterator[tuple[float, float | None]]:
    """Yield the points of a task, with a gap between two of its lives.

    It is in the middle, where no mean of several tasks has a value; by step, a life that begins
    with an earlier step leaves none.
    """
    before: float | None = None
    for life in lives:
        if before is not None:
            yield max(before, (before + place(life[0])) / 2), None
        for one in life:
            yield place(one), one.value
        before = place(life[-1])


# --- Of whole runs --------------------------------------------------------------------------------


def rate_over_steps(facts: Facts) -> Iterator[tuple[float, float | None]]:
    """Yield the job's steps per second by the furthest step that it had reached."""
    advances = ProgressIndex(facts.timeline).advances
    times = [step.t for step in advances]
    for n, rate in enumerate(facts.speed.job, start=1):
        at = facts.speed.begin + n * facts.speed.width
        number = bisect_left(times, at - 1e-9)
        if 0 < number < len(times):
            before, after = advances[number - 1], advances[number]
            share = (at - before.t) / (after.t - before.t)
            yield round(before.step + share * (after.step - before.step), 1), rate


def leading_values(facts: Facts, name: str) -> Iterator[tuple[float, float | None]]:
    """Yield a value by step, of the task that reported it most often."""
    of = histories(facts.timeline).get(name, {})
    if of:
        lives = max(of.values(), key=lambda lives: sum(map(len, lives)))
        yield from _points(lives, lambda one: one.step)
