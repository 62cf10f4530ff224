"""Charts of what tasks and GPUs used over time (pure); see figures.py for how they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from emulator.analysis.throughput import Curve
from emulator.metrics.samples import GpuUsage, Rates, Sample, Usage, device_numbers, series
from emulator.report.charts import POINTS, Chart, axis, layout, line, short, thinned
from emulator.report.facts import Facts

__all__ = ["Panel", "devices", "gpu_panels", "no_gpus", "task_panels"]

HEIGHT = 190
"""Pixels of one chart."""
_MIB, _GIB = 2.0**20, 2.0**30

Value = float | None
Line = tuple[str, Sequence[tuple[float, Value]]]
"""Name of a task or device, and its points over the seconds of the run."""


@dataclass(frozen=True)
class Panel:
    """A chart with its title; every line is one task or device."""

    title: str
    note: str
    lines: Sequence[str]
    chart: Chart
    quiet: bool = False
    """All of it is zero."""


@dataclass(frozen=True)
class _Measure:
    title: str
    note: str
    unit: str
    value: Callable[[Rates], Value]
    of: Callable[[Usage], bool] = lambda usage: True
    """Of whom, by the first sample: a throttle's limit comes and goes."""

    def scaled(self, lines: Sequence[Line]) -> tuple[_Measure, Sequence[Line]]:
        """Return bytes a second in the unit that fits the most of them."""
        if self.unit != "B/s":
            return self, lines
        most = max((value or 0.0 for _, points in lines for _, value in points), default=0.0)
        power = min(3, int(math.log(max(most, 1.0), 1024)))
        unit = f"{('B', 'KiB', 'MiB', 'GiB')[power]}/s"
        fitting = [(name, [(t, _over(v, 1024.0**power)) for t, v in ps]) for name, ps in lines]
        return replace(self, unit=unit, note=f"{unit} {self.note}"), fitting


_MEASURES = (
    _Measure(
        "CPU", "% of the limit", "%", lambda r: _percent(r.cpu_share), lambda u: u.cpus is not None
    ),
    _Measure("CPU", "cores", "cores", lambda r: r.cpu, lambda u: u.cpus is None),
    _Measure("Held back", "% of the time, for its limit", "%", lambda r: _percent(r.throttled)),
    _Measure(
        "Memory",
        "% of the limit",
        "%",
        lambda r: _percent(r.memory_share),
        lambda u: u.memory_limit is not None,
    ),
    _Measure(
        "Memory",
        "MiB in use",
        "MiB",
        lambda r: _over(r.memory, _MIB),
        lambda u: u.memory_limit is None,
    ),
    _Measure("Network", "received and sent", "B/s", lambda r: _both(r.received, r.sent)),
    _Measure("Disk", "read and written", "B/s", lambda r: _both(r.read, r.written)),
    _Measure("Processes", "threads, where cgroups count", "", lambda r: r.processes),
)
_DEVICES: tuple[tuple[str, str, str, Callable[[GpuUsage], Value]], ...] = (
    ("GPU utilisation", "% of the time a kernel ran", "%", lambda g: _percent(g.utilisation)),
    ("GPU memory", "GiB in use", "GiB", lambda g: _over(g.memory, _GIB)),
    ("GPU power", "watts", "W", lambda g: g.power),
    ("GPU temperature", "°C", "°C", lambda g: g.temperature),
    ("GPU clock", "MHz of the multiprocessors", "MHz", lambda g: g.sm_clock),
)


def task_panels(facts: Facts) -> Iterator[Panel]:
    """Yield steps a second and usage of every task; nothing of what the engine can't tell.

    A panel whose lines are zero all the time is `quiet`: it is worth a word, and no chart.
    """
    names = [task.name for task in facts.plan.tasks]
    end = facts.end
    told = list(_steps(facts.speed))
    if len(told) > 1:  # of one alone, the timeline shows it
        yield _panel("Steps per second", "as each task tells of them", "steps/s", told, names, end)
    used = {name: dict(series(facts.samples, name)) for name in names}
    times = [sample.t for sample in facts.samples]
    first = {name: use for sample in reversed(facts.samples) for name, use in sample.tasks.items()}
    for measure in _MEASURES:
        # Where a task was not there its line has a gap.
        lines = [
            (name, [(t, measure.value(rates) if (rates := at.get(t)) else None) for t in times])
            for name, at in used.items()
            if name in first and measure.of(first[name])
        ]
        if known := _known(lines):
            shown, fitting = measure.scaled(known)
            yield _panel(shown.title, shown.note, shown.unit, fitting, names, end)


def _steps(speed: Curve) -> Iterator[Line]:
    for name, rates in speed.tasks.items():
        if any(rates):
            middle = speed.begin + speed.width / 2
            yield name, [(middle + n * speed.width, rate) for n, rate in enumerate(rates)]


def gpu_panels(facts: Facts) -> Iterator[Panel]:
    """Yield what every device did, and what of it each task had."""
    end = facts.end
    names = devices(facts)
    for title, note, unit, value in _DEVICES:
        lines = [(n, list(_of_device(facts.samples, uuid, value))) for uuid, n in names.items()]
        if known := _known(lines):
            yield _panel(title, note, unit, known, list(names.values()), end)
    tasks = [task.name for task in facts.plan.tasks]
    shares = [(name, list(_of_task(facts.samples, name))) for name in tasks]
    if known := _known(shares):
        yield _panel("GPU memory by task", "GiB on all devices", "GiB", known, tasks, end)


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
    samples: Sequence[Sample], uuid: str, value: Callable[[GpuUsage], Value]
) -> Iterator[tuple[float, Value]]:
    for sample in samples:
        for gpu in sample.gpus:
            if gpu.uuid == uuid:
                yield sample.t, value(gpu)


def _of_task(samples: Sequence[Sample], task: str) -> Iterator[tuple[float, Value]]:
    for sample in samples:
        held = [g.tasks[task].memory for g in sample.gpus if task in g.tasks]
        known = [memory for memory in held if memory is not None]
        if known:
            yield sample.t, sum(known) / _GIB


def _known(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that say anything."""
    return [(name, points) for name, points in lines if any(y is not None for _, y in points)]


def _panel(
    title: str, note: str, unit: str, lines: Sequence[Line], order: Sequence[str], end: float
) -> Panel:
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
                "hovertemplate": f"{escape(name)}: %{{y:.3~g}} {unit} at %{{x:.0f}} s"
                "<extra></extra>",
            }
        )
    suffix = " %" if unit == "%" else ""
    shape = layout(
        HEIGHT,
        margin={"l": 8, "r": 10, "t": 8, "b": 28},
        xaxis=axis(range=[0, end], ticksuffix=" s", fixedrange=False),
        yaxis=axis(rangemode="tozero", automargin=True, nticks=5, ticksuffix=suffix),
    )
    drawn = [name for name, _ in lines]
    quiet = not any(value for _, points in lines for _, value in points)
    return Panel(title, note, drawn, {"height": HEIGHT, "data": data, "layout": shape}, quiet)


def _percent(share: float | None) -> Value:
    return None if share is None else 100 * share


def _over(value: float | None, unit: float) -> Value:
    return None if value is None else value / unit


def _both(one: float | None, two: float | None) -> Value:
    return None if one is None or two is None else one + two
