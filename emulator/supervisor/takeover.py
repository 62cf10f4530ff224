"""Taking over a run whose supervisor was killed: its state, recovered from the record (pure).

The kill may fall between any two effects. What was written and not done is done again, what was
done and not written is reported again by the engine, and what can't be known is asked of the
engine. `recover` returns a state from which a new `Supervisor` continues.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, cast

from emulator.analysis.steps_made import steps_of_job
from emulator.engines.base import Exited, ResumePoint
from emulator.metrics.event_steps import EventSteps, Reported, unwritten
from emulator.record import task_log
from emulator.record.events import Entry, HelperEvent, JobEnded, SlowPattern, StepSource, TaskExit
from emulator.record.reader import Record
from emulator.record.timeline import FaultTimeline, Timeline
from emulator.supervisor.fault_stages import ActiveFault, Stage
from emulator.supervisor.job import JobEnd, State, TaskState, pending, pending_helpers

if TYPE_CHECKING:
    from emulator.metrics.steps import Observation, Seen
    from emulator.planning.plan import Plan, Task
    from emulator.record.task_log import Printed
    from emulator.record.writer import RunWriter


@dataclass
class RecoveredState:
    """The state of a run at the end of its history."""

    timeline: Timeline
    tasks: dict[str, TaskState]
    helpers: dict[str, TaskState]
    end: JobEnd | None = None
    last_exit: Exited | None = None
    """Its consequences may not have been decided."""
    faults: Sequence[ActiveFault] = ()
    known: dict[str, ResumePoint] = field(default_factory=dict)
    """The output of each task and helper as far as it is in the logs."""
    unwritten: dict[str, Sequence[Observation]] = field(default_factory=dict)
    """Steps that are in the logs and not in the history: see `Coalescer` in `record/writer.py`."""

    unwritten_sources: dict[str, Sequence[Seen]] = field(default_factory=dict)
    """From what these steps were read, as far as that is not in the history either."""
    event_steps: EventSteps = field(default_factory=EventSteps)
    """It has read what the helper that reads event files had printed."""
    unwritten_events: Sequence[Reported] = ()
    """Its steps that are not in the history."""

    def may_start(self, task: str) -> bool:
        """Return whether a task has no others to wait for: those before training."""
        before = self.timeline.plan.before_training
        began = not before or self.timeline.training_began is not None
        return began or self.tasks[task].task.before is not None

    def undecided(self) -> Exited | None:
        """Return the last exit, if what follows from it may not have been decided."""
        last = self.last_exit
        if last is None or self.timeline.restarting or self.end is not None:
            return None
        return last if self.tasks[last.task].state == "ended" else None

    def was_evicted(self, task: str) -> bool:
        """Return whether a fault ended a task that it might have started again.

        It takes effect with the exit, and is written just before it.
        """
        n = self.timeline.tasks[task].exits[-1].n
        applied = (
            fault.stages.get("applied")
            for fault in self.timeline.faults.values()
            if fault.planned.spec.restarts_target
        )
        return any(
            entry is not None and (entry.task, entry.n) == (task, n - 1) for entry in applied
        )

    @property
    def slow_patterns(self) -> list[str]:
        """The regular expressions that are not used any more."""
        return [one.pattern for one in self.timeline.left_out if isinstance(one, SlowPattern)]

    @property
    def job_restarts(self) -> int:
        """The restarts of the whole job."""
        return max((one.number for one in self.timeline.restarts if one.scope == "job"), default=0)


def recover_run(plan: Plan, record: RunWriter, began: float) -> RecoveredState:
    """Return the state of the run in a folder; `began` is the clock's time of its beginning."""
    recovered = recover(plan, Record(record.path).history)
    timeline = recovered.timeline
    recovered.faults = [_fault(fault, timeline, began) for fault in timeline.faults.values()]
    for name, state in recovered.tasks.items():
        printed = record.printed(name)
        since = math.inf
        if state.state == "running":
            since = 0.0
            log = task_log.printed(record.path / "logs" / f"{name}.log")
            own = [line for line in log if not _is_of_init(state.task, line.text)]
            noted = _noted_sources(state, timeline)
            recovered.unwritten[name] = _read_again(state, own)
            recovered.unwritten_sources[name] = [
                seen for seen in state.reader.take_news() if seen.words not in noted
            ]
        elif state.state == "starting" and (start := timeline.tasks[name].incarnations[-1].start):
            since = start.wall
        recovered.known[name] = ResumePoint(printed, since)
    for name, helper in recovered.helpers.items():
        printed, since = record.printed(name), math.inf
        if helper.state == "running":
            since = 0.0
        elif helper.state == "starting":
            since = timeline.helpers[name].wall
        recovered.known[name] = ResumePoint(printed, since)
    if beside := plan.scenario.metrics.helper:
        recovered.unwritten_events = _read_events_again(recovered, record.printed(beside))
    return recovered


def first_starts(timeline: Timeline) -> dict[str, float]:
    """Return when each task was first started (seconds since 1970)."""
    begun = {name: task.incarnations[:1] for name, task in timeline.tasks.items()}
    return {
        name: one.start.wall
        for name, first in begun.items()
        for one in first
        if one.start is not None
    }


def init_line(step: str, text: str) -> tuple[str, str]:
    """Return the task of an init step, and the line of its log for what the step printed (pure)."""
    task, _, name = step.partition(".")
    return task, f"[{name}] {text}"


def _is_of_init(task: Task, line: str) -> bool:
    """Say whether a line of a task's log may be of an init step."""
    return any(line.startswith(init_line(step.name, "")[1]) for step in task.init)


def recover(plan: Plan, history: Sequence[Entry]) -> RecoveredState:
    """Return the state of tasks and job at the end of a history in the order of writing."""
    timeline = Timeline(plan, history)
    recovered = RecoveredState(timeline, pending(plan), pending_helpers(plan))
    for slow in recovered.slow_patterns:
        for state in recovered.tasks.values():
            state.reader.do_without(slow)
    for name, event in timeline.helpers.items():
        _restore_helper(recovered.helpers[name], event)
    for state in recovered.tasks.values():
        _restore(state, timeline)
    for entry in history:
        if isinstance(entry, JobEnded):
            recovered.end = JobEnd(entry.outcome, entry.reason, entry.task, entry.cause or "")
        elif isinstance(entry, TaskExit):
            recovered.last_exit = Exited(
                entry.task, entry.wall, entry.exit_code, entry.oom_killed, entry.reason or ""
            )
    return recovered


Resumption = Literal["follow", "lost", "started", "start", "wait", "down", "ended"]


def resumption(name: str, recovered: RecoveredState, started: Mapping[str, str]) -> Resumption:
    """Return what to do with a task or helper; `started`: what the engine has started, with ids.

    follow: nothing; lost: it ran and is gone; started: its start had not been written; start it;
    wait: for the tasks before training; down: a fault starts it again; ended: it does not start, or
    only with all others.
    """
    state = {**recovered.tasks, **recovered.helpers}[name].state
    if state in ("ended", "down"):
        return "follow"
    if state == "running":
        return "follow" if name in started else "lost"
    if state == "starting" and name in started:
        return "started"
    if recovered.end:
        return "ended"
    if name in recovered.helpers:
        return "start"
    if recovered.timeline.tasks[name].is_being_replaced:
        return "down"
    if state == "pending" and not recovered.may_start(name):
        return "wait"
    return "ended" if recovered.timeline.restarting else "start"


def _restore(state: TaskState, timeline: Timeline) -> None:
    """Set the state of a task that has begun."""
    task = timeline.tasks[state.task.name]
    state.state = _state_of(task.name, timeline)
    state.stop_sent = task.last.stop.wall if task.last and task.last.stop else None
    state.starts = [one.start.wall for one in task.incarnations if one.start is not None]
    state.step = steps[-1].step if (steps := task.steps) else None
    state.exit_code = task.exits[-1].exit_code if task.exits else None
    own = (one for one in timeline.restarts if (one.scope, one.task) == ("task", task.name))
    state.restarts = max((one.number for one in own), default=0)


def _restore_helper(state: TaskState, last: HelperEvent) -> None:
    """Set the state of a helper that has begun, from its last event."""
    state.exit_code = last.exit_code
    state.stop_sent = last.wall if last.stage == "stopping" else None
    match last.state:
        case "starting" | "running" as now:
            state.state = now
        case _:
            state.state = "ended"


def _state_of(name: str, timeline: Timeline) -> State:
    task = timeline.tasks[name]
    match task.state:
        case "succeeded" | "failed" | "stopped":
            # In a restart of the whole job, the tasks that have ended wait from its first start on.
            waits = task.exits[-1].n < _first_of_job_restart(timeline)
            before = timeline.plan.before_training
            began = not before or timeline.training_began is not None
            is_part = (timeline.plan.task(name).before is None) == began
            return "backoff" if waits and is_part else "ended"
        case state:
            return state


def _first_of_job_restart(timeline: Timeline) -> int:
    """Return the number of the first start in the latest restart of the whole job; -1: none."""
    decided = [one.n for one in timeline.restarts if one.scope == "job"]
    starts = (
        one.start.n
        for task in timeline.tasks.values()
        for one in task.incarnations
        if one.start is not None and not one.replacement
    )
    return min((n for n in starts if decided and n > decided[-1]), default=-1)


def _fault(fault: FaultTimeline, timeline: Timeline, began: float) -> ActiveFault:
    """Return a fault as the killed supervisor knew it; the run began at the time `began`."""
    spec, target = fault.planned.spec, timeline.tasks.get(fault.planned.target)
    triggered, applied = fault.stages.get("triggered"), fault.stages.get("applied")
    announced = fault.stages.get("announced")
    one = ActiveFault(
        fault.planned,
        _stage(fault, timeline),
        announced_at=math.inf if announced is None else began + announced.t,
        triggered_at=began + (fault.triggered or 0.0),
        asked_at=None if triggered is None else triggered.wall,
        found=None if fault.found is None else fault.found.changed,
    )
    if applied is None:
        return one
    lives = [] if target is None or spec.lasting else target.incarnations
    runs = [each.running for each in lives]
    healed = fault.stages.get("healed")
    restored = [each.n for each in (*runs, healed) if each is not None and each.n > applied.n]
    recovered_at = math.inf
    if restored:
        first = target.steps[0].n if target is not None and target.steps else math.inf
        recovered = (
            step.t
            for step in steps_of_job(timeline.history, timeline.plan.evaluators)
            if step.n > min(restored)
            and one.is_recovered_by(step.task, target_steps=first <= step.n)
        )
        recovered_at = began + next(recovered, math.inf)
    exited = target is not None and any(each.fault == fault.id for each in target.exits)
    if one.stage == "down" and not exited and not restored:
        one = replace(one, stage="terminating")  # the engine will report the exit again
    return replace(
        one,
        applied_at=began + applied.t,
        restored=bool(restored),
        recovered_at=recovered_at,
    )


def _stage(fault: FaultTimeline, timeline: Timeline) -> Stage:
    spec = fault.planned.spec
    match fault.stage:
        case "waiting" | "preparing":  # what the engine was making has to be made again
            is_planned = any(planned.id == fault.id for planned in timeline.plan.faults)
            return "planned" if is_planned else "waiting"
        case "announced":
            return "announced"
        case "triggered":
            return "terminating" if spec.ends_target else "active"
        case "applied" if spec.ends_target:
            return "down" if spec.restarts_target else "over"
        case "applied" if spec.is_healed:
            return "active"
        case _:
            return "over"


def _read_events_again(recovered: RecoveredState, printed: Sequence[str]) -> list[Reported]:
    """Read again what the helper with the steps printed; return those that were not written."""
    starts = {name: state.starts for name, state in recovered.tasks.items()}
    found: dict[str, list[Reported]] = {}
    for line in printed:
        if one := recovered.event_steps.read(line, starts):
            found.setdefault(one.task, []).append(one)
    last = {step.task: (step.step, step.wall) for _, step in recovered.timeline.steps}
    late = [one for task, all_ in found.items() for one in unwritten(all_, last.get(task))]
    for one in late:
        recovered.tasks[one.task].step = cast("int", one.seen.data["step"])
    return sorted(late, key=lambda one: one.wall)


def _noted_sources(state: TaskState, timeline: Timeline) -> set[str]:
    """Return what counts in a task's output by the history; what has the steps counts at once."""
    noted = [
        entry
        for entry in timeline.history
        if isinstance(entry, StepSource) and entry.task == state.task.name
    ]
    if counted := [entry.source for entry in noted if entry.counts]:
        state.reader.continue_with(counted[-1])
    return {entry.source for entry in noted}


def _read_again(state: TaskState, printed: Sequence[Printed]) -> Sequence[Observation]:
    """Read a running task's output again; return the steps in it that were not written.

    The last written step may have been read from a line that was not finished: then the line is in
    the log with more steps, or not at all yet.
    """
    steps: list[Observation] = []
    written: int | None = None
    later = state.starts[1:]
    for line in printed:
        while later and line.wall >= later[0]:
            state.reader = state.reader.again()
            later = later[1:]
        drawn = state.reader.steps_drawn(line.text)
        read = state.reader.read(line.text, line.wall)
        for seen in read:
            if seen.event != "step":
                continue
            steps.append(seen)
            if seen.data["step"] == state.step:
                written = len(steps)
        if state.step in drawn and written != len(steps):
            later_ones = [seen for seen in read if cast("int", seen.data["step"]) > state.step]
            written = len(steps) - len(later_ones)
    if state.step is None:  # what is read was held back, or nothing is written of it
        written = 0
    if steps and written is not None:
        state.step = cast("int", steps[-1].data["step"])
    return steps[written:] if written is not None else []
