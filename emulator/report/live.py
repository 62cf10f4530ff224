"""`emulate up` on a terminal: what the tasks print scrolls by, and below it the run as it is now.

The supervisor only appends what happens to a queue. A thread of its own takes it from there, not
more than PAINTS times a second: it feeds the model, and writes the lines and the panel in one go.
So hundreds of steps a second cost the supervisor what an append costs, and the terminal as much
as four do.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live as RichLive
from rich.segment import Segment

from emulator.analysis.run_state import RunState
from emulator.metrics.samples import Sample
from emulator.plan import Plan
from emulator.record.events import Entry
from emulator.record.folder import Record
from emulator.report.panel import lines as panel_lines
from emulator.report.terminal import LivePrinter
from emulator.results import Listener

__all__ = ["LiveView", "Panel", "now", "view"]

PAINTS = 4
"""A second, at most."""
IDLE = 1.0
"""Seconds after which the panel is painted anew although nothing has happened: ages grow."""
BACKLOG = 5000
"""Lines between two paints that are shown; nobody can read more, and all are in the logs."""


def view(*, plain: bool = False) -> LivePrinter:
    """Return what shows a run: with the panel where both streams are a terminal that has one."""
    console = Console(stderr=True, highlight=False)
    can = sys.stderr.isatty() and sys.stdout.isatty() and not console.is_dumb_terminal
    return LivePrinter() if plain or not can else LiveView(console)


def now(live: RunState) -> float:
    """Return how late it is in a run, in seconds since it began."""
    return live.t if live.began is None else max(live.t, time.time() - live.began)


class Panel:
    """The lines of a run, in `share` of the terminal's height; made anew whenever it is painted."""

    def __init__(self, live: RunState, share: float = 0.5) -> None:
        self._live, self._share = live, share

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._live.tick(now(self._live))
        lines = panel_lines(
            self._live,
            width=options.max_width - 1,  # a line that is full makes some terminals break it
            height=int(console.height * self._share),
            ascii_only=options.ascii_only,
        )
        yield Group(*lines)


class _Raw:
    """Text that goes to the terminal as it is: no wrapping, no markup, no cost."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


class LiveView(LivePrinter):
    """Prints what happens, above a panel; `close` removes that and leaves the lines."""

    def __init__(self, console: Console, stream: IO[str] | None = None) -> None:
        super().__init__(stream)
        self._console = console
        self._happened: deque[Entry | Sample | str | tuple[str, str]] = deque()
        self._left_out = self._told_of = 0
        self._gone = False
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._batch: list[str] | None = None

    def listener(self) -> Listener:
        """Return what `up` tells."""
        return Listener(
            self._say, self._planned, entry=self._take, line=self._take_line, sample=self._take
        )

    def close(self) -> None:
        """Show what there still is, remove the panel, and give the terminal back."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # --- On the supervisor's thread ---------------------------------------------------------------

    def _planned(self, plan: Plan, folder: Path) -> None:
        super()._planned(plan, folder)
        live = RunState(plan)
        for entry in Record(folder).history:  # of a run that is taken over
            live.entry(entry)
        # No daemon: whatever ends this process, the terminal is given back before.
        self._thread = threading.Thread(target=self._run, args=[live], name="view")
        self._thread.start()

    def _say(self, text: str) -> None:
        if self._thread is None:
            super()._say(text)
        else:
            self._take(text)

    def _take(self, happened: Entry | Sample | str) -> None:
        if not self._gone:
            self._happened.append(happened)
            self._wake_up()

    def _take_line(self, task: str, text: str) -> None:
        if len(self._happened) < BACKLOG:
            self._happened.append((task, text))
        else:
            self._left_out += 1
        self._wake_up()

    def _wake_up(self) -> None:
        if not self._wake.is_set():  # hundreds of times a second it is
            self._wake.set()

    # --- On the thread that paints ----------------------------------------------------------------

    def _run(self, live: RunState) -> None:
        try:
            with RichLive(
                Panel(live), console=self._console, auto_refresh=False, transient=True
            ) as shown:
                self._follow(lambda: self._paint(live, shown))
        except OSError:
            self._gone = True  # the terminal is; the run goes on, and its record with it
        except Exception as error:  # a picture is no reason to lose what tasks print
            self._batch = None
            self._own(f"the live view has failed ({error!r}); plain lines from here on")
            self._follow(lambda: self._drain(live))

    def _follow(self, show: Callable[[], None]) -> None:
        """Show what happens, PAINTS times a second at most, until the run is over."""
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
            self._console.print(_Raw("".join(self._batch)), soft_wrap=True, end="")
        else:
            shown.refresh()
        self._batch = None

    def _drain(self, live: RunState) -> None:
        for _ in range(len(self._happened)):
            self._feed(live, self._happened.popleft())
        if left_out := self._left_out - self._told_of:
            self._told_of += left_out
            self._own(f"{left_out} lines came too fast to be shown; they are in the logs")

    def _feed(self, live: RunState, happened: Entry | Sample | str | tuple[str, str]) -> None:
        if isinstance(happened, Entry):
            self._entry(happened)
            live.entry(happened)
        elif isinstance(happened, Sample):
            live.sample(happened)
        elif isinstance(happened, str):
            self._own(happened)
        else:
            live.line(*happened)
            self._line(*happened)

    def _put(self, name: str, colour: int, text: str) -> None:
        if self._batch is None:
            super()._put(name, colour, text)
        else:
            self._batch.append(self._laid_out(name, colour, text) + "\n")
