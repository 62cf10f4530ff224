"""Taking over a run whose supervisor was killed: its state, recovered from the record (pure).

The kill may fall between any two effects. What was written and not done is done again, what was
done and not written is reported again by the engine, and what can't be known is asked of the
engine. `recover` returns a state from which a new `Supervisor` continues.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from emulator.engines.base import Exited, KnownOutput
from emulator.metrics.steps import Observation
from emulator.planning.plan import Plan
from emulator.record.events import Entry, JobEnded, TaskExit
from emulator.record.reader import Record
from emulator.record.timeline import FaultTimeline, Timeline
from emulator.record.writer import RunWriter
from emulator.supervisor.injector import ActiveFault
from emulator.supervisor.job import JobEnd, Outcome, State, TaskState, pending


@dataclass
class RecoveredState:
    """The state of a run at the end of its history."""

    timeline: Timeline
    tasks: dict[str, TaskState]
    end: JobEnd | None = None
    last_exit: Exited | None = None
    """Its consequences may not have been decided."""
    faults: Sequence[ActiveFault] = ()
    known: dict[str, KnownOutput] = field(default_factory=dict)
    """The output of each task as far as it is in the logs."""
    unwritten: dict[str, Sequence[Observation]] = field(default_factory=dict)
    """Steps that are in the logs and not in the history: see `emulator/record/coalesce.py`."""

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
            recovered.unwritten[name] = _read_again(state, printed)
        elif state.state == "starting" and (start := timeline.tasks[name].incarnations[-1].start):
            since = start.wall
        recovered.known[name] = KnownOutput(printed, since)
    return recovered


def recover(plan: Plan, history: Sequence[Entry]) -> RecoveredState:
    """Return the state of tasks and job at the end of a history in the order of writing."""
    timeline = Timeline(plan, history)
    recovered = RecoveredState(timeline, pending(plan))
    for state in recovered.tasks.values():
        _restore(state, timeline)
    for entry in history:
        if isinstance(entry, JobEnded):
            recovered.end = JobEnd(cast("Outcome", entry.outcome), entry.reason, entry.task)
        elif isinstance(entry, TaskExit):
            recovered.last_exit = Exited(entry.task, entry.wall, entry.exit_code, entry.oom_killed)
    return recovered


Resumption = Literal["follow", "lost", "started", "start", "down", "ended"]


def resumption(name: str, recovered: RecoveredState, started: Mapping[str, str]) -> Resumption:
    """Return what to do with a task; `started` has the starts that the engine made, with their ids.

    follow: nothing; lost: it ran and is gone; started: its start had not been written; start it;
    down: a fault starts it again; ended: it does not start, or only with all others.
    """
    state = recovered.tasks[name].state
    if state in ("ended", "down"):
        return "follow"
    if state == "running":
        return "follow" if name in started else "lost"
    if state == "starting" and name in started:
        return "started"
    if recovered.end:
        return "ended"
    if recovered.timeline.tasks[name].is_being_replaced:
        return "down"
    return "ended" if recovered.timeline.restarting else "start"


def _restore(state: TaskState, timeline: Timeline) -> None:
    """Set the state of a task that has begun."""
    task = timeline.tasks[state.task.name]
    state.state = _state_of(task.name, timeline)
    state.stop_sent = task.last is not None and task.last.stop is not None
    state.step = steps[-1].step if (steps := task.steps) else None
    state.exit_code = task.exits[-1].exit_code if task.exits else None
    own = (one for one in timeline.restarts if (one.scope, one.task) == ("task", task.name))
    state.restarts = max((one.number for one in own), default=0)


def _state_of(name: str, timeline: Timeline) -> State:
    task = timeline.tasks[name]
    match task.state:
        case "succeeded" | "failed" | "stopped":
            # In a restart of the whole job, the tasks that have ended wait from its first start on.
            return "backoff" if task.exits[-1].n < _first_of_job_restart(timeline) else "ended"
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
    one = ActiveFault(fault.planned)
    spec, target = fault.planned.spec, timeline.tasks.get(fault.planned.target)
    one.triggered_at = began + (fault.triggered or 0.0)
    match fault.stage:
        case "waiting" | "preparing":  # what the engine was making has to be made again
            is_planned = any(planned.id == fault.id for planned in timeline.plan.faults)
            one.stage = "planned" if is_planned else "waiting"
        case "triggered":
            one.stage = "terminating" if spec.ends_target else "active"
        case "applied" if spec.ends_target:
            one.stage = "down" if spec.restarts_target else "over"
        case "applied":
            one.stage = "active"
        case _:
            one.stage = "over"
    if (applied := fault.stages.get("applied")) is None:
        return one
    one.applied_at = began + applied.t
    runs = [] if target is None else [each.running for each in target.incarnations]
    healed = fault.stages.get("healed")
    restored = [each.n for each in (*runs, healed) if each is not None and each.n > applied.n]
    if restored:
        one.restored = True
        first = target.steps[0].n if target is not None and target.steps else math.inf
        recovered = (
            step.t
            for _, step in timeline.steps
            if step.n > min(restored)
            and one.is_recovered_by(step.task, target_steps=first <= step.n)
        )
        one.recovered_at = began + next(recovered, math.inf)
    one.exited = target is not None and any(each.fault == fault.id for each in target.exits)
    return one


def _read_again(state: TaskState, printed: Sequence[str]) -> Sequence[Observation]:
    """Read a running task's output again; return the steps in it that were not written."""
    state.last_words.extend(printed)
    observations = [state.reader.read(line) for line in printed]
    steps = [one for one in observations if one is not None and one.event == "step"]
    # The first step after a start is written at once, so without a written one there is nothing.
    written = [n for n, one in enumerate(steps) if one.data["step"] == state.step]
    if steps:
        state.step = cast("int", steps[-1].data["step"])
    return steps[written[-1] + 1 :] if written else []
