"""Charts of what tasks and GPUs used over time (pure); see figures.py for how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from emulator.analysis.throughput import Curve
from emulator.metrics.catalog import (
    CHARTS,
    GPU,
    GPU_SHARE,
    Chart,
    Metric,
    Rates,
    Scale,
    Usage,
)
from emulator.metrics.samples import Sample, device_numbers, series
from emulator.report import charts
from emulator.report.charts import POINTS, axis, layout, line, short, thinned
from emulator.report.data import Facts

__all__ = ["Panel", "devices", "gpu_panels", "no_gpus", "task_panels"]

HEIGHT = 190
"""Pixels of one chart."""

Value = float | None
Line = tuple[str, Sequence[tuple[float, Value]]]
"""Name of a task or device, and its points over the seconds of the run."""


@dataclass(frozen=True)
class Panel:
    """A chart with its title; every line is one task or device."""

    title: str
    note: str
    lines: Sequence[str]
    chart: charts.Chart
    quiet: bool = False
    """All of it is zero."""


def _fitting(scale: Scale, lines: Sequence[Line]) -> tuple[Scale, Sequence[Line]]:
    """Return bytes a second in the unit that fits the most of them."""
    if scale.unit != "B/s":
        return scale, lines
    most = max((value or 0.0 for _, points in lines for _, value in points), default=0.0)
    power = min(3, int(math.log(max(most, 1.0), 1024)))
    unit = f"{('B', 'KiB', 'MiB', 'GiB')[power]}/s"
    fitting = [(name, [(t, _over(v, 1024.0**power)) for t, v in ps]) for name, ps in lines]
    return replace(scale, unit=unit, note=f"{unit} {scale.note}"), fitting


def task_panels(facts: Facts) -> Iterator[Panel]:
    """Yield steps a second and usage of every task; nothing of what the engine can't tell.

    A panel whose lines are zero all the time is `quiet`: it is worth a word, and no chart.
    """
    names = [task.name for task in facts.plan.tasks]
    end = facts.end
    told = list(_steps(facts.speed))
    if len(told) > 1:  # of one alone, the timeline shows it
        scale = Scale("Steps per second", "steps/s", note="as each task reports them")
        yield _panel(scale, told, names, end)
    used = {name: dict(series(facts.samples, name)) for name in names}
    times = [sample.t for sample in facts.samples]
    first = {name: use for sample in reversed(facts.samples) for name, use in sample.tasks.items()}
    for chart in CHARTS:
        # Where a task was not running its line has a gap.
        lines = [
            (name, [(t, _value(chart, at.get(t))) for t in times])
            for name, at in used.items()
            if name in first and _is_of(chart, first[name])
        ]
        if known := _known(lines):
            yield _panel(*_fitting(chart.scale, known), names, end)


def _value(chart: Chart, rates: Rates | None) -> Value:
    values = [getattr(rates, key, None) for key in chart.of]
    known = [value for value in values if value is not None]
    return sum(known) / chart.scale.size if len(known) == len(values) else None


def _is_of(chart: Chart, first: Usage) -> bool:
    """Say whether a chart is for a task, by the limits in its first sample."""
    limited = not chart.limit or getattr(first, chart.limit) is not None
    return limited and (not chart.unlimited or getattr(first, chart.unlimited) is None)


def _steps(speed: Curve) -> Iterator[Line]:
    for name, rates in speed.tasks.items():
        if any(rates):
            middle = speed.begin + speed.width / 2
            yield name, [(middle + n * speed.width, rate) for n, rate in enumerate(rates)]


def gpu_panels(facts: Facts) -> Iterator[Panel]:
    """Yield what every device did, and what of it each task had."""
    end = facts.end
    names = devices(facts)
    for key, scale in _charts(GPU):
        lines = [(n, _of_device(facts.samples, uuid, key, scale)) for uuid, n in names.items()]
        if known := _known(lines):
            yield _panel(scale, known, list(names.values()), end)
    tasks = [task.name for task in facts.plan.tasks]
    for key, scale in _charts(GPU_SHARE):
        shares = [(name, list(_of_task(facts.samples, name, key, scale))) for name in tasks]
        if known := _known(shares):
            yield _panel(scale, known, tasks, end)


def _charts(metrics: Sequence[Metric]) -> list[tuple[str, Scale]]:
    return [(metric.key, metric.chart) for metric in metrics if metric.chart]


def no_gpus(facts: Facts) -> str:
    """Return in one line why there are no GPU charts; nothing where there are some."""
    if any(sample.gpus for sample in facts.samples):
        return ""
    if not facts.sampling:
        return "The record says nothing about GPUs."
    why = facts.sampling.get("why_no_gpus")
    return f"No GPU was watched: {why}" if why else "No GPU was seen in use."


def devices(facts: Facts) -> dict[str, str]:
    """Return what every device is called, by its uuid, in their order."""
    return {uuid: f"GPU {number}" for uuid, number in device_numbers(facts.samples).items()}


def _of_device(
    samples: Sequence[Sample], uuid: str, key: str, scale: Scale
) -> Sequence[tuple[float, Value]]:
    return [
        (sample.t, _over(getattr(gpu, key), scale.size))
        for sample in samples
        for gpu in sample.gpus
        if gpu.uuid == uuid
    ]


def _of_task(
    samples: Sequence[Sample], task: str, key: str, scale: Scale
) -> Iterator[tuple[float, Value]]:
    """Yield the sum over all devices."""
    for sample in samples:
        shares = [getattr(g.tasks[task], key) for g in sample.gpus if task in g.tasks]
        known = [share for share in shares if share is not None]
        if known:
            yield sample.t, sum(known) / scale.size


def _known(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that say anything."""
    return [(name, points) for name, points in lines if any(y is not None for _, y in points)]


def _panel(scale: Scale, lines: Sequence[Line], order: Sequence[str], end: float) -> Panel:
    place: Mapping[str, int] = {name: number for number, name in enumerate(order)}
    limit = min(POINTS, max(60, 6 * POINTS // len(lines)))
    data: list[dict[str, Any]] = []
    for name, points in lines:
        few = thinned(points, limit)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": escape(name),
                "x": [short(t) for t, _ in few],
                "y": [short(value) for _, value in few],
                "line": line(place[name]),
                "connectgaps": False,
                "hovertemplate": f"{escape(name)}: %{{y:.3~g}} {scale.unit} at %{{x:.0f}} s"
                "<extra></extra>",
            }
        )
    suffix = " %" if scale.unit == "%" else ""
    shape = layout(
        HEIGHT,
        margin={"l": 8, "r": 10, "t": 8, "b": 28},
        xaxis=axis(range=[0, end], ticksuffix=" s", fixedrange=False),
        yaxis=axis(rangemode="tozero", automargin=True, nticks=5, ticksuffix=suffix),
    )
    drawn = [name for name, _ in lines]
    quiet = not any(value for _, points in lines for _, value in points)
    return Panel(
        scale.title, scale.note, drawn, {"height": HEIGHT, "data": data, "layout": shape}, quiet
    )


def _over(value: float | None, unit: float) -> Value:
    return None if value is None else value / unit
