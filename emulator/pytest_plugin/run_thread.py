"""A run on a thread of its own, so that a test can look at it, strike it, and be interrupted.

What waits for it waits for events that it sets, never for its thread: see `waiting.py`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from emulator.api.client import Cluster
from emulator.errors import EmulatorError, UsageError
from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.results import Result, RunCallbacks
from emulator.runtime.waiting import Event, for_event, start

__all__ = ["Running", "RunningCluster"]


class Running:
    """One run; whoever waits for it may be interrupted, and then ends it."""

    def __init__(self, perform: Callable[[RunCallbacks], Result], callbacks: RunCallbacks) -> None:
        """`perform` runs a scenario to its end, telling the callbacks."""
        self.error: BaseException | None = None
        """What went wrong, once it is over."""
        self._result: Result | None = None
        self._raised = False
        self._stop: Callable[[], None] | None = None
        self._asked_to_stop = False
        self._begun = self._called_off = False
        self._lock = threading.Lock()
        self._up, self._over = Event(), Event()
        self._perform = perform
        self._listener = replace(callbacks, reachable=self._up.set, stoppable=self._stoppable)
        self._started = False

    @property
    def finished(self) -> Result | None:
        """What came of it; None while it runs, and where it could not be run to its end."""
        return self._result

    @property
    def over(self) -> bool:
        """Whether it has ended, and all that it made is removed."""
        return self._over.is_set()

    def begin(self) -> None:
        """Return once all tasks run, or all is over. Raises what kept it from running."""
        __tracebackhide__ = True
        self._wait_for(self._up)
        if self.error is not None:
            self._raise(self.error)

    def result(self) -> Result:
        """Wait for the run's end; raises what went wrong with the emulator or the engine."""
        __tracebackhide__ = True
        self._wait_for(self._over)
        if self.error is not None:
            self._raise(self.error)
        assert self._result is not None, "it is over and nothing went wrong"
        return self._result

    def settle(self) -> None:
        """Raise what went wrong, if nobody was told of it."""
        __tracebackhide__ = True
        if self.error is not None and not self._raised:
            self._raise(self.error)

    def _raise(self, error: BaseException) -> NoReturn:
        __tracebackhide__ = True
        self._raised = True
        if isinstance(error, EmulatorError):
            raise error.with_traceback(None)  # a sentence; where it arose says nothing
        raise error

    def ask_to_stop(self) -> None:
        """End the job as Ctrl-C does, and a second time at once; don't wait for it."""
        with self._lock:
            self._asked_to_stop = True
            stop = self._stop
        if stop is not None:
            stop()

    def stop(self) -> None:
        """End the job as Ctrl-C does, unless it was asked to; return when all is removed.

        What interrupts this has the job end at once, and is raised when all is removed.
        """
        if not self._asked_to_stop:
            self.ask_to_stop()
        with self._lock:
            if not self._begun:
                self._called_off = True  # it was interrupted before its thread came that far
                return
        interrupt: BaseException | None = None
        while not self.over:
            try:
                for_event(self._over)
            except BaseException as error:
                interrupt = interrupt or error
                self.ask_to_stop()
        if interrupt is not None:
            raise interrupt

    def _wait_for(self, event: Event) -> None:
        """Begin, unless it has begun, and wait."""
        try:
            if not self._started:
                self._started = True
                start(self._run)  # where a test is ended by force, nothing waits for its cluster
            for_event(event)
        except BaseException:  # Ctrl-C, or a timeout's exception
            self.stop()
            raise

    def _run(self) -> None:
        with self._lock:
            if self._called_off:
                return
            self._begun = True
        try:
            self._result = self._perform(self._listener)
        except BaseException as error:
            self.error = error
        finally:
            self._up.set()
            self._over.set()

    def _stoppable(self, stop: Callable[[], None]) -> None:
        with self._lock:
            self._stop = stop
            asked = self._asked_to_stop
        if asked:
            stop()


class RunningCluster(Cluster):
    """A cluster that a test has started; it is stopped and removed where its `with` block ends."""

    def __init__(self, folder: Path, running: Running) -> None:
        self._running = running
        super().__init__(Record(folder), over=True)  # of it all may be over by now

    def wait(self) -> Result:
        """Wait until the run is over and judged; return what came of it.

        Raises EngineError, RecordError and their kin where it could not be run.
        """
        __tracebackhide__ = True
        return self._running.result()

    def history(self, after: int = -1) -> Iterator[Entry]:
        """Yield events as they happen, from number `after` + 1 on, until the run is over.

        Those of a run that is over already are read from its folder.
        """
        last = after
        with contextlib.suppress(UsageError):
            for entry in super().history(after):
                last = entry.n
                yield entry
        self._running.result()
        yield from (entry for entry in Record(self.folder).history if entry.n > last)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self._running.over:
                self._running.stop()
        finally:
            super().__exit__(kind, error, trace)
