"""The helpers of a run: programs next to the job, which decide nothing about it.

They start before the tasks and are stopped after them. The restart policy, the success rule, the
faults and the watchdog do not know them. One that ends by itself, or can't be started, is in the
history, and the job continues without it.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from emulator.record.events import HelperEvent, HelperStage

if TYPE_CHECKING:
    from emulator.engines.base import Exited
    from emulator.planning.plan import Plan, Task
    from emulator.record.timeline import Timeline
    from emulator.supervisor.engine_calls import EngineCalls
    from emulator.supervisor.history import HistoryWriter
    from emulator.supervisor.timers import Timers

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL when no task runs any more."""
LAST_WORDS = 5
"""Lines of a helper that has ended which are in the history."""
LONGEST_WORD = 300
"""Characters of each."""

State = Literal["pending", "starting", "running", "ended"]


@dataclass
class HelperState:
    """One helper, as the supervisor knows it."""

    task: Task
    state: State = "pending"
    exit_code: int | None = None
    stop_sent: bool = False
    early_exit: Exited | None = None
    """It ended before the engine's start call had returned."""
    last_words: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_WORDS))


def pending_helpers(plan: Plan) -> dict[str, HelperState]:
    """Return the helpers of a run that has not begun."""
    return {helper.name: HelperState(helper) for helper in plan.helpers}


def recovered_helpers(timeline: Timeline) -> dict[str, HelperState]:
    """Return the helpers as a killed supervisor knew them (pure)."""
    helpers = pending_helpers(timeline.plan)
    for name, event in timeline.helpers.items():
        helpers[name].state = _STATES[event.stage]
        helpers[name].exit_code = event.exit_code
        helpers[name].stop_sent = event.stage == "stopping"
    return helpers


_STATES: Mapping[HelperStage, State] = {
    "starting": "starting",
    "running": "running",
    "stopping": "running",
    "ended": "ended",
    "failed": "ended",
}


class Helpers:
    """The helpers of one run."""

    def __init__(
        self,
        helpers: Mapping[str, HelperState],
        *,
        timers: Timers,
        calls: EngineCalls,
        history: HistoryWriter,
    ) -> None:
        self._helpers, self._timers, self._calls = helpers, timers, calls
        self._history = history
        self._stopping = False

    def __contains__(self, name: str) -> bool:
        return name in self._helpers

    @property
    def starting(self) -> bool:
        """Whether the engine has not answered yet for one that it was asked to start."""
        return any(one.state == "starting" for one in self._helpers.values())

    @property
    def anything_left(self) -> bool:
        """Whether one is starting or running."""
        return any(one.state in ("starting", "running") for one in self._helpers.values())

    def states(self) -> dict[str, dict[str, object]]:
        """Return `state` and `exit_code` of each."""
        return {
            name: {"state": one.state, "exit_code": one.exit_code}
            for name, one in self._helpers.items()
        }

    # --- What happens -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Start them all."""
        for one in self._helpers.values():
            self._start(one)

    def resume(self, started: Mapping[str, str], *, job_is_over: bool) -> None:
        """Continue after a take-over; `started` has the ids of what the engine has started."""
        for name, one in self._helpers.items():
            if one.state == "running" and name not in started:
                self._end(one, 128 + signal.SIGKILL)
            elif one.state == "starting" and name in started:
                self.on_started(name, started[name])
            elif one.state in ("pending", "starting") and job_is_over:
                one.state = "ended"
            elif one.state in ("pending", "starting"):
                self._start(one)

    def on_line(self, name: str, text: str) -> None:
        """One printed a line."""
        if text.strip():
            self._helpers[name].last_words.append(text[:LONGEST_WORD])

    def on_started(self, name: str, identity: str) -> None:
        """The engine has started one."""
        one = self._helpers[name]
        one.state = "running"
        self._write(one, "running", id=identity)
        if one.early_exit is not None:
            self.on_exit(one.early_exit)
        elif self._stopping:
            self._stop(one)

    def on_refused(self, name: str, reason: str) -> None:
        """The engine can't start one."""
        one = self._helpers[name]
        one.state = "ended"
        self._write(one, "failed", reason=reason)

    def on_exit(self, event: Exited) -> None:
        """One has ended."""
        one = self._helpers[event.task]
        if one.state == "starting":
            one.early_exit = event
        else:
            self._end(one, event.exit_code)

    def on_stop_refused(self, name: str, number: str, reason: str) -> None:
        """The engine can't signal one; after SIGKILL only its removal can end it."""
        one = self._helpers[name]
        if number == signal.SIGKILL.name and one.state == "running":
            one.state = "ended"
            self._write(one, "failed", reason=reason)

    def stop(self) -> None:
        """The job is over and its tasks have ended: SIGTERM, and SIGKILL after GRACE."""
        if not self._stopping:
            self._stopping = True
            for one in self._helpers.values():
                self._stop(one)
            self._timers.after(GRACE, self.kill)

    def kill(self) -> None:
        """Kill what still runs."""
        for one in self._helpers.values():
            if one.state == "running":
                self._signal(one, signal.SIGKILL)

    # --- One helper -------------------------------------------------------------------------------

    def _start(self, one: HelperState) -> None:
        one.state = "starting"
        self._write(one, "starting")
        self._calls.start(one.task)

    def _stop(self, one: HelperState) -> None:
        if one.state == "running":
            self._signal(one, signal.SIGTERM)

    def _signal(self, one: HelperState, number: signal.Signals) -> None:
        one.stop_sent = True
        self._write(one, "stopping", signal=number.name)
        self._calls.stop(one.task.name, number)

    def _end(self, one: HelperState, exit_code: int) -> None:
        one.state, one.exit_code = "ended", exit_code
        told, words = one.stop_sent, tuple(one.last_words)
        self._write(
            one,
            "ended",
            exit_code=exit_code,
            told_to_stop=told or None,
            last_words=None if told else words,
        )

    def _write(self, one: HelperState, stage: HelperStage, **data: Any) -> None:  # noqa: ANN401
        self._history.write(HelperEvent(task=one.task.name, stage=stage, **data))
