"""A run as a Chrome trace, for Perfetto and chrome://tracing (pure).

The format is Google's "Trace Event Format". The job is the first process; each task is another one,
with rows for its states, faults, phases and steps, and with counters. Times are microseconds since
the run began. Intervals are complete events (`X`); those in one row are disjoint or nested, as the
format demands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from emulator.analysis.analyse import Analysis, FaultResult
from emulator.analysis.throughput import curve
from emulator.metrics.catalog import GPU, GPU_SHARE, RATES, Metric
from emulator.metrics.samples import Sample, device_numbers, series
from emulator.planning.plan import Task
from emulator.record.events import (
    AllRunning,
    Attached,
    BeforeTraining,
    EmulatorFailed,
    Entry,
    FaultEvent,
    JobEnded,
    Prepared,
    Restart,
    RunStarted,
    SecondInterrupt,
    Stall,
    TrainingBegan,
    fields_of,
)
from emulator.record.timeline import Interval, TaskTimeline, Timeline
from emulator.validation.units import format_size

Event = dict[str, Any]
"""One entry of `traceEvents`."""

MOST_STEPS = 20_000
"""With more step events than this, the trace has only their rate."""

JOB = 1
"""The process id of the job; tasks follow. Perfetto reserves 0."""

HEAD = '{"otherData": {"writer": "emulate export"'
"""The first characters of every trace that is written here."""

_ROWS = 1000
"""Thread ids that each process has for its rows."""


def as_json(events: Iterable[Event], about: Mapping[str, str]) -> str:
    """Return the text of the file, with one event a line."""
    head = {"otherData": {"writer": "emulate export", **about}, "displayTimeUnit": "ms"}
    lines = ",\n".join(map(_line, events))
    return f'{json.dumps(head)[:-1]},\n"traceEvents": [\n{lines}\n]}}\n'


def _line(event: Event) -> str:
    """Return an event as JSON; NaN and infinity become text, because JSON lacks them."""
    return json.dumps(json.loads(json.dumps(event), parse_constant=lambda name: str(float(name))))


def trace_events(timeline: Timeline, samples: Sequence[Sample], analysis: Analysis) -> list[Event]:
    """Return the events of a run, names first, then by time."""
    tasks = timeline.plan.tasks
    job = _Process(JOB, "job")
    of_task = {task.name: _Process(JOB + n, task.name, task) for n, task in enumerate(tasks, 1)}
    events = [
        *_job(job, timeline),
        *_gpus(job, of_task, samples),
        *_throughput({"job": job, **of_task}, timeline, analysis.duration),
    ]
    for name, process in of_task.items():
        faults = [
            result
            for fault, result in zip(timeline.faults.values(), analysis.faults, strict=True)
            if name in fault.planned.tasks
        ]
        events += _task(process, timeline, faults)
        events += _usage(process, samples, timeline.tasks[name])
    names = [event for process in (job, *of_task.values()) for event in process.names]
    return names + sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0)))


@dataclass
class _Process:
    """A process of the trace; `row` adds a named row."""

    pid: int
    name: str
    task: Task | None = None
    names: list[Event] = field(default_factory=list)
    """The events that name the process and its rows."""
    rows: int = 0

    def __post_init__(self) -> None:
        self._name("process_name", name=self.name)
        self._name("process_sort_index", sort_index=self.pid)
        if labels := _labels(self.task) if self.task else "":
            self._name("process_labels", labels=labels)

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

    def _event(self, kind: str, name: str, seconds: float, **fields: object) -> Event:
        return {"ph": kind, "name": name, "pid": self.pid, "ts": _micros(seconds), **fields}

    def intervals(self, name: str, intervals: Iterable[Interval], category: str) -> list[Event]:
        """Return intervals as events, in as many rows as they need."""
        events = []
        for number, row in enumerate(pack_rows(intervals)):
            tid = self.row(f"{name} {number + 1}" if number else name)
            events += [self.interval(tid, interval, category) for interval in row]
        return events

    def interval(self, tid: int, interval: Interval, category: str) -> Event:
        micros = _micros(interval.end) - _micros(interval.begin)
        values = {"tid": tid, "cat": category, "dur": micros, "args": dict(interval.values)}
        return self._event("X", interval.name, interval.begin, **values)

    def instant(
        self, tid: int, name: str, event: Entry, scope: Literal["g", "p", "t"] = "t"
    ) -> Event:
        """Return a mark; its line crosses the whole trace (g), the process (p) or the row (t)."""
        return self._event("i", name, event.t, tid=tid, s=scope, args=fields_of(event))

    def counter(self, name: str, unit: str, seconds: float, value: float) -> Event:
        """Return the value of a counter; Perfetto identifies it by name and unit."""
        return self._event("C", name, seconds, args={unit: value})

    def counters(
        self, head: str, metrics: Sequence[Metric], measured: object, seconds: float
    ) -> Iterator[Event]:
        """Yield the known values that have a counter in the catalogue."""
        for metric in metrics:
            value, scale = getattr(measured, metric.key), metric.trace
            if scale is not None and value is not None:
                yield self.counter(head + scale.title, scale.unit, seconds, value / scale.size)


def pack_rows(intervals: Iterable[Interval]) -> list[list[Interval]]:
    """Return intervals in rows in which any two are disjoint or nested."""
    rows: list[tuple[list[Interval], list[float]]] = []  # with the ends of those still open
    for interval in sorted(intervals, key=lambda interval: (interval.begin, -interval.end)):
        fitting = (one for one in rows if _fits(interval, one[1]))
        row, open_ends = next(fitting, None) or ([], [])
        if not row:
            rows.append((row, open_ends))
        row.append(interval)
        open_ends.append(interval.end)
    return [row for row, _ in rows]


def _fits(interval: Interval, open_ends: list[float]) -> bool:
    """Remove the ends before the interval; return whether it lies inside the last open one."""
    while open_ends and open_ends[-1] <= interval.begin:
        open_ends.pop()
    return not open_ends or open_ends[-1] >= interval.end


def _micros(seconds: float) -> int:
    return max(0, round(seconds * 1_000_000))


def _labels(task: Task) -> str:
    cores = f"{task.cpus:g} cores" if task.cpus else ""
    memory = format_size(task.memory) if task.memory else ""
    return ", ".join(filter(None, (task.image, cores, memory)))


# --- The job ------------------------------------------------------------------------------------

_STAGES = {
    RunStarted: "prepare",
    Prepared: "start tasks",
    BeforeTraining: "before training",
    TrainingBegan: "start training",
    AllRunning: "train",
    JobEnded: "remove",
}
"""Event -> the stage of the job that it begins."""


def _job(process: _Process, timeline: Timeline) -> Iterator[Event]:
    """Yield the stages of the job and its events; faults are lines across all tasks."""
    stages, marks = process.row("stage"), process.row("events")
    begins: dict[str, float] = {}
    for entry in timeline.history:
        if stage := _STAGES.get(type(entry)):
            begins.setdefault(stage, entry.t)
    for (stage, begin), (_, end) in pairwise([*begins.items(), ("", timeline.end)]):
        yield process.interval(stages, Interval(stage, begin, max(begin, end)), "job")
    for entry in timeline.history:
        if name := _mark(entry):
            everywhere = isinstance(entry, FaultEvent | JobEnded | EmulatorFailed)
            yield process.instant(marks, name, entry, "g" if everywhere else "p")


def _mark(entry: Entry) -> str:
    """Return the name of an event's mark; empty if it has none."""
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


def _gpus(
    job: _Process, tasks: Mapping[str, _Process], samples: Sequence[Sample]
) -> Iterator[Event]:
    """Yield counters of each GPU for the job, and of each task's share of it for the task."""
    numbers = device_numbers(samples)
    for sample in samples:
        for gpu in sample.gpus:
            head = f"GPU {numbers[gpu.uuid]} "
            yield from job.counters(head, GPU, gpu, sample.t)
            for name, share in gpu.tasks.items():
                if name not in tasks:
                    continue  # a helper
                yield from tasks[name].counters(head, GPU_SHARE, share, sample.t)


def _throughput(
    processes: Mapping[str, _Process], timeline: Timeline, duration: float
) -> Iterator[Event]:
    """Yield the steps per second of the job and of its tasks, at the begin of each bin."""
    if not timeline.steps:
        return
    rates = curve(timeline, duration)
    for name, bins in {"job": rates.job, **rates.tasks}.items():
        if any(bins):  # a parameter server reports no steps
            for number, rate in enumerate([*bins, 0.0]):
                seconds = rates.begin + number * rates.width
                yield processes[name].counter("throughput", "steps/s", seconds, rate)


# --- Tasks --------------------------------------------------------------------------------------


def _task(process: _Process, timeline: Timeline, results: Sequence[FaultResult]) -> list[Event]:
    """Return the rows of a task; `results` are those of its faults."""
    task, end = timeline.tasks[process.name], timeline.end
    row = process.row("state")
    states = [process.interval(row, state, "state") for state in task.states(end)]
    effects = [effect for result in results for effect in _effect(result, end)]
    faults = process.intervals("faults", effects, "fault")
    phases = process.intervals("phases", task.phases(end), "phase")
    few = len(timeline.steps) <= MOST_STEPS
    steps = process.intervals("steps", task.step_intervals() if few else (), "step")
    exits = [process.instant(row, f"exit {exit_.exit_code}", exit_) for exit_ in task.exits]
    return [*states, *faults, *phases, *steps, *exits, *_arrows(faults, states, steps)]


def _effect(result: FaultResult, end: float) -> Iterator[Interval]:
    """Yield the time from a fault's trigger until its target was restored, if it was triggered."""
    if result.triggered is not None:
        values = {key: value for key, value in vars(result).items() if value not in (None, "")}
        after = result.restored_after
        after = result.applied_after if after is None else after
        until = end if after is None else result.triggered + after
        yield Interval(f"{result.kind} ({result.status})", result.triggered, until, values)


def _arrows(
    faults: Sequence[Event], states: Sequence[Event], steps: Sequence[Event]
) -> Iterator[Event]:
    """Yield an arrow from each restored fault to the task's restart, else to its next step."""
    for number, fault in enumerate(faults):
        if "restored_after" not in fault["args"]:
            continue
        restored = fault["ts"] + fault["dur"]
        running = [state for state in states if state["name"] == "running"]
        restarts = [state for state in running if fault["ts"] < state["ts"] <= restored]
        later = [step for step in steps if step["ts"] >= restored]
        for recovery in restarts[-1:] or later[:1]:
            arrow = {"name": "recovery", "cat": "fault", "id": fault["pid"] * _ROWS + number}
            yield {**arrow, "ph": "s", **{key: fault[key] for key in ("pid", "tid", "ts")}}
            end = {key: recovery[key] for key in ("pid", "tid", "ts")}
            yield {**arrow, "ph": "f", "bp": "e", **end}


def _usage(process: _Process, samples: Sequence[Sample], task: TaskTimeline) -> Iterator[Event]:
    """Yield what a task uses, at each sample, and zeros at its exits."""
    usage = series(samples, process.name)
    for seconds, rates in usage:
        yield from process.counters("", RATES, rates, seconds)
    for exit_ in task.exits if usage else ():
        for scale in (metric.trace for metric in RATES if metric.trace):
            yield process.counter(scale.title, scale.unit, exit_.t, 0.0)
