"""What a run used in total, from its samples (pure).

A total is the sum of the counters at the last sample before each end of a task. So it lacks at most
one sampling interval for each time that the task ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from emulator.metrics.catalog import GpuUsage
from emulator.metrics.samples import Sample, elapsed


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
