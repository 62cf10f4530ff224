"""Finds a job that hangs: its tasks run, and none has stepped for too long.

Real programs do that: a chief whose parameter server died may print its traceback and never exit; a
worker may wait in a collective for a peer that is gone. No task exits, so the restart policy has
nothing to decide. The watchdog kills the tasks that should step, and then it has.
"""

from __future__ import annotations

import signal

from emulator.record.events import Stall
from emulator.supervisor.job import Job


class Watchdog:
    """Kills the tasks that have reported steps when none of them has for `limit` seconds."""

    def __init__(self, limit: float | None, job: Job) -> None:
        self._limit, self._job, self._timers = limit, job, job.timers
        self._stepping: set[str] = set()
        self._latest = 0.0

    def begin(self) -> None:
        """All tasks run for the first time."""
        if self._limit is not None:
            self._latest = self._timers.now()
            self._timers.after(self._limit, self._check)

    def on_running(self) -> None:
        """A task was started again: it gets time to reach a step."""
        self._latest = self._timers.now()

    def on_step(self, task: str) -> None:
        """A task reported a step."""
        self._stepping.add(task)
        self._latest = self._timers.now()

    def _check(self) -> None:
        """Check whether a task has stepped, and again when the limit could next be reached."""
        limit = self._limit or 0.0
        idle = self._timers.now() - self._latest
        hung = sorted(task for task in self._stepping if self._job.is_running(task))
        if idle >= limit and hung:
            for task in hung:
                self._job.history.write(Stall(task=task, seconds=round(idle, 3)))
                self._job.calls.stop(task, signal.SIGKILL)
            self._latest = self._timers.now()
            idle = 0.0
        self._timers.after(limit - idle if idle < limit else limit, self._check)
