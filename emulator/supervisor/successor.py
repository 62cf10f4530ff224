"""The supervisor of a run whose supervisor was killed: it comes to know what that one knew.

A kill may fall between any two effects. What was written and not done is done again, what was done
and not written is told again by the engine, and what can't be known is asked of it.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Sequence
from itertools import takewhile
from typing import cast

from emulator.engines.base import Exited, Life, Reattaching, capable
from emulator.record.events import Attached, observed
from emulator.record.folder import Record
from emulator.steps import Observation
from emulator.supervisor import policy
from emulator.supervisor.events import Called, JobEnd
from emulator.supervisor.loop import Supervisor
from emulator.supervisor.state import Resumed, TaskState, resumed

__all__ = ["Successor"]


class Successor(Supervisor):
    """Goes on where another supervisor stopped."""

    def run(self) -> JobEnd:
        """Take over a run whose supervisor was killed, and see it through.

        Raises EngineError, RecordError.
        """
        history, t = Record(self._record.path).history, self._record.t
        found = resumed(self._plan, history)
        if not found.prepared:
            self._engine.tear_down(self._plan.run_id)
            self._write(Attached(pid=os.getpid(), gap=round(t - found.t, 6)))
            return self._from_the_start()
        self._tasks, self._end = found.tasks, found.end
        self._job_restarts, self._all_running = found.job_restarts, found.all_running is not None
        held_back: dict[str, list[Observation]] = {}
        lives = {n: self._life_of(state, found, held_back) for n, state in self._tasks.items()}
        there = capable(self._engine, Reattaching).reattach(
            self._plan, self._record.path, self.inbox, lives
        )
        self._write(Attached(pid=os.getpid(), gap=round(t - found.t, 6)))
        self._injector.remember(history, t)
        for name, steps in held_back.items():
            for step in steps:
                self._write(
                    observed("step", name, step.data), wall=self._record.printed_until(name)
                )
        for name, state in self._tasks.items():
            self._take_over(state, there.get(name), found)
        if self._all_running:
            self._watchdog.begin()
        if self._end is not None:
            self._stop_all()
            self._injector.end()
        else:
            self._go_on(found, self._clock.now() - t)
        self._calls.link()
        return self._see_through()

    def _life_of(
        self, state: TaskState, found: Resumed, held_back: dict[str, list[Observation]]
    ) -> Life:
        """Return what is known of a task's life; note the steps that it told of and none wrote."""
        name = state.task.name
        printed = self._record.printed(name)
        if state.state == "running":
            state.last_words.extend(printed)
            seen = [state.reader.read(line) for line in printed]
            steps = [one for one in seen if one is not None and one.event == "step"]
            held_back[name] = _after(state.step, steps)
            if steps:
                state.step = cast("int", steps[-1].data["step"])
            return Life(printed, 0.0)
        starting = state.state == "starting"
        return Life(printed, found.asked[name] if starting else math.inf)

    def _take_over(self, state: TaskState, identity: str | None, found: Resumed) -> None:
        """Bring one task from where it was to where it is."""
        name = state.task.name
        if state.step is not None:
            self._watchdog.stepped(name)
        match state.state:
            case "running" if identity is None:
                self.inbox.put(Exited(name, self._clock.wall(), 128 + signal.SIGKILL))
            case "starting" if identity is not None:
                self.inbox.put(Called("start", name, answer=identity))
            case "starting" | "backoff" | "pending" if found.end:
                state.state = "ended"
            case "starting" if name in found.replaced:
                state.state = "down"  # the injector brings it back
            case "starting" | "backoff" | "pending" if found.restarting:
                state.state = "ended"  # it starts with the others
            case "starting" | "backoff" | "pending":
                self._start(state)

    def _go_on(self, found: Resumed, began: float) -> None:
        """Go on with a job that is not over; the run began at the time `began`."""
        if (limit := self._plan.scenario.timeout) is not None:
            self._at(max(0.0, began + limit - self._clock.now()), self._out_of_time)
        if found.restarting:
            self._restarting = policy.RestartJob(0.0, found.job_restarts)
            self._stop_all()
            self._restart_job_when_all_ended()
        self._injector.go_on(None if found.all_running is None else began + found.all_running)
        last = found.last_exit
        if last and not found.restarting and self._tasks[last.task].state == "ended":
            self._decide(self._tasks[last.task], last)  # had it been decided: the same again
        self._note_all_running()


def _after(last: int | None, steps: Sequence[Observation]) -> list[Observation]:
    """Return the steps after the last that was written: see `emulator/record/coalesce.py`.

    The first step of a life is written at once, so without one there is nothing.
    """
    held_back = list(takewhile(lambda one: one.data["step"] != last, reversed(steps)))
    return held_back[::-1] if len(held_back) < len(steps) else []
