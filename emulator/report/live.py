"""`emulate up` on a terminal: scrolling task output, and below it a panel with the current state.

The supervisor only appends to a queue. A separate thread reads it at most PAINTS times a second,
updates the model, and writes the lines and the panel together. So an event costs the supervisor one
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

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live as RichLive
from rich.segment import Segment, Segments

from emulator.analysis.run_state import RunState
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.report.panel import lines as panel_lines
from emulator.report.terminal import LivePrinter
from emulator.results import RunCallbacks

__all__ = ["LiveView", "Panel", "now", "view"]

PAINTS = 4
"""Paints a second, at most."""
IDLE = 1.0
"""Seconds without events after which the panel is painted again, to update times."""
BACKLOG = 5000
"""Lines shown between two paints; the rest are only in the logs."""


def view(*, plain: bool = False) -> LivePrinter:
    """Return the view of a run: with a panel if stdout and stderr are capable terminals."""
    console = Console(stderr=True, highlight=False)
    capable = sys.stderr.isatty() and sys.stdout.isatty() and not console.is_dumb_terminal
    return LivePrinter() if plain or not capable else LiveView(console)


def now(live: RunState) -> float:
    """Return the time in a run, in seconds since its start."""
    return live.t if live.began is None else max(live.t, time.time() - live.began)


class Panel:
    """The panel of a run, up to `share` of the terminal's height; computed at each paint."""

    def __init__(self, live: RunState, share: float = 0.5) -> None:
        self._live, self._share = live, share

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._live.tick(now(self._live))
        lines = panel_lines(
            self._live,
            width=options.max_width - 1,  # some terminals wrap a full line
            height=int(console.height * self._share),
            ascii_only=options.ascii_only,
        )
        yield Group(*lines)


class LiveView(LivePrinter):
    """Prints lines above a panel; `close` removes the panel and keeps the lines."""

    def __init__(self, console: Console, stream: IO[str] | None = None) -> None:
        super().__init__(stream)
        self._console = console
        self._queue: deque[Entry | Sample | str | tuple[str, str]] = deque()
        self._skipped = self._reported = 0
        self._gone = False
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._batch: list[str] | None = None

    def callbacks(self) -> RunCallbacks:
        """Return the callbacks for `up`."""
        return RunCallbacks(
            self._say, self._planned, entry=self._take, lines=self._take_lines, sample=self._take
        )

    def close(self) -> None:
        """Show the remaining lines, remove the panel, and restore the terminal."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # --- On the supervisor's thread ---------------------------------------------------------------

    def _planned(self, plan: Plan, folder: Path) -> None:
        super()._planned(plan, folder)
        live = RunState(plan)
        for entry in Record(folder).history:  # not empty after a take-over
            live.entry(entry)
        # Not a daemon: the terminal is restored before the process ends.
        self._thread = threading.Thread(target=self._run, args=[live], name="view")
        self._thread.start()

    def _say(self, text: str) -> None:
        if self._thread is None:
            super()._say(text)
        else:
            self._take(text)

    def _take(self, item: Entry | Sample | str) -> None:
        if not self._gone:
            self._queue.append(item)
            self._wake_up()

    def _take_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        room = max(0, BACKLOG - len(self._queue))
        self._queue.extend(lines[:room])
        self._skipped += len(lines[room:])
        self._wake_up()

    def _wake_up(self) -> None:
        if not self._wake.is_set():  # cheaper than set(), for hundreds of events a second
            self._wake.set()

    # --- On the thread that paints ----------------------------------------------------------------

    def _run(self, live: RunState) -> None:
        try:
            with RichLive(
                Panel(live), console=self._console, auto_refresh=False, transient=True
            ) as shown:
                self._follow(lambda: self._paint(live, shown))
        except OSError:
            self._gone = True  # the terminal; the run continues
        except Exception as error:  # a failing panel must not lose task output
            self._batch = None
            self._print(f"the live view has failed ({error!r}); plain lines from here on")
            self._follow(lambda: self._drain(live))

    def _follow(self, show: Callable[[], None]) -> None:
        """Call `show` at most PAINTS times a second until the view is closed."""
        while not self._closing.is_set():
            show()
            self._closing.wait(1 / PAINTS)
            self._wake.wait(IDLE)
            self._wake.clear()
        show()

    def _paint(self, live: RunState, shown: RichLive) -> None:
        self._batch = []
        self._drain(live)
        if self._batch:
            text = Segment("".join(self._batch))
            self._console.print(Segments([text]), soft_wrap=True, end="")
        else:
            shown.refresh()
        self._batch = None

    def _drain(self, live: RunState) -> None:
        for _ in range(len(self._queue)):
            self._feed(live, self._queue.popleft())
        if skipped := self._skipped - self._reported:
            self._reported += skipped
            self._print(f"{skipped} lines were printed too fast to be shown; they are in the logs")

    def _feed(self, live: RunState, item: Entry | Sample | str | tuple[str, str]) -> None:
        if isinstance(item, Entry):
            self._entry(item)
            live.entry(item)
        elif isinstance(item, Sample):
            live.sample(item)
        elif isinstance(item, str):
            self._print(item)
        else:
            live.line(*item)
            self._print_lines([item])

    def _put(self, lines: Sequence[str]) -> None:
        if self._batch is None:
            super()._put(lines)
        else:
            self._batch += [line + "\n" for line in lines]
