"""Notices a job that hangs: tasks that run, and no step for too long.

Real programs do that: a chief whose parameter server died may print its traceback and never exit; a
worker may sit in a collective whose peer is gone. Nothing exits, so no restart policy would ever be
asked. The tasks that should step are killed, and then it is.
"""

from __future__ import annotations

import signal

from emulator.record.events import Stall
from emulator.supervisor.hands import Hands

__all__ = ["Watchdog"]


class Watchdog:
    """Kills the tasks that have told of steps where none of them does for `limit` seconds."""

    def __init__(self, limit: float | None, hands: Hands) -> None:
        self._limit, self._hands = limit, hands
        self._stepping: set[str] = set()
        self._latest = 0.0

    def begin(self) -> None:
        """All tasks run for the first time."""
        if self._limit is not None:
            self._latest = self._hands.now()
            self._hands.after(self._limit, self._look)

    def running(self) -> None:
        """A task was started again: it gets the time to come as far as a step."""
        self._latest = self._hands.now()

    def stepped(self, task: str) -> None:
        """A task told of a step."""
        self._stepping.add(task)
        self._latest = self._hands.now()

    def _look(self) -> None:
        """See whether anybody has stepped, and look again when the limit could next be reached."""
        limit = self._limit or 0.0
        idle = self._hands.now() - self._latest
        hung = sorted(task for task in self._stepping if self._hands.is_running(task))
        if idle >= limit and hung:
            for task in hung:
                self._hands.note(Stall(task=task, seconds=round(idle, 3)))
                self._hands.send(task, signal.SIGKILL)
            self._latest = self._hands.now()
            idle = 0.0
        self._hands.after(limit - idle if idle < limit else limit, self._look)
