"""What a run used in all, from its samples (pure).

A total is what the counters had reached at the last sample before each end of a task, and so lacks
at most one interval between samples of each time the task ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from emulator.metrics.samples import GpuUsage, Sample, Usage

__all__ = ["GpuTotals", "Totals", "gpu_totals", "totals"]


@dataclass(frozen=True)
class Totals:
    """What one task used; None: the engine can't tell."""

    cpu_seconds: float
    """Core-seconds of all its lives."""
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
    """What one device did, over all samples in which it told."""

    name: str
    utilisation: float | None
    """Mean, 0 to 1."""
    memory_peak: int | None
    """Bytes."""
    energy: float | None
    """Joules: power by the time between two samples."""
    lost: bool


def totals(samples: Sequence[Sample], task: str) -> Totals | None:
    """Return what a task used in all; None where no sample has it."""
    having = [(sample.t, sample.tasks[task]) for sample in samples if task in sample.tasks]
    if not having:
        return None
    used = [usage for _, usage in having]
    lives = _lives(used)
    seconds = sum(
        two.t - one.t
        for one, two in pairwise(samples)
        if task in one.tasks and task in two.tasks and one.tasks[task].cpu <= two.tasks[task].cpu
    )
    within = sum(life[-1].cpu - life[0].cpu for life in lives)
    memory = [usage.memory for usage in used if usage.memory is not None]

    def total(counter: str) -> int | None:
        last = [getattr(life[-1], counter) for life in lives]
        return None if None in last else sum(last)

    throttled = [life[-1].throttled for life in lives]
    return Totals(
        cpu_seconds=round(sum(life[-1].cpu for life in lives), 6),
        cpu=round(within / seconds, 4) if seconds > 0 else None,
        memory_peak=max(memory, default=None),
        throttled=None if None in throttled else round(sum(filter(None, throttled), 0.0), 6),
        received=total("received"),
        sent=total("sent"),
        read=total("read"),
        written=total("written"),
    )


def _lives(used: Sequence[Usage]) -> list[list[Usage]]:
    """Split at restarts: where the CPU counter goes back."""
    lives = [[used[0]]]
    for usage in used[1:]:
        if usage.cpu < lives[-1][-1].cpu:
            lives.append([])
        lives[-1].append(usage)
    return lives


def gpu_totals(samples: Sequence[Sample]) -> dict[str, GpuTotals]:
    """Return what each device did, by its uuid."""
    devices: dict[str, list[tuple[float, GpuUsage]]] = {}
    for sample in samples:
        for gpu in sample.gpus:
            devices.setdefault(gpu.uuid, []).append((sample.t, gpu))
    return {uuid: _of_gpu(told) for uuid, told in devices.items()}


def _of_gpu(told: Sequence[tuple[float, GpuUsage]]) -> GpuTotals:
    busy = [gpu.utilisation for _, gpu in told if gpu.utilisation is not None]
    memory = [gpu.memory for _, gpu in told if gpu.memory is not None]
    energy = [
        two.power * (later - earlier)
        for (earlier, _), (later, two) in pairwise(told)
        if two.power is not None
    ]
    return GpuTotals(
        name=told[-1][1].name,
        utilisation=round(fmean(busy), 4) if busy else None,
        memory_peak=max(memory, default=None),
        energy=round(sum(energy), 1) if energy else None,
        lost=any(gpu.lost for _, gpu in told),
    )
