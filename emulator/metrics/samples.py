"""Samples of what tasks and GPUs use, the rates between two, and the totals of all (pure).

A sample has what an engine counts: core-seconds, bytes, throttled seconds, all since a task was
started. Rates are made from two samples on reading. So a sample that is late or missing loses
nothing of a total: that is the sum of the counters at the last sample before each end of a task. So
it lacks at most one sampling interval for each time that the task ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any, TypeVar

from emulator.metrics.catalog import GPU, RATES, USAGE, GpuShare, GpuUsage, Metric, Rates, Usage
from emulator.validation.stored import value_of


@dataclass(frozen=True)
class Sample:
    """All that was measured at one moment."""

    t: float
    """Seconds since the run began."""
    wall: float
    """Seconds since 1970."""
    tasks: Mapping[str, Usage]
    gpus: Sequence[GpuUsage] = ()


_COUNTERS = {metric.key for metric in USAGE if metric.counter}
_MADE_OF = [(metric.of, metric.of in _COUNTERS, metric.limit) for metric in RATES]
"""In the order of the fields of Rates; `rates` is called for each task of each sample."""


def rates(earlier: Usage | None, later: Usage, seconds: float) -> Rates:
    """Return what was used per second between two samples that are `seconds` apart.

    A counter that went back was reset by a restart of the task, and counts from 0, as in
    Prometheus' `rate()`. Without an earlier sample only values that need none are known, and so it
    is where a sample repeats what was measured before the earlier one.
    """
    restarted = earlier is not None and later.cpu < earlier.cpu
    seconds = elapsed(earlier, later, seconds)
    values: list[Any] = []
    for of, counter, limit in _MADE_OF:
        value = getattr(later, of)
        if counter and value is not None:
            before = 0 if restarted else getattr(earlier, of, None)
            if before is None or seconds <= 0:
                value = None
            else:
                value = float(value - before if value >= before else value) / seconds
        if limit and value is not None:
            most = getattr(later, limit)
            value = value / most if most else None
        values.append(value)
    return Rates(*values)


def elapsed(earlier: Usage | None, later: Usage, seconds: float) -> float:
    """Return the seconds between two measurements, whose samples are `seconds` apart."""
    if earlier is None or earlier.measured is None or later.measured is None:
        return seconds
    return later.measured - earlier.measured


def series(samples: Iterable[Sample], task: str) -> list[tuple[float, Rates]]:
    """Return a task's rates at each sample that has it: (seconds since the run began, rates)."""
    points: list[tuple[float, Rates]] = []
    before: Sample | None = None
    for sample in samples:
        if task in sample.tasks:
            earlier = before.tasks.get(task) if before else None
            seconds = sample.t - before.t if before else 0.0
            points.append((sample.t, rates(earlier, sample.tasks[task], seconds)))
        before = sample
    return points


def device_numbers(samples: Iterable[Sample]) -> dict[str, str]:
    """Return the number of each device by its uuid: its index, such as `0`.

    MIG instances have the index of their device and follow it: they are `0.1`, `0.2`, ...
    """
    numbers: dict[str, str] = {}
    count: Counter[int] = Counter()
    for sample in samples:
        for gpu in sample.gpus:
            if gpu.uuid not in numbers:
                instance = count[gpu.index]
                numbers[gpu.uuid] = f"{gpu.index}.{instance}" if instance else str(gpu.index)
                count[gpu.index] += 1
    return numbers


def halved(samples: Sequence[Sample]) -> list[Sample]:
    """Return half as many samples: each pair is merged, an odd last one stays as it is.

    Of a task's counters the later ones stay, because they include the earlier ones. If the task was
    started again between the two, the usage of the ended process since the pair before is lost, as
    if the interval had been twice as long all the time. Other values are merged by `Metric.merge`.
    """
    pairs = [_merged(*pair) for pair in zip(samples[::2], samples[1::2], strict=False)]
    return pairs + list(samples[len(pairs) * 2 :])


def _merged(one: Sample, two: Sample) -> Sample:
    earlier = {gpu.uuid: gpu for gpu in one.gpus}
    tasks = {
        name: _combined(USAGE, one.tasks.get(name, usage), usage)
        for name, usage in two.tasks.items()
    }
    gpus = []
    for gpu in two.gpus:
        before = earlier.get(gpu.uuid, gpu)
        gpus.append(replace(_combined(GPU, before, gpu), tasks={**before.tasks, **gpu.tasks}))
    return Sample(two.t, two.wall, {**one.tasks, **tasks}, tuple(gpus))


_Measured = TypeVar("_Measured", Usage, GpuUsage)


def _combined(metrics: Sequence[Metric], one: _Measured, two: _Measured) -> _Measured:
    """Return the later one with the values that are made of both."""
    merged: dict[str, Any] = {}
    for metric in metrics:
        if metric.merge and one is not two:
            both = getattr(one, metric.key), getattr(two, metric.key)
            if known := [value for value in both if value is not None]:
                merged[metric.key] = metric.merge(known)
    return replace(two, **merged)


def to_json(sample: Sample) -> dict[str, Any]:
    """Return a sample as a line of samples.jsonl; values that are not known are left out."""
    line: dict[str, Any] = {
        "t": sample.t,
        "wall": sample.wall,
        "tasks": {name: _known(vars(usage)) for name, usage in sample.tasks.items()},
    }
    if sample.gpus:
        line["gpus"] = [_known(asdict(gpu)) for gpu in sample.gpus]
    return line


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def from_json(line: object) -> Sample:
    """Return the sample in a line. Raises ValueError where it is none."""
    stored = value_of(_Line, line)
    tasks = {name: value_of(Usage, usage) for name, usage in stored.tasks.items()}
    return Sample(stored.t, stored.wall, tasks, tuple(map(_gpu, stored.gpus)))


@dataclass(frozen=True)
class _Line:
    t: float
    wall: float
    tasks: Mapping[str, Any]
    gpus: Sequence[Mapping[str, Any]] = ()


def _gpu(line: Mapping[str, Any]) -> GpuUsage:
    shares = value_of(_Shares, {"of": line.get("tasks", {})}).of
    tasks = {name: value_of(GpuShare, share) for name, share in shares.items()}
    return value_of(GpuUsage, {**line, "tasks": tasks})


@dataclass(frozen=True)
class _Shares:
    of: Mapping[str, Any]


# --- Totals ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Totals:
    """What one task used; None: the engine can't tell."""

    cpu_seconds: float
    """Core-seconds of all its starts."""
    cpu: float | None
    """Cores, on average over the time between its samples."""
    memory_peak: int | None
    """Bytes, of all samples."""
    throttled: float | None
    """Seconds."""
    received: int | None
    """Bytes, as the next three."""
    sent: int | None
    read: int | None
    written: int | None


@dataclass(frozen=True)
class GpuTotals:
    """What one device did, over all samples that have it."""

    name: str
    utilisation: float | None
    """Mean, 0 to 1."""
    memory_peak: int | None
    """Bytes."""
    energy: float | None
    """Joules: power by the time between two samples."""
    lost: bool


def totals(samples: Sequence[Sample], task: str) -> Totals | None:
    """Return what a task used in total; None where no sample has it."""
    used = [sample.tasks[task] for sample in samples if task in sample.tasks]
    if not used:
        return None
    # The CPU counter goes back where the task was started again.
    restarts = [(one, two) for one, two in pairwise(used) if two.cpu < one.cpu]
    last = [*(one for one, _ in restarts), used[-1]]
    first = [used[0], *(two for _, two in restarts)]
    cpu = sum(usage.cpu for usage in last) - sum(usage.cpu for usage in first)
    seconds = sum(
        elapsed(one.tasks[task], two.tasks[task], two.t - one.t)
        for one, two in pairwise(samples)
        if task in one.tasks and task in two.tasks and one.tasks[task].cpu <= two.tasks[task].cpu
    )
    memory = [usage.memory for usage in used if usage.memory is not None]

    def total(counter: str) -> Any:  # noqa: ANN401  as the counter
        values = [getattr(usage, counter) for usage in last]
        return None if None in values else round(sum(values), 6)

    return Totals(
        cpu_seconds=total("cpu"),
        cpu=round(cpu / seconds, 4) if seconds > 0 else None,
        memory_peak=max(memory, default=None),
        throttled=total("throttled"),
        received=total("received"),
        sent=total("sent"),
        read=total("read"),
        written=total("written"),
    )


def gpu_totals(samples: Sequence[Sample]) -> dict[str, GpuTotals]:
    """Return what each device did, by its uuid."""
    devices: dict[str, list[tuple[float, GpuUsage]]] = {}
    for sample in samples:
        for gpu in sample.gpus:
            devices.setdefault(gpu.uuid, []).append((sample.t, gpu))
    return {uuid: _gpu_totals(reports) for uuid, reports in devices.items()}


def _gpu_totals(reports: Sequence[tuple[float, GpuUsage]]) -> GpuTotals:
    utilisation = [gpu.utilisation for _, gpu in reports if gpu.utilisation is not None]
    memory = [gpu.memory for _, gpu in reports if gpu.memory is not None]
    energy = [
        two.power * (later - earlier)
        for (earlier, _), (later, two) in pairwise(reports)
        if two.power is not None
    ]
    return GpuTotals(
        name=reports[-1][1].name,
        utilisation=round(fmean(utilisation), 4) if utilisation else None,
        memory_peak=max(memory, default=None),
        energy=round(sum(energy), 1) if energy else None,
        lost=any(gpu.lost for _, gpu in reports),
    )
