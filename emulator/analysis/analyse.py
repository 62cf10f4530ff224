"""The numbers of a run, computed from its timeline and its samples alone (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from emulator.analysis import goodput
from emulator.analysis.checkpoints import checkpoints_of
from emulator.analysis.detected import first_sign
from emulator.analysis.notices import NoticeResult, notices, saved_in
from emulator.analysis.progress import ProgressIndex
from emulator.analysis.setbacks import setbacks
from emulator.analysis.throughput import JOB, Throughput, Work, follow, rates
from emulator.analysis.traffic import Traffic, TrafficIndex, traffic_of
from emulator.analysis.values import Values, last_accuracy, last_values
from emulator.faults.disk import Disk
from emulator.faults.kinds import FAULTS
from emulator.faults.schedule import trigger_matches
from emulator.record.events import (
    DiskMet,
    EngineNote,
    Entry,
    HelperEvent,
    Step,
    StepSource,
)

if TYPE_CHECKING:
    from emulator.faults.schedule import PlannedFault
    from emulator.metrics.samples import Sample
    from emulator.record.timeline import FaultTimeline, TaskTimeline, Timeline

WINDOW = 10.0
"""Seconds before and after a fault over which rates are measured."""


@dataclass
class TaskResult:
    """The result of one task."""

    state: str = "pending"
    """pending, starting, running, backoff, down (preempted), succeeded, failed, stopped."""
    exit_code: int | None = None
    restarts: int = 0
    oom_killed: bool = False
    first_step: int | None = None
    last_step: int | None = None
    lost_steps: int = 0
    """Steps that it repeated after it was restarted or went back, at most."""
    lost_at_least: int = 0
    """How many of them are certain: all, where every step is seen."""
    counted_anew: str = ""
    """How its counter began anew, in words, so that its steps are not those of the job."""

    @property
    def state_in_words(self) -> str:
        """Its state, and whether it ever ran out of memory."""
        return self.state + " (out of memory)" * self.oom_killed


@dataclass(frozen=True)
class HelperResult:
    """The result of one helper, which no verdict depends on."""

    state: str
    """starting, running, succeeded, stopped (the job was over), failed."""
    exit_code: int | None = None
    reason: str = ""
    """Why it could not be started."""
    last_words: Sequence[str] = ()
    """What it printed last, if it ended by itself."""


@dataclass(frozen=True)
class FaultResult:
    """The result of one fault. Times are seconds after its trigger; None: it did not happen."""

    id: str
    kind: str
    target: str
    status: str
    """applied, skipped, failed; `pending` if the record has none of these stages."""
    reason: str = ""
    triggered: float | None = None
    """Seconds since the run began."""
    saved_after: float | None = None
    """Until the first checkpoint was saved, if that was before the fault took effect."""
    applied_after: float | None = None
    """Until the fault took effect: the task had ended, was frozen, throttled or cut off."""
    detected_after: float | None = None
    """Until its first sign beyond its target, see `detected.first_sign`."""
    restored_after: float | None = None
    """Until the task ran again, or was healed."""
    first_step_after: float | None = None
    """Until the job's first step with the task restored."""
    caught_up_after: float | None = None
    """Until the job was further than before the trigger, with the task restored."""
    killed: bool = False
    """It was killed: it still ran when the grace period was over."""
    silent: bool = False
    """It lost power: no packet said so to its peers."""
    exit_code: int | None = None
    rate_before: float | None = None
    """The job's steps per second in the WINDOW before the trigger."""
    rate_during: float | None = None
    """From when it was applied until the task was restored, or until the job was done before."""
    rate_after: float | None = None
    """In the WINDOW after the job's first step with the task restored."""
    target_rate_before: float | None = None
    """The same of the target alone, if it is a task that reports steps."""
    target_rate_during: float | None = None
    target_rate_after: float | None = None
    detected_by: str = ""
    """Who has noticed it, and by what."""
    effect: str = ""
    """What the engine says that it did."""
    notes: Sequence[str] = field(default_factory=list)
    """What the engine said of its target, from the trigger until the task was restored."""
    unmet: str = ""
    """Why it has shown nothing: no call of its target was to such a file."""
    wrong_source: str = ""
    """Its step was read from this, which was given up later: it struck at another step."""


@dataclass(frozen=True)
class Recovery:
    """What followed a failure, or a fault after which its target is started again."""

    task: str
    at: float
    """When it failed, or the fault was triggered, in seconds since the run began."""
    seconds: float | None
    """From then to the job's next step with the task restored; None: none followed."""
    running_after: float | None = None
    """Seconds from then until the task ran again."""
    fault: str = ""
    """The id of the fault; empty: the task failed, and the restart policy started it again."""
    exit_code: int | None = None
    went_on: bool = False
    """Another task trained on, in the life in which it was then."""


@dataclass(frozen=True)
class Analysis:
    """The numbers of one run. Times are seconds from the run's start; None: it never happened."""

    outcome: str
    """succeeded, failed, timeout, interrupted, error; `running` if the record has no outcome."""
    reason: str
    duration: float
    tasks: Mapping[str, TaskResult]
    helpers: Mapping[str, HelperResult] = field(default_factory=dict)
    final_step: int | None = None
    ended_at: int | None = None
    """The furthest step of the last lives of its tasks, if the job succeeded with an earlier one
    than `final_step`: a part of it was lost, and not made again."""
    network: float | None = None
    training_began: float | None = None
    """When the tasks before training had succeeded; None also if there are none."""
    all_running: float | None = None
    first_step: float | None = None
    steps_per_second: float | None = None
    examples_per_second: float | None = None
    throughput: Throughput = field(default_factory=Throughput)
    accuracy: float | None = None
    values: Values = field(default_factory=dict)
    """The last of what tasks reported with their steps."""
    bytes_per_step: Mapping[str, Traffic] = field(default_factory=dict)
    """What a task of each role sent and received in a step; roles of which it is known."""
    traffic: TrafficIndex = field(default_factory=TrafficIndex, repr=False, compare=False)
    """The same of some of the steps."""
    restarts: int = 0
    lost_steps: int | None = None
    """Of the task that lost most; None if no task reported a step."""
    lost_at_least: int | None = None
    """How many of them are certain."""
    recoveries: Sequence[float] = field(default_factory=tuple)
    """Seconds from each failure that was followed by a restart to the job's next step."""
    unrecovered: int | None = 0
    """Such failures that no step followed; None if there were some, and no task reported a step."""
    recovered: Sequence[Recovery] = ()
    """What was recovered from, or was not, in the order of `recoveries`."""
    faults: Sequence[FaultResult] = ()
    notices: Sequence[NoticeResult] = ()
    """What the notice of each preemption was worth, in the order of `faults`."""
    saves: Sequence[Mapping[str, Any]] = ()
    """The saves that were seen, and who has loaded each."""
    time: Mapping[str, float] = field(default_factory=dict)
    """Seconds by cause (goodput.py); their sum is the duration."""
    goodput: float | None = None
    """The productive share of the duration."""

    @property
    def worst_recovery(self) -> float | None:
        """The longest recovery; infinite if a failure was never recovered from."""
        return math.inf if self.unrecovered else max(self.recoveries, default=None)


def analyse(timeline: Timeline, samples: Sequence[Sample] = ()) -> Analysis:
    """Return the numbers of a run; without samples, what tasks used is unknown."""
    duration = timeline.duration
    progress = ProgressIndex(timeline)
    tasks = {task.name: _task(timeline.tasks[task.name]) for task in timeline.plan.tasks}
    work = follow(timeline)
    before = {task.name for task in timeline.plan.before_training}
    faults = [_fault(fault, timeline, progress, work) for fault in timeline.faults.values()]
    recovered = _recoveries(timeline, progress) + [
        Recovery(
            fault.target, fault.triggered or 0.0, fault.first_step_after, fault.restored_after,
            fault.id, fault.exit_code, _goes_on(timeline, progress, fault.triggered or 0.0),
        )
        for fault in faults
        if FAULTS[fault.kind].restarts_target and fault.status == "applied"
        if fault.target not in before
    ]  # fmt: skip
    recoveries = [one.seconds for one in recovered]
    throughput = rates(timeline.plan, work)
    traffic = traffic_of(timeline.plan, progress.advances, samples)
    time = goodput.by_cause(goodput.pieces(timeline, duration))
    steps = progress.steps
    final_step = progress.furthest[-1] if steps else None
    is_anew = any(task.counted_anew for task in tasks.values())
    last_life = () if is_anew else _shorter_last_life(timeline, progress)
    training = [task for name, task in tasks.items() if name not in progress.beside]
    return Analysis(
        outcome=timeline.outcome or "running",
        reason=timeline.reason if timeline.outcome else "the record ends before the job does",
        duration=duration,
        tasks=tasks,
        helpers={name: _helper(event) for name, event in timeline.helpers.items()},
        final_step=final_step,
        ended_at=max((step.step for step in last_life), default=None),
        network=timeline.prepared,
        training_began=timeline.training_began,
        all_running=timeline.all_running,
        first_step=steps[0].t if steps else None,
        steps_per_second=throughput.job.steps_per_second,
        examples_per_second=throughput.job.examples_per_second,
        throughput=throughput,
        accuracy=last_accuracy(timeline, last_life),
        values=last_values(timeline, last_life),
        bytes_per_step=traffic.by_role(),
        traffic=traffic,
        restarts=len(timeline.restarts),
        lost_steps=max(task.lost_steps for task in training) if steps else None,
        lost_at_least=max(task.lost_at_least for task in training) if steps else None,
        recoveries=[seconds for seconds in recoveries if seconds is not None],
        unrecovered=recoveries.count(None) if steps or not recoveries else None,
        recovered=tuple(recovered),
        faults=faults,
        notices=notices(timeline),
        saves=tuple(checkpoints_of(timeline).as_data()),
        time=time,
        goodput=time["productive"] / duration if steps and duration > 0 else None,
    )


def _shorter_last_life(timeline: Timeline, progress: ProgressIndex) -> Sequence[Step]:
    """Return the steps that a job ended with, if it succeeded and had been further before.

    They are of the last life in which a task reported any: of the task that came furthest so.
    """
    if timeline.outcome != "succeeded" or not progress.furthest:
        return ()
    tasks = (task for name, task in timeline.tasks.items() if name not in progress.beside)
    lives = ([one.steps for one in task.incarnations if one.steps] for task in tasks)
    furthest = max(((max(s.step for s in of[-1]), of[-1]) for of in lives if of), key=itemgetter(0))
    return furthest[1] if furthest[0] < progress.furthest[-1] else ()


def _task(task: TaskTimeline) -> TaskResult:
    exits, steps, back = task.exits, task.steps, [*setbacks(task)]
    return TaskResult(
        state=task.state,
        exit_code=exits[-1].exit_code if exits else None,
        restarts=task.restarts,
        oom_killed=any(exit_.oom_killed for exit_ in exits),
        first_step=steps[0].first if steps else None,
        last_step=steps[-1].step if steps else None,
        lost_steps=sum(one.steps for one in back),
        lost_at_least=sum(one.fewest for one in back),
        counted_anew=next((one.anew for one in back if one.anew), ""),
    )


def _helper(event: HelperEvent) -> HelperResult:
    words = tuple(event.last_words or ())
    return HelperResult(event.state, event.exit_code, event.reason or "", words)


def _recoveries(timeline: Timeline, progress: ProgressIndex) -> list[Recovery]:
    """Return a recovery for each restart after a failure, from its exit to the job's next step.

    The policy `always` also restarts tasks that succeeded; these are no failures. Before training
    there is nothing to recover: a failure there only makes it begin later.
    """
    failures = [
        (one.restart, one.exit)
        for task in (timeline.tasks[one.name] for one in timeline.plan.in_training)
        for one in task.incarnations
        if one.restart is not None and one.exit is not None and one.exit.exit_code
    ]
    failures.sort(key=lambda failure: progress.place(failure[0]))
    found = []
    for restart, exit_ in failures:
        running = progress.running(restart.task, restart)
        step = progress.step_after(running)
        seconds = None if step is None else round(step.t - exit_.t, 6)
        ran = None if running is None else round(running.t - exit_.t, 6)
        others = _goes_on(timeline, progress, exit_.t)
        found.append(
            Recovery(restart.task, exit_.t, seconds, ran, "", exit_.exit_code, went_on=others)
        )
    return found


def _goes_on(timeline: Timeline, progress: ProgressIndex, since: float) -> bool:
    """Return whether a job succeeded with a task that trained on since a time, in one life."""
    lasts = (
        task.last
        for name, task in timeline.tasks.items()
        if name not in progress.beside and timeline.outcome == "succeeded"
    )
    return any(
        life is not None
        and bool(life.steps)
        and life.begin <= since < life.steps[-1].t
        and (life.exit is None or not life.exit.exit_code or life.exit.told_to_stop)
        for life in lasts
    )


def _fault(
    fault: FaultTimeline, timeline: Timeline, progress: ProgressIndex, work: Mapping[str, Work]
) -> FaultResult:
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
    # What ended its target has the engine's stamp, as have the exits that it caused: these follow
    # it in any case, but the trigger only as far as the engine's clock is known.
    first = min(trigger, applied, key=progress.place)
    # Healed, or restarted by the policy.
    restored = fault.stages.get("healed") or progress.running(planned.target, applied)
    first_step = progress.step_after(restored)
    caught_up = progress.step_after(restored, progress.furthest_before(trigger))
    job, target = (
        _rates(source, timeline, trigger, applied, restored, first_step)
        for source in (work[JOB], work.get(planned.target))
    )

    def since(entry: Entry | None) -> float | None:
        return None if entry is None else round(entry.t - trigger.t, 6)

    sign = first_sign(planned, progress.signs(first, first_step))
    saved = None
    if planned.spec.gives_notice:
        during = progress.between(trigger, applied)
        saved = saved_in(during, planned.target, timeline, trigger.t, applied.t)
    return replace(
        result,
        triggered=trigger.t,
        applied_after=since(applied),
        detected_after=since(sign and sign.entry),
        detected_by=sign.words if sign else "",
        saved_after=None if saved is None else round(saved.t - trigger.t, 6),
        killed=bool(applied.killed),
        silent=bool(applied.silent),
        exit_code=applied.exit_code,
        restored_after=since(restored),
        first_step_after=since(first_step),
        caught_up_after=since(caught_up),
        rate_before=job[0],
        rate_during=job[1],
        rate_after=job[2],
        target_rate_before=target[0],
        target_rate_during=target[1],
        target_rate_after=target[2],
        effect=applied.effect or "",
        notes=_notes(planned, progress.between(trigger, restored)),
        unmet=_unmet(fault, timeline, progress.between(first, fault.stages.get("healed"))),
        wrong_source=_wrong_source(planned, trigger, timeline, progress),
    )


def _unmet(fault: FaultTimeline, timeline: Timeline, during: Sequence[Entry]) -> str:
    """Return why a fault of a disk has shown nothing; empty: it has, or is of another kind.

    One of several tasks has if any of them has met it: often a single rank saves.
    """
    spec, (entry, _, _) = fault.planned.spec, fault.id.partition(":")
    if not isinstance(spec, Disk) or spec.fills_volume:
        return ""
    others = timeline.faults.values()
    tasks = {one.planned.target for one in others if one.id.partition(":")[0] == entry}
    if any(isinstance(one, DiskMet) and one.task in tasks for one in during):
        return ""
    return f"no call of {' or '.join(sorted(tasks))} met it, while it lasted"


def _wrong_source(
    fault: PlannedFault, trigger: Entry, timeline: Timeline, progress: ProgressIndex
) -> str:
    """Return from what the step that triggered a fault was read, if it was none of the training."""
    if fault.trigger.step is None:
        return ""
    evaluators = timeline.plan.evaluators
    if any(
        step.n < trigger.n
        and trigger_matches(
            fault.trigger,
            step.task,
            event="step",
            data={"step": step.step},
            line=None,
            evaluators=evaluators,
        )
        for _, step in timeline.steps
    ):
        return ""
    source: dict[str, str] = {}
    for entry in timeline.history:
        if isinstance(entry, StepSource) and entry.counts:
            before = source.get(entry.task, "")
            if entry.retracts and entry.n > trigger.n and before:
                return before
            source[entry.task] = entry.source
    return ""


def _notes(fault: PlannedFault, during: Sequence[Entry]) -> list[str]:
    """Return what the engine said of a fault's targets besides the routine, each text once."""
    said = (
        entry.words
        for entry in during
        if isinstance(entry, EngineNote) and not entry.is_routine and entry.task in fault.tasks
    )
    return list(dict.fromkeys(said))


def _rates(
    source: Work | None,
    timeline: Timeline,
    trigger: Entry,
    applied: Entry,
    restored: Entry | None,
    first_step: Entry | None,
) -> tuple[float | None, float | None, float | None]:
    """Return steps per second before, during and after a fault, of the job or of one task.

    A job that succeeded while the fault lasted has made its last step during the fault. One that
    ended otherwise may have hung since.
    """
    if source is None or source.first is None or source.last is None:
        return None, None, None
    before = source.rate_within(max(trigger.t - WINDOW, source.first), trigger.t)
    until = None if restored is None or restored.t >= timeline.duration else restored.t
    if first_step is None and timeline.outcome == "succeeded":
        until = source.last
    if first_step is None and timeline.outcome and source.last <= applied.t:
        during: float | None = 0.0  # the job ended without another step
    else:
        during = None if until is None else source.rate_within(applied.t, until)
    if first_step is None:
        return before, during, None
    end = min(first_step.t + WINDOW, source.last)
    return before, during, source.rate_within(first_step.t, end)
