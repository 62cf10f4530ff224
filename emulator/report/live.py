"""What a run shows while it is under way: lines, on a terminal with a panel below, in a notebook.

With a panel, the supervisor only appends to a queue. A separate thread reads it at most PAINTS
times a second, updates the state, and writes the lines and the panel together. So an event costs
the supervisor one append, and the terminal's work does not grow with the number of steps.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment, Segments
from rich.text import Text

from emulator.analysis.failed_output import is_boilerplate
from emulator.analysis.run_state import RunState
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.record.events import Entry, KernelCall
from emulator.record.reader import Record
from emulator.report import panel
from emulator.report.event_text import describe
from emulator.report.progress import Progress
from emulator.report.step_line import in_words
from emulator.report.text import shown_line
from emulator.results import RunCallbacks
from emulator.validation.units import format_duration

PAINTS = 4
"""Paints a second, at most."""
IDLE = 1.0
"""Seconds without events after which the panel is painted again, to update times."""
BACKLOG = 5000
"""Lines shown between two paints; the rest are only in the logs."""
WIDTH = 100
"""Characters of a line in a notebook."""
RECENT = 5
"""Lines of output that a notebook shows below the panel."""
_PRE = '<pre style="line-height:1.25;margin:0">{code}</pre>'
_TASK_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
_BUILDER = ("--->", "Removing intermediate container")
"""What Docker's builder says of its own work between the steps."""


class LivePrinter:
    """Prints output and events of a run, one line each, with task names in colour.

    What libraries print at every start is left out, and lines of JSON that report a step or a phase
    are put in words, unless it is `verbose`.
    """

    def __init__(self, stream: IO[str] | None = None, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._has_left_out = self._has_plan = False
        self._progress = Progress(stream)
        self._stream = stream or sys.stderr
        self._tty = self._stream.isatty()
        # no-color.org
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
        self._coloured = self._tty and not plain
        self._charset = getattr(self._stream, "encoding", None) or "utf-8"
        self._width = 8
        self._colour: dict[str, int] = {}
        self._closed = False
        """Whether the reader has closed the stream; the run continues without it."""

    def callbacks(self) -> RunCallbacks:
        """Return the callbacks for `up`."""
        return RunCallbacks(self._say, self._planned, self._entry, self._print_lines)

    def close(self) -> None:
        """Restore the terminal."""
        self._progress.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def follow(self, plan: Plan, lines: Iterable[tuple[str, str]]) -> None:
        """Print the task output of a run of another process."""
        self._lay_out(plan)
        for line in lines:
            self._print_lines([line])
            if self._closed:
                return

    def _planned(self, plan: Plan, folder: Path) -> None:
        self._progress.end()
        self._lay_out(plan)
        roles = ", ".join(
            _counted(role, spec.replicas) + (f" before {spec.before}" if spec.before else "")
            for role, spec in plan.scenario.cluster.items()
        )
        if plan.helpers:
            roles += f" (helpers: {', '.join(helper.name for helper in plan.helpers)})"
        self._print(f"{plan.run_id}: {roles} on the {plan.engine} engine; record in {folder}")
        for warning in plan.warnings:
            self._print(f"note: {warning}")

    def _lay_out(self, plan: Plan) -> None:
        self._has_plan = True
        names = plan.printing
        self._width = max(map(len, [*names, "emulate"]))
        self._colour = {n: _TASK_COLOURS[i % len(_TASK_COLOURS)] for i, n in enumerate(names)}

    def _say(self, text: str) -> None:
        """Print the steps of a build or a pull; on a terminal, show the latest line of each.

        With `verbose` all lines are printed.
        """
        if self._verbose or not text.startswith("  "):
            self._progress.end()
            self._print(text)
            if not self._verbose and not self._has_plan:
                self._progress.begin()
        elif not text.strip().startswith(_BUILDER):
            self._progress.latest = text.strip()

    def _print_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        if not self._verbose:
            shown = [line for line in lines if not is_boilerplate(line[1])]
            if len(shown) < len(lines) and not self._has_left_out:
                self._has_left_out = True
                self._print("what TensorFlow prints at every start is in logs/; -v shows it here")
            lines = [(task, in_words(text)) for task, text in shown]
        self._put([self._formatted(task, self._colour.get(task, 37), text) for task, text in lines])

    def _entry(self, entry: Entry) -> None:
        if isinstance(entry, KernelCall) and not self._verbose:
            return  # as many as lines of output, in a run that records them
        if text := describe(entry):
            self._print(f"{format_duration(entry.t)}: {text}")

    def _print(self, text: str) -> None:
        """Print a line of the emulator itself."""
        self._put([self._formatted("emulate", 1, text)])

    def _put(self, lines: Sequence[str]) -> None:
        if self._closed or not lines:
            return
        try:
            self._stream.write("\n".join([*lines, ""]))
            self._stream.flush()
        except BrokenPipeError:
            self._closed = True

    def _formatted(self, name: str, colour: int, text: str) -> str:
        head = f"{name:<{self._width}} |"
        head = f"\x1b[{colour}m{head}\x1b[0m" if self._coloured else head
        # Task output must never fail to encode.
        safe = shown_line(text).encode(self._charset, "replace").decode(self._charset)
        return f"{head} {safe}"


class QuietPrinter(LivePrinter):
    """Prints only what concerns the emulator itself, such as an image that is built."""

    def callbacks(self) -> RunCallbacks:
        """Return the callbacks for `up`."""
        return RunCallbacks(self._say, planned=lambda plan, folder: self.close())


def _counted(role: str, replicas: int) -> str:
    """Return `1 chief`, `2 workers`, `8 ps`."""
    return f"{replicas} {role}" + ("s" if replicas > 1 and not role.endswith("s") else "")


# --- With a panel below ---------------------------------------------------------------------------


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


# --- In a notebook --------------------------------------------------------------------------------


def in_notebook() -> bool:
    """Return whether this program is the kernel of a notebook; imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookView(LiveView):
    """Shows the panel and the latest output in the cell that has started the run.

    It uses IPython's own display, which needs no widgets; `display` is given in tests.
    """

    def __init__(self, display: Any = None) -> None:  # noqa: ANN401  a handle of IPython
        super().__init__(Console(file=io.StringIO(), force_jupyter=False), io.StringIO())
        self._display = _new_display() if display is None else display
        self._recent: deque[str] = deque(maxlen=RECENT)

    def _run(self, state: RunState) -> None:
        self._repeat(lambda: self._show(state))

    def _show(self, state: RunState) -> None:
        self._drain(state)
        state.tick(now(state))
        self._update(panel.lines(state, width=WIDTH))

    def _put(self, lines: Sequence[str]) -> None:
        self._recent += lines
        if self._thread is None:  # images are built before there is a run
            self._update([])

    def _update(self, lines: Sequence[Text]) -> None:
        self._display.update({"text/html": as_html([*lines, *map(Text, self._recent)])}, raw=True)


def _new_display() -> Any:  # noqa: ANN401  a handle of IPython
    from IPython.display import display

    return display({"text/html": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]


def as_html(lines: Sequence[Text]) -> str:
    """Return lines of text with their styles as HTML (pure)."""
    # In a notebook, a console would show each line by itself.
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_jupyter=False)
    for line in lines:
        console.print(line, soft_wrap=True)
    return console.export_html(inline_styles=True, code_format=_PRE)


# --- From Python --------------------------------------------------------------------------------

log = logging.getLogger("emulator")


def _log_entry(entry: Entry) -> None:
    if words := describe(entry):
        log.info("%.2fs: %s", entry.t, words)


def _log_lines(lines: Sequence[tuple[str, str]]) -> None:
    for task, text in lines:
        log.debug("%s | %s", task, text)


LOGGING = RunCallbacks(say=log.info, entry=_log_entry, lines=_log_lines)
"""Events to the logger `emulator`, lines of tasks with the level DEBUG."""


class _Logged(LivePrinter):
    """Shows nothing."""

    def callbacks(self) -> RunCallbacks:
        """Return the callbacks for `up`."""
        return LOGGING


def view_for(progress: bool | None) -> LivePrinter:
    """Return the view of a run: the panel in a notebook; elsewhere lines, if asked for."""
    if progress is False or not (progress or in_notebook()):
        return _Logged()
    return NotebookView() if in_notebook() else LivePrinter()
