"""`emulate up` on a terminal: scrolling task output, and below it a panel with the current state.

The supervisor only appends to a queue. A separate thread reads it at most PAINTS times a second,
updates the state, and writes the lines and the panel together. So an event costs the supervisor one
append, and the terminal's work does not grow with the number of steps.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment, Segments

from emulator.analysis.run_state import RunState
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.report import panel
from emulator.report.terminal import LivePrinter, QuietPrinter
from emulator.results import RunCallbacks

PAINTS = 4
"""Paints a second, at most."""
IDLE = 1.0
"""Seconds without events after which the panel is painted again, to update times."""
BACKLOG = 5000
"""Lines shown between two paints; the rest are only in the logs."""


def view(*, plain: bool = False, quiet: bool = False, verbose: bool = False) -> LivePrinter:
    """Return the view of a run: with a panel if stdout and stderr are capable terminals.

    `quiet`: without task output, events and panel; `verbose`: with all lines that tasks print.
    """
    if quiet:
        return QuietPrinter()
    console = Console(stderr=True, highlight=False)
    capable = sys.stderr.isatty() and sys.stdout.isatty() and not console.is_dumb_terminal
    if plain or not capable:
        return LivePrinter(verbose=verbose)
    return LiveView(console, verbose=verbose)


def now(state: RunState) -> float:
    """Return the time in a run, in seconds since its start."""
    return state.t if state.began is None else max(state.t, time.time() - state.began)


class _Panel:
    """The panel, up to half of the terminal's height; computed at each paint."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._state.tick(now(self._state))
        width = options.max_width - 1  # some terminals wrap a full line
        height = console.height // 2
        ascii_only = options.ascii_only
        yield from panel.lines(self._state, width=width, height=height, ascii_only=ascii_only)


class LiveView(LivePrinter):
    """Prints lines above a panel; `close` removes the panel and keeps the lines."""

    def __init__(
        self, console: Console, stream: IO[str] | None = None, *, verbose: bool = False
    ) -> None:
        super().__init__(stream, verbose=verbose)
        self._console = console
        self._queue: deque[Entry | Sample | str | tuple[str, str]] = deque()
        self._skipped = self._reported = 0
        """Lines that were not shown, and how many of them have been reported."""
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._batch: list[str] | None = None

    def callbacks(self) -> RunCallbacks:
        """Return the callbacks for `up`."""
        return RunCallbacks(
            self._say, self._planned, entry=self._add, lines=self._add_lines, sample=self._add
        )

    def close(self) -> None:
        """Show the remaining lines, remove the panel, and restore the terminal."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        super().close()

    # --- On the supervisor's thread ---------------------------------------------------------------

    def _planned(self, plan: Plan, folder: Path) -> None:
        super()._planned(plan, folder)
        state = RunState(plan)
        for entry in Record(folder).history:  # not empty after a take-over
            state.entry(entry)
        # Not a daemon: the terminal is restored before the process ends.
        self._thread = threading.Thread(target=self._run, args=[state], name="view")
        self._thread.start()

    def _say(self, text: str) -> None:
        if self._thread is None:
            super()._say(text)
        else:
            self._add(text)

    def _add(self, item: Entry | Sample | str) -> None:
        if not self._closed:
            self._queue.append(item)
            self._wake_up()

    def _add_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        room = max(0, BACKLOG - len(self._queue))
        self._queue.extend(lines[:room])
        self._skipped += len(lines[room:])
        self._wake_up()

    def _wake_up(self) -> None:
        if not self._wake.is_set():  # cheaper than set(), for hundreds of events a second
            self._wake.set()

    # --- On the thread that paints ----------------------------------------------------------------

    def _run(self, state: RunState) -> None:
        try:
            with Live(_Panel(state), console=self._console, auto_refresh=False, transient=True):
                self._repeat(lambda: self._paint(state))
        except OSError:
            self._closed = True  # the terminal; the run continues
        except Exception as error:  # a failing panel must not lose task output
            self._batch = None
            self._print(f"the live view has failed ({error!r}); plain lines from here on")
            self._repeat(lambda: self._drain(state))

    def _repeat(self, show: Callable[[], None]) -> None:
        """Call `show` at most PAINTS times a second until the view is closed."""
        while not self._closing.is_set():
            show()
            self._closing.wait(1 / PAINTS)
            self._wake.wait(IDLE)
            self._wake.clear()
        show()

    def _paint(self, state: RunState) -> None:
        self._batch = []
        self._drain(state)
        text = Segment("".join(self._batch))
        self._console.print(Segments([text]), soft_wrap=True, end="")  # and the panel below it
        self._batch = None

    def _drain(self, state: RunState) -> None:
        for _ in range(len(self._queue)):
            match self._queue.popleft():
                case Entry() as entry:
                    self._entry(entry)
                    state.entry(entry)
                case Sample() as sample:
                    state.sample(sample)
                case str() as text:
                    self._print(text)
                case (task, line):
                    state.line(task, line)
                    self._print_lines([(task, line)])
        if skipped := self._skipped - self._reported:
            self._reported += skipped
            self._print(f"{skipped} lines were printed too fast to be shown; they are in the logs")

    def _put(self, lines: Sequence[str]) -> None:
        if self._batch is None:
            super()._put(lines)
        else:
            self._batch += [line + "\n" for line in lines]
