"""The witness of saves: `watch.py`, a program beside the tasks, tells what files become.

It runs on a thread of its own, and nothing waits for it but the end of a run, for a moment.
"""

from __future__ import annotations

import json
import math
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.engines.base import Engine, Inbox, Watched
from emulator.errors import EmulatorError
from emulator.record.events import CheckpointRemoved, CheckpointSaved, Entry, Witness
from emulator.supervisor.witness import watch
from emulator.supervisor.witness.saves import Saves

if TYPE_CHECKING:
    from emulator.runtime.clock import Clock, Workers
    from emulator.supervisor.job import Job

SOON = 0.05
"""Seconds between two looks at what is over, at least."""
LAST_MOMENT = 10.0
"""Seconds at the end of a run in which the witness tells the rest, and is gone."""


@dataclass(frozen=True)
class Saw:
    """The witness has told of something."""

    line: str


class WatchedSaves:
    """Has the files of a run watched, where the engine can do that."""

    def __init__(
        self, engine: Engine, inbox: Inbox, clock: Clock, workers: Workers, job: Job
    ) -> None:
        self._engine = engine if isinstance(engine, Watched) else None
        self._inbox, self._workers, self._clock = inbox, workers, clock
        self._timers, self._history = job.timers, job.history
        self._saves = Saves(job.tasks)
        self._since = clock.wall()
        self._known: dict[tuple[str, str], CheckpointSaved] = {}
        """The saves that a supervisor before this one has told of, and of no removal since."""
        self._begun = self._waits = self._is_over = False
        self.on_shared = False
        """Whether something was saved on the shared volume."""
        self._ended = threading.Event()
        self._end_input: Callable[[], object] = lambda: None

    def take_over(self, history: Sequence[Entry], running: Mapping[str, float]) -> None:
        """Begin anew in a run whose supervisor was killed: what was not seen meanwhile counts.

        `running`: when each task was started that runs (seconds since 1970).
        """
        self._since = history[0].wall
        for entry in history:
            if isinstance(entry, CheckpointSaved):
                self.on_shared |= not entry.task
                self._known[entry.task, entry.path] = entry
            elif isinstance(entry, CheckpointRemoved):
                self._known.pop((entry.task, entry.path), None)
        for task, since in running.items():
            self._saves.runs(task, since)
        self._begin()

    def on_running(self, task: str) -> None:
        """Take note that a task runs; with the first one the witness begins."""
        self._saves.runs(task, self._clock.wall())
        self._begin()

    def _begin(self) -> None:
        if self._engine is not None and not self._begun:
            self._begun = True
            self._workers.aside(self._run)

    def on_exit(self, task: str) -> None:
        """Take note that a task has ended."""
        self._saves.ended(task)

    def on_seen(self, event: Saw) -> None:
        """Record what follows from what was seen."""
        try:
            told = json.loads(event.line)
        except ValueError:  # an error of Python, or of the shell that has none
            told = {"at": self._clock.wall(), "saw": "blind", "in": "shared", "path": ""}
            told["why"] = event.line.strip()[:200]
        self._write(self._saves.see(told))
        self._look_later()

    def end(self) -> None:
        """Have it tell the rest, for a moment; then what is not over is."""
        if not self._begun:
            return
        self._is_over = True
        self._end_input()
        self._ended.wait(LAST_MOMENT)
        others = []
        while True:
            try:
                event = self._inbox.get(timeout=0)
            except queue.Empty:
                break
            if isinstance(event, Saw):
                self.on_seen(event)
            elif isinstance(event, Witness):  # it was refused
                self._history.write(event)
            else:
                others.append(event)
        for event in others:  # such as a request that is to be refused
            self._inbox.put(event)
        self._write(self._saves.settle(math.inf))

    def _run(self) -> None:
        assert self._engine is not None
        program = Path(watch.__file__).read_text("utf-8")
        try:
            self._engine.watch_files(program, self._since, self._told, self._on_opened)
        except EmulatorError as error:
            self._inbox.put(Witness(sees=False, reason=error.message))
        finally:
            self._ended.set()

    def _on_opened(self, end_input: Callable[[], object]) -> None:
        self._end_input = end_input
        if self._is_over:  # the run was shorter than the start of the witness
            end_input()

    def _told(self, line: str) -> None:
        self._inbox.put(Saw(line))

    def _look_later(self) -> None:
        if not self._waits and self._saves.due < math.inf:
            self._waits = True
            self._timers.after(max(SOON, self._saves.due - self._clock.wall()), self._look)

    def _look(self) -> None:
        self._waits = False
        self._write(self._saves.settle(self._clock.wall()))
        self._look_later()

    def _write(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.on_shared |= isinstance(entry, CheckpointSaved) and not entry.task
            if not (isinstance(entry, CheckpointSaved) and self._is_known(entry)):
                self._history.write(entry, wall=entry.wall)

    def _is_known(self, save: CheckpointSaved) -> bool:
        """Return whether a save was told of before a take-over, and is as it was."""
        before = self._known.get((save.task, save.path))
        if before is None or save.wall > before.wall:
            return False
        return (before.bytes, before.count) == (save.bytes, save.count)
