"""Performs the timeline of faults: strikes when a trigger fires, heals what it did, and records it.

Every strike is a `fault` event in the history with its `stage`: `triggered`, then `applied` with
the evidence (exit code, what the grace period was used for), then `healed`; or `skipped` and
`failed` with the reason. One that nobody planned may have to wait first until the engine has what
it takes: `preparing`. A fault that was only asked for never counts as applied. Heals run even
when the job ends meanwhile.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from emulator.record.events import Entry, FaultEvent, FaultStage, Step, TaskExit, TaskRunning
from emulator.scenario.faults import LASTING, PlannedFault, belongs, fires, from_json, to_json
from emulator.supervisor.hands import Hands
from emulator.supervisor.strike import Strike

__all__ = ["Injector"]

REPLACED = ("preempt", "restart")
"""Kinds that start their target again themselves."""


class Injector:
    """The faults of one run."""

    def __init__(self, timeline: Sequence[PlannedFault], hands: Hands) -> None:
        self._hands = hands
        self._strikes = [Strike(fault) for fault in timeline]
        self._stepping: set[str] = set()
        """Who has told of steps."""
        self._making = ""
        """What the engine makes now, for strikes that wait for it."""

    def begin(self) -> None:
        """All tasks run for the first time: triggers by time count from here."""
        for strike in self._strikes:
            if strike.stage != "planned":
                continue  # by hand, before
            strike.stage = "waiting"
            if strike.fault.trigger.time is not None:
                due = strike.fault.trigger.time
                self._hands.after(due, partial(self._trigger, strike))

    def heard(self, task: str, line: str, event: str, data: Mapping[str, object]) -> None:
        """See whether a line, and the step or phase in it, triggers anything."""
        if event == "step":
            self._recover(task, self._hands.now())
            self._followed("recovery")
        for strike in self._strikes:
            if strike.stage == "waiting" and fires(
                strike.fault.trigger, task, event=event, data=data, line=line
            ):
                self._trigger(strike)

    def takes(self, task: str, exit_code: int, *, oom_killed: bool = False) -> str:
        """Return the id of the fault that an exit belongs to, if it then deals with it."""
        for strike in self._strikes:
            fault = strike.fault
            if fault.target != task or strike.stage != "noticed":
                continue
            if exit_code == 0:
                strike.stage = "over"
                self._write(strike, "skipped", reason=f"{task} finished by itself meanwhile")
                return ""
            if fault.kind == "oom" and not oom_killed:
                strike.stage = "over"
                self._write(strike, "failed", reason=f"{task} ended otherwise, with {exit_code}")
                return ""
            evidence = {
                "exit_code": exit_code,
                "seconds": round(self._hands.now() - strike.since, 6),
                "killed": strike.killed,
            }
            # What is killed or told to stop is the restart policy's business.
            strike.stage = "down" if fault.kind in REPLACED else "over"
            self._struck(strike, **evidence)
            self._heal_in_time(strike)
            return fault.id if fault.kind in REPLACED else ""
        return ""

    def running(self, task: str) -> None:
        """A task runs: a preempted one is back."""
        for strike in self._strikes:
            if strike.fault.target != task or strike.struck == math.inf:
                continue
            if strike.stage == "down":
                strike.stage = "over"
                self._write(strike, "healed")
            strike.back = True

    def impaired(self, fault: str, *, on: bool, error: str) -> None:
        """The engine has done what `impair` asked for, or could not."""
        strike = self._find(fault)
        if strike is None or strike.stage not in ("impaired", "noticed"):
            return
        if error:
            strike.stage = "over"
            self._write(strike, "failed", reason=error)
            if on and strike.fault.links:
                self._hands.impair(strike.fault, on=False)  # some may have been made
        elif strike.stage == "noticed":
            pass  # squeezed: its exit is what counts
        elif on:
            self._struck(strike)
            self._heal_in_time(strike)
        else:
            strike.stage, strike.back = "over", True
            self._write(strike, "healed")

    def preparing(self, what: str) -> None:
        """The engine makes something now that strikes wait for."""
        self._making = what
        for strike in self._strikes:
            if strike.stage == "preparing":
                self._write(strike, "preparing", reason=what)

    def prepared(self, error: str) -> None:
        """The engine has what strikes wait for, or can't have it."""
        self._making = ""
        for strike in [one for one in self._strikes if one.stage == "preparing"]:
            strike.stage = "over" if error else "waiting"
            if error:
                self._write(strike, "failed", reason=error)
            else:
                self._trigger(strike)

    def strike(self, faults: Sequence[PlannedFault]) -> None:
        """Strike now, by hand: the history gets the plan of it as well."""
        for fault in faults:
            strike = Strike(fault, stage="waiting")
            self._strikes.append(strike)
            self._write(strike, "planned", plan=to_json(fault))
        for fault in faults[:1] if faults[0].kind == "restart" else faults:
            found = self._find(fault.id)
            assert found is not None
            self._trigger(found)

    def heal(self, fault: str) -> list[str]:
        """Heal a fault now (empty: every one) where that can be done; return which."""
        healed = []
        for strike in self._strikes:
            if fault and not belongs(strike.fault, fault):
                continue
            if strike.stage == "impaired" and strike.struck < math.inf and not strike.healing:
                self._restore(strike)
                healed.append(strike.fault.id)
            elif strike.stage == "preparing":
                strike.stage = "over"
                self._write(strike, "skipped", reason="it was healed before it struck")
                healed.append(strike.fault.id)
            elif strike.stage == "down":
                self._bring_back(strike)
                healed.append(strike.fault.id)
        return healed

    def has_noticed(self, task: str) -> bool:
        """Say whether a preemption or a rolling restart has told the task to leave."""
        return any(
            strike.stage == "noticed"
            and strike.fault.target == task
            and strike.fault.kind in REPLACED
            for strike in self._strikes
        )

    def stages(self) -> list[dict[str, str]]:
        """Return every fault with its stage, for whoever asks while it runs."""
        return [
            {"id": s.fault.id, "kind": s.fault.kind, "target": s.fault.target, "stage": s.stage}
            for s in self._strikes
        ]

    def remember(self, history: Sequence[Entry], t: float) -> None:
        """Come to know what a killed supervisor knew, `t` seconds into the run."""
        for entry in history:
            when = self._hands.now() - (t - entry.t)
            if isinstance(entry, Step):
                self._recover(entry.task, when)
            elif isinstance(entry, FaultEvent):
                self._remember(entry, when)
            for strike in self._strikes:
                if strike.fault.target == entry.task and strike.struck < math.inf:
                    strike.back = strike.back or isinstance(entry, TaskRunning)
                    ended = isinstance(entry, TaskExit) and entry.fault == strike.fault.id
                    strike.exited = strike.exited or ended
        for strike in self._strikes:
            if strike.stage == "down" and strike.back:
                strike.stage = "over"
                self._write(strike, "healed")
            elif strike.stage == "down" and not strike.exited:
                strike.stage = "noticed"  # the exit will be told again

    def go_on(self, began: float | None) -> None:
        """Go on from what was remembered; `began` is when all tasks first ran.

        What became due meanwhile is done now.
        """
        for strike in self._strikes:
            time = strike.fault.trigger.time
            if strike.stage == "planned" and began is not None:
                strike.stage = "waiting"
            if strike.stage == "waiting" and time is not None:
                left = (began or 0.0) + time - self._hands.now()
                self._hands.after(max(0.0, left), partial(self._trigger, strike))
            elif strike.stage == "noticed" and not self._hands.is_running(strike.fault.target):
                strike.stage = "over"
                self._write(strike, "skipped", reason=f"{strike.fault.target} was not running")
            elif strike.stage == "noticed":
                self._notice_again(strike)
            elif strike.stage == "impaired" and (strike.struck == math.inf or strike.fault.links):
                self._hands.impair(strike.fault, on=True)  # of links only the last one knew
            else:
                self._heal_in_time(strike)
        self._followed("after")
        self._followed("recovery")

    def _remember(self, entry: FaultEvent, when: float) -> None:
        """Bring one strike as far as an event of it says."""
        strike = self._find(entry.id)
        stage = entry.stage
        if entry.plan is not None:
            self._strikes.append(Strike(from_json(entry.plan), stage="waiting"))
        if strike is None:
            return
        kind = strike.fault.kind
        match stage:
            case "triggered":
                strike.stage = "impaired" if kind in LASTING else "noticed"
                strike.since = when
            case "applied":
                strike.struck = when
                if kind not in LASTING:
                    strike.stage = "down" if kind in REPLACED else "over"
            case "healed":
                strike.stage, strike.back = "over", True
            case "skipped" | "failed":
                strike.stage = "over"

    def _notice_again(self, strike: Strike) -> None:
        """See to it that a task which was told to leave does; it may have been gone for long."""
        fault = strike.fault
        if fault.kind in REPLACED:
            left = strike.since + fault.grace - self._hands.now()
            self._hands.after(max(0.0, left), partial(self._kill, strike))
        elif fault.kind == "oom":
            self._hands.impair(fault, on=True)
        else:
            number = signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM
            self._hands.send(fault.target, number)

    @property
    def healing(self) -> bool:
        """Whether the engine has still to say that something is healed."""
        return any(strike.stage == "impaired" and strike.healing for strike in self._strikes)

    def end(self) -> None:
        """The job is over: heal what can be healed, and say what never happened."""
        for strike in self._strikes:
            if strike.stage in ("planned", "waiting"):
                strike.stage = "over"
                self._write(strike, "skipped", reason="the job ended before its trigger fired")
            elif strike.stage == "preparing":
                strike.stage = "over"
                self._write(strike, "skipped", reason="the job ended before the engine was ready")
            elif strike.stage == "noticed" and strike.struck == math.inf:
                strike.stage = "over"
                self._write(strike, "failed", reason="the job ended before the task did")
            elif strike.stage in ("noticed", "down"):
                strike.stage = "over"
            elif strike.stage == "impaired":
                self._restore(strike)

    # --- Strikes --------------------------------------------------------------------------------

    def _find(self, fault: str) -> Strike | None:
        return next((s for s in self._strikes if s.fault.id == fault), None)

    def _trigger(self, strike: Strike) -> None:
        if strike.stage != "waiting":
            return
        fault, task = strike.fault, strike.fault.target
        if fault.links and not self._hands.can_shape():
            self._prepare(strike)
            return
        self._write(strike, "triggered")
        if not any(self._hands.is_running(name) for name in fault.tasks):
            strike.stage = "over"
            self._write(strike, "skipped", reason=f"{task} was not running")
            return
        strike.since = self._hands.now()
        if fault.kind in LASTING:
            strike.stage = "impaired"
            self._hands.impair(fault, on=True)
            return
        strike.stage = "noticed"
        if fault.kind == "oom":
            strike.killed = True
            self._hands.impair(fault, on=True)
            return
        if fault.kind == "kill":
            strike.killed = True
            self._hands.send(task, signal.SIGKILL)
            return
        self._hands.send(task, signal.SIGTERM)
        if fault.kind in REPLACED:
            self._hands.after(fault.grace, partial(self._kill, strike))

    def _prepare(self, strike: Strike) -> None:
        """Have the engine make what the strike takes, once for all that wait for it."""
        others = any(one.stage == "preparing" for one in self._strikes)
        strike.stage = "preparing"
        if not others:
            self._hands.equip()
        elif self._making:
            self._write(strike, "preparing", reason=self._making)

    def _struck(self, strike: Strike, **evidence: object) -> None:
        if strike.struck == math.inf:  # else a supervisor that was killed has written it
            strike.struck = self._hands.now()
            self._write(strike, "applied", **evidence)
            self._followed("after")

    def _heal_in_time(self, strike: Strike) -> None:
        """Heal a strike by itself when its time is over, counted from when it took effect."""
        fault = strike.fault
        heal, lasts = {
            "impaired": (self._restore, fault.duration),
            "down": (self._bring_back, fault.down if fault.kind == "preempt" else 0.0),
        }.get(strike.stage, (self._restore, math.inf))
        if lasts != math.inf:
            left = strike.struck + lasts - self._hands.now()
            self._hands.after(max(0.0, left), partial(heal, strike))

    def _recover(self, task: str, when: float) -> None:
        """Note of which strikes a step of `task` shows that they are over."""
        self._stepping.add(task)
        for strike in self._strikes:
            if strike.back and strike.recovered == math.inf and self._shows(strike, task):
                strike.recovered = when

    def _shows(self, strike: Strike, task: str) -> bool:
        """Say whether a step of `task` shows that the job is over the strike.

        In a rolling restart the restarted task has to step itself, where it is one that does.
        """
        fault = strike.fault
        if fault.kind != "restart" or fault.target not in self._stepping:
            return True
        return task == fault.target

    def _followed(self, what: Literal["after", "recovery"]) -> None:
        """Trigger what waits for faults all of whose strikes have come that far."""
        for strike in self._strikes:
            reference = getattr(strike.fault.trigger, what)
            if strike.stage != "waiting" or reference is None:
                continue
            first = [s for s in self._strikes if belongs(s.fault, reference)]
            times = [s.struck if what == "after" else s.recovered for s in first]
            if (came := max(times, default=math.inf)) < math.inf:
                strike.stage = "planned"  # not to be triggered twice
                left = came + strike.fault.trigger.delay - self._hands.now()
                self._hands.after(max(0.0, left), partial(self._now, strike))

    def _now(self, strike: Strike) -> None:
        if strike.stage == "planned":
            strike.stage = "waiting"
            self._trigger(strike)

    def _kill(self, strike: Strike) -> None:
        """End the grace period."""
        if strike.stage == "noticed":
            strike.killed = True
            self._hands.send(strike.fault.target, signal.SIGKILL)

    def _bring_back(self, strike: Strike) -> None:
        if strike.stage == "down" and not strike.healing:
            strike.healing = True
            self._hands.bring_back(strike.fault)

    def _restore(self, strike: Strike) -> None:
        if strike.stage == "impaired" and not strike.healing:
            strike.healing = True
            self._hands.impair(strike.fault, on=False)

    def _write(self, strike: Strike, stage: FaultStage, **data: Any) -> None:  # noqa: ANN401
        fault = strike.fault
        self._hands.note(
            FaultEvent(
                task="" if fault.links else fault.target,
                id=fault.id,
                kind=fault.kind,
                stage=stage,
                target=fault.target if fault.links else None,
                **data,
            )
        )
