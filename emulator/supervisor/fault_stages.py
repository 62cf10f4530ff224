"""The stages of a fault, and what each event makes of them (pure).

planned -> waiting for its trigger -> (preparing what the engine needs) -> (announced) -> over, by
way of: active, if it lasts; terminating, if it ends its target; then down, if it also starts the
target again.

`STAGES` has for each stage the events that matter in it. `next_stage` returns the fault as it is
after one, and what is to be done for it, in this order.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from emulator.engines.base import Exited
from emulator.errors import NotRunning
from emulator.faults.preempt import EndingFault
from emulator.faults.schedule import PlannedFault, part_of, why_unfired
from emulator.supervisor.engine_calls import Called, FaultOperation, Preparing

if TYPE_CHECKING:
    from emulator.record.events import FaultStage

Stage = Literal[
    "planned", "waiting", "preparing", "announced", "terminating", "active", "down", "over"
]
TargetState = Literal["running", "starting", "down", "gone"]


@dataclass(frozen=True)
class ActiveFault:
    """One fault, with its stage; times are monotonic seconds."""

    fault: PlannedFault
    stage: Stage = "planned"
    is_due: bool = False
    """Its trigger fired while its target was starting: it is injected as soon as that runs."""
    announced_at: float = math.inf
    triggered_at: float = 0.0
    asked_at: float | None = None
    """When a supervisor that was killed had asked the engine for it (seconds since 1970)."""
    killed_at: float = math.inf
    """When its target was sent SIGKILL after its grace period (seconds since 1970)."""
    applied_at: float = math.inf
    restored: bool = False
    """Its target has run again."""
    recovered_at: float = math.inf
    """When the job has stepped since."""
    healing: bool = False
    found: Mapping[str, Any] | None = None
    """What it is about to change, once that is written."""
    injecting: bool = False
    """The engine has not answered yet; it is healed after that, or nobody would undo it. Nor is
    its target killed before, lest it gets SIGTERM after SIGKILL."""
    grace_is_over: bool = False
    """Its target is to be killed."""
    effect: str = ""
    """What the engine says that it did."""
    is_milder: bool = False
    """Its target was only asked to end, where it was to be killed."""

    @property
    def ending(self) -> EndingFault | None:
        """The kind of a fault that ends its target; None for others."""
        return self.fault.spec if isinstance(self.fault.spec, EndingFault) else None

    @property
    def is_ending(self) -> bool:
        """Whether an exit of its target is its doing: that was signalled, or told to go."""
        told = self.stage == "announced" and self.ending is not None and self.ending.may_leave
        return self.stage == "terminating" or told

    @property
    def can_be_healed(self) -> bool:
        """Whether a user can end it before its time."""
        if self.stage == "active":
            return self.applied_at < math.inf and not self.healing
        return self.stage in ("preparing", "announced", "down")

    def is_recovered_by(self, task: str, *, target_steps: bool) -> bool:
        """Return whether a step of `task` shows that the job has recovered.

        In a rolling restart the restarted task has to step itself, if it has ever done so.
        """
        return not self.fault.spec.one_by_one or not target_steps or task == self.fault.target


@dataclass(frozen=True)
class Situation:
    """What a decision depends on besides the fault; `time` is in monotonic seconds."""

    time: float
    wall: float
    """Seconds since 1970."""
    target: TargetState
    """One of its tasks runs, or else starts, or is to be started by a fault, while the job runs."""
    is_leaving: bool = False
    """Another fault is ending the target, and starts it again."""
    job_is_over: bool = False
    is_equipped: bool = True
    """The engine has what the fault needs."""
    making: str | None = None
    """What the engine makes for other faults; empty: it has not said; None: it makes nothing."""
    kill_slack: float | None = None
    """Seconds after a grace period in which the engine itself has killed the target; None: it does
    not, and the target is killed when that period is over."""
    asked_at: float = math.inf
    """When the engine was asked for the fault (seconds since 1970); infinite: not yet."""


LEFT = "it ended after the notice, before any signal"

# --- Events, and what is to be done -----------------------------------------------------------

Cause = Literal[
    "due",
    "repeat it",
    "grace over",
    "time over",
    "runs",
    "watched again",
    "stepped",
    "resumed",
    "given up",
]
"""Its trigger fires, or what was announced is due; its signal is sent once more; its grace period
ends; it is to be healed; its target runs again, or the task before whose call it happens; the job
has stepped since; a take-over finds it so; the job is over, and its target is killed."""


@dataclass(frozen=True)
class Since:
    """Its tasks all run, or what it follows has got far enough; since a time (monotonic)."""

    time: float


@dataclass(frozen=True)
class JobOver:
    """The job has ended, with its tasks at these steps."""

    steps: Mapping[str, int | None]
    evaluators: Collection[str] = ()


Event = Cause | Since | JobOver | Called | Preparing | Exited
"""A `Called` has the name of its operation in `STAGES`, or `refused`."""


@dataclass(frozen=True)
class Write:
    """Write a stage of the fault to the history, with the fields of a `FaultEvent`."""

    stage: FaultStage
    data: Mapping[str, Any] = field(default_factory=dict)
    wall: float | None = None
    """The engine's stamp, where it gave one (seconds since 1970)."""


@dataclass(frozen=True)
class At:
    """The fault gets an event at a monotonic time."""

    when: float
    event: Cause


Call = Literal["restore", "equip", "start", "watch", "let go"] | FaultOperation
Action = Write | At | PlannedFault | Call
"""A fault that is part of it happens now. The words are calls: of the engine, and `start` starts
the target again."""
Step = tuple[ActiveFault, Sequence[Action]]


def next_stage(one: ActiveFault, event: Event, now: Situation) -> Step:
    """Return a fault after an event, and what is to be done for it."""
    key: object = event if isinstance(event, str) else type(event)
    if isinstance(event, Called):
        key = "refused" if event.error else event.operation
    row = STAGES[one.stage].get(key)
    if row is None:
        return one, []
    before, (one, actions) = one.stage, row(one, event, now)
    is_over = one.stage == "over" != before
    if one.fault.watched and (is_over or key in ("announce", "inject", "refused")):
        # Its task was told, or it has happened: neither waits for the other.
        return one, [*actions, "let go"]
    return one, actions


# --- Before it happens ------------------------------------------------------------------------


def _wait(one: ActiveFault, event: Since, _: Situation) -> Step:
    time, one = one.fault.trigger.time, replace(one, stage="waiting")
    return (one, _watch(one)) if time is None else (one, [At(event.time + time, "due")])


def _watch(one: ActiveFault) -> list[Action]:
    """Have the task watched before whose call it happens."""
    return ["watch"] if one.fault.watched and not one.is_due else []


def _caught(one: ActiveFault, answer: Called, now: Situation) -> Step:
    """Let it happen: the task is held before the call."""
    return _trigger(replace(one, effect=answer.effect.words), answer, now)


def _follow(one: ActiveFault, event: Since, _: Situation) -> Step:
    # It is planned again, so that it is not to follow twice.
    after = one.fault.trigger.time or one.fault.trigger.delay
    return replace(one, stage="planned"), [At(event.time + after, "due")]


def _trigger(one: ActiveFault, _: object, now: Situation) -> Step:
    if not now.is_equipped:
        one = replace(one, stage="preparing")
        if now.making is None:
            return one, ["equip"]
        return one, [Write("preparing", {"reason": now.making})] if now.making else []
    # A task that is held does not wait until another one is back.
    in_series = one.fault.in_turn and not one.fault.watched
    in_turn = in_series and (now.is_leaving or now.target == "down")
    if now.target == "starting" or in_turn:
        # A task may print before its engine says that it runs: kubelets are a second late or two.
        return replace(one, stage="waiting", is_due=True), []
    if now.target != "running":
        one, actions = _end(one, "skipped", f"{one.fault.target} was not running")
        return one, [Write("triggered"), *actions]
    if one.fault.spec.announced_before and one.announced_at == math.inf:
        one = replace(one, stage="announced", is_due=False, announced_at=now.time)
        return one, [Write("announced"), *_announce(one)]
    one = replace(one, is_due=False, triggered_at=now.time, injecting=True)
    one = replace(one, stage="terminating" if one.ending else "active")
    triggered = Write("triggered", {"effect": one.effect} if one.effect else {})
    inject: Call = "find" if one.fault.spec.is_found_first else "inject"
    return one, [triggered, inject, *_kill_in_time(one, now)]


def _announce(one: ActiveFault) -> list[Action]:
    """Have a fault announced, and then happen."""
    return ["announce", At(one.announced_at + one.fault.spec.announced_before, "due")]


def _never(one: ActiveFault, event: JobOver, _: Situation) -> Step:
    if one.is_due:
        return _end(one, "skipped", f"the job ended before {one.fault.target} ran")
    trigger = one.fault.trigger
    waited = why_unfired(trigger, event.steps, event.evaluators)
    # One that follows another is planned again, as soon as that has got far enough.
    if one.stage == "planned" and trigger.by_output and trigger.recovery is None:
        waited = "its tasks had not all been running"
    if one.fault.watched and one.stage == "waiting":
        return _end(one, "failed", f"the job ended, and {waited}")
    return _end(one, "skipped", f"the job ended before its trigger fired: {waited}")


def _cancel(one: ActiveFault, *_: object) -> Step:
    return _end(one, "skipped", "it was healed before it was injected")


# --- A fault that lasts -----------------------------------------------------------------------


def _found(one: ActiveFault, answer: Called, _: Situation) -> Step:
    """Write what will be changed before it is: after a kill, it is not known if it was."""
    if one.found is not None:
        return one, ["inject"]  # a killed supervisor has written it
    found = answer.effect.changed
    return replace(one, found=found), [Write("found", {"changed": found}), "inject"]


def _injected(one: ActiveFault, answer: Called, now: Situation) -> Step:
    follow = () if now.job_is_over else answer.effect.follow
    parts = [part_of(one.fault, spec) for spec in follow]
    effect = {"effect": answer.effect.words or None, "changed": answer.effect.changed}
    one, applied = _apply(replace(one, injecting=False), now.time, effect)
    if not one.fault.spec.is_healed:
        return replace(one, stage="over"), [*parts, *applied]
    # The job may have ended meanwhile.
    return one, [*parts, *applied, *(["heal"] if one.healing else _heal_in_time(one))]


def _refused(one: ActiveFault, answer: Called, _: Situation) -> Step:
    if isinstance(answer.error, NotRunning) and answer.operation != "heal":
        # What has just ended can't be held, which is no failure of the engine.
        one, actions = _end(one, "skipped", f"{one.fault.target} was not running any more")
    else:
        one, actions = _end(one, "failed", answer.error.message if answer.error else "")
    if answer.operation == "inject" and (one.fault.links or one.fault.spec.is_held):
        return one, [*actions, "heal"]  # a part of it may have been made
    return one, actions


def _held(one: ActiveFault, answer: Called, _: Situation) -> Step:
    """Note that a task has started again under the fault; or that the engine refused that."""
    if error := answer.held[one.fault.id]:
        one, actions = _end(one, "failed", f"{answer.subject} started again, and {error.message}")
        return one, [*actions, "heal"]
    return one, [Write("reapplied", wall=answer.wall)] if one.applied_at < math.inf else []


def _heal(one: ActiveFault, *_: object) -> Step:
    waits = one.healing or one.injecting
    return replace(one, healing=True), [] if waits else ["heal"]


def _left_alone(one: ActiveFault, event: Exited, now: Situation) -> Step:
    """Let a fault end with its target, if its kind does."""
    ends = one.fault.spec.ends_with_target and one.applied_at < math.inf
    return _heal(one, event, now) if ends else (one, [])


def _go_on(one: ActiveFault, *_: object) -> Step:
    if one.applied_at == math.inf:
        inject: Call = "find" if one.fault.spec.is_found_first else "inject"
        return replace(one, injecting=True), [inject]
    return one, ["restore", *_heal_in_time(one)]


# --- A fault that ends its target -------------------------------------------------------------


def _exit(one: ActiveFault, event: Exited, now: Situation) -> Step:
    """Attribute an exit after the signal of a fault to it, whatever its code.

    A program may well save and exit with 0. By the engine's stamp, the task may also have ended
    before the signal.
    """
    kind, asked_at = one.ending, now.asked_at if one.asked_at is None else one.asked_at
    assert kind is not None
    if event.was_before(asked_at):
        before = f"{event.task} had ended before, with exit code {event.exit_code}"
        return _end(one, "skipped", before)
    if other := kind.other_cause(event.exit_code, oom_killed=event.oom_killed):
        done = f": {one.effect}" if one.is_milder else ""
        return _end(one, "failed", f"{event.task} {other}{done}")
    at = max(one.triggered_at, now.time - max(0.0, now.wall - event.wall))
    by_sigkill = event.exit_code == 128 + signal.SIGKILL and not event.oom_killed
    itself = now.kill_slack is not None and kind.kills_after is not None
    was_late = itself or not event.was_before(one.killed_at)
    evidence = {
        "exit_code": event.exit_code,
        "seconds": round(at - one.triggered_at, 6),
        "killed": by_sigkill if one.is_milder else kind.kills or (by_sigkill and was_late),
        "effect": one.effect or None,
        "silent": (kind.is_silent and (kind.kills or one.killed_at < math.inf)) or None,
    }
    one = replace(one, stage="down" if kind.restarts_target else "over")
    one, actions = _apply(one, at, evidence, wall=max(event.wall, asked_at))
    return one, [*actions, *_heal_in_time(one)]


def _leave(one: ActiveFault, event: Exited, now: Situation) -> Step:
    """Attribute an exit after the announcement of a fault to it: the target has left in time."""
    if now.wall - event.wall > now.time - one.announced_at:
        return one, []  # it had ended before
    at = max(one.announced_at, now.time - max(0.0, now.wall - event.wall))
    one = replace(one, stage="down", triggered_at=at, effect=LEFT)
    evidence = {"exit_code": event.exit_code, "seconds": 0.0, "killed": False, "effect": LEFT}
    one, applied = _apply(one, at, evidence, wall=event.wall)
    return one, [Write("triggered", {"effect": LEFT}, event.wall), *applied, *_heal_in_time(one)]


def _give_up(one: ActiveFault, *_: object) -> Step:
    # The end of the job kills the target, which is not what a grace period does.
    if (one.ending is not None and one.ending.kills) or one.killed_at < math.inf:
        return one, []
    return _end(one, "failed", "the job ended before the task did")


def _outlast(one: ActiveFault, *_: object) -> Step:
    # A target that was asked to end still may: other tasks may fail because it has, and be
    # reported first. Its exit tells, or "given up".
    return (one, []) if one.applied_at == math.inf else (replace(one, stage="over"), [])


def _kill_in_time(one: ActiveFault, now: Situation) -> list[Action]:
    """Have the target killed after its grace period, if it has one.

    An engine that kills it itself gets so much longer that only a target which it has not ended,
    such as one on a lost node, is killed a second time.
    """
    after, again = one.fault.spec.kills_after, one.fault.spec.repeats_after
    if after is None:
        return []
    more = [] if again is None else [At(one.triggered_at + again, "repeat it")]
    return [*more, At(one.triggered_at + after + (now.kill_slack or 0.0), "grace over")]


def _asked(one: ActiveFault, answer: Called, now: Situation) -> Step:
    effect = answer.effect.words or one.effect
    one = replace(one, injecting=False, effect=effect, is_milder=answer.effect.is_milder)
    return _kill(one, answer, now) if one.grace_is_over else (one, [])


def _kill(one: ActiveFault, _: object, now: Situation) -> Step:
    if one.injecting:
        return replace(one, grace_is_over=True), []
    return replace(one, killed_at=now.wall), ["kill"]


def _repeat(one: ActiveFault, *_: object) -> Step:
    return one, ["repeat"]


def _terminate_again(one: ActiveFault, _: object, now: Situation) -> Step:
    if now.target != "running":
        return _end(one, "skipped", f"{one.fault.target} was not running")
    kill = _kill_in_time(one, now)
    if kill and now.kill_slack is None:
        return one, kill
    return replace(one, injecting=True), [*kill, "inject"]  # one that was asked does nothing


def _start(one: ActiveFault, _: object, now: Situation) -> Step:
    starts = not one.healing and now.target == "down"
    return replace(one, healing=True), ["start"] if starts else []


def _back(one: ActiveFault, *_: object) -> Step:
    one = replace(one, restored=one.applied_at < math.inf)
    return _end(one, "healed") if one.stage == "down" else (one, [])


def _end(
    one: ActiveFault, stage: FaultStage, reason: str | None = None, *, wall: float | None = None
) -> Step:
    return replace(one, stage="over"), [Write(stage, {"reason": reason}, wall)]


def _apply(
    one: ActiveFault, at: float, evidence: Mapping[str, Any], *, wall: float | None = None
) -> Step:
    """Let a fault have taken effect at a monotonic time."""
    if one.applied_at < math.inf:
        return one, []  # the killed supervisor has written it
    return replace(one, applied_at=at), [Write("applied", evidence, wall)]


def _heal_in_time(one: ActiveFault) -> list[Action]:
    """Have a fault healed when its time is over, counted from when it took effect."""
    after = one.fault.spec.heals_after
    lasts = one.stage in ("active", "down") and after < math.inf
    begin = one.applied_at
    if one.announced_at < math.inf and one.ending is not None:
        # A target that leaves early is not replaced before its machine is gone.
        begin = max(begin, one.announced_at + one.fault.spec.announced_before)
    return [At(begin + after, "time over")] if lasts else []


Row = Callable[[ActiveFault, Any, Situation], Step]

STAGES: Mapping[Stage, Mapping[object, Row]] = {
    "planned": {Since: _wait, "due": _trigger, JobOver: _never},
    "waiting": {
        Since: _follow,
        "due": _trigger,
        "watch": _caught,
        "refused": lambda one, answer, _: _end(one, "failed", answer.error.message),
        "watched again": lambda one, *_: (one, _watch(one)),
        "resumed": lambda one, *_: (one, _watch(one)),
        JobOver: _never,
    },
    "preparing": {
        Preparing: lambda one, event, _: (one, [Write("preparing", {"reason": event.what})]),
        "equip": _trigger,
        "refused": lambda one, answer, _: _end(one, "failed", answer.error.message),
        "time over": _cancel,
        JobOver: lambda one, *_: _end(one, "skipped", "the job ended before the engine was ready"),
    },
    "announced": {
        "due": _trigger,
        "announce": lambda one, *_: (one, []),
        "refused": _refused,
        "time over": _cancel,
        "resumed": lambda one, *_: (one, _announce(one)),
        Exited: _leave,
        JobOver: lambda one, *_: _end(one, "skipped", "the job ended before what was announced"),
    },
    "active": {
        "find": _found,
        "inject": _injected,
        "heal": lambda one, answer, _: _end(
            replace(one, restored=True), "healed", wall=answer.wall
        ),
        "refused": _refused,
        "start": _held,
        "time over": _heal,
        Exited: _left_alone,
        "resumed": _go_on,
        JobOver: _heal,
    },
    "terminating": {
        "inject": _asked,
        "refused": _refused,
        "repeat it": _repeat,
        "grace over": _kill,
        Exited: _exit,
        "resumed": _terminate_again,
        "given up": _give_up,
        JobOver: _outlast,
    },
    "down": {
        "time over": _start,
        "runs": _back,
        "resumed": lambda one, *_: (one, _heal_in_time(one)),
        JobOver: _outlast,
    },
    "over": {
        "runs": _back,
        "stepped": lambda one, _, now: (replace(one, recovered_at=now.time), []),
    },
}
"""What follows from each event in each stage; other events change nothing."""
