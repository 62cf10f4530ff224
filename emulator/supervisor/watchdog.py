"""Ends what can't go on: a job that hangs, and a run whose disk is nearly full.

A job hangs when its tasks run, and none has gone on for too long: made a step that it has not just
reported. An evaluator's steps say nothing of the training (`analysis/steps_made.py`). Real programs
hang: a chief whose parameter server died may print its traceback and never exit; a worker may wait
in a collective for a peer that is gone. No task exits, so the restart policy has nothing to decide.
The watchdog kills the tasks that should step, and then it has.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.errors import RecordError
from emulator.record.events import Stall
from emulator.runtime.files import MAKE_ROOM, is_nearly_full
from emulator.supervisor.timers import Timers
from emulator.validation.units import format_size

if TYPE_CHECKING:
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
        """The job went on with a step of a task."""
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


LOOK_EVERY = 0.5
"""Seconds between two looks at the disks."""


class DiskWatch:
    """Ends a run before a disk that it writes to is full: its results need some room."""

    def __init__(self, folders: Sequence[Path], timers: Timers) -> None:
        self._folders, self._timers = folders, timers

    def begin(self) -> None:
        """Look now and then again and again. Raises RecordError where a disk is nearly full."""
        for folder in self._folders:
            if (free := is_nearly_full(folder)) is not None:
                raise RecordError(
                    f"The disk of {folder} has {format_size(free)} left: the run ends before the "
                    "disk is full, while there is room for its results.",
                    MAKE_ROOM,
                )
        self._timers.after(LOOK_EVERY, self.begin)
