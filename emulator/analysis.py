"""What a record says in numbers (pure): nothing here looks at anything but the history.

Steps and exits are timed by the engine's stamps (`wall`), because their lines may arrive in a
bunch; everything else by the supervisor's own monotonic clock (`t`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from emulator import goodput
from emulator.faults import PlannedFault, from_json
from emulator.plan import Plan
from emulator.record import Entry

__all__ = ["Analysis", "FaultResult", "TaskResult", "analyse"]

WINDOW = 10.0
"""Seconds before and after a fault in which the job's rate is taken."""

NOTICED = ("preempt", "terminate")
"""Faults that leave their target time to save a checkpoint."""


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
    """In the WINDOW after that."""


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
    accuracy: float | None = None
    restarts: int = 0
    lost_steps: int = 0
    recoveries: Sequence[float] = field(default_factory=tuple)
    """Seconds from each unasked exit that was followed by a restart to the next step of the job."""
    unrecovered: int = 0
    """Such exits that no step followed."""
    faults: Sequence[FaultResult] = ()
    time: Mapping[str, float] = field(default_factory=dict)
    """Seconds by cause, see `emulator/goodput.py`; together they are the duration."""
    goodput: float | None = None
    """The productive share of the duration."""


def analyse(plan: Plan, history: Sequence[Entry]) -> Analysis:
    """Return the numbers of a run from its plan and history."""
    outcome, reason = _outcome(history)
    end = next((e.t for e in history if e.event == "job"), history[-1].t if history else 0.0)
    steps = [e for e in history if e.event == "step"]
    front = list(_front(steps))
    tasks = {task.name: _task(task.name, history) for task in plan.tasks}
    faults = [_fault(fault, history) for fault in (*plan.faults, *_by_hand(history))]
    recoveries = list(_recoveries(history)) + [
        fault.stepped
        for fault in faults
        if fault.kind in ("preempt", "restart") and fault.status == "applied"
    ]
    per_second = _rate(front, [_step(e) for e in front])
    examples = plan.scenario.metrics.examples_per_step
    time = goodput.split(history, end)
    accuracies = [e.data["accuracy"] for e in steps if _is_number(e.data.get("accuracy"))]
    return Analysis(
        outcome=outcome,
        reason=reason,
        duration=end,
        tasks=tasks,
        final_step=max((_step(e) for e in steps), default=None),
        network=_first(history, "prepared"),
        all_running=_first(history, "all-running"),
        first_step=steps[0].wall - history[0].wall if steps else None,
        steps_per_second=per_second,
        examples_per_second=(
            per_second * examples if per_second is not None and examples else _examples_rate(front)
        ),
        accuracy=float(accuracies[-1]) if accuracies else None,
        restarts=sum(e.event == "restart" for e in history),
        lost_steps=max((task.lost_steps for task in tasks.values()), default=0),
        recoveries=[seconds for seconds in recoveries if seconds is not None],
        unrecovered=sum(seconds is None for seconds in recoveries),
        faults=faults,
        time=time,
        goodput=time["productive"] / end if front and end > 0 else None,
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


def _step(entry: Entry) -> int:
    return int(entry.data["step"])


def _is_number(said: object) -> bool:
    """Say whether a program's value is one: programs print what they like."""
    return isinstance(said, int | float)


def _front(steps: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the step events that brought the job further than it ever was."""
    reached = -1
    for entry in steps:
        if _step(entry) > reached:
            reached = _step(entry)
            yield entry


def _rate(front: Sequence[Entry], counts: Sequence[float]) -> float | None:
    """Return counts per second between the first and the last advance of the job."""
    if len(front) < 2 or front[-1].wall <= front[0].wall:
        return None
    return (counts[-1] - counts[0]) / (front[-1].wall - front[0].wall)


def _examples_rate(front: Sequence[Entry]) -> float | None:
    told = [entry for entry in front if _is_number(entry.data.get("examples"))]
    return _rate(told, [float(entry.data["examples"]) for entry in told])


def _task(name: str, history: Sequence[Entry]) -> TaskResult:
    """Follow one task through its events."""
    result = TaskResult()
    reached: int | None = None  # before the latest restart, until the first step after it
    for entry in history:
        if entry.event == "restart" and entry.data["scope"] == "job":
            result.restarts += 1
        if entry.task != name:
            continue
        match entry.event:
            case "start":
                result.state, reached = "starting", result.last_step
            case "running":
                result.state = "running"
            case "restart" if entry.data["scope"] == "task":
                result.state = "backoff"
                result.restarts += 1
            case "exit":
                result.exit_code = int(entry.data["exit_code"])
                result.oom_killed = result.oom_killed or bool(entry.data["oom_killed"])
                result.state = _end_state(entry)
            case "phase" if reached is not None and entry.data.get("phase") == "restore":
                if isinstance(restored := entry.data.get("step"), int):
                    result.lost_steps += max(0, reached - restored)
                    reached = None
            case "step":
                if reached is not None:
                    # The first step that is told of again was itself done again.
                    result.lost_steps += max(0, reached - _step(entry) + 1)
                    reached = None
                if result.first_step is None:
                    result.first_step = _step(entry)
                result.last_step = _step(entry)
    return result


def _end_state(entry: Entry) -> str:
    if entry.data.get("fault"):
        return "down"
    if entry.data["exit_code"] == 0:
        return "succeeded"
    return "stopped" if entry.data["told_to_stop"] else "failed"


def _recoveries(history: Sequence[Entry]) -> Iterator[float | None]:
    """Yield, for each restart after a failure, the seconds from its exit to the job's next step."""
    for number, entry in enumerate(history):
        if entry.event != "restart":
            continue
        failed = next(
            e for e in reversed(history[:number]) if e.event == "exit" and e.task == entry.task
        )
        if failed.data["exit_code"] == 0:
            continue  # `always` starts again what ended well
        back = next(
            (
                later.wall
                for later in _after_start(history[number:], entry.task)
                if later.event == "step"
            ),
            None,
        )
        yield None if back is None else back - failed.wall


def _after_start(history: Sequence[Entry], task: str) -> Sequence[Entry]:
    """Return what followed once the task was running again."""
    for number, entry in enumerate(history):
        if entry.event == "running" and entry.task == task:
            return history[number:]
    return ()


def _by_hand(history: Sequence[Entry]) -> Iterator[PlannedFault]:
    """Yield the faults that were not in the plan, from where they were noted."""
    for entry in history:
        if entry.event == "fault" and entry.data["stage"] == "planned":
            yield from_json(entry.data["plan"])


def _fault(planned: PlannedFault, history: Sequence[Entry]) -> FaultResult:
    """Follow one fault through its stages, and the job after it."""
    stages = {
        str(e.data["stage"]): (number, e)
        for number, e in enumerate(history)
        if e.event == "fault" and e.data["id"] == planned.id
    }
    ends = [stage for stage in ("failed", "skipped", "applied") if stage in stages]
    told = stages[ends[0]][1].data if ends else {}
    result = FaultResult(
        id=planned.id,
        kind=planned.kind,
        target=planned.target,
        status=ends[0] if ends else "pending",
        reason=str(told.get("reason", "")),
    )
    if "triggered" not in stages or "applied" not in stages:
        return result
    start, trigger = stages["triggered"]
    applied = stages["applied"][1]
    back = _return(result, history, stages)
    before = max((_step(e) for e in history[:start] if e.event == "step"), default=-1)
    after = [e for e in history[back:] if e.event == "step"] if back is not None else []

    def since(entry: Entry | None) -> float | None:
        return None if entry is None else round(entry.t - trigger.t, 6)

    home = None if back is None else history[back]
    rate_before, rate_during, rate_after = _rates(history, trigger, applied, home)
    return replace(
        result,
        triggered=trigger.t,
        gone=since(applied),
        noticed=since(_noticed(planned, history[start:back])),
        saved=since(_saved(planned, history[start : stages["applied"][0]])),
        killed=bool(applied.data.get("killed", False)),
        exit_code=applied.data.get("exit_code"),
        back=since(history[back]) if back is not None else None,
        stepped=since(next(iter(after), None)),
        caught_up=since(next((e for e in after if _step(e) > before), None)),
        rate_before=rate_before,
        rate_during=rate_during,
        rate_after=rate_after,
    )


def _noticed(fault: PlannedFault, until_back: Sequence[Entry]) -> Entry | None:
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
    if fault.kind not in NOTICED:
        return None
    saves = [e for e in notice if e.event == "phase" and e.data["phase"] == "checkpoint"]
    ends = [e for e in saves if e.data["state"] == "end"]
    return next((e for e in ends if e.task == fault.target), next(iter(ends), None))


def _rates(
    history: Sequence[Entry], trigger: Entry, applied: Entry, back: Entry | None
) -> tuple[float | None, float | None, float | None]:
    """Return the job's steps per second before, during and after a fault."""
    front = list(_front([e for e in history if e.event == "step"]))

    def rate(begin: float, end: float) -> float | None:
        """Count the steps that the furthest task made in a time, by linear interpolation."""
        if end <= begin or not front or not front[0].t <= begin or front[-1].t < end:
            return None
        return (_step_at(front, end) - _step_at(front, begin)) / (end - begin)

    before = rate(max(trigger.t - WINDOW, front[0].t if front else 0.0), trigger.t)
    if back is None or not front:
        return before, None, None
    return before, rate(applied.t, back.t), rate(back.t, min(back.t + WINDOW, front[-1].t))


def _step_at(front: Sequence[Entry], when: float) -> float:
    """Return how far the job was at a time between its first and its last advance."""
    for one, two in pairwise(front):
        if one.t <= when <= two.t:
            share = (when - one.t) / (two.t - one.t) if two.t > one.t else 1.0
            return _step(one) + share * (_step(two) - _step(one))
    return float(_step(front[-1]))


def _return(
    fault: FaultResult, history: Sequence[Entry], stages: Mapping[str, tuple[int, Entry]]
) -> int | None:
    """Return where in the history the target was back: healed, or restarted by the policy."""
    if "healed" in stages:
        return stages["healed"][0]
    start = stages["applied"][0]
    return next(
        (
            start + number
            for number, entry in enumerate(history[start:])
            if entry.event == "running" and entry.task == fault.target
        ),
        None,
    )
