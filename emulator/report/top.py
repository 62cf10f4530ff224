"""`emulate top`: a full-screen view of a running job, or a snapshot of any run.

Threads read the run's API and the keyboard into one queue; only the main thread updates the model
and paints.
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

from emulator.analysis.run_state import LINES, RunState
from emulator.api.client import Cluster
from emulator.errors import EmulatorError
from emulator.metrics.samples import Sample
from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.report.live import IDLE, PAINTS, now
from emulator.report.panel import lines as panel_lines
from emulator.report.text import shown_line
from emulator.runtime import signals

__all__ = ["look_back", "print_snapshot", "watch"]

LEAVE = frozenset("qQ\x03\x04")
"""Keys that quit the view: q, Ctrl-C, Ctrl-D."""


@dataclass(frozen=True)
class _End:
    """A stream has ended: the run has finished, or its API no longer answers."""

    error: EmulatorError | None


Item = Entry | Sample | tuple[str, str] | str | signal.Signals | _End
"""An event, a sample, a line, a key, a signal, or the end."""


def look_back(record: Record) -> RunState:
    """Return the current or final state of a run from its record."""
    live = RunState(record.plan)
    for entry in record.in_time_order:
        live.entry(entry)
    for sample in record.samples[-2:]:
        live.sample(sample)
    if record.live:
        live.tick(now(live))
    return live


def print_snapshot(record: Record, console: Console) -> None:
    """Print the current or final state of a run once."""
    live, running = look_back(record), record.live
    for line in panel_lines(live, width=console.width, ascii_only=console.options.ascii_only):
        console.print(line, soft_wrap=True, highlight=False)
    if running:
        return
    if live.outcome:
        console.print(f"{record.run_id} is over.", highlight=False, soft_wrap=True)
    else:
        text = f"Its emulator is gone; `emulate attach {record.run_id}` takes the run over."
        console.print(text, highlight=False, soft_wrap=True)


def watch(record: Record, console: Console) -> bool:
    """Show a run until it finishes or the user quits; return whether it has finished.

    Restores the terminal, also on errors. Raises EmulatorError.
    """
    live, left = RunState(record.plan), threading.Event()
    queue: SimpleQueue[Item] = SimpleQueue()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(record))
        stack.callback(left.set)
        # An exception during a paint would leave it incomplete.
        stack.enter_context(signals.deferred()).hand_to(queue.put)
        _in_background(_pump, cluster.history, queue, left)
        _in_background(_pump, lambda: cluster.samples(last=2), queue, left)
        _in_background(_pump, lambda: cluster.lines(last=LINES), queue, left)
        stack.enter_context(_keys(queue))
        shown = stack.enter_context(
            RichLive(_Screen(live), console=console, screen=True, auto_refresh=False)
        )
        return _follow(live, queue, shown.refresh)


def _follow(live: RunState, queue: SimpleQueue[Item], paint: Callable[[], None]) -> bool:
    """Update and paint until the end of the history (True) or a quit key (False)."""
    while True:
        paint()
        due = time.monotonic() + 1 / PAINTS
        wait = IDLE  # until the first event; after it, until the next paint is due
        while wait > 0:
            try:
                event = queue.get(timeout=wait)
            except Empty:
                break
            if (finished := _take(live, event)) is not None:
                return finished
            wait = due - time.monotonic()


def _take(live: RunState, event: Item) -> bool | None:
    """Process one event; return None to continue, else whether the run has finished."""
    match event:
        case _End(error=None):
            return True
        case _End(error=EmulatorError() as error):
            if live.began is None:
                raise error
            return True  # killed or just finishing: its record has the difference
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
    """The panel at the top, the last lines of output below it."""

    def __init__(self, live: RunState) -> None:
        self._live = live

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        live, (width, height) = self._live, (options.max_width, console.height)
        live.tick(now(live))
        upper = height if height < 12 else height - max(4, height // 3)
        shown = panel_lines(live, width=width, height=upper - 1, ascii_only=options.ascii_only)
        yield from shown
        yield Text("q: leave the view; the run continues", "dim", no_wrap=True, overflow="crop")
        room = height - len(shown) - 1
        for task, text in list(live.lines)[-room:] if room > 0 else []:
            line = Text.assemble((f"{task} | ", "bold"), Text.from_ansi(shown_line(text)))
            line.truncate(width)
            yield line


# --- Threads and the terminal ---------------------------------------------------------------------


def _in_background(call: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=call, args=arguments, daemon=True).start()


def _pump(
    source: Callable[[], Iterable[Item]], queue: SimpleQueue[Item], left: threading.Event
) -> None:
    """Put all items of a stream into the queue, then an _End."""
    end: EmulatorError | None = None
    try:
        for event in source():
            queue.put(event)
    except EmulatorError as error:
        end = error
    except Exception:
        if not left.is_set():  # else the view has closed the connection
            raise
    queue.put(_End(end))


@contextlib.contextmanager
def _keys(queue: SimpleQueue[Item]) -> Iterator[None]:
    """Put each pressed key into the queue, without echo and line buffering."""
    if not sys.stdin.isatty():
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def read() -> None:
        with contextlib.suppress(OSError):
            while key := os.read(fd, 1):
                queue.put(key.decode("latin-1"))

    tty.setcbreak(fd)
    _in_background(read)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
