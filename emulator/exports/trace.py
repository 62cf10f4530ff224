"""A run as a Chrome trace, for Perfetto and chrome://tracing (pure).

The format is Google's "Trace Event Format". Every task is a process with rows for its states, the
faults that struck it, its phases and its steps, and with counters; the job is the first process.
Times are microseconds since the run began. Spans are complete events (`X`), which need no partner;
those of one row lie apart or inside each other, as the format demands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from emulator.analysis.analyse import FaultResult
from emulator.analysis.throughput import curve
from emulator.metrics.catalog import GPU, GPU_SHARE, RATES, Metric
from emulator.metrics.samples import Sample, device_numbers, series
from emulator.planning.plan import Task
from emulator.record.events import (
    AllRunning,
    Attached,
    EmulatorFailed,
    Entry,
    FaultEvent,
    JobEnded,
    Prepared,
    Restart,
    RunStarted,
    SecondInterrupt,
    Stall,
    fields_of,
)
from emulator.record.timeline import Interval, TaskTimeline, Timeline

__all__ = ["HEAD", "MOST_STEPS", "Event", "as_json", "pack_rows", "trace"]

Event = dict[str, Any]
"""One entry of `traceEvents`."""

MOST_STEPS = 20_000
"""With more step events than that, steps are shown by their rate alone."""

JOB = 1
"""The job's process; tasks follow. Perfetto keeps 0 to itself."""

HEAD = '{"otherData": {"writer": "emulate export"'
"""What every trace of ours begins with."""

_MIB = 2**20
_ROWS = 1000
"""Thread ids that each process has for its rows."""


def as_json(events: Iterable[Event], about: Mapping[str, str]) -> Iterator[str]:
    """Yield the file's text, a line for each event."""
    told = json.dumps(about)
    yield HEAD + (", " + told[1:] if about else "}") + ', "displayTimeUnit": "ms",\n'
    yield '"traceEvents": [\n'
    separator = ""
    for event in events:
        yield separator + json.dumps(_finite(event))
        separator = ",\n"
    yield "\n]}\n"


def _finite(value: Any) -> Any:  # noqa: ANN401  whatever JSON can say
    """Write NaN and infinity, which JSON does not know, as text."""
    match value:
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case dict():
            return {key: _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
    return value


def trace(
    timeline: Timeline,
    samples: Sequence[Sample],
    faults: Sequence[FaultResult],
    duration: float,
) -> list[Event]:
    """Return the events of a run, names first, then by time."""
    end = timeline.end
    results = {fault.id: fault for fault in faults}
    names: list[Event] = []
    events = [*_job(timeline, names), *_job_gpus(samples), *_rates(timeline, duration)]
    show_steps = len(timeline.steps) <= MOST_STEPS
    for number, task in enumerate(timeline.plan.tasks):
        process = _Process(JOB + 1 + number, task.name, names, _labels(task))
        hits = [
            results[fault.id]
            for fault in timeline.faults.values()
            if task.name in fault.planned.tasks and fault.id in results
        ]
        of_task = timeline.tasks[task.name]
        events += _task(process, of_task, hits, end, show_steps=show_steps)
        events += _usage(process, samples, of_task)
    return names + sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0)))


@dataclass
class _Process:
    """A process of the trace; its rows are named as they are first used."""

    pid: int
    name: str
    names: list[Event]
    labels: str = ""
    rows: int = 0

    def __post_init__(self) -> None:
        self._name("process_name", name=self.name)
        self._name("process_sort_index", sort_index=self.pid)
        if self.labels:
            self._name("process_labels", labels=self.labels)

    def _name(self, what: str, tid: int | None = None, **args: object) -> None:
        row = {} if tid is None else {"tid": tid}
        self.names.append({"ph": "M", "name": what, "pid": self.pid, **row, "args": args})

    def row(self, name: str) -> int:
        """Add a row; return its thread id."""
        self.rows += 1
        tid = self.pid * _ROWS + self.rows
        self._name("thread_name", tid, name=name)
        self._name("thread_sort_index", tid, sort_index=self.rows)
        return tid

    def spans(self, name: str, found: Iterable[Interval], category: str) -> list[Event]:
        """Return spans, in as many rows as they need."""
        events = []
        for number, lane in enumerate(pack_rows(found)):
            tid = self.row(f"{name} {number + 1}" if number else name)
            events += [self.span(tid, span, category) for span in lane]
        return events

    def span(self, tid: int, span: Interval, category: str) -> Event:
        begin, end = _micros(span.begin), _micros(span.end)
        head = {"ph": "X", "name": span.name, "cat": category, "pid": self.pid, "tid": tid}
        return {**head, "ts": begin, "dur": end - begin, "args": dict(span.values)}

    def instant(
        self, tid: int, name: str, when: float, told: Mapping[str, Any], *, scope: str = "t"
    ) -> Event:
        """Return something that took no time; `scope` is how far its line reaches."""
        head = {"ph": "i", "name": name, "s": scope, "pid": self.pid, "tid": tid}
        return {**head, "ts": _micros(when), "args": dict(told)}

    def count(self, name: str, unit: str, when: float, value: float) -> Event:
        """Return what a counter stood at; Perfetto calls it by name and unit."""
        ts = _micros(when)
        return {"ph": "C", "name": name, "pid": self.pid, "ts": ts, "args": {unit: value}}

    def counts(
        self, head: str, metrics: Sequence[Metric], found: object, when: float
    ) -> Iterator[Event]:
        """Yield the known values that have a counter in the catalogue."""
        for metric in metrics:
            value, scale = getattr(found, metric.key), metric.trace
            if scale is not None and value is not None:
                yield self.count(f"{head}{scale.title}", scale.unit, when, value / scale.size)


def pack_rows(spans: Iterable[Interval]) -> list[list[Interval]]:
    """Return intervals in rows in which each two lie apart or one inside the other."""
    rows: list[list[Interval]] = []
    opened: list[list[float]] = []  # for each row, when its intervals end that are not over
    for span in sorted(spans, key=lambda span: (span.begin, -span.end)):
        for ends in opened:
            while ends and ends[-1] <= span.begin:
                ends.pop()
        fits = [not ends or ends[-1] >= span.end for ends in opened]
        if True not in fits:
            rows.append([])
            opened.append([])
            fits.append(True)
        row = fits.index(True)
        rows[row].append(span)
        opened[row].append(span.end)
    return rows


def _micros(seconds: float) -> int:
    return max(0, round(seconds * 1_000_000))


def _labels(task: Task) -> str:
    limits = (f"{task.cpus:g} cores" if task.cpus else "", _size(task.memory))
    return ", ".join(word for word in (task.image, *limits) if word)


def _size(memory: int | None) -> str:
    return f"{memory / _MIB:.0f} MiB" if memory else ""


# --- The job ------------------------------------------------------------------------------------

_STAGES = {
    RunStarted: "prepare",
    Prepared: "start tasks",
    AllRunning: "train",
    JobEnded: "remove",
}
"""Event -> what begins with it, for the job."""


def _job(timeline: Timeline, names: list[Event]) -> Iterator[Event]:
    """Yield what concerns the job as a whole; faults are lines over all tasks."""
    process = _Process(JOB, "job", names)
    stage, marks = process.row("stage"), process.row("events")
    begun: dict[str, float] = {}
    for entry in timeline.history:
        begun.setdefault(_STAGES.get(type(entry), ""), entry.t)
    begun.pop("", None)
    for (name, since), (_, until) in pairwise([*begun.items(), ("", timeline.end)]):
        yield process.span(stage, Interval(name, since, max(since, until)), "job")
    for entry in timeline.history:
        if name := _mark(entry):
            scope = "g" if isinstance(entry, FaultEvent | JobEnded | EmulatorFailed) else "p"
            yield process.instant(marks, name, entry.t, fields_of(entry), scope=scope)


def _mark(entry: Entry) -> str:
    """Return the name of an event's mark; empty where it has none."""
    match entry:
        case FaultEvent(stage="triggered"):
            return f"{entry.kind} {entry.task or entry.target}"
        case FaultEvent(stage="skipped" | "failed"):
            return f"{entry.kind} {entry.task or entry.target} {entry.stage}"
        case JobEnded():
            return " ".join(filter(None, ("job", entry.task, entry.outcome)))
        case Stall() | Restart() | Attached() | EmulatorFailed() | SecondInterrupt():
            return " ".join(filter(None, (entry.event, entry.task)))
    return ""


def _job_gpus(samples: Sequence[Sample]) -> Iterator[Event]:
    process, numbers = _Process(JOB, "job", []), device_numbers(samples)
    for sample in samples:
        for gpu in sample.gpus:
            yield from process.counts(f"GPU {numbers[gpu.uuid]} ", GPU, gpu, sample.t)


def _rates(timeline: Timeline, duration: float) -> Iterator[Event]:
    """Yield the steps per second of the job and its tasks, from where each bin begins."""
    if not timeline.steps:
        return
    found = curve(timeline, duration)
    tasks = timeline.plan.tasks
    pids = {"job": JOB, **{task.name: JOB + 1 + n for n, task in enumerate(tasks)}}
    for name, rates in {"job": found.job, **found.tasks}.items():
        process = _Process(pids[name], name, [])
        if any(rates):  # a server makes none
            for number, rate in enumerate([*rates, 0.0]):
                when = found.begin + number * found.width
                yield process.count("throughput", "steps/s", when, rate)


# --- Tasks --------------------------------------------------------------------------------------


def _task(
    process: _Process,
    of_task: TaskTimeline,
    hits: Sequence[FaultResult],
    end: float,
    *,
    show_steps: bool,
) -> list[Event]:
    """Return a task's rows."""
    state = process.row("state")
    shown = [process.span(state, span, "state") for span in of_task.states(end)]
    strikes = [span for fault in hits if (span := _lasted(fault, end))]
    struck = process.spans("faults", strikes, "fault")
    told = process.spans("phases", of_task.phases(end), "phase")
    made = process.spans("steps", of_task.step_intervals() if show_steps else (), "step")
    exits = _exits(process, state, of_task)
    return [*shown, *struck, *told, *made, *exits, *_arrows(struck, shown, made)]


def _arrows(
    struck: Sequence[Event], states: Sequence[Event], steps: Sequence[Event]
) -> Iterator[Event]:
    """Yield arrows from faults to the recovery: to the task that runs again, else to its steps."""
    for number, fault in enumerate(struck):
        if "restored_after" not in fault["args"]:
            continue
        back = fault["ts"] + fault["dur"]
        again = [s for s in states if s["name"] == "running" and fault["ts"] < s["ts"] <= back]
        after = again[-1:] or [step for step in steps if step["ts"] >= back][:1]
        for landing in after:
            ids = {"name": "recovery", "cat": "fault", "id": fault["pid"] * _ROWS + number}
            yield {**ids, "ph": "s", **{key: fault[key] for key in ("pid", "tid", "ts")}}
            where = {key: landing[key] for key in ("pid", "tid", "ts")}
            yield {**ids, "ph": "f", "bp": "e", **where}


def _exits(process: _Process, tid: int, of_task: TaskTimeline) -> Iterator[Event]:
    for exit_ in of_task.exits:
        yield process.instant(tid, f"exit {exit_.exit_code}", exit_.t, fields_of(exit_))


def _lasted(fault: FaultResult, end: float) -> Interval | None:
    """Return from when until when a fault was at work; None where it was not."""
    if fault.triggered is None:
        return None
    told = {key: value for key, value in vars(fault).items() if value not in (None, "")}
    over = fault.restored_after if fault.restored_after is not None else fault.applied_after
    until = end if over is None else fault.triggered + over
    return Interval(f"{fault.kind} ({fault.status})", fault.triggered, until, told)


def _usage(process: _Process, samples: Sequence[Sample], of_task: TaskTimeline) -> Iterator[Event]:
    """Yield what a task used, from each sample on; nothing, once it has ended."""
    of_samples = [sample for sample in samples if process.name in sample.tasks]
    for sample, (_, now) in zip(of_samples, series(samples, process.name), strict=True):
        yield from process.counts("", RATES, now, sample.t)
    numbers = device_numbers(samples)
    for sample in samples:
        for gpu in sample.gpus:
            if share := gpu.tasks.get(process.name):
                yield from process.counts(f"GPU {numbers[gpu.uuid]} ", GPU_SHARE, share, sample.t)
    ends = [exit_.t for exit_ in of_task.exits if of_samples]
    shown = [metric.trace for metric in RATES if metric.trace]
    for when in ends:
        for scale in shown:
            yield process.count(scale.title, scale.unit, when, 0.0)
