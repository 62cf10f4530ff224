"""The catalogue of metrics of tasks and GPUs: each one is defined here once.

A field of `Usage`, `GpuUsage` or `GpuShare` is a metric as it is measured and stored; a field of
`Rates` is made from two samples of a task. The `Metric` in its annotation has its names and
descriptions in tables, TensorBoard, Prometheus, traces, charts, the live view and `emulate doctor`.
A new metric is one field here, and the code that measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Annotated, Any, Literal, get_args, get_type_hints

from emulator.validation.units import format_size

_MIB, _GIB = 2.0**20, 2.0**30


@dataclass(frozen=True)
class Scale:
    """How a value is drawn over time."""

    title: str
    unit: str
    size: float = 1.0
    """What one of `unit` is in the metric's own unit."""
    note: str = ""
    """What is drawn, in a few words after the title."""


@dataclass(frozen=True)
class Metric:
    """How one metric is named and described; an empty name: it is not shown there."""

    about: str = ""
    """In a few words: help text, description of a column."""
    unit: str = ""
    """Of the stored value."""
    counter: bool = False
    """It only grows, from the start of its task or device on."""
    column: str = ""
    """Of a rate: its column in tables. For a measured metric this is its key."""
    tensorboard: str = ""
    """Tag below `usage/` or `gpu/N/`."""
    prometheus: str = ""
    """Name after `emulator_task_` or `emulator_gpu_`; Prometheus adds `_total` to a counter's."""
    base: float = 1.0
    """What one of `unit` is in Prometheus' base unit."""
    trace: Scale | None = None
    """Its counter in a Chrome trace."""
    chart: Scale | None = None
    """Its chart on the page; for tasks see CHARTS."""
    words: Callable[[Any], str] | None = None
    """Writes it in a line about a GPU, given the whole GpuUsage; may return nothing."""
    merge: Callable[[Sequence[Any]], Any] | None = None
    """Merges the known values of two samples that become one; None: the later one is kept."""
    of: str = ""
    """Of a rate: the key in Usage that it is made of; from a counter, its growth per second."""
    limit: str = ""
    """Of a rate: the key in Usage of the limit that it is a share of."""
    key: str = ""
    """The name of the field; filled in."""
    type: Literal["text", "bool", "int", "float"] = "float"
    """Filled in from the field."""


# A metric is easier to read in a few lines than with a line for each argument.
# fmt: off


@dataclass(frozen=True)
class Usage:
    """What one task has used since it was started; None: the engine can't tell."""

    cpu: Annotated[float, Metric(
        "used since the task was started", "core-seconds", counter=True, prometheus="cpu_seconds")]
    memory: Annotated[int | None, Metric(  # without file cache that the kernel gives up first
        "in use", "bytes", prometheus="memory_bytes", merge=max)] = None
    throttled: Annotated[float | None, Metric(
        "held back for its CPU limit since the task was started", "s",
        counter=True, prometheus="cpu_throttled_seconds")] = None
    received: Annotated[int | None, Metric(
        "over the network since the task was started, without loopback", "bytes",
        counter=True, prometheus="network_receive_bytes")] = None
    sent: Annotated[int | None, Metric(
        "over the network since the task was started, without loopback", "bytes",
        counter=True, prometheus="network_transmit_bytes")] = None
    read: Annotated[int | None, Metric(  # what the cache answers is not counted
        "from disks since the task was started", "bytes",
        counter=True, prometheus="disk_read_bytes")] = None
    written: Annotated[int | None, Metric(
        "to disks since the task was started", "bytes",
        counter=True, prometheus="disk_written_bytes")] = None
    processes: Annotated[int | None, Metric(  # cgroups count threads as well
        "processes; with threads where the kernel counts those", prometheus="processes")] = None
    cpus: Annotated[float | None, Metric(
        "the limit in force", "cores", prometheus="cpu_limit_cores")] = None
    """None: no limit."""
    memory_limit: Annotated[int | None, Metric(
        "the limit in force", "bytes", prometheus="memory_limit_bytes")] = None
    """None: no limit."""
    measured: Annotated[float | None, Metric(
        "when it was measured, if that was before the sample", "s since 1970",
        prometheus="measured_timestamp_seconds")] = None


@dataclass(frozen=True)
class Rates:
    """What a task used between two samples; None: not known."""

    cpu: Annotated[float | None, Metric(
        "used since the sample before", "cores", of="cpu",
        column="cpu_cores", tensorboard="cpu_cores", trace=Scale("CPU", "cores"))] = None
    cpu_share: Annotated[float | None, Metric(  # a bit over 1 where the kernel lends some
        "of the limit", "0..1", of="cpu", limit="cpus",
        column="cpu_share", tensorboard="cpu_share")] = None
    throttled: Annotated[float | None, Metric(
        "of the time since the sample before, held back for the CPU limit", "0..1",
        of="throttled", column="throttled_share", tensorboard="throttled_share")] = None
    memory: Annotated[int | None, Metric(
        "in use", "bytes", of="memory",
        tensorboard="memory_bytes", trace=Scale("memory", "MiB", _MIB))] = None
    memory_share: Annotated[float | None, Metric(
        "of the limit", "0..1", of="memory", limit="memory_limit",
        column="memory_share", tensorboard="memory_share")] = None
    received: Annotated[float | None, Metric(
        "over the network", "bytes/s", of="received",
        column="received_per_second", tensorboard="received_bytes_per_second")] = None
    sent: Annotated[float | None, Metric(
        "over the network", "bytes/s", of="sent",
        column="sent_per_second", tensorboard="sent_bytes_per_second")] = None
    read: Annotated[float | None, Metric(
        "from disks", "bytes/s", of="read",
        column="read_per_second", tensorboard="read_bytes_per_second")] = None
    written: Annotated[float | None, Metric(
        "to disks", "bytes/s", of="written",
        column="written_per_second", tensorboard="written_bytes_per_second")] = None
    processes: Annotated[int | None, Metric(
        "processes and threads", of="processes", tensorboard="processes")] = None


@dataclass(frozen=True)
class GpuShare:
    """What one task has of one device; None: the driver does not report it."""

    memory: Annotated[int | None, Metric(
        "of the device, in use by the task", "bytes",
        tensorboard="memory_bytes", prometheus="gpu_memory_bytes",
        trace=Scale("memory", "MiB", _MIB),
        chart=Scale("GPU memory by task", "GiB", _GIB, "GiB on all devices"))] = None
    utilisation: Annotated[float | None, Metric(
        "share of the time in which the task's kernels ran", "0..1",
        tensorboard="utilisation", prometheus="gpu_utilization_ratio")] = None


@dataclass(frozen=True)
class GpuUsage:
    """One device at one moment; None: the driver does not report it."""

    index: Annotated[int, Metric("of the device")]
    uuid: Annotated[str, Metric()]
    name: Annotated[str, Metric()] = ""
    utilisation: Annotated[float | None, Metric(
        "share of the time in which a kernel ran", "0..1",
        tensorboard="utilisation", prometheus="utilization_ratio",
        trace=Scale("utilisation", "%", 0.01),
        chart=Scale("GPU utilisation", "%", 0.01, "% of the time a kernel ran"),
        words=lambda gpu: f"{gpu.utilisation:.0%} busy", merge=fmean)] = None
    memory: Annotated[int | None, Metric(
        "in use", "bytes", tensorboard="memory_bytes", prometheus="memory_used_bytes",
        trace=Scale("memory", "MiB", _MIB), chart=Scale("GPU memory", "GiB", _GIB, "GiB in use"),
        words=lambda gpu: _used_of_total(gpu.memory, gpu.memory_total), merge=max)] = None
    memory_total: Annotated[int | None, Metric(
        "all of it", "bytes", prometheus="memory_total_bytes", merge=max)] = None
    power: Annotated[float | None, Metric(
        "what it draws", "W", tensorboard="power_watts", prometheus="power_watts",
        trace=Scale("power", "W"), chart=Scale("GPU power", "W", note="watts"),
        words=lambda gpu: f"{gpu.power:.0f} W", merge=fmean)] = None
    temperature: Annotated[float | None, Metric(
        "of the chip", "°C", tensorboard="temperature_celsius", prometheus="temperature_celsius",
        chart=Scale("GPU temperature", "°C", note="°C"),
        words=lambda gpu: f"{gpu.temperature:.0f} °C", merge=fmean)] = None
    sm_clock: Annotated[float | None, Metric(
        "of its multiprocessors", "MHz", tensorboard="sm_clock_mhz",
        prometheus="sm_clock_hertz", base=1e6,
        chart=Scale("GPU clock", "MHz", note="MHz of the multiprocessors"), merge=fmean)] = None
    memory_clock: Annotated[float | None, Metric(
        "of its memory", "MHz", tensorboard="memory_clock_mhz",
        prometheus="memory_clock_hertz", base=1e6, merge=fmean)] = None
    ecc_errors: Annotated[int | None, Metric(
        "uncorrected, since the driver was loaded", counter=True,
        tensorboard="ecc_errors", prometheus="ecc_errors",
        words=lambda gpu: f"{gpu.ecc_errors} ECC errors" if gpu.ecc_errors else "",
        merge=max)] = None
    xid: Annotated[int | None, Metric(
        "the last critical error that the driver reported during the run (NVIDIA's Xid)",
        prometheus="last_xid", words=lambda gpu: f"Xid {gpu.xid}",
        merge=lambda known: known[-1])] = None
    lost: Annotated[bool, Metric(
        "the device no longer answers", prometheus="lost", merge=any)] = False
    tasks: Mapping[str, GpuShare] = field(default_factory=dict)


# fmt: on
def _used_of_total(used: int, total: int | None) -> str:
    return format_size(used) + (f" of {format_size(total)}" if total else "")


@dataclass(frozen=True)
class Chart:
    """A chart of what tasks use on the page."""

    scale: Scale
    of: tuple[str, ...]
    """Keys in Rates; several are added up."""
    limit: str = ""
    """Only tasks with this limit (a key in Usage), by their first sample; throttling changes it."""
    unlimited: str = ""
    """Only tasks without it."""


CHARTS = (
    Chart(Scale("CPU", "%", 0.01, "% of the limit"), ("cpu_share",), limit="cpus"),
    Chart(Scale("CPU", "cores", 1.0, "cores"), ("cpu",), unlimited="cpus"),
    Chart(Scale("Held back", "%", 0.01, "% of the time, for its limit"), ("throttled",)),
    Chart(Scale("Memory", "%", 0.01, "% of the limit"), ("memory_share",), limit="memory_limit"),
    Chart(Scale("Memory", "MiB", _MIB, "MiB in use"), ("memory",), unlimited="memory_limit"),
    Chart(Scale("Network", "B/s", 1.0, "received and sent"), ("received", "sent")),
    Chart(Scale("Disk", "B/s", 1.0, "read and written"), ("read", "written")),
    Chart(Scale("Processes", "", 1.0, "threads, where cgroups count"), ("processes",)),
)


def _metrics(kind: type) -> Iterator[Metric]:
    types: Mapping[type, Any] = {str: "text", bool: "bool", int: "int", float: "float"}
    for key, hint in get_type_hints(kind, globals(), include_extras=True).items():
        plain, *described = get_args(hint)
        if described and isinstance(described[0], Metric):
            first = (get_args(plain) or (plain,))[0]  # `int | None` -> int
            yield replace(described[0], key=key, type=types[first])


USAGE = tuple(_metrics(Usage))
RATES = tuple(_metrics(Rates))
GPU = tuple(_metrics(GpuUsage))
GPU_SHARE = tuple(_metrics(GpuShare))


def in_words(gpu: GpuUsage) -> list[str]:
    """Return the parts of a line about a device: `93% busy`, `10.0 GiB of 80.0 GiB`, `61 °C`."""
    known = [m.words for m in GPU if m.words and getattr(gpu, m.key) is not None]
    return [text for words in known if (text := words(gpu))]
