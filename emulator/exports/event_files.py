"""A run as TensorBoard's event files: one TensorBoard run for the job, and one for each task.

What is measured over time lies at the milliseconds since the run began, so that no two points share
a step; what tasks tell at a step, at the training's step. `wall_time` is right for both, so are
TensorBoard's relative and wall axes. Scalars are 32-bit floats: TensorBoard keeps no others.

Of tensorboard only the record writer and the protos are used: its `EventFileWriter` would load
TensorFlow where that is installed, for seconds and with a page of messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from emulator.analysis.throughput import Curve, curve
from emulator.metrics.catalog import GPU, GPU_SHARE, RATES, GpuUsage, Metric
from emulator.metrics.samples import Sample, device_numbers, series
from emulator.record.events import Step
from emulator.record.timeline import Timeline

__all__ = ["JOB", "Moment", "moments", "write_event_file"]

JOB = "job"
"""The TensorBoard run of what belongs to no task."""

MOST = 2**63
"""Steps that an event file can't hold."""

_ABOUT = {
    **{f"usage/{m.tensorboard}": f"{m.unit}, {m.about}".removeprefix(", ") for m in RATES},
    "throughput/steps_per_second": "over the run; x is milliseconds since it began",
    "throughput/examples_per_second": "over the run; x is milliseconds since it began",
}


@dataclass(frozen=True)
class Moment:
    """Scalars that belong to one time and step."""

    step: int
    wall: float
    """Seconds since 1970."""
    scalars: Mapping[str, float]


def moments(
    timeline: Timeline, samples: Sequence[Sample], duration: float
) -> dict[str, list[Moment]]:
    """Return what each TensorBoard run shows; those that nothing is known of are left out."""
    plan, history = timeline.plan, timeline.history
    began = history[0].wall - history[0].t if history else 0.0
    found: dict[str, list[Moment]] = {JOB: [], **{task.name: [] for task in plan.tasks}}
    for run, of_run in _rates(timeline, duration, began):
        found[run].append(of_run)
    numbers = device_numbers(samples)
    for sample in samples:
        for run, scalars in _of_gpus(sample.gpus, numbers).items():
            found[run].append(Moment(_milliseconds(sample.t), sample.wall, scalars))
    walls = {sample.t: sample.wall for sample in samples}
    for task in plan.tasks:
        for t, used in series(samples, task.name):
            scalars = _tagged("usage", RATES, used)
            found[task.name].append(Moment(_milliseconds(t), walls[t], scalars))
    for _, step in timeline.steps:
        if abs(step.step) < MOST and (scalars := _told(step)):
            found[step.task].append(Moment(step.step, step.wall, scalars))
    return {run: of_run for run, of_run in found.items() if of_run}


def _rates(timeline: Timeline, duration: float, began: float) -> Iterator[tuple[str, Moment]]:
    """Yield the throughput of the job and of each task, at the end of the time that it is of."""
    if not timeline.steps:
        return
    steps = curve(timeline, duration)
    factor = timeline.plan.scenario.metrics.examples_per_step
    reported = (_number(step.values.get("examples")) for _, step in timeline.steps)
    told = any(examples is not None and isfinite(examples) for examples in reported)
    seen = curve(timeline, duration, examples=True) if told else None
    for run in (JOB, *steps.tasks):
        of_steps = _of_run(steps, run)
        if not any(of_steps):
            continue  # a server, say
        of_examples = _of_run(seen, run) if seen else ()
        if factor and not any(of_examples):  # who tells of none has what the scenario says
            of_examples = [rate * factor for rate in of_steps]
        for number, rate in enumerate(of_steps):
            t = steps.begin + (number + 1) * steps.width
            scalars = {"throughput/steps_per_second": rate}
            if number < len(of_examples):
                scalars["throughput/examples_per_second"] = of_examples[number]
            yield run, Moment(_milliseconds(t), began + t, scalars)


def _of_run(found: Curve, run: str) -> Sequence[float]:
    return found.job if run == JOB else found.tasks.get(run, ())


def _told(entry: Step) -> dict[str, float]:
    numbers = {key: _number(value) for key, value in entry.values.items()}
    # A key may have half of a surrogate pair, which no UTF-8 holds.
    tags = {key.encode("utf-8", "backslashreplace").decode(): key for key in numbers}
    return _known({f"training/{tag}": numbers[key] for tag, key in tags.items()})


def _number(value: object) -> float | None:
    """Return a program's value where it is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _of_gpus(gpus: Iterable[GpuUsage], numbers: Mapping[str, str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for gpu in gpus:
        group = f"gpu/{numbers[gpu.uuid]}"
        found[JOB].update(_tagged(group, GPU, gpu))
        for task, share in gpu.tasks.items():
            found[task].update(_tagged(group, GPU_SHARE, share))
    return found


def _tagged(group: str, metrics: Sequence[Metric], found: object) -> dict[str, float]:
    """Return the known values that have a tag in the catalogue."""
    return _known(
        {f"{group}/{m.tensorboard}": getattr(found, m.key) for m in metrics if m.tensorboard}
    )


def _known(scalars: Mapping[str, float | None]) -> dict[str, float]:
    return {tag: float(value) for tag, value in scalars.items() if value is not None}


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def write_event_file(path: Path, found: Sequence[Moment], began: float) -> None:
    """Write a TensorBoard run's moments; `began` is when it began, in seconds since 1970."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_SCALAR, Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_FLOAT
    from tensorboard.summary.writer.record_writer import RecordWriter

    described: set[str] = set()

    def value(tag: str, number: float) -> object:
        tensor = TensorProto(dtype=DT_FLOAT, tensor_shape=TensorShapeProto(), float_val=[number])
        if tag in described:  # TensorBoard takes what the first value of a tag says of it
            return Summary.Value(tag=tag, tensor=tensor)
        described.add(tag)
        metadata = SummaryMetadata(
            plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"),
            data_class=DATA_CLASS_SCALAR,
            summary_description=_ABOUT.get(tag, ""),
        )
        return Summary.Value(tag=tag, tensor=tensor, metadata=metadata)

    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=began, file_version="brain.Event:2").SerializeToString())
        for moment in found:
            values = [value(tag, number) for tag, number in moment.scalars.items()]
            event = Event(step=moment.step, wall_time=moment.wall, summary=Summary(value=values))
            writer.write(event.SerializeToString())
