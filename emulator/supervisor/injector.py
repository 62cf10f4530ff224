"""Performs the schedule of faults: injects them when their triggers fire, heals, and records it.

Every fault is a series of `fault` events in the history, with their `stage`: `triggered`, then
`applied` with the evidence (exit code, use of the grace period), then `healed`; or `skipped` or
`failed` with the reason. A lasting fault of a task that starts again is `reapplied`. A manual fault
may have to wait first until the engine has made what it needs: `preparing`. A fault whose effect is
not confirmed never counts as applied. Heals are performed even if the job ends meanwhile.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from emulator.engines.base import Exited
from emulator.errors import EmulatorError, NotRunning
from emulator.faults.schedule import PlannedFault, is_part_of, to_json, trigger_matches, why_unfired
from emulator.faults.spec import NOTHING_MORE, Effect, EndingFault, Trigger
from emulator.record.events import FaultEvent, FaultStage
from emulator.supervisor.job import Job

Stage = Literal["planned", "waiting", "preparing", "terminating", "active", "down", "over"]


@dataclass
class ActiveFault:
    """One fault, with its stage; times are monotonic seconds.

    planned -> waiting for its trigger -> (preparing what the engine needs) -> over, by way of:
    active, if it lasts; terminating, if it ends its target; then down, if it also starts the target
    again.
    """

    fault: PlannedFault
    stage: Stage = "planned"
    is_due: bool = False
    """Its trigger fired while its target was starting: it is injected as soon as that runs."""
    triggered_at: float = 0.0
    asked_at: float = math.nan
    """When a supervisor that was killed had asked the engine for it (seconds since 1970)."""
    killed_at: float = math.inf
    """When its target was sent SIGKILL after its grace period (seconds since 1970)."""
    applied_at: float = math.inf
    exited: bool = False
    """The exit that it caused is in the history (of a supervisor that was killed)."""
    restored: bool = False
    """Its target has run again."""
    recovered_at: float = math.inf
    """When the job has stepped since."""
    healing: bool = False
    injecting: bool = False
    """The engine has not answered yet; it is healed after that, or nobody would undo it."""
    effect: str = ""
    """What the engine says that it did."""

    @property
    def ending(self) -> EndingFault | None:
        """The kind of a fault that ends its target; None for others."""
        return self.fault.spec if isinstance(self.fault.spec, EndingFault) else None

    def is_recovered_by(self, task: str, *, target_steps: bool) -> bool:
        """Return whether a step of `task` shows that the job has recovered.

        In a rolling restart the restarted task has to step itself, if it has ever done so.
        """
        return not self.fault.spec.one_by_one or not target_steps or task == self.fault.target


class Injector:
    """The faults of one run: those of the plan in its order, manual ones after them."""

    def __init__(self, faults: Sequence[ActiveFault], job: Job) -> None:
        self._faults, self._job = list(faults), job
        self._timers, self._calls = job.timers, job.calls
        self._making = ""
        """What the engine is making, for faults that wait for it."""

    # --- The run --------------------------------------------------------------------------------

    def begin(self, *, before_training: bool = False) -> None:
        """All tasks of the training, or before it, run for the first time.

        From here, triggers by time count of the faults on these tasks.
        """
        for one in self._faults:
            if one.stage == "planned" and self._is_before_training(one) == before_training:
                one.stage = "waiting"
                if (time := one.fault.trigger.time) is not None:
                    self._timers.after(time, self._trigger, one)
        # What they follow may have happened before training.
        self._trigger_followers("after")
        self._trigger_followers("recovery")

    def resume(self, *, before_training: float | None, all_running: float | None) -> None:
        """Continue with faults as a killed supervisor left them.

        The times are when all tasks before training, and all of the training, first ran; what
        became due meanwhile is done now.
        """
        for one in self._faults:
            fault, time = one.fault, one.fault.trigger.time
            since = before_training if self._is_before_training(one) else all_running
            if one.stage == "planned" and since is not None:
                one.stage = "waiting"
            if one.stage == "waiting" and time is not None:
                self._timers.at((since or 0.0) + time, self._trigger, one)
            elif one.stage == "terminating" and not self._job.is_running(fault.target):
                self._end_fault(one, "skipped", f"{fault.target} was not running")
            elif one.stage == "terminating":
                self._terminate_again(one)
            elif one.stage == "active" and one.applied_at == math.inf:
                self._inject(one)
            else:
                if one.stage == "active":
                    self._calls.restore(fault)
                self._heal_in_time(one)
        self._trigger_followers("after")
        self._trigger_followers("recovery")

    def _is_before_training(self, one: ActiveFault) -> bool:
        """Return whether the fault is on tasks alone that end before training."""
        return self._job.before_training.keys() >= {*one.fault.tasks}

    def settle_history(self) -> None:
        """After a take-over, update the faults whose target was down."""
        for one in self._faults:
            if one.stage == "down" and one.restored:
                self._end_fault(one, "healed")
            elif one.stage == "down" and not one.exited:
                one.stage = "terminating"  # the engine will report the exit again

    @property
    def healing(self) -> bool:
        """Whether a heal has no answer of the engine yet."""
        return any(one.stage == "active" and one.healing for one in self._faults)

    @property
    def awaits_output(self) -> bool:
        """Whether a line may trigger a fault, or a target is about to end."""
        return any(
            one.stage == "terminating"
            or (one.stage in ("planned", "waiting") and one.fault.trigger.by_output)
            for one in self._faults
        )

    def end(self) -> None:
        """The job has ended: heal what can be healed, and record what never happened.

        A target that was asked to end still may: other tasks may fail because it has, and be
        reported first. Its exit tells, or `give_up`.
        """
        for one in self._faults:
            match one.stage:
                case "planned" | "waiting" if one.is_due:
                    self._end_fault(one, "skipped", f"the job ended before {one.fault.target} ran")
                case "planned" | "waiting":
                    self._end_fault(one, "skipped", self._why_unfired(one))
                case "preparing":
                    self._end_fault(one, "skipped", "the job ended before the engine was ready")
                case "terminating" if one.applied_at == math.inf:
                    pass
                case "terminating" | "down":
                    one.stage = "over"
                case "active":
                    self._restore(one)
                case "over":
                    pass

    def _why_unfired(self, one: ActiveFault) -> str:
        """Return why a fault never happened, at the end of the job."""
        waited = why_unfired(one.fault.trigger, {n: t.step for n, t in self._job.tasks.items()})
        if one.stage == "planned" and one.fault.trigger.by_output:
            waited = "its tasks had not all been running"
        return f"the job ended before its trigger fired: {waited}"

    # --- From the tasks -------------------------------------------------------------------------

    def on_output(
        self, task: str, line: str | None, event: str, data: Mapping[str, object]
    ) -> None:
        """Trigger the faults that wait for this line, or for the step or phase in it.

        `line` is None while it is not finished.
        """
        if event == "step":
            for one in self._faults:
                target = self._job.tasks.get(one.fault.target)
                steps = target is not None and target.step is not None
                if one.restored and one.is_recovered_by(task, target_steps=steps):
                    one.recovered_at = min(one.recovered_at, self._timers.now())
            self._trigger_followers("recovery")
        for one in self._faults:
            if one.stage == "waiting" and trigger_matches(
                one.fault.trigger, task, event=event, data=data, line=line
            ):
                self._trigger(one)

    def on_running(self, task: str) -> None:
        """A task runs: a preempted one is back, and faults that became due meanwhile happen."""
        for one in self._faults:
            if one.is_due and task in one.fault.tasks:
                self._trigger(one)
            if one.fault.target == task and one.applied_at < math.inf and one.stage != "active":
                if one.stage == "down":
                    self._end_fault(one, "healed")
                one.restored = True

    def on_held(self, task: str, held: Mapping[str, EmulatorError | None], *, wall: float) -> None:
        """A task has started again, and has the faults that hold on it again; or was refused."""
        for one in self._faults:
            if one.fault.id not in held or one.stage != "active":
                continue
            if error := held[one.fault.id]:
                self._end_fault(one, "failed", f"{task} started again, and {error.message}")
                self._calls.heal(one.fault)
            elif one.applied_at < math.inf:
                self._write(one, "reapplied", wall=wall)

    def claim_exit(self, event: Exited) -> str:
        """Return the id of the fault that caused an exit, if that fault starts the task again.

        An exit after a fault's signal is the fault's, whatever its code: a program may well save
        and exit with 0. By the engine's stamp, the task may also have ended before the signal.
        """
        task, exit_code = event.task, event.exit_code
        for one in self._faults:
            kind = one.ending
            if kind is None or one.fault.target != task or one.stage != "terminating":
                continue
            asked = self._calls.asked_at(one.fault) if math.isnan(one.asked_at) else one.asked_at
            if event.was_before(asked):
                why = f"{task} had ended by itself before, with exit code {exit_code}"
                self._end_fault(one, "skipped", why)
                return ""
            if other := kind.other_cause(exit_code, oom_killed=event.oom_killed):
                self._end_fault(one, "failed", f"{task} {other}")
                return ""
            one.stage = "down" if kind.restarts_target else "over"
            at = max(one.triggered_at, self._timers.when(event.wall))
            self._applied(
                one,
                at=at,
                wall=max(event.wall, asked),
                exit_code=exit_code,
                seconds=round(at - one.triggered_at, 6),
                killed=self._was_killed(one, kind, event),
                effect=one.effect or None,
                silent=kind.is_silent or None,
            )
            self._heal_in_time(one)
            return one.fault.id if kind.restarts_target else ""
        return ""

    def _was_killed(self, one: ActiveFault, kind: EndingFault, event: Exited) -> bool:
        """Return whether the target of a fault ended by SIGKILL."""
        if kind.kills:
            return True
        if event.exit_code != 128 + signal.SIGKILL or event.oom_killed:
            return False
        by_engine = self._calls.ends_grace_itself(one.fault)
        return by_engine or not event.was_before(one.killed_at)

    def is_terminating(self, task: str) -> bool:
        """Return whether a fault has asked the task to end, and nothing else needs to.

        While the job goes on, that is for a fault to say which starts the task again.
        """
        return any(
            one.stage == "terminating"
            and one.fault.target == task
            and (one.fault.spec.restarts_target or self._job.end is not None)
            for one in self._faults
        )

    def give_up(self, task: str) -> None:
        """The job has ended and the task is killed, which is not what a grace period does."""
        for one in self._faults:
            kind = one.ending
            if kind is None or one.fault.target != task or one.stage != "terminating":
                continue
            if not kind.kills and one.killed_at == math.inf:
                self._end_fault(one, "failed", "the job ended before the task did")

    # --- From the engine ------------------------------------------------------------------------

    def on_answer(
        self,
        fault: str,
        *,
        healed: bool,
        error: EmulatorError | None,
        effect: Effect = NOTHING_MORE,
        wall: float | None = None,
    ) -> None:
        """The engine has injected or healed a fault; or it refused, and `error` says why.

        A target that has just ended can't be held, which is no failure of the engine.

        `wall`: when it was asked to heal it (seconds since 1970). From there the target may run.
        """
        one = next((one for one in self._faults if one.fault.id == fault), None)
        if one is None or one.stage not in ("active", "terminating"):
            return
        one.injecting = False
        if error is not None:
            if isinstance(error, NotRunning) and not healed:
                self._end_fault(one, "skipped", f"{one.fault.target} was not running any more")
            else:
                self._end_fault(one, "failed", error.message)
            if not healed and (one.fault.links or one.fault.spec.is_held):
                self._calls.heal(one.fault)  # a part of it may have been made
        elif healed:
            one.restored = True
            self._end_fault(one, "healed", wall=wall)
        elif one.stage == "terminating":
            one.effect = effect.words or one.effect
        else:
            parts = self._parts_of(one, effect)
            self._plan_now(parts)
            self._applied(one, effect=effect.words or None)
            if one.healing:  # the job has ended meanwhile
                self._calls.heal(one.fault)
            else:
                self._heal_in_time(one)
            for part in parts:
                self._trigger(part)

    def _parts_of(self, one: ActiveFault, effect: Effect) -> list[ActiveFault]:
        """Return the faults that are part of one, less those that are known since a take-over."""
        if self._job.end is not None:
            return []
        known, now = {other.fault.id for other in self._faults}, Trigger.model_construct(time=0.0)
        parts = [
            PlannedFault(f"{one.fault.id}:{spec.target}", spec.target, now, spec, one.fault.name)
            for spec in effect.follow
        ]
        return [ActiveFault(part, stage="waiting") for part in parts if part.id not in known]

    def on_preparing(self, what: str) -> None:
        """The engine has begun to make something that faults wait for."""
        self._making = what
        for one in self._faults:
            if one.stage == "preparing":
                self._write(one, "preparing", reason=what)

    def on_prepared(self, error: str) -> None:
        """The engine has made what faults wait for; or it can't, and `error` says why."""
        self._making = ""
        for one in [one for one in self._faults if one.stage == "preparing"]:
            if error:
                self._end_fault(one, "failed", error)
            else:
                one.stage = "waiting"
                self._trigger(one)

    # --- From outside ---------------------------------------------------------------------------

    def inject_now(self, faults: Sequence[PlannedFault]) -> None:
        """Inject manual faults; their plan goes into the history."""
        added = [ActiveFault(fault, stage="waiting") for fault in faults]
        self._plan_now(added)
        for one in added:
            if one.fault.trigger.time is not None:
                self._trigger(one)

    def _plan_now(self, faults: Sequence[ActiveFault]) -> None:
        """Add faults that the plan does not have; the history gets theirs."""
        self._faults += faults
        for one in faults:
            self._write(one, "planned", plan=to_json(one.fault))

    def heal_now(self, fault: str) -> list[str]:
        """Heal a fault (empty: every one) if that is possible; return the ids."""
        healed = []
        for one in self._faults:
            if fault and not is_part_of(one.fault, fault):
                continue
            if one.stage == "active" and one.applied_at < math.inf and not one.healing:
                self._restore(one)
            elif one.stage == "preparing":
                self._end_fault(one, "skipped", "it was healed before it was injected")
            elif one.stage == "down":
                self._bring_back(one)
            else:
                continue
            healed.append(one.fault.id)
        return healed

    def stages(self) -> list[dict[str, str]]:
        """Return every fault with its stage."""
        faults = [(one.fault, one.stage) for one in self._faults]
        return [{"id": f.id, "kind": f.kind, "target": f.target, "stage": s} for f, s in faults]

    # --- One fault ------------------------------------------------------------------------------

    def _trigger(self, one: ActiveFault) -> None:
        if one.stage != "waiting":
            return
        fault = one.fault
        if fault.spec.parts and not self._calls.can_shape:
            self._prepare(one)
            return
        runs = any(self._job.is_running(name) for name in fault.tasks)
        # A task may print before its engine says that it runs: kubelets are a second late or two.
        one.is_due = not runs and any(self._job.is_starting(name) for name in fault.tasks)
        if one.is_due:
            return
        self._write(one, "triggered")
        if not runs:
            self._end_fault(one, "skipped", f"{fault.target} was not running")
            return
        one.triggered_at = self._timers.now()
        one.stage = "active"
        if one.ending is not None:
            one.stage = "terminating"
        self._inject(one)
        if (kills_after := self._calls.kills_after(fault)) is not None:
            self._timers.after(kills_after, self._kill, one)

    def _inject(self, one: ActiveFault) -> None:
        one.injecting = True
        self._calls.inject(one.fault)

    def _prepare(self, one: ActiveFault) -> None:
        """Have the engine make what the fault needs, once for all faults that wait for it."""
        others = any(other.stage == "preparing" for other in self._faults)
        one.stage = "preparing"
        if not others:
            self._calls.equip()
        elif self._making:
            self._write(one, "preparing", reason=self._making)

    def _terminate_again(self, one: ActiveFault) -> None:
        """After a take-over, make sure that the target ends."""
        kind, kills_after = one.ending, self._calls.kills_after(one.fault)
        if kind is None:
            return
        if kills_after is not None:
            self._timers.at(one.triggered_at + kills_after, self._kill, one)
        if kills_after is None or self._calls.ends_grace_itself(one.fault):
            self._inject(one)  # an engine that was asked already does nothing

    def _kill(self, one: ActiveFault) -> None:
        """End the grace period."""
        if one.stage == "terminating":
            one.killed_at = self._calls.kill(one.fault)

    def _applied(self, one: ActiveFault, *, at: float | None = None, **evidence: Any) -> None:  # noqa: ANN401
        """Record that a fault took effect, at a monotonic time that is now by default."""
        if one.applied_at == math.inf:  # else the killed supervisor has written it
            one.applied_at = self._timers.now() if at is None else at
            self._write(one, "applied", **evidence)
            self._trigger_followers("after")

    def _heal_in_time(self, one: ActiveFault) -> None:
        """Heal a fault when its time is over, counted from when it took effect."""
        if one.stage in ("active", "down") and one.fault.spec.heals_after != math.inf:
            heal = self._restore if one.stage == "active" else self._bring_back
            self._timers.at(one.applied_at + one.fault.spec.heals_after, heal, one)

    def _trigger_followers(self, what: Literal["after", "recovery"]) -> None:
        """Trigger the faults that wait for others, once all of those have got that far."""
        for one in self._faults:
            reference = getattr(one.fault.trigger, what)
            if one.stage != "waiting" or reference is None:
                continue
            others = [other for other in self._faults if is_part_of(other.fault, reference)]
            times = [o.applied_at if what == "after" else o.recovered_at for o in others]
            if (latest := max(times, default=math.inf)) < math.inf:
                one.stage = "planned"  # not to be triggered twice
                self._timers.at(latest + one.fault.trigger.delay, self._trigger_follower, one)

    def _trigger_follower(self, one: ActiveFault) -> None:
        if one.stage == "planned":
            one.stage = "waiting"
            self._trigger(one)

    def _restore(self, one: ActiveFault) -> None:
        if one.stage == "active" and not one.healing:
            one.healing = True
            if not one.injecting:
                self._calls.heal(one.fault)

    def _bring_back(self, one: ActiveFault) -> None:
        """Start the target again."""
        kind, target = one.ending, one.fault.target
        if kind is None or one.stage != "down" or one.healing:
            return
        one.healing = True
        if self._job.end is None and self._job.tasks[target].state == "down":
            same = kind.same_address
            self._job.start_task(target, fresh=kind.replaces_target, same_address=same)

    def _end_fault(
        self,
        one: ActiveFault,
        stage: FaultStage,
        reason: str | None = None,
        *,
        wall: float | None = None,
    ) -> None:
        one.stage = "over"
        self._write(one, stage, wall=wall, reason=reason)

    def _write(
        self,
        one: ActiveFault,
        stage: FaultStage,
        *,
        wall: float | None = None,
        **data: Any,  # noqa: ANN401
    ) -> None:
        fault = one.fault
        self._job.history.write(
            FaultEvent(
                task="" if fault.links else fault.target,
                id=fault.id,
                kind=fault.kind,
                stage=stage,
                target=fault.target if fault.links else None,
                **data,
            ),
            wall=wall,
        )
