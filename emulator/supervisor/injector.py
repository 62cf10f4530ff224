"""Performs the schedule of faults: injects them when their triggers fire, heals, and records it.

Every fault is a series of `fault` events in the history, with their `stage`: `triggered`, then
`applied` with the evidence (exit code, use of the grace period), then `healed`; or `skipped` or
`failed` with the reason. A lasting fault of a task that starts again is `reapplied`. A manual fault
may have to wait first until the engine has made what it needs: `preparing`; one that its target is
told of is `announced` some time before it is triggered. A fault whose effect is
not confirmed never counts as applied. Heals are performed even if the job ends meanwhile.

`fault_stages.py` decides what follows from an event; this finds out which events faults get, and
does what follows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Literal, get_args

from emulator.faults.schedule import PlannedFault, is_part_of, to_json, trigger_matches
from emulator.record.events import FaultEvent, Reaction
from emulator.supervisor.complaints import Complaints
from emulator.supervisor.fault_stages import (
    ActiveFault,
    At,
    Event,
    JobOver,
    Since,
    Situation,
    TargetState,
    Write,
    next_stage,
)
from emulator.supervisor.task_processes import listed
from emulator.validation.patterns import TooSlow

if TYPE_CHECKING:
    from emulator.engines.base import Exited
    from emulator.faults.preempt import EndingFault
    from emulator.faults.spec import Trigger
    from emulator.record.events import FaultStage
    from emulator.supervisor.engine_calls import Called, Preparing
    from emulator.supervisor.job import Job


LONGEST_REACTION = 200
"""Characters of the first line after a notice that are kept."""


class Injector:
    """The faults of one run: those of the plan in its order, manual ones after them."""

    def __init__(
        self, planned: Sequence[PlannedFault], recovered: Sequence[ActiveFault], job: Job
    ) -> None:
        """`recovered`: those of a run that is taken over, as its supervisor left them."""
        known = recovered or [ActiveFault(fault) for fault in planned]
        self._faults = {one.fault.id: one for one in known}
        self._job, self._timers, self._calls = job, job.timers, job.calls
        self._making = ""
        """What the engine is making, for faults that wait for it."""
        self._delayed: list[tuple[PlannedFault, EndingFault]] = []
        """Those whose targets start once all tasks of the job have ended."""
        self._noticed: dict[str, tuple[str, float]] = {}
        """The tasks that have got a notice and shown no reaction: the fault, and when (seconds
        since 1970)."""
        self._complaints = Complaints(state.task for state in job.tasks.values())

    # --- The run --------------------------------------------------------------------------------

    def begin(self, *, before_training: bool = False) -> None:
        """All tasks of the training, or before it, run for the first time.

        From here, triggers by time count of the faults on these tasks.
        """
        for one in self._faults.values():
            if one.stage == "planned" and self._is_before_training(one) == before_training:
                self._advance(one, Since(self._timers.now()))
        # What they follow may have happened before training.
        self._trigger_followers("after", "recovery")

    def resume(self, *, before_training: float | None, all_running: float | None) -> None:
        """Continue with faults as a killed supervisor left them.

        The times are when all tasks before training, and all of the training, first ran; what
        became due meanwhile is done now.
        """
        for one in self._faults.values():
            since = before_training if self._is_before_training(one) else all_running
            if one.stage == "waiting" and one.fault.trigger.time is not None:
                self._advance(one, Since(since or 0.0))
            elif one.stage == "planned" and since is not None:
                self._advance(one, Since(since))
            else:
                self._advance(one, "resumed")
        self._trigger_followers("after", "recovery")

    def _is_before_training(self, one: ActiveFault) -> bool:
        """Return whether the fault is on tasks alone that end before training, or waits for one."""
        tasks = {one.fault.watched} if one.fault.watched else {*one.fault.tasks}
        return bool(tasks) and self._job.before_training.keys() >= tasks

    def settle_history(self) -> None:
        """After a take-over, update the faults whose target was down."""
        for one in self._faults.values():
            if one.stage == "down" and one.restored:
                self._advance(one, "runs")

    @property
    def healing(self) -> bool:
        """Whether a heal has no answer of the engine yet."""
        return any(one.stage == "active" and one.healing for one in self._faults.values())

    @property
    def in_force(self) -> bool:
        """Whether a fault is under way, of whatever task."""
        return any(one.stage not in ("planned", "waiting", "over") for one in self._faults.values())

    @property
    def awaits_output(self) -> bool:
        """Whether a line may trigger a fault, or a target is about to end."""
        return any(
            one.is_ending or (one.stage in ("planned", "waiting") and one.fault.trigger.by_output)
            for one in self._faults.values()
        )

    def end(self) -> None:
        """The job has ended: heal what can be healed, and record what never happened."""
        steps = {name: task.step for name, task in self._job.tasks.items()}
        over = JobOver(steps, self._job.evaluators)
        for one in self._faults.values():
            self._advance(one, over)

    # --- From the tasks -------------------------------------------------------------------------

    def on_output(
        self,
        task: str,
        line: str | None,
        event: str,
        data: Mapping[str, object],
        *,
        goes_on: bool = False,
    ) -> None:
        """Trigger the faults that wait for this line, or for the step or phase in it.

        `line` is None while it is not finished; `goes_on`: the job does, with this step.
        """
        if goes_on:
            for one in self._faults.values():
                target = self._job.tasks.get(one.fault.target)
                steps = target is not None and target.step is not None
                waits = one.restored and one.recovered_at == math.inf
                if waits and one.is_recovered_by(task, target_steps=steps):
                    self._advance(one, "stepped")
            self._trigger_followers("recovery")
        for one in self._faults.values():
            if one.stage == "waiting" and self._fires(one.fault.trigger, task, line, event, data):
                self._advance(one, "due")

    def _fires(
        self,
        trigger: Trigger,
        task: str,
        line: str | None,
        event: str,
        data: Mapping[str, object],
    ) -> bool:
        """Return whether a trigger fires; one whose pattern takes too long never does."""
        if trigger.log in self._job.slow_patterns:
            return False
        evaluators = self._job.evaluators
        try:
            return trigger_matches(
                trigger, task, event=event, data=data, line=line, evaluators=evaluators
            )
        except TooSlow as slow:
            self._job.do_without(slow.pattern, task)
            return False

    def on_line(self, task: str, line: str, wall: float) -> None:
        """A task has printed a line that is no step or phase: it may react to a fault with it."""
        if (complaint := self._complaints.on_line(task, line)) is not None:
            self._job.history.write(complaint, wall=wall)
        fault, since = self._noticed.get(task, ("", math.inf))
        if wall >= since and line.strip():
            del self._noticed[task]
            reaction = Reaction(task=task, fault=fault, line=line.strip()[:LONGEST_REACTION])
            self._job.history.write(reaction, wall=wall)

    def on_running(self, task: str) -> None:
        """A task runs: a preempted one is back, and faults that became due meanwhile happen."""
        for one in self._faults.values():
            if one.is_due and task in one.fault.tasks:
                self._advance(one, "due")
            elif one.stage == "waiting" and one.fault.watched == task:
                self._advance(one, "watched again")
            elif one.fault.target == task:
                self._advance(one, "runs")

    def on_exit(self, event: Exited) -> str:
        """Return the id of the fault that caused an exit, if that fault starts the task again.

        Every fault whose signal came before it has taken effect: a task that is preempted may be
        killed in its grace period. That it left because of an announcement is its doing if nothing
        was signalled.
        """
        self._noticed.pop(event.task, None)
        ending = [
            one for one in self._faults.values() if one.fault.target == event.task and one.is_ending
        ]
        causes = [one for one in ending if one.stage == "terminating"] or ending[:1]
        replacing = [one.fault.id for one in causes if one.fault.spec.replaces_target]
        if replacing and event.outlived is not None:
            # Before the fault has taken effect, which stands just before the exit.
            self._job.history.write(listed(event.task, replacing[0], "end", event.outlived))
        for one in self._faults.values():
            if one.stage == "active" and one.fault.target == event.task:
                self._advance(one, event)
        for one in causes:
            self._job.tasks[event.task].leaving_since = self._calls.asked_at(one.fault)
            self._advance(one, event)
        ids = (one.fault.id for one in causes)
        return next((id_ for id_ in ids if self._faults[id_].stage == "down"), "")

    def is_terminating(self, task: str) -> bool:
        """Return whether a fault has asked the task to end, and nothing else needs to.

        While the job goes on, that is for a fault to say which starts the task again.
        """
        return any(
            one.stage == "terminating"
            and one.fault.target == task
            and (one.fault.spec.restarts_target or self._job.end is not None)
            for one in self._faults.values()
        )

    def give_up(self, task: str) -> None:
        """The job has ended and the task is killed."""
        for one in self._faults.values():
            if one.fault.target == task:
                self._advance(one, "given up")

    # --- From the engine ------------------------------------------------------------------------

    def on_answer(self, call: Called) -> None:
        """The engine has injected or healed a fault, or made what faults wait for; or refused.

        Or it has started a task again, with the faults that hold on it.
        """
        ids = [*call.held] if call.operation == "start" else [call.subject]
        if call.operation == "equip":
            self._making = ""
            ids = [id_ for id_, one in self._faults.items() if one.stage == "preparing"]
        for id_ in ids:
            self._advance(self._faults[id_], call)

    def on_preparing(self, event: Preparing) -> None:
        """The engine has begun to make something that faults wait for."""
        self._making = event.what
        for one in self._faults.values():
            self._advance(one, event)

    # --- From outside ---------------------------------------------------------------------------

    def inject_now(self, faults: Sequence[PlannedFault]) -> None:
        """Inject manual faults; their plan goes into the history."""
        for one in [ActiveFault(fault) for fault in faults if fault.id not in self._faults]:
            self._faults[one.fault.id] = one
            self._write(one.fault, Write("planned", {"plan": to_json(one.fault)}))
            self._advance(one, Since(self._timers.now()))

    def heal_now(self, fault: str) -> list[str]:
        """Heal a fault (empty: every one) if that is possible; return the ids."""
        healed = [one for one in self._faults.values() if one.can_be_healed]
        healed = [one for one in healed if not fault or is_part_of(one.fault, fault)]
        for one in healed:
            self._advance(one, "time over")
        return [one.fault.id for one in healed]

    def stages(self) -> list[dict[str, str]]:
        """Return every fault with its stage."""
        faults = [(one.fault, one.stage) for one in self._faults.values()]
        return [{"id": f.id, "kind": f.kind, "target": f.target, "stage": s} for f, s in faults]

    # --- One fault ------------------------------------------------------------------------------

    def _advance(self, one: ActiveFault, event: Event) -> None:
        """Bring a fault into the stage that follows from an event, and do what that needs."""
        fault, calls = one.fault, self._calls
        one, actions = next_stage(self._faults[fault.id], event, self._situation(fault))
        self._faults[fault.id] = one
        for action in actions:
            match action:
                case Write():
                    self._write(fault, action)
                case At(when=when, event=then):
                    self._timers.at(when, self._advance, one, then)
                case PlannedFault():
                    self.inject_now([action])
                case "announce" | "find" | "inject" | "repeat" | "kill" | "heal":
                    calls.perform(action, fault, self._announced(one), one.found)
                case "restore":
                    calls.restore(fault)
                case "equip":
                    calls.equip()
                case "watch":
                    calls.watch(fault)
                case "let go":
                    calls.let_go(fault)
                case "start" if kind := one.ending:
                    self._bring_back(fault, kind)

    def bring_back_delayed(self) -> None:
        """The tasks of a job that is restarted have all ended: start those that are to be back."""
        delayed, self._delayed = self._delayed, []
        for fault, kind in delayed:
            self._bring_back(fault, kind)

    def _bring_back(self, fault: PlannedFault, kind: EndingFault) -> None:
        """Start a target again, once the rules of its job let it."""
        state = self._job.tasks[fault.target]
        if state.state != "down" or self._job.end is not None:
            return
        if self._job.restarting:  # else it would be stopped again
            self._delayed.append((fault, kind))
            return
        if self._timers.now() < state.due:
            self._timers.at(state.due, self._bring_back, fault, kind)
            return
        self._calls.expect_new_machine(fault)
        fresh, same = kind.fresh_disk, kind.same_address
        self._job.start_task(fault.target, fresh=fresh, same_address=same)

    def _announced(self, one: ActiveFault) -> float:
        """Return when a fault was announced, or else the time now (seconds since 1970)."""
        now, wall = self._timers.now(), self._timers.wall()
        return wall - (now - min(one.announced_at, now))

    def _situation(self, fault: PlannedFault) -> Situation:
        job, calls = self._job, self._calls
        # What is no task is there as long as the job.
        states = {job.tasks[name].state for name in fault.tasks} or {"running"}
        found = (state for state in get_args(TargetState) if state in states)
        target: TargetState = "gone" if job.end is not None else next(found, "gone")
        is_equipped = not fault.spec.parts or calls.can_shape
        others = [one for one in self._faults.values() if one.fault is not fault]
        waits = not is_equipped and any(one.stage == "preparing" for one in others)
        ending = (one.fault for one in others if one.stage == "terminating")
        return Situation(
            time=self._timers.now(),
            wall=self._timers.wall(),
            target=target,
            is_leaving=any(
                one.target == fault.target and one.spec.restarts_target for one in ending
            ),
            job_is_over=job.end is not None,
            is_equipped=is_equipped,
            making=self._making if waits else None,
            kill_slack=calls.kill_slack,
            asked_at=calls.asked_at(fault),
        )

    def _write(self, fault: PlannedFault, what: Write) -> None:
        """Write a stage of a fault; those that wait for it may follow."""
        is_one = fault.spec.hits_tasks and not fault.links
        task, other = (fault.target, None) if is_one else ("", fault.target)
        entry = FaultEvent(
            task=task, id=fault.id, kind=fault.kind, stage=what.stage, target=other, **what.data
        )
        written = self._job.history.write(entry, wall=what.wall)
        if fault.spec.replaces_target:
            self._note_notice(fault, what.stage, written.wall)
        if what.stage == "triggered":
            self._complaints.after_fault()
        elif what.stage == "applied":
            self._trigger_followers("after")

    def _note_notice(self, fault: PlannedFault, stage: FaultStage, wall: float) -> None:
        """Look out for what the target does after a notice, until that is off."""
        told = stage == "announced" or (stage == "triggered" and fault.spec.gives_notice)
        if told:
            self._noticed.setdefault(fault.target, (fault.id, wall))
        elif stage in ("skipped", "failed") and fault.id in self._noticed.get(fault.target, ()):
            del self._noticed[fault.target]

    def _trigger_followers(self, *kinds: Literal["after", "recovery"]) -> None:
        """Trigger the faults that wait for others, once all of those have got that far."""
        for what, id_ in product(kinds, self._faults):
            one = self._faults[id_]
            reference = getattr(one.fault.trigger, what)
            if one.stage != "waiting" or reference is None:
                continue
            others = [two for two in self._faults.values() if is_part_of(two.fault, reference)]
            times = [two.applied_at if what == "after" else two.recovered_at for two in others]
            if (latest := max(times, default=math.inf)) < math.inf:
                self._advance(one, Since(latest))
