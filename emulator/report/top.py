"""`emulate top`: a full-screen view of a running job, or a snapshot of any run.

Threads read the run's API and the keyboard into one queue; only the main thread updates the state
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
from rich.live import Live
from rich.text import Text

from emulator.analysis.run_state import LINES, RunState
from emulator.api.client import Cluster
from emulator.errors import EmulatorError
from emulator.metrics.samples import Sample
from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.report import panel
from emulator.report.live import IDLE, PAINTS, now
from emulator.report.step_line import in_words
from emulator.report.text import shown_line
from emulator.runtime import signals

QUIT = frozenset("qQ\x03\x04")
"""Keys that quit the view: q, Ctrl-C, Ctrl-D."""


@dataclass(frozen=True)
class _End:
    """A stream has ended: the run has finished, or its API no longer answers."""

    error: EmulatorError | None


Item = Entry | Sample | tuple[str, str] | str | signal.Signals | _End
"""An event, a sample, a line, a key, a signal, or the end."""


def print_snapshot(record: Record, console: Console) -> None:
    """Print the current or final state of a run once, from its record."""
    state, running = RunState(record.plan), record.live
    for entry in record.in_time_order:
        state.entry(entry)
    for sample in record.samples[-2:]:
        state.sample(sample)
    if running:
        state.tick(now(state))
    for line in panel.lines(state, width=console.width, ascii_only=console.options.ascii_only):
        console.print(line, soft_wrap=True)
    if not running:
        finished = f"{record.run_id} has finished."
        killed = f"Its emulator was killed; `emulate attach {record.run_id}` takes the run over."
        console.out(finished if state.outcome else killed, highlight=False)


def watch(record: Record, console: Console) -> bool:
    """Show a run until it finishes or the user quits; return whether it has finished.

    Restores the terminal, also on errors. Raises EmulatorError.
    """
    state, closing = RunState(record.plan), threading.Event()
    queue: SimpleQueue[Item] = SimpleQueue()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(record))
        stack.callback(closing.set)
        # An exception during a paint would leave it incomplete.
        stack.enter_context(signals.deferred()).hand_to(queue.put)
        _in_background(_pump, cluster.history, queue, closing)
        _in_background(_pump, lambda: cluster.samples(last=2), queue, closing)
        _in_background(_pump, lambda: cluster.lines(last=LINES), queue, closing)
        stack.enter_context(_keys(queue))
        live = Live(_Screen(state), console=console, screen=True, auto_refresh=False)
        return _follow(state, queue, stack.enter_context(live).refresh)


def _follow(state: RunState, queue: SimpleQueue[Item], paint: Callable[[], None]) -> bool:
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
            if (finished := _process(state, event)) is not None:
                return finished
            wait = due - time.monotonic()


def _process(state: RunState, event: Item) -> bool | None:
    """Process one event; return None to continue, else whether the run has finished."""
    match event:
        case _End(error=error):
            if error is not None and state.began is None:
                raise error
            return True  # killed or just finishing: its record has the difference
        case signal.Signals():
            raise signals.Interruption(event)
        case str():
            return False if event in QUIT else None
        case Entry():
            state.entry(event)
        case Sample():
            state.sample(event)
        case (task, text):
            state.line(task, text)
    return None


class _Screen:
    """The panel at the top, the last lines of output below it."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state, (width, height) = self._state, (options.max_width, console.height)
        state.tick(now(state))
        upper = height if height < 12 else height - height // 3
        ascii_only = options.ascii_only
        lines = panel.lines(state, width=width, height=upper - 1, ascii_only=ascii_only)
        yield from lines
        yield Text("q: leave the view; the run continues", "dim", no_wrap=True, overflow="crop")
        room = height - len(lines) - 1
        for task, text in list(state.lines)[-room:] if room > 0 else []:
            line = Text.assemble((f"{task} | ", "bold"), Text.from_ansi(shown_line(in_words(text))))
            line.truncate(width)
            yield line


# --- Threads and the terminal ---------------------------------------------------------------------


def _in_background(call: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=call, args=arguments, daemon=True).start()


def _pump(
    source: Callable[[], Iterable[Item]], queue: SimpleQueue[Item], closing: threading.Event
) -> None:
    """Put all items of a stream into the queue, then an _End."""
    end = _End(None)
    try:
        for event in source():
            queue.put(event)
    except EmulatorError as error:
        end = _End(error)
    except Exception:
        if not closing.is_set():  # else the view has closed the connection
            raise
    queue.put(end)


@contextlib.contextmanager
def _keys(queue: SimpleQueue[Item]) -> Iterator[None]:
    """Put each pressed key into the queue, without echo and line buffering."""
    if not sys.stdin.isatty():
        yield
        return
    fd = sys.stdin.fileno()
    settings = termios.tcgetattr(fd)

    def read() -> None:
        with contextlib.suppress(OSError):
            while key := os.read(fd, 1):
                queue.put(key.decode("latin-1"))

    tty.setcbreak(fd)
    _in_background(read)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # it was closed
            termios.tcsetattr(fd, termios.TCSADRAIN, settings)
