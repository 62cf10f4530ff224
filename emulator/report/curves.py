"""Charts of what programs report with their steps, and of the usage of tasks and GPUs (pure)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from emulator.analysis.progress import ProgressIndex
from emulator.analysis.values import Lives, Reported, histories
from emulator.metrics import catalog
from emulator.metrics.catalog import CHARTS, GPU, GPU_SHARE, GpuUsage, Metric, Rates, Scale, Usage
from emulator.metrics.samples import device_numbers, series
from emulator.record.events import SamplingStarted
from emulator.record.timeline import TaskTimeline
from emulator.report.charts import (
    SECONDS,
    STEPS,
    Axis,
    Chart,
    Group,
    Mark,
    Points,
    curve_points,
    groups_of,
    line_chart,
)
from emulator.report.data import Facts
from emulator.report.tables import name_list
from emulator.report.timeline_chart import fault_marks

HEIGHT, USAGE_HEIGHT = 220, 190
"""Pixels of one chart of values, and of usage."""
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
        f"{text} at step {step} by {name_list(tasks)}" for (text, step), tasks in reported.items()
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


def steps_over_time(facts: Facts) -> Chart | None:
    """Return how far each task was at each time: where it falls, steps were lost.

    None without steps.
    """
    lines = {name: list(_steps(task)) for name, task in facts.timeline.tasks.items() if task.steps}
    if not lines:
        return None
    marks = [replace(mark, kind="", target="") for mark in fault_marks(facts)]
    groups = groups_of([task.name for task in facts.plan.tasks])
    axis = Axis(SECONDS, 0.0, facts.end, marks)
    return line_chart(lines, groups, "steps", HEIGHT, axis, from_zero=False)


def _steps(task: TaskTimeline) -> Iterator[tuple[float, float | None]]:
    """Yield when a task made which step, with a gap between two of its lives.

    Where it goes back while it runs, the line falls.
    """
    before: float | None = None
    for life in task.incarnations:
        if before is not None and life.steps:
            yield (before + life.steps[0].t) / 2, None
        for step in life.steps:
            yield step.t, step.step
            before = step.t


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


def leading_steps(facts: Facts) -> Iterator[tuple[float, float | None]]:
    """Yield the steps of the task that reported most of them, by time."""
    tasks = facts.timeline.tasks.values()
    if tasks:
        yield from _steps(max(tasks, key=lambda task: len(task.steps)))


def leading_values(facts: Facts, name: str) -> Iterator[tuple[float, float | None]]:
    """Yield a value by step, of the task that reported it most often."""
    of = histories(facts.timeline).get(name, {})
    if of:
        lives = max(of.values(), key=lambda lives: sum(map(len, lives)))
        yield from _points(lives, lambda one: one.step)


# --- Usage of tasks and GPUs ----------------------------------------------------------------------

Line = tuple[str, Points]
"""Name of a task or device, and its values over time."""


@dataclass(frozen=True)
class Panel:
    """A chart with its title; each line is one task or device."""

    title: str
    note: str
    lines: Sequence[str]
    chart: Chart
    always: str = ""
    """The value, if it is the same in the whole run, so that there is nothing to see."""

    @property
    def quiet(self) -> bool:
        """Whether the page names it, without the chart."""
        return bool(self.always)


def task_panels(facts: Facts) -> Iterator[Panel]:
    """Yield steps per second and usage of the tasks, without charts that have no values."""
    names = [task.name for task in facts.plan.tasks]
    speeds = facts.speed.tasks.items()
    steps = [(name, curve_points(facts.speed, rates)) for name, rates in speeds if any(rates)]
    if len(steps) > 1:  # the timeline shows a single one
        scale = Scale("Steps per second", "steps/s", note="as each task reports them")
        yield from _panel(scale, steps, names, facts)
    rates = {name: dict(series(facts.samples, name)) for name in names}
    first = {name: use for sample in reversed(facts.samples) for name, use in sample.tasks.items()}
    for chart in CHARTS:
        # A line has gaps where its task was not running.
        lines: list[Line] = [
            (name, [(s.t, _value(chart, rates[name].get(s.t))) for s in facts.samples])
            for name in names
            if name in first and _applies(chart, first[name])
        ]
        yield from _panel(*_scaled(chart.scale, lines), names, facts)


def _value(chart: catalog.Chart, rates: Rates | None) -> float | None:
    values = [getattr(rates, key, None) for key in chart.of]
    known = [value for value in values if value is not None]
    return sum(known) / chart.scale.size if len(known) == len(values) else None


def _applies(chart: catalog.Chart, first: Usage) -> bool:
    """Return whether a chart is for a task, by the limits in its first sample."""
    limited = not chart.limit or getattr(first, chart.limit) is not None
    return limited and (not chart.unlimited or getattr(first, chart.unlimited) is None)


def _scaled(scale: Scale, lines: list[Line]) -> tuple[Scale, list[Line]]:
    """Return lines in bytes per second in the unit that fits their maximum."""
    if scale.unit != "B/s":
        return scale, lines
    most = max([1.0, *(value for _, points in lines for _, value in points if value)])
    power = min(3, int(math.log(most, 1024)))
    unit, size = f"{('B', 'KiB', 'MiB', 'GiB')[power]}/s", 1024.0**power
    scaled: list[Line] = [
        (name, [(t, None if value is None else value / size) for t, value in points])
        for name, points in lines
    ]
    return replace(scale, unit=unit, note=f"{unit} {scale.note}"), scaled


def gpu_panels(facts: Facts) -> Iterator[Panel]:
    """Yield the metrics of each device, and of each task's share of all devices."""
    for metric in GPU:
        yield from _gpu_panel(facts, metric, devices(facts), _device_text)
    for metric in GPU_SHARE:
        yield from _gpu_panel(facts, metric, {t.name: t.name for t in facts.plan.tasks}, _task_text)


def _device_text(gpu: GpuUsage, uuid: str) -> object:
    return gpu if gpu.uuid == uuid else None


def _task_text(gpu: GpuUsage, task: str) -> object:
    return gpu.tasks.get(task)


def _gpu_panel(
    facts: Facts, metric: Metric, names: Mapping[str, str], part: Callable[[GpuUsage, str], object]
) -> Iterator[Panel]:
    """Yield the chart of a metric: for each key of `names`, the sum of its parts of all devices."""
    if scale := metric.chart:
        lines: list[Line] = []
        for key, name in names.items():
            points = []
            for sample in facts.samples:
                parts = [one for gpu in sample.gpus if (one := part(gpu, key)) is not None]
                known = [v for one in parts if (v := getattr(one, metric.key)) is not None]
                if parts:
                    points.append((sample.t, sum(known) / scale.size if known else None))
            lines.append((name, points))
        yield from _panel(scale, lines, list(names.values()), facts)


def no_gpus(facts: Facts) -> str:
    """Return in one line why there are no GPU charts; empty if there are some."""
    if any(sample.gpus for sample in facts.samples):
        return ""
    started = [event for event in facts.timeline.history if isinstance(event, SamplingStarted)]
    if not started:
        return "The record has no data about GPUs."
    reason = started[0].why_no_gpus
    return f"No GPU was sampled: {reason}" if reason else "No GPU was in use."


def devices(facts: Facts) -> dict[str, str]:
    """Return the name of each device by its uuid, in their order."""
    return {uuid: f"GPU {number}" for uuid, number in device_numbers(facts.samples).items()}


def _panel(
    scale: Scale, lines: Sequence[Line], names: Sequence[str], facts: Facts
) -> Iterator[Panel]:
    """Yield a panel of the lines that have values, if any; `names` have the same colours in all."""
    known = {name: points for name, points in lines if any(y is not None for _, y in points)}
    if known:
        axis = Axis(
            SECONDS, 0.0, facts.end, [replace(m, kind="", target="") for m in fault_marks(facts)]
        )
        chart = line_chart(known, groups_of(names), scale.unit, USAGE_HEIGHT, axis)
        yield Panel(scale.title, scale.note, list(known), chart, _constant(known, scale.unit))


def _constant(lines: Mapping[str, Points], unit: str) -> str:
    """Return the value that all lines have in the whole run; empty if they have several."""
    values = [value for points in lines.values() for _, value in points if value is not None]
    if len(set(values)) > 1 or (len(values) == 1 and values[0]):
        return ""
    return f"{values[0]:.4g} {unit}".strip()
