"""Performs the timeline of faults: strikes when a trigger fires, heals what it did, and records it.

Every strike is a `fault` event in the history with its `stage`: `triggered`, then `applied` with
the evidence (exit code, what the grace period was used for), then `healed`; or `skipped` and
`failed` with the reason. A fault that was only asked for never counts as applied. Heals run even
when the job ends meanwhile.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from emulator.faults import LASTING, PlannedFault, fires

__all__ = ["Hands", "Injector"]

Stage = Literal["planned", "waiting", "noticed", "impaired", "down", "over"]


class Hands(Protocol):
    """What the injector needs the supervisor to do; each call returns at once."""

    def is_running(self, task: str) -> bool:
        """Say whether the task runs now."""

    def send(self, task: str, number: signal.Signals) -> None:
        """Signal a task."""

    def impair(self, fault: PlannedFault, *, on: bool) -> None:
        """Pause or throttle the fault's target, or let it go on as before."""

    def replace(self, task: str) -> None:
        """Start the task again on a fresh disk."""

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Do something later."""

    def now(self) -> float:
        """Return monotonic seconds."""

    def note(self, event: str, task: str, **data: object) -> None:
        """Write to the history."""


@dataclass
class _Strike:
    fault: PlannedFault
    stage: Stage = "planned"
    since: float = 0.0
    """When the notice was sent."""
    killed: bool = False


class Injector:
    """The faults of one run."""

    def __init__(self, timeline: Sequence[PlannedFault], hands: Hands) -> None:
        self._hands = hands
        self._strikes = [_Strike(fault) for fault in timeline]

    def begin(self) -> None:
        """All tasks run for the first time: triggers by time count from here."""
        for strike in self._strikes:
            strike.stage = "waiting"
            if strike.fault.trigger.time is not None:
                due = strike.fault.trigger.time
                self._hands.after(due, partial(self._trigger, strike))

    def heard(self, task: str, line: str, event: str, data: Mapping[str, object]) -> None:
        """See whether a line, and the step or phase in it, triggers anything."""
        for strike in self._strikes:
            if strike.stage == "waiting" and fires(
                strike.fault.trigger, task, event=event, data=data, line=line
            ):
                self._trigger(strike)

    def takes(self, task: str, exit_code: int) -> str:
        """Return the id of the preemption that an exit belongs to, which then deals with it."""
        for strike in self._strikes:
            fault = strike.fault
            if fault.target != task or strike.stage != "noticed":
                continue
            if exit_code == 0:
                strike.stage = "over"
                self._write(strike, "skipped", reason=f"{task} finished by itself meanwhile")
                return ""
            evidence = {
                "exit_code": exit_code,
                "seconds": round(self._hands.now() - strike.since, 6),
                "killed": strike.killed,
            }
            self._write(strike, "applied", **evidence)
            if fault.kind == "preempt":
                strike.stage = "down"
                if fault.down != math.inf:
                    self._hands.after(fault.down, partial(self._bring_back, strike))
                return fault.id
            strike.stage = "over"  # kill, terminate: the restart policy decides
            return ""
        return ""

    def running(self, task: str) -> None:
        """A task runs: a preempted one is back."""
        for strike in self._strikes:
            if strike.fault.target == task and strike.stage == "down":
                strike.stage = "over"
                self._write(strike, "healed")

    def impaired(self, fault: str, *, on: bool, error: str) -> None:
        """The engine has paused or throttled a task, or let it go on, or could not."""
        strike = next(s for s in self._strikes if s.fault.id == fault)
        if strike.stage != "impaired":
            return
        if error:
            strike.stage = "over"
            self._write(strike, "failed", reason=error)
        elif on:
            self._write(strike, "applied")
            self._hands.after(strike.fault.duration, partial(self._restore, strike))
        else:
            strike.stage = "over"
            self._write(strike, "healed")

    def end(self) -> None:
        """The job is over: heal what can be healed, and say what never happened."""
        for strike in self._strikes:
            if strike.stage in ("planned", "waiting"):
                strike.stage = "over"
                self._write(strike, "skipped", reason="the job ended before its trigger fired")
            elif strike.stage == "noticed":
                strike.stage = "over"
                self._write(strike, "failed", reason="the job ended before the task did")
            elif strike.stage == "down":
                strike.stage = "over"
            elif strike.stage == "impaired":
                self._hands.impair(strike.fault, on=False)

    # --- Strikes --------------------------------------------------------------------------------

    def _trigger(self, strike: _Strike) -> None:
        if strike.stage != "waiting":
            return
        fault, task = strike.fault, strike.fault.target
        self._write(strike, "triggered")
        if not self._hands.is_running(task):
            strike.stage = "over"
            self._write(strike, "skipped", reason=f"{task} was not running")
            return
        strike.since = self._hands.now()
        if fault.kind in LASTING:
            strike.stage = "impaired"
            self._hands.impair(fault, on=True)
            return
        strike.stage = "noticed"
        if fault.kind == "kill":
            strike.killed = True
            self._hands.send(task, signal.SIGKILL)
            return
        self._hands.send(task, signal.SIGTERM)
        if fault.kind == "preempt":
            self._hands.after(fault.grace, partial(self._kill, strike))

    def _kill(self, strike: _Strike) -> None:
        """End the grace period."""
        if strike.stage == "noticed":
            strike.killed = True
            self._hands.send(strike.fault.target, signal.SIGKILL)

    def _bring_back(self, strike: _Strike) -> None:
        if strike.stage == "down":
            self._hands.replace(strike.fault.target)

    def _restore(self, strike: _Strike) -> None:
        if strike.stage == "impaired":
            self._hands.impair(strike.fault, on=False)

    def _write(self, strike: _Strike, stage: str, **data: object) -> None:
        fault = strike.fault
        self._hands.note("fault", fault.target, id=fault.id, kind=fault.kind, stage=stage, **data)
