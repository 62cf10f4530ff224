"""`emulate top`: a run that goes on, on the whole screen of a terminal; a snapshot of any run.

Threads read the run's API and the keys, and put what comes into one queue; the main thread alone
feeds the model from it and paints.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live as RichLive
from rich.text import Text

from emulator import signals
from emulator.analysis.run_state import LINES, RunState
from emulator.api.client import Cluster
from emulator.errors import EmulatorError
from emulator.metrics.samples import Sample
from emulator.record.events import Entry
from emulator.record.folder import Record
from emulator.report.live import IDLE, PAINTS, now
from emulator.report.panel import lines as panel_lines
from emulator.report.text import shown_line

__all__ = ["look_back", "print_snapshot", "watch"]

LEAVE = frozenset("qQ\x03\x04")
"""Keys that leave the view: q, Ctrl-C, Ctrl-D."""


@dataclass(frozen=True)
class _End:
    """A stream has ended: all do when the run is over, or when it can't be reached any more."""

    error: EmulatorError | None


Told = Entry | Sample | tuple[str, str] | str | signal.Signals | _End
"""An event, a sample, a line, a key, a signal, or the end."""


def look_back(record: Record) -> RunState:
    """Return a run as it is now or was in the end, from its record alone."""
    live = RunState(record.plan)
    for entry in record.happened:
        live.entry(entry)
    for sample in record.samples[-2:]:
        live.sample(sample)
    if record.live:
        live.tick(now(live))
    return live


def print_snapshot(record: Record, console: Console) -> None:
    """Print a run as it is now or was in the end, once."""
    live, going_on = look_back(record), record.live
    for line in panel_lines(live, width=console.width, ascii_only=console.options.ascii_only):
        console.print(line, soft_wrap=True, highlight=False)
    if going_on:
        return
    if live.outcome:
        console.print(f"{record.run_id} is over.", highlight=False, soft_wrap=True)
    else:
        said = f"Its emulator is gone; `emulate attach {record.run_id}` takes the run over."
        console.print(said, highlight=False, soft_wrap=True)


def watch(record: Record, console: Console) -> bool:
    """Show a run until it is over or the user leaves; say whether it is over.

    The terminal is as before when this returns or raises. Raises EmulatorError.
    """
    live, left = RunState(record.plan), threading.Event()
    told: SimpleQueue[Told] = SimpleQueue()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(record))
        stack.callback(left.set)
        # Raised in the middle of a paint they would tear it.
        stack.enter_context(signals.held()).hand_to(told.put)
        _in_background(_pump, cluster.history, told, left)
        _in_background(_pump, lambda: cluster.samples(last=2), told, left)
        _in_background(_pump, lambda: cluster.lines(last=LINES), told, left)
        stack.enter_context(_keys(told))
        shown = stack.enter_context(
            RichLive(_Screen(live), console=console, screen=True, auto_refresh=False)
        )
        return _follow(live, told, shown.refresh)


def _follow(live: RunState, told: SimpleQueue[Told], paint: Callable[[], None]) -> bool:
    """Feed and paint until the end of the history (True) or a key that leaves (False)."""
    while True:
        paint()
        due = time.monotonic() + 1 / PAINTS
        wait = IDLE  # for something to happen; from then on until the next paint is due
        while wait > 0:
            try:
                event = told.get(timeout=wait)
            except Empty:
                break
            if (over := _take(live, event)) is not None:
                return over
            wait = due - time.monotonic()


def _take(live: RunState, event: Told) -> bool | None:
    """Feed one event; return whether the run is over where that is the end of it."""
    match event:
        case _End(error=None):
            return True
        case _End(error=EmulatorError() as error):
            if live.began is None:
                raise error
            return True  # it was killed, or is just ending: its record says which
        case signal.Signals():
            raise signals.Interruption(event)
        case str():
            return False if event in LEAVE else None
        case Entry():
            live.entry(event)
        case Sample():
            live.sample(event)
        case (task, text):
            live.line(task, text)
    return None


class _Screen:
    """The panel in the upper part, the last lines below it."""

    def __init__(self, live: RunState) -> None:
        self._live = live

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        live, (width, height) = self._live, (options.max_width, console.height)
        live.tick(now(live))
        upper = height if height < 12 else height - max(4, height // 3)
        shown = panel_lines(live, width=width, height=upper - 1, ascii_only=options.ascii_only)
        yield from shown
        yield Text("q leaves; the run goes on", "dim", no_wrap=True, overflow="crop")
        room = height - len(shown) - 1
        for task, text in list(live.lines)[-room:] if room > 0 else []:
            line = Text.assemble((f"{task} | ", "bold"), Text.from_ansi(shown_line(text)))
            line.truncate(width)
            yield line


# --- Threads and the terminal ---------------------------------------------------------------------


def _in_background(call: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=call, args=arguments, daemon=True).start()


def _pump(
    source: Callable[[], Iterable[Told]], told: SimpleQueue[Told], left: threading.Event
) -> None:
    """Put all of a stream into the queue, then what ended it."""
    end: EmulatorError | None = None
    try:
        for event in source():
            told.put(event)
    except EmulatorError as error:
        end = error
    except Exception:
        if not left.is_set():  # else its connection was closed under it
            raise
    told.put(_End(end))


@contextlib.contextmanager
def _keys(told: SimpleQueue[Told]) -> Iterator[None]:
    """Put each key that is pressed into the queue, without waiting for Enter or showing it."""
    if not sys.stdin.isatty():
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def read() -> None:
        with contextlib.suppress(OSError):
            while key := os.read(fd, 1):
                told.put(key.decode("latin-1"))

    tty.setcbreak(fd)
    _in_background(read)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
