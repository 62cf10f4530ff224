"""The numbers of a run (pure): made from its timeline alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from emulator.analysis import goodput
from emulator.analysis.progress import ProgressIndex
from emulator.analysis.throughput import Throughput, Work, follow, rates
from emulator.faults.schedule import PlannedFault
from emulator.faults.table import FAULTS
from emulator.record.events import Entry, Phase, Stall, Step, TaskExit
from emulator.record.timeline import FaultTimeline, TaskTimeline, Timeline

__all__ = ["Analysis", "FaultResult", "TaskResult", "analyse"]

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
    saved_after: float | None = None
    """Until the first checkpoint was saved, where that was before the fault took effect."""
    applied_after: float | None = None
    """Until the fault took effect: the task had ended, was frozen, throttled or cut off."""
    detected_after: float | None = None
    """Until the first other task failed, or the job was found to be stalled."""
    restored_after: float | None = None
    """Until the task ran again, or was healed."""
    first_step_after: float | None = None
    """Until the job's first step with the task restored."""
    caught_up_after: float | None = None
    """Until the job was further than ever before."""
    killed: bool = False
    """It had to be killed: it was still there when the grace period was over."""
    exit_code: int | None = None
    rate_before: float | None = None
    """The job's steps per second in the WINDOW before the trigger."""
    rate_during: float | None = None
    """From the moment it was applied until the task was back."""
    rate_after: float | None = None
    """In the WINDOW after the job's first step with the task back."""
    target_rate_before: float | None = None
    """The same of the target alone, where that is a task that tells of steps."""
    target_rate_during: float | None = None
    target_rate_after: float | None = None


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


def analyse(timeline: Timeline) -> Analysis:
    """Return the numbers of a run."""
    end = timeline.duration
    progress = ProgressIndex(timeline)
    tasks = {task.name: _task(timeline.tasks[task.name]) for task in timeline.plan.tasks}
    work = follow(timeline)
    faults = [_fault(fault, progress, work) for fault in timeline.faults.values()]
    recoveries = _recoveries(timeline, progress) + [
        fault.first_step_after
        for fault in faults
        if FAULTS[fault.kind].restarts_target and fault.status == "applied"
    ]
    speed = rates(timeline.plan, work)
    time = goodput.split(timeline, end)
    steps = progress.steps
    accuracies = [a for e in steps if isinstance(a := e.values.get("accuracy"), int | float)]
    return Analysis(
        outcome=timeline.outcome or "running",
        reason=timeline.reason if timeline.outcome else "the record ends before the job does",
        duration=end,
        tasks=tasks,
        final_step=progress.furthest[-1] if steps else None,
        network=timeline.prepared,
        all_running=timeline.all_running,
        first_step=steps[0].t if steps else None,
        steps_per_second=speed.job.steps_per_second,
        examples_per_second=speed.job.examples_per_second,
        throughput=speed,
        accuracy=float(accuracies[-1]) if accuracies else None,
        restarts=len(timeline.restarts),
        lost_steps=max(task.lost_steps for task in tasks.values()) if steps else None,
        recoveries=[seconds for seconds in recoveries if seconds is not None],
        unrecovered=sum(seconds is None for seconds in recoveries),
        faults=faults,
        time=time,
        goodput=time["productive"] / end if steps and end > 0 else None,
    )


def _task(task: TaskTimeline) -> TaskResult:
    """Return what became of a task."""
    exits, steps = task.exits, task.steps
    return TaskResult(
        state=task.state,
        exit_code=exits[-1].exit_code if exits else None,
        restarts=task.restarts,
        oom_killed=any(exit_.oom_killed for exit_ in exits),
        first_step=steps[0].first if steps else None,
        last_step=steps[-1].step if steps else None,
        lost_steps=_lost_steps(task),
    )


def _lost_steps(task: TaskTimeline) -> int:
    """Return the steps that a task did again: those after what each incarnation restored.

    Where it reports no restore, its first step says so: it was itself done again.
    """
    lost = 0
    reached: int | None = None
    for one in task.incarnations:
        for report in one.reports:
            if reached is None:
                break
            if isinstance(report, Step):
                lost += max(0, reached - report.first + 1)
                break
            if report.phase == "restore" and report.step is not None:
                lost += max(0, reached - report.step)
                break
        steps = one.steps
        reached = steps[-1].step if steps else reached
    return lost


def _recoveries(timeline: Timeline, progress: ProgressIndex) -> list[float | None]:
    """Return, for each restart after a failure, the seconds from its exit to the job's next step.

    `always` also restarts what ended well: that is no failure.
    """
    failed = [
        (one.restart, one.exit)
        for task in timeline.tasks.values()
        for one in task.incarnations
        if one.restart is not None and one.exit is not None and one.exit.exit_code
    ]
    found: list[float | None] = []
    for restart, exit_ in sorted(failed, key=lambda pair: progress.place(pair[0])):
        back = progress.step_after(progress.running(restart.task, restart))
        found.append(None if back is None else round(back.t - exit_.t, 6))
    return found


def _fault(fault: FaultTimeline, progress: ProgressIndex, work: Mapping[str, Work]) -> FaultResult:
    """Return what became of a fault, and of the job after it."""
    outcome, planned = fault.outcome, fault.planned
    result = FaultResult(
        id=planned.id,
        kind=planned.kind,
        target=planned.target,
        status=outcome.stage if outcome else "pending",
        reason=(outcome.reason or "") if outcome else "",
    )
    trigger, applied = fault.stages.get("triggered"), fault.stages.get("applied")
    if trigger is None or applied is None:
        return result
    # Where the target was back: healed, or restarted by the policy.
    back = fault.stages.get("healed") or progress.running(planned.target, applied)
    before = progress.furthest_before(trigger)

    def since(entry: Entry | None) -> float | None:
        return None if entry is None else round(entry.t - trigger.t, 6)

    stepped = progress.step_after(back)
    rate_before, rate_during, rate_after = _rates(progress, trigger, applied, back, stepped)
    target = _rates_of(work.get(planned.target), trigger, applied, back, stepped)
    return replace(
        result,
        triggered=trigger.t,
        applied_after=since(applied),
        detected_after=since(_noticed(planned, progress.ends(trigger, back))),
        saved_after=since(_saved(planned, progress.between(trigger, applied))),
        killed=bool(applied.killed),
        exit_code=applied.exit_code,
        restored_after=since(back),
        first_step_after=since(stepped),
        caught_up_after=since(progress.step_after(back, before)),
        rate_before=rate_before,
        rate_during=rate_during,
        rate_after=rate_after,
        target_rate_before=target[0],
        target_rate_during=target[1],
        target_rate_after=target[2],
    )


def _noticed(fault: PlannedFault, until_back: Iterable[TaskExit | Stall]) -> Entry | None:
    """Return the first sign of a fault beyond its target: a failed task, or a stall."""
    for entry in until_back:
        if isinstance(entry, Stall):
            return entry
        if entry.task != fault.target and entry.exit_code and not entry.told_to_stop:
            return entry
    return None


def _saved(fault: PlannedFault, notice: Sequence[Entry]) -> Entry | None:
    """Return what ended the first checkpoint after a notice: the target's, else anybody's."""
    if not fault.spec.gives_notice:
        return None
    saves = [e for e in notice if isinstance(e, Phase) and e.phase == "checkpoint"]
    ends = [e for e in saves if e.state == "end"]
    return next((e for e in ends if e.task == fault.target), next(iter(ends), None))


def _rates(
    progress: ProgressIndex,
    trigger: Entry,
    applied: Entry,
    back: Entry | None,
    stepped: Entry | None,
) -> tuple[float | None, float | None, float | None]:
    """Return the job's steps per second before, during and after a fault."""
    front = progress.front

    def rate(begin: float, end: float) -> float | None:
        """Count the steps that the furthest task made in a time, by linear interpolation."""
        if end <= begin or not front or not front[0].t <= begin or front[-1].t < end:
            return None
        return (progress.reached(end) - progress.reached(begin)) / (end - begin)

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
