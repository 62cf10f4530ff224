"""A run as TensorBoard's event files: one TensorBoard run for the job, and one for each task.

The step of a measurement is the number of milliseconds since the run began, so that no two points
share a step; the step of a reported value is the training's. `wall_time` is the real time in both
cases, so TensorBoard's relative and wall axes are right. TensorBoard's scalars are 32-bit floats.

Only the record writer and the protos of tensorboard are used, because its `EventFileWriter` loads
TensorFlow if that is installed, which takes seconds and prints many messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.analysis.throughput import Curve, curve
from emulator.metrics.catalog import GPU, GPU_SHARE, RATES, GpuUsage, Metric
from emulator.metrics.samples import Sample, device_numbers, series
from emulator.record.events import Step
from emulator.record.timeline import Timeline

JOB = "job"
"""The TensorBoard run of values that belong to no task."""

STEP_LIMIT = 2**63
"""Event files store steps as 64-bit integers."""

_ABOUT = {
    **{f"usage/{m.tensorboard}": f"{m.unit}, {m.about}".removeprefix(", ") for m in RATES},
    "throughput/steps_per_second": "x is the time in milliseconds since the run began",
    "throughput/examples_per_second": "x is the time in milliseconds since the run began",
}
"""Descriptions of tags."""


@dataclass(frozen=True)
class Moment:
    """Scalars of one time and step."""

    step: int
    wall: float
    """Seconds since 1970."""
    scalars: Mapping[str, float]


def moments(
    timeline: Timeline, samples: Sequence[Sample], duration: float
) -> dict[str, list[Moment]]:
    """Return the moments of each TensorBoard run, without runs that have none."""
    plan, history = timeline.plan, timeline.history
    began = history[0].wall - history[0].t if history else 0.0
    runs: dict[str, list[Moment]] = {JOB: [], **{task.name: [] for task in plan.tasks}}
    for run, moment in _throughput(timeline, duration, began):
        runs[run].append(moment)
    numbers = device_numbers(samples)
    for sample in samples:
        for run, scalars in _gpus(sample.gpus, numbers).items():
            if run not in runs:
                continue  # a helper
            runs[run].append(Moment(_milliseconds(sample.t), sample.wall, scalars))
    walls = {sample.t: sample.wall for sample in samples}
    for task in plan.tasks:
        for t, rates in series(samples, task.name):
            scalars = _tagged("usage", RATES, rates)
            runs[task.name].append(Moment(_milliseconds(t), walls[t], scalars))
    for _, step in timeline.steps:
        if step.task in runs and (scalars := _reported(step)):
            runs[step.task].append(Moment(step.step, step.wall, scalars))
    fitting = {run: [one for one in of if abs(one.step) < STEP_LIMIT] for run, of in runs.items()}
    return {run: found for run, found in fitting.items() if found}


def _throughput(timeline: Timeline, duration: float, began: float) -> Iterator[tuple[str, Moment]]:
    """Yield the throughput of the job and of each task, at the end of each bin."""
    if not timeline.steps:
        return
    steps, examples = (curve(timeline, duration, examples=which) for which in (False, True))
    examples_per_step = timeline.plan.scenario.metrics.examples_per_step
    for run in (JOB, *steps.tasks):
        step_rates, example_rates = _bins(steps, run), _bins(examples, run)
        if not any(step_rates):
            continue  # a parameter server, for example
        if not any(example_rates):  # not reported by this run
            example_rates = [rate * (examples_per_step or 0) for rate in step_rates]
        for number, rate in enumerate(step_rates):
            t = steps.begin + (number + 1) * steps.width
            scalars = {"throughput/steps_per_second": rate}
            if any(example_rates) and number < len(example_rates):
                scalars["throughput/examples_per_second"] = example_rates[number]
            yield run, Moment(_milliseconds(t), began + t, scalars)


def _bins(rates: Curve, run: str) -> Sequence[float]:
    return rates.job if run == JOB else rates.tasks.get(run, ())


def _reported(entry: Step) -> dict[str, float]:
    """Return the numbers that a step reported, by tag."""
    numbers = {key: _number(value) for key, value in entry.values.items()}
    # A key may contain half of a surrogate pair, which can't be encoded as UTF-8.
    tags = {key.encode("utf-8", "backslashreplace").decode(): key for key in numbers}
    return _known({f"training/{tag}": numbers[key] for tag, key in tags.items()})


def _number(value: object) -> float | None:
    """Return a reported value if it is a number within the range of a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _gpus(gpus: Iterable[GpuUsage], numbers: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Return the scalars of GPUs for each run: devices for the job, shares for the tasks."""
    runs: dict[str, dict[str, float]] = defaultdict(dict)
    for gpu in gpus:
        group = f"gpu/{numbers[gpu.uuid]}"
        runs[JOB].update(_tagged(group, GPU, gpu))
        for task, share in gpu.tasks.items():
            runs[task].update(_tagged(group, GPU_SHARE, share))
    return runs


def _tagged(group: str, metrics: Sequence[Metric], measured: object) -> dict[str, float]:
    """Return the known values that have a tag in the catalogue."""
    return _known(
        {f"{group}/{m.tensorboard}": getattr(measured, m.key) for m in metrics if m.tensorboard}
    )


def _known(scalars: Mapping[str, float | None]) -> dict[str, float]:
    return {tag: float(value) for tag, value in scalars.items() if value is not None}


def _milliseconds(seconds: float) -> int:
    return round(max(-STEP_LIMIT, min(seconds * 1000, STEP_LIMIT)))


def write_event_file(path: Path, run: Sequence[Moment], began: float) -> None:
    """Write the moments of a TensorBoard run, which began at `began` seconds since 1970."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_SCALAR, Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_FLOAT
    from tensorboard.summary.writer.record_writer import RecordWriter

    described: set[str] = set()

    def value(tag: str, number: float) -> object:
        tensor = TensorProto(dtype=DT_FLOAT, tensor_shape=TensorShapeProto(), float_val=[number])
        if tag in described:  # TensorBoard reads only the metadata of a tag's first value
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
        for moment in run:
            values = [value(tag, number) for tag, number in moment.scalars.items()]
            event = Event(step=moment.step, wall_time=moment.wall, summary=Summary(value=values))
            writer.write(event.SerializeToString())
