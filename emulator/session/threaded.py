"""A run on a thread of its own: who started it can observe it, inject faults, and be interrupted.

They wait for events that the run sets, never for the thread: see `waiting.py`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from emulator.api.client import Cluster
from emulator.errors import EmulatorError, UsageError
from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.results import Result, RunCallbacks
from emulator.runtime.waiting import Event, for_event, start


class Running:
    """One run; an interrupted wait for it ends it."""

    def __init__(self, perform: Callable[[RunCallbacks], Result], callbacks: RunCallbacks) -> None:
        """`perform` runs a scenario to its end and calls the callbacks."""
        self.error: BaseException | None = None
        """What went wrong, once it has ended."""
        self._result: Result | None = None
        self._raised = False
        self._stop: Callable[[], None] | None = None
        self._asked_to_stop = False
        self._begun = self._called_off = False
        self._lock = threading.Lock()
        self._up, self._over = Event(), Event()
        self._perform = perform
        self._callbacks = replace(callbacks, reachable=self._up.set, stoppable=self._stoppable)
        self._started = False

    @property
    def finished(self) -> Result | None:
        """Its result; None while it runs, and if it could not be run to its end."""
        return self._result

    @property
    def over(self) -> bool:
        """Whether it has ended and its resources are removed."""
        return self._over.is_set()

    def begin(self) -> None:
        """Return once all tasks run, or the run has ended. Raises its error."""
        __tracebackhide__ = True
        self._wait_for(self._up)
        self._raise_error()

    def result(self) -> Result:
        """Wait for the run's end. Raises its error."""
        __tracebackhide__ = True
        self._wait_for(self._over)
        self._raise_error()
        assert self._result is not None, "it has ended without an error"
        return self._result

    def settle(self) -> None:
        """Raise its error, unless it was raised before."""
        __tracebackhide__ = True
        if not self._raised:
            self._raise_error()

    def _raise_error(self) -> None:
        __tracebackhide__ = True
        self._raised = self.error is not None
        if isinstance(self.error, EmulatorError):
            raise self.error.with_traceback(None)  # the sentence says enough
        if self.error is not None:
            raise self.error

    def ask_to_stop(self) -> None:
        """End the job as Ctrl-C does, a second time at once; don't wait for its end."""
        with self._lock:
            self._asked_to_stop = True
            stop = self._stop
        if stop is not None:
            stop()

    def stop(self) -> None:
        """End the job as Ctrl-C does, unless it was asked to; return when all is removed.

        An interrupt makes the job end at once, and is raised when all is removed.
        """
        if not self._asked_to_stop:
            self.ask_to_stop()
        with self._lock:
            if not self._begun:
                self._called_off = True  # interrupted before its thread has started
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
        """Start the thread, unless it has started, and wait."""
        try:
            if not self._started:
                self._started = True
                start(self._run)  # a daemon: a killed program does not wait for its cluster
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
            self._result = self._perform(self._callbacks)
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
    """A cluster that this program has started: the end of its `with` block removes it.

    If the job still runs then, it is stopped first, as by Ctrl-C.
    """

    def __init__(self, folder: Path, running: Running) -> None:
        self._running = running
        super().__init__(Record(folder), over=True)  # the run may have ended already

    def wait(self) -> Result:
        """Wait until the run has ended and was judged; return the result.

        Raises EmulatorError if it could not be run.
        """
        __tracebackhide__ = True
        return self._running.result()

    def history(
        self, after: int = -1, *, timeout: float | None = None
    ) -> Generator[Entry, None, None]:
        """Yield events as they happen, from number `after` + 1 on, until the run ends.

        The events of a run that has ended are read from its folder. Raises TimeoutError after
        `timeout` seconds.
        """
        last = after
        with contextlib.suppress(UsageError):
            for entry in super().history(after, timeout=timeout):
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
            if error is None:
                self._running.settle()
        finally:
            self.close()
