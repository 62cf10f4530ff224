"""Runs side by side; an interrupt ends them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from emulator.runtime.waiting import Event, for_event, start

Stoppable = Callable[[Callable[[], None]], None]
"""Is told how to end a run from another thread, when it has begun."""
Job = Callable[[Stoppable], Path]
"""Runs to its end; returns the folder of the run."""


def together(jobs: Sequence[Job], count: int, done: Callable[[int, Path], None]) -> Sequence[Path]:
    """Do so many jobs at once, and return all folders; each is `done` on the thread of its job.

    The first error, also of `done`, and an interrupt end all runs, and are raised after that.
    """
    return _Together(jobs, count, done).run()


class _Together:
    def __init__(self, jobs: Sequence[Job], count: int, done: Callable[[int, Path], None]) -> None:
        self._jobs, self._done = jobs, done
        self._left: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(jobs)):
            self._left.put(number)
        self._threads = max(1, min(count, len(jobs)))
        self._lock = threading.Lock()
        self._stops: dict[int, Callable[[], None]] = {}
        self._folders: dict[int, Path] = {}
        self._error: BaseException | None = None
        self._ended, self._over = 0, Event()

    def run(self) -> list[Path]:
        """Do all of them; return the folders in order."""
        for _ in range(self._threads):
            start(self._work)
        interrupt: BaseException | None = None
        while not self._over.is_set():
            try:
                for_event(self._over)
            except BaseException as error:
                interrupt = interrupt or error
                self._stop(error)
        if interrupt is not None or self._error is not None:
            raise interrupt or self._error  # type: ignore[misc]
        return [self._folders[number] for number in range(len(self._jobs))]

    def _stop(self, error: BaseException) -> None:
        """Begin no more runs, and end those under way as Ctrl-C does."""
        with self._lock:
            self._error = self._error or error
            stops = list(self._stops.values())
        for stop in stops:
            stop()

    def _work(self) -> None:
        try:
            while self._error is None:
                try:
                    number = self._left.get_nowait()
                except queue.Empty:
                    break
                self._do(number)
        except BaseException as error:  # it must end all, not this thread alone
            self._stop(error)
        finally:
            with self._lock:
                self._ended += 1
                if self._ended == self._threads:
                    self._over.set()

    def _do(self, number: int) -> None:
        def stoppable(stop: Callable[[], None]) -> None:
            with self._lock:
                self._stops[number] = stop
                asked = self._error is not None
            if asked:
                stop()

        folder = self._jobs[number](stoppable)
        with self._lock:
            self._stops.pop(number, None)
            if self._error is not None:
                return
            self._folders[number] = folder
        self._done(number, folder)
