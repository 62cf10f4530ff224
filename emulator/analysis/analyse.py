"""What a record says in numbers (pure): nothing here looks at anything but the history.

Histories here and in all of analysis/ are as `Record.happened` has them: each event's `t` is when
it happened.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from emulator.analysis import goodput
from emulator.analysis.course import Course
from emulator.analysis.throughput import Throughput, Work, follow, rates
from emulator.faults.schedule import PlannedFault, from_json
from emulator.faults.table import FAULTS
from emulator.plan import Plan
from emulator.record.events import Entry

__all__ = ["Analysis", "FaultResult", "TaskResult", "analyse", "faults_of"]

WINDOW = 10.0
"""Seconds before and after a fault in which the job's rate is taken."""


@dataclass
class TaskResult:
    """What became of one task."""

    state: str = "pending"
    """pending, starting, running, backoff, down (preempted), succeeded, failed, stopped."""
    exit_code: int | None = None
    restarts: int = 0
    oom_killed: bool = False
    first_step: int | None = None
    last_step: int | None = None
    lost_steps: int = 0
    """Steps that it did again after restarts."""


@dataclass(frozen=True)
class FaultResult:
    """What became of one fault. Times are seconds after its trigger; None: it did not happen."""

    id: str
    kind: str
    target: str
    status: str
    """applied, skipped, failed; `pending` where the record does not say."""
    reason: str = ""
    triggered: float | None = None
    """Seconds since the run began."""
    gone: float | None = None
    """Until the task had ended, was frozen, or was throttled."""
    noticed: float | None = None
    """Until the first other task failed, or the job was found to be stalled."""
    saved: float | None = None
    """Until the first checkpoint had been saved, where that was before the target was gone."""
    killed: bool = False
    """It had to be killed: it was still there when the grace period was over."""
    exit_code: int | None = None
    back: float | None = None
    """Until the task ran again."""
    stepped: float | None = None
    """Until the job's first step with the task back."""
    caught_up: float | None = None
    """Until the job was further than ever before."""
    rate_before: float | None = None
    """The job's steps per second in the WINDOW before the trigger."""
    rate_during: float | None = None
    """From the moment it was applied until the task was back."""
    rate_after: float | None = None
    """In the WINDOW after the job's first step with the task back."""
    target_before: float | None = None
    """The same of the target alone, where that is a task that tells of steps."""
    target_during: float | None = None
    target_after: float | None = None


@dataclass(frozen=True)
class Analysis:
    """The numbers of one run. Times are seconds from the run's start; None: it never happened."""

    outcome: str
    """succeeded, failed, timeout, interrupted, error; `running` where the record just ends."""
    reason: str
    duration: float
    tasks: Mapping[str, TaskResult]
    final_step: int | None = None
    network: float | None = None
    all_running: float | None = None
    first_step: float | None = None
    steps_per_second: float | None = None
    examples_per_second: float | None = None
    throughput: Throughput = field(default_factory=Throughput)
    accuracy: float | None = None
    restarts: int = 0
    lost_steps: int | None = None
    """Of the task that lost most; None where no task reported a step."""
    recoveries: Sequence[float] = field(default_factory=tuple)
    """Seconds from each unasked exit that was followed by a restart to the next step of the job."""
    unrecovered: int = 0
    """Such exits that no step followed."""
    faults: Sequence[FaultResult] = ()
    time: Mapping[str, float] = field(default_factory=dict)
    """Seconds by cause, see `emulator/analysis/goodput.py`; together they are the duration."""
    goodput: float | None = None
    """The productive share of the duration."""

    @property
    def worst_recovery(self) -> float | None:
        """The longest of all recoveries; infinite where one of them never came."""
        return math.inf if self.unrecovered else max(self.recoveries, default=None)


def analyse(plan: Plan, history: Sequence[Entry]) -> Analysis:
    """Return the numbers of a run from its plan and history."""
    outcome, reason = _outcome(history)
    end = next((e.t for e in history if e.event == "job"), history[-1].t if history else 0.0)
    course = Course(history)
    tasks = _tasks(plan, history)
    work = follow(plan, history)
    faults = [_fault(fault, course, work) for fault in faults_of(plan, history)]
    recoveries = list(_recoveries(course)) + [
        fault.stepped
        for fault in faults
        if FAULTS[fault.kind].restarts_target and fault.status == "applied"
    ]
    speed = rates(plan, work)
    time = goodput.split(history, end)
    steps = course.steps
    accuracies = [e.data["accuracy"] for e in steps if _is_number(e.data.get("accuracy"))]
    return Analysis(
        outcome=outcome,
        reason=reason,
        duration=end,
        tasks=tasks,
        final_step=max((e.furthest for e in steps), default=None),
        network=_first(history, "prepared"),
        all_running=_first(history, "all-running"),
        first_step=steps[0].t if steps else None,
        steps_per_second=speed.job.steps_per_second,
        examples_per_second=speed.job.examples_per_second,
        throughput=speed,
        accuracy=float(accuracies[-1]) if accuracies else None,
        restarts=sum(e.event == "restart" for e in history),
        lost_steps=max(task.lost_steps for task in tasks.values()) if steps else None,
        recoveries=[seconds for seconds in recoveries if seconds is not None],
        unrecovered=sum(seconds is None for seconds in recoveries),
        faults=faults,
        time=time,
        goodput=time["productive"] / end if steps and end > 0 else None,
    )


def _outcome(history: Sequence[Entry]) -> tuple[str, str]:
    for entry in reversed(history):
        if entry.event == "error":
            return "error", str(entry.data["message"])
        if entry.event == "job":
            return str(entry.data["outcome"]), str(entry.data["reason"])
    return "running", "the record ends before the job does"


def _first(history: Sequence[Entry], event: str) -> float | None:
    return next((e.t for e in history if e.event == event), None)


def _is_number(said: object) -> bool:
    """Say whether a program's value is one: programs print what they like."""
    return isinstance(said, int | float)


def _tasks(plan: Plan, history: Sequence[Entry]) -> dict[str, TaskResult]:
    """Follow every task through its events."""
    results = {task.name: TaskResult() for task in plan.tasks}
    reached: dict[str, int | None] = {}  # before the latest restart, until the first step after it
    for entry in history:
        if entry.event == "restart" and entry.data["scope"] == "job":
            for each in results.values():
                each.restarts += 1
        elif (result := results.get(entry.task)) is not None:
            reached[entry.task] = _follow(result, entry, reached.get(entry.task))
    return results


def _follow(result: TaskResult, entry: Entry, reached: int | None) -> int | None:
    """Note what an event says of its task; return where it was before, until it steps again."""
    match entry.event:
        case "start":
            result.state = "starting"
            return result.last_step
        case "running":
            result.state = "running"
        case "restart":
            result.state = "backoff"
            result.restarts += 1
        case "exit":
            result.exit_code = int(entry.data["exit_code"])
            result.oom_killed = result.oom_killed or bool(entry.data["oom_killed"])
            result.state = _end_state(entry)
        case "phase" if reached is not None and entry.data.get("phase") == "restore":
            if isinstance(restored := entry.data.get("step"), int):
                result.lost_steps += max(0, reached - restored)
                return None
        case "step":
            if reached is not None:
                # The first step that is told of again was itself done again.
                result.lost_steps += max(0, reached - entry.first + 1)
            if result.first_step is None:
                result.first_step = entry.first
            result.last_step = entry.step
            return None
    return reached


def _end_state(entry: Entry) -> str:
    if entry.data.get("fault"):
        return "down"
    if entry.data["exit_code"] == 0:
        return "succeeded"
    return "stopped" if entry.data["told_to_stop"] else "failed"


def _recoveries(course: Course) -> Iterator[float | None]:
    """Yield, for each restart after a failure, the seconds from its exit to the job's next step."""
    exits: dict[str, Entry] = {}
    for number, entry in enumerate(course.history):
        if entry.event == "exit":
            exits[entry.task] = entry
        if entry.event != "restart":
            continue
        failed = exits[entry.task]
        if failed.data["exit_code"] == 0:
            continue  # `always` starts again what ended well
        running = course.running(entry.task, number)
        back = course.step_after(running)
        yield None if back is None else round(back.t - failed.t, 6)


def faults_of(plan: Plan, history: Sequence[Entry]) -> list[PlannedFault]:
    """Return the planned faults, and those by hand from where they were noted."""
    told = (e for e in history if e.event == "fault" and e.data["stage"] == "planned")
    return [*plan.faults, *(from_json(entry.data["plan"]) for entry in told)]


def _fault(planned: PlannedFault, course: Course, work: Mapping[str, Work]) -> FaultResult:
    """Follow one fault through its stages, and the job after it."""
    history, stages = course.history, course.faults.get(planned.id, {})
    ends = [stage for stage in ("failed", "skipped", "applied") if stage in stages]
    told = history[stages[ends[0]]].data if ends else {}
    result = FaultResult(
        id=planned.id,
        kind=planned.kind,
        target=planned.target,
        status=ends[0] if ends else "pending",
        reason=str(told.get("reason", "")),
    )
    if "triggered" not in stages or "applied" not in stages:
        return result
    start, trigger = stages["triggered"], history[stages["triggered"]]
    applied = history[stages["applied"]]
    # Where the target was back: healed, or restarted by the policy.
    back = stages.get("healed", course.running(planned.target, stages["applied"]))
    home = None if back is None else history[back]
    before = course.furthest_before(start)

    def since(entry: Entry | None) -> float | None:
        return None if entry is None else round(entry.t - trigger.t, 6)

    stepped = course.step_after(back)
    rate_before, rate_during, rate_after = _rates(course, trigger, applied, home, stepped)
    target = _rates_of(work.get(planned.target), trigger, applied, home, stepped)
    return replace(
        result,
        triggered=trigger.t,
        gone=since(applied),
        noticed=since(_noticed(planned, course.ends(start, back))),
        saved=since(_saved(planned, history[start : stages["applied"]])),
        killed=bool(applied.data.get("killed", False)),
        exit_code=applied.data.get("exit_code"),
        back=since(home),
        stepped=since(stepped),
        caught_up=since(course.step_after(back, before)),
        rate_before=rate_before,
        rate_during=rate_during,
        rate_after=rate_after,
        target_before=target[0],
        target_during=target[1],
        target_after=target[2],
    )


def _noticed(fault: PlannedFault, until_back: Iterable[Entry]) -> Entry | None:
    """Return the first sign of a fault beyond its target: a failed task, or a stall."""
    for entry in until_back:
        if entry.event == "stall":
            return entry
        if entry.event == "exit" and entry.task != fault.target and _failed(entry):
            return entry
    return None


def _failed(exit_: Entry) -> bool:
    return bool(exit_.data["exit_code"]) and not exit_.data["told_to_stop"]


def _saved(fault: PlannedFault, notice: Sequence[Entry]) -> Entry | None:
    """Return what ended the first checkpoint after a notice: the target's, else anybody's."""
    if not fault.spec.gives_notice:
        return None
    saves = [e for e in notice if e.event == "phase" and e.data["phase"] == "checkpoint"]
    ends = [e for e in saves if e.data["state"] == "end"]
    return next((e for e in ends if e.task == fault.target), next(iter(ends), None))


def _rates(
    course: Course, trigger: Entry, applied: Entry, back: Entry | None, stepped: Entry | None
) -> tuple[float | None, float | None, float | None]:
    """Return the job's steps per second before, during and after a fault."""
    front = course.front

    def rate(begin: float, end: float) -> float | None:
        """Count the steps that the furthest task made in a time, by linear interpolation."""
        if end <= begin or not front or not front[0].t <= begin or front[-1].t < end:
            return None
        return (course.reached(end) - course.reached(begin)) / (end - begin)

    before = rate(max(trigger.t - WINDOW, front[0].t if front else 0.0), trigger.t)
    if back is None or not front:
        return before, None, None
    during = rate(applied.t, back.t)
    if stepped is None:
        return before, during, None
    return before, during, rate(stepped.t, min(stepped.t + WINDOW, front[-1].t))


def _rates_of(
    target: Work | None,
    trigger: Entry,
    applied: Entry,
    back: Entry | None,
    stepped: Entry | None,
) -> tuple[float | None, float | None, float | None]:
    """Return the target's own steps per second before, during and after a fault."""
    if target is None or target.first is None or target.last is None:
        return None, None, None
    before = target.rate_within(max(target.first, trigger.t - WINDOW), trigger.t)
    if back is None:
        return before, None, None
    during = target.rate_within(applied.t, back.t)
    if stepped is None:
        return before, during, None
    end = min(stepped.t + WINDOW, target.last)
    return before, during, target.rate_within(stepped.t, end)
