"""The one replay of a history: what every task, every fault and the job did over time (pure).

`Timeline(plan, record.in_time_order)` is the whole run; the analysis, the reports and the exports
query it. The live view feeds an empty one event by event with `add`, and leaves out steps and
phases, so that nothing grows with them.

Times are seconds since the run began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Literal

from emulator.faults.kinds import states as states_under_faults
from emulator.faults.schedule import PlannedFault, from_json
from emulator.record.events import (
    AllRunning,
    BeforeTraining,
    EmulatorFailed,
    Entry,
    FaultEvent,
    FaultStage,
    HelperEvent,
    JobEnded,
    LogCut,
    OutputLeftOut,
    Phase,
    PortPublished,
    Prepared,
    Restart,
    SlowPattern,
    Step,
    StepSource,
    StopSignal,
    TaskExit,
    TaskRunning,
    TaskStart,
    TrainingBegan,
    fields_of,
)

if TYPE_CHECKING:
    from emulator.planning.plan import Plan

TaskStatus = Literal[
    "pending", "starting", "running", "backoff", "down", "succeeded", "failed", "stopped"
]


def all_states() -> tuple[str, ...]:
    """Return every state of a task in `Timeline.states`, in the order in which they are listed."""
    return ("starting", "running", *states_under_faults(), "backoff", "down")


@dataclass(frozen=True)
class Interval:
    """A task was in one state or phase, or made steps, from `begin` until `end`."""

    name: str
    begin: float
    end: float
    values: Mapping[str, Any] = field(default_factory=dict)
    """Further details."""
    task: str = ""
    count: int = 1
    """How many intervals it stands for, if a chart merged neighbours."""


@dataclass
class Incarnation:
    """One process of a task: from the start that the engine was asked for until the next one."""

    begin: float
    start: TaskStart | None = None
    running: TaskRunning | None = None
    exit: TaskExit | None = None
    restart: Restart | None = None
    """By the policy, decided after the exit; of the task, or for it of the whole job."""
    reports: list[Step | Phase] = field(default_factory=list)
    """The steps and phases that it reported, in order."""
    late: list[Step] = field(default_factory=list)
    """The steps that were reported after its exit."""
    replacement: bool = False
    """A fault that had ended the one before started it."""
    stop: StopSignal | None = None
    """The last signal of the supervisor that asked it to end."""

    @property
    def steps(self) -> list[Step]:
        """The steps that it reported, in order."""
        return [report for report in self.reports if isinstance(report, Step)]


@dataclass
class TaskTimeline:
    """One task over time."""

    name: str
    incarnations: list[Incarnation] = field(default_factory=list)
    restarts: int = 0
    """By the policy, with those of the whole job."""
    sources: list[StepSource] = field(default_factory=list)
    """What had its steps, one after the other; none: what is as certain as can be."""

    @property
    def last(self) -> Incarnation | None:
        """The latest incarnation; None before the first start."""
        return self.incarnations[-1] if self.incarnations else None

    @property
    def state(self) -> TaskStatus:
        """The state after the last event; `down` is after a fault that brings the task back."""
        last = self.last
        if last is None:
            return "pending"
        if last.exit is None:
            return "running" if last.running else "starting" if last.start else "pending"
        if last.restart is not None and last.restart.scope == "task":
            return "backoff"
        return last.exit.state

    @property
    def is_being_replaced(self) -> bool:
        """Whether a fault has started it again, and it has not run since."""
        return self.last is not None and self.last.replacement and self.last.running is None

    @property
    def exits(self) -> list[TaskExit]:
        """Every exit, in order."""
        return [one.exit for one in self.incarnations if one.exit is not None]

    @property
    def final_exit(self) -> TaskExit | None:
        """The exit after which neither a start followed nor a fault starts it again."""
        last = None if self.last is None else self.last.exit
        return None if last is None or last.fault else last

    @property
    def steps(self) -> list[Step]:
        """Every step that it reported, in order."""
        return [step for one in self.incarnations for step in one.steps]

    def states(self, end: float) -> Iterator[Interval]:
        """Yield its states: starting, running, down, backoff; none after the last exit.

        `down` is the time after a fault that brings the task back, `backoff` any other time between
        an exit and a start. What has not ended ends at `end`.
        """
        for one, until in self._until(end):
            stop = until if one.exit is None else one.exit.t
            ended = {} if one.exit is None else fields_of(one.exit)
            running = stop if one.running is None else one.running.t
            if one.start is not None:
                yield self._interval(
                    "starting", one.begin, running, {} if one.running is not None else ended
                )
            if one.running is not None:
                values = {**fields_of(one.running), **ended}
                yield self._interval("running", running, stop, values)
            if one.exit is not None and one.exit.fault:
                yield self._interval("down", stop, until)
            elif one.exit is not None and (one is not self.incarnations[-1] or one.restart):
                yield self._interval("backoff", stop, until)

    def phases(self, end: float) -> Iterator[Interval]:
        """Yield its phases, each incarnation's in the order in which they ended.

        Those that an exit or the `end` cut off come last and have the value `cut off`.
        """
        for one, until in self._until(end):
            begun: dict[str, float] = {}
            for report in one.reports:
                if isinstance(report, Step):
                    continue
                if report.state == "begin":
                    begun[report.phase] = report.t
                elif report.phase in begun:
                    since = begun.pop(report.phase)
                    yield self._interval(report.phase, since, report.t, report.values)
            stop = until if one.exit is None else one.exit.t
            for name, since in begun.items():
                yield self._interval(name, since, stop, {"cut off": True})

    def step_intervals(self) -> Iterator[Interval]:
        """Yield the time between each two step events of one incarnation."""
        for one in self.incarnations:
            for before, step in pairwise(one.steps):
                yield self._interval(f"steps to {step.step}", before.t, step.t, fields_of(step))

    def _interval(
        self, name: str, begin: float, end: float, values: Mapping[str, Any] | None = None
    ) -> Interval:
        return Interval(name, begin, max(begin, end), values or {}, self.name)

    def _until(self, end: float) -> Iterator[tuple[Incarnation, float]]:
        """Yield each incarnation with the time of the next one's start."""
        for one, after in zip_longest(self.incarnations, self.incarnations[1:]):
            yield one, end if after is None else after.begin

    def add(self, entry: Entry) -> None:
        """Take an event of this task."""
        last = self.last
        begins_anew = isinstance(entry, TaskStart) or (
            isinstance(entry, TaskRunning) and (last is None or bool(last.running or last.exit))
        )
        if last is None or begins_anew:
            replacement = self.state == "down" or self.is_being_replaced
            last = Incarnation(entry.t, replacement=replacement)
            self.incarnations.append(last)
        match entry:
            case TaskStart():
                last.start = entry
            case TaskRunning():
                last.running = entry
            case TaskExit():
                last.exit = entry
            case StopSignal():
                last.stop = entry
            case Step() | Phase():
                last.reports.append(entry)
                if last.exit is not None and isinstance(entry, Step):
                    last.late.append(entry)


@dataclass
class FaultTimeline:
    """One fault over time, planned or manual."""

    planned: PlannedFault
    stages: dict[FaultStage, FaultEvent] = field(default_factory=dict)
    """The event with which it reached each stage, with the evidence."""
    reapplied: list[FaultEvent] = field(default_factory=list)
    """Each time that its target had started again, and was held again."""
    found: FaultEvent | None = None
    """What it was about to change."""

    @property
    def id(self) -> str:
        """As in the plan."""
        return self.planned.id

    @property
    def kind(self) -> str:
        """preempt, pause, ..."""
        return self.planned.kind

    @property
    def last(self) -> FaultEvent | None:
        """Its latest event."""
        return next(reversed(self.stages.values()), None)

    @property
    def stage(self) -> str:
        """waiting, preparing, announced, triggered, applied, healed, skipped, failed."""
        return "waiting" if self.last is None else self.last.stage

    @property
    def since(self) -> float | None:
        """When it reached this stage."""
        return None if self.last is None else self.last.t

    @property
    def reason(self) -> str:
        """Why it was skipped or failed, or what it waits for."""
        return "" if self.last is None else self.last.reason or ""

    @property
    def triggered(self) -> float | None:
        """When it was triggered."""
        event = self.stages.get("triggered")
        return None if event is None else event.t

    @property
    def in_force(self) -> bool:
        """Whether it has been triggered and is not over yet."""
        return self.stage == "triggered" or (
            self.stage == "applied" and self.planned.spec.is_healed
        )

    @property
    def has_held(self) -> bool:
        """Whether it was a state of its target's processes for some time."""
        return "applied" in self.stages and self.planned.spec.is_held

    @property
    def outcome(self) -> FaultEvent | None:
        """The event with its result: it failed, was skipped, or was applied."""
        stages = self.stages
        return stages.get("failed") or stages.get("skipped") or stages.get("applied")

    @property
    def over(self) -> FaultEvent | None:
        """The event with which a lasting fault ended: it was healed, or could not be held."""
        return self.stages.get("healed") or self.stages.get("failed")

    def impairment(self, running: Interval) -> Interval | None:
        """Return when it impaired a task in a time in which that ran; None: it did not.

        A held fault has to be applied again to what replaces its target's processes.
        """
        applied, over = self.stages.get("applied"), self.over
        if applied is None or applied.exit_code is not None:
            return None
        if running.task not in self.planned.tasks:
            return None
        since = applied.t
        if self.planned.spec.is_held and since < running.begin:
            again = (one.t for one in self.reapplied if one.t >= running.begin)
            since = next(again, running.end)
        begin = max(since, running.begin)
        end = running.end if over is None else min(over.t, running.end)
        if begin >= end:
            return None
        return Interval(self.planned.spec.state, begin, end, task=running.task)

    def add(self, entry: FaultEvent) -> None:
        """Take an event of this fault."""
        if entry.stage == "reapplied":
            self.reapplied.append(entry)
            return
        if entry.stage == "found":
            self.found = entry
            return
        self.stages.pop(entry.stage, None)
        self.stages[entry.stage] = entry


class Timeline:
    """A run over time."""

    def __init__(self, plan: Plan, history: Sequence[Entry] = ()) -> None:
        self.plan = plan
        self.history = history
        """The events that it was made from; empty if they are added one by one."""
        self.tasks = {task.name: TaskTimeline(task.name) for task in plan.tasks}
        self._before_training = {task.name for task in plan.before_training}
        self.faults = {fault.id: FaultTimeline(fault) for fault in plan.faults}
        """By id, in the order of the plan; manual ones after them."""
        self.helpers: dict[str, HelperEvent] = {}
        """The latest event of each helper that has begun, by name."""
        self.left_out: list[OutputLeftOut | LogCut | SlowPattern] = []
        """What was not read, or not kept, of the output of tasks."""
        self.ports: dict[tuple[str, int], str] = {}
        """Where the ports of tasks and helpers are, by name and number."""
        self.steps: list[tuple[Incarnation, Step]] = []
        """Every step of every task, in order, with the incarnation that reported it."""
        self.prepared: float | None = None
        self.all_running: float | None = None
        """When the network was there, and all tasks of the training ran for the first time."""
        self.before_training: float | None = None
        self.training_began: float | None = None
        """When all tasks before training ran, and when they had succeeded; None if there are
        none."""
        self.restarts: list[Restart] = []
        self.ended: float | None = None
        """When the outcome was settled."""
        self.outcome: str | None = None
        """succeeded, failed, timeout, interrupted, error."""
        self.reason = ""
        self.ended_by = ""
        """The task that settled the outcome; empty if none did."""
        self.restarting = False
        """All tasks are being stopped, or wait, to be started again together."""
        for entry in history:
            self.add(entry)

    @property
    def end(self) -> float:
        """When the last event happened: the whole run is between 0 and this time."""
        return max((entry.t for entry in self.history), default=0.0)

    @property
    def duration(self) -> float:
        """Until the outcome was settled, or the last event if it never was."""
        return self.end if self.ended is None else self.ended

    def add(self, entry: Entry) -> None:
        """Take the next event."""
        match entry:
            case FaultEvent(plan=None):
                if fault := self.faults.get(entry.id):
                    fault.add(entry)
            case FaultEvent(plan=plan):
                self.faults[entry.id] = FaultTimeline(from_json(plan))
            case Restart():
                self._restart(entry)
            case Prepared():
                self.prepared = entry.t
            case BeforeTraining():
                self.before_training = entry.t
            case TrainingBegan():
                self.training_began = entry.t
            case AllRunning():
                self.all_running = entry.t
            case JobEnded():
                self.ended = entry.t
                self.outcome, self.reason = entry.outcome, entry.reason
                self.ended_by = entry.task
            case EmulatorFailed():
                self.outcome, self.reason = "error", entry.message
            case TaskStart() | TaskRunning() | TaskExit() | StopSignal() | Step() | Phase():
                if (task := self.tasks.get(entry.task)) is None:
                    task = self.tasks[entry.task] = TaskTimeline(entry.task)
                task.add(entry)
                if isinstance(entry, TaskStart) and not task.is_being_replaced:
                    self.restarting = False
                elif isinstance(entry, Step):
                    self.steps.append((task.incarnations[-1], entry))
            case StepSource(counts=True) if entry.task in self.tasks:
                self.tasks[entry.task].sources.append(entry)
            case HelperEvent():
                self.helpers[entry.task] = entry
            case OutputLeftOut() | LogCut() | SlowPattern():
                self.left_out.append(entry)
            case PortPublished():
                self.ports[entry.task, entry.port] = entry.address
            case _:
                pass  # an event of the emulator itself

    def _restart(self, entry: Restart) -> None:
        self.restarts.append(entry)
        if entry.scope == "job":
            self.restarting = True
            for each in self.tasks.values():
                each.restarts += each.name not in self._before_training
        if task := self.tasks.get(entry.task):
            task.restarts += entry.scope == "task"
            if task.last is not None:
                task.last.restart = entry

    def states(self, until: float | None = None) -> list[Interval]:
        """Return the STATES of every task, each task's in order and without overlap.

        Before its first start and after its final exit a task is in none. The run ends at `until`;
        None: with its last event.
        """
        intervals: list[Interval] = []
        end = self.end if until is None else until
        for task in self.tasks.values():
            for state in task.states(end):
                if state.name == "running":
                    intervals += _split(state, self._impairments(state))
                else:
                    intervals.append(state)
        return [interval for interval in intervals if interval.begin < interval.end]

    def _impairments(self, running: Interval) -> list[Interval]:
        """Return what impaired a task in a time in which it ran."""
        found = (fault.impairment(running) for fault in self.faults.values())
        return [one for one in found if one is not None]

    def phases(self) -> list[Interval]:
        """Return the phases of every task; one that never ended lasts as long as its process."""
        return [one for task in self.tasks.values() for one in task.phases(self.end)]


def _split(whole: Interval, upper: Iterable[Interval]) -> Iterator[Interval]:
    """Yield an interval with others on top of it; if two of them overlap, the first counts."""
    since = whole.begin
    for one in sorted(upper, key=lambda one: one.begin):
        begin, end = max(one.begin, since), min(one.end, whole.end)
        if begin < end:
            yield replace(whole, begin=since, end=begin)
            yield replace(one, begin=begin, end=end)
            since = end
    yield replace(whole, begin=since)
