"""What tasks and GPUs have used, as it is measured and stored (pure).

A sample holds what an engine counts: core-seconds, bytes, seconds held back, all since a task was
started. Rates are made from two samples on reading. So a sample that is late or missing loses
nothing of a total, and a day's samples can be thinned without changing one (`thinned`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

__all__ = [
    "GpuShare",
    "GpuUsage",
    "Rates",
    "Sample",
    "Usage",
    "device_numbers",
    "from_json",
    "halved",
    "rates",
    "series",
    "thinned",
    "to_json",
]


@dataclass(frozen=True)
class Usage:
    """What one task has used since it was started; None: the engine can't tell."""

    cpu: float
    """Core-seconds."""
    memory: int | None = None
    """Bytes in use now, without file cache that the kernel would give up first."""
    throttled: float | None = None
    """Seconds in which it was held back for its CPU limit."""
    received: int | None = None
    """Bytes over the network, loopback left out."""
    sent: int | None = None
    read: int | None = None
    """Bytes from disks; what the cache answers is not counted."""
    written: int | None = None
    processes: int | None = None
    """Processes and threads where cgroups count (they are tasks to the kernel), else processes."""
    cpus: float | None = None
    """The limit in force, in cores; None: no limit."""
    memory_limit: int | None = None
    """Bytes; None: no limit."""


@dataclass(frozen=True)
class GpuShare:
    """What one task has of one device."""

    memory: int | None = None
    """Bytes."""
    utilisation: float | None = None
    """Share of the time in which its kernels ran, 0 to 1."""


@dataclass(frozen=True)
class GpuUsage:
    """One device at one moment; None: the driver does not tell."""

    index: int
    uuid: str
    name: str = ""
    utilisation: float | None = None
    """Share of the last sampling period in which a kernel ran, 0 to 1."""
    memory: int | None = None
    """Bytes in use."""
    memory_total: int | None = None
    power: float | None = None
    """Watts."""
    temperature: float | None = None
    """Degrees Celsius."""
    sm_clock: float | None = None
    """MHz."""
    memory_clock: float | None = None
    """MHz."""
    ecc_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    xid: int | None = None
    """The last critical error that the driver told of during the run (NVIDIA's Xid number)."""
    lost: bool = False
    """The device no longer answers."""
    tasks: Mapping[str, GpuShare] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """All that was measured at one moment."""

    t: float
    """Seconds since the run began."""
    wall: float
    """Seconds since 1970."""
    tasks: Mapping[str, Usage]
    gpus: Sequence[GpuUsage] = ()


@dataclass(frozen=True)
class Rates:
    """What a task used between two samples; None: not known."""

    cpu: float | None = None
    """Cores."""
    cpu_share: float | None = None
    """Of its limit, 0 to 1; a bit over where the kernel lends some."""
    throttled: float | None = None
    """Share of the time in which it was held back."""
    memory: int | None = None
    """Bytes."""
    memory_share: float | None = None
    received: float | None = None
    """Bytes a second, as the next three."""
    sent: float | None = None
    read: float | None = None
    written: float | None = None
    processes: int | None = None


def rates(earlier: Usage | None, later: Usage, seconds: float) -> Rates:
    """Return what was used per second between two samples that lie `seconds` apart.

    A counter that went back was reset by a restart of the task, and counts from 0, as Prometheus
    takes it (its `rate()`). Without an earlier sample only what needs none is known.
    """
    restarted = earlier is not None and later.cpu < earlier.cpu

    def per_second(counter: str) -> float | None:
        now = getattr(later, counter)
        before = 0 if restarted else getattr(earlier, counter, None)
        if now is None or before is None or seconds <= 0:
            return None
        return float(now - before if now >= before else now) / seconds

    cpu = per_second("cpu")
    return Rates(
        cpu=cpu,
        cpu_share=_share(cpu, later.cpus),
        throttled=per_second("throttled"),
        memory=later.memory,
        memory_share=_share(later.memory, later.memory_limit),
        received=per_second("received"),
        sent=per_second("sent"),
        read=per_second("read"),
        written=per_second("written"),
        processes=later.processes,
    )


def _share(used: float | None, limit: float | None) -> float | None:
    return used / limit if used is not None and limit else None


def series(samples: Iterable[Sample], task: str) -> list[tuple[float, Rates]]:
    """Return a task's rates at each sample that has it: (seconds since the run began, rates)."""
    found: list[tuple[float, Rates]] = []
    before: Sample | None = None
    for sample in samples:
        if task in sample.tasks:
            earlier = before.tasks.get(task) if before else None
            seconds = sample.t - before.t if before else 0.0
            found.append((sample.t, rates(earlier, sample.tasks[task], seconds)))
        before = sample
    return found


def device_numbers(samples: Iterable[Sample]) -> dict[str, str]:
    """Return what to call each device, by its uuid: its index, such as `0`.

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


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return half as many samples: each pair as one.

    Where a task began anew its first account stays by itself: its counters went back, and the total
    of its life before is what they had reached.

    Of a task the later account stands, because it counts all that the earlier one did; but the
    memory is the larger of the two, since peaks are what memory is watched for. What a GPU did is
    the mean of both, or what one of them tells; an error or a loss is kept.
    """
    anew = _begun_anew(samples)
    kept: list[Sample] = []
    waiting = False  # the last that was kept may be one of a pair
    for number, sample in enumerate(samples):
        if waiting and number not in anew:
            kept[-1] = _merged(kept[-1], sample)
            waiting = False
        else:
            kept.append(sample)
            waiting = number not in anew
    return kept


def halved(samples: Sequence[Sample]) -> list[Sample]:
    """Return half as many samples, whoever began anew: see `thinned`."""
    pairs = [_merged(*pair) for pair in zip(samples[::2], samples[1::2], strict=False)]
    return pairs + list(samples[len(pairs) * 2 :])


def _begun_anew(samples: Sequence[Sample]) -> set[int]:
    """Return the numbers of the samples in which a task's counters are back behind the last."""
    cpu: dict[str, float] = {}
    found: set[int] = set()
    for number, sample in enumerate(samples):
        for name, usage in sample.tasks.items():
            if usage.cpu < cpu.get(name, 0.0):
                found.add(number)
            cpu[name] = usage.cpu
    return found


def _merged(one: Sample, two: Sample) -> Sample:
    before = {gpu.uuid: gpu for gpu in one.gpus}
    return Sample(
        two.t,
        two.wall,
        {**one.tasks, **{n: _with_peak(one.tasks.get(n), use) for n, use in two.tasks.items()}},
        tuple(_averaged(before[g.uuid], g) if g.uuid in before else g for g in two.gpus),
    )


def _with_peak(earlier: Usage | None, later: Usage) -> Usage:
    if earlier is None or earlier.memory is None or later.memory is None:
        return later
    return replace(later, memory=max(earlier.memory, later.memory))


def _averaged(one: GpuUsage, two: GpuUsage) -> GpuUsage:
    def told(column: str) -> list[Any]:
        both = getattr(one, column), getattr(two, column)
        return [value for value in both if value is not None]

    means: dict[str, Any] = {
        name: fmean(values)
        for name in ("utilisation", "power", "temperature", "sm_clock", "memory_clock")
        if (values := told(name))
    }
    return replace(
        two,
        **means,
        memory=max(told("memory"), default=None),
        memory_total=max(told("memory_total"), default=None),
        ecc_errors=max(told("ecc_errors"), default=None),
        xid=two.xid if two.xid is not None else one.xid,
        lost=one.lost or two.lost,
        tasks={**one.tasks, **two.tasks},
    )


def to_json(sample: Sample) -> dict[str, Any]:
    """Return a sample as a line of samples.jsonl holds it: what is not known is left out."""
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


def from_json(line: Mapping[str, Any]) -> Sample:
    """Return the sample that a line holds; raises KeyError or TypeError where it is none."""
    return Sample(
        line["t"],
        line["wall"],
        {name: Usage(**usage) for name, usage in line["tasks"].items()},
        tuple(_gpu(gpu) for gpu in line.get("gpus", ())),
    )


def _gpu(line: Mapping[str, Any]) -> GpuUsage:
    shares = {name: GpuShare(**share) for name, share in line.get("tasks", {}).items()}
    return GpuUsage(**{**line, "tasks": shares})
