"""What a run that is started from Python shows of itself: see `progress=` of `emulator.up`.

In a notebook that is the panel of `emulate up`, updated in the output of its cell.
"""

from __future__ import annotations

import io
import logging
import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from emulator.record.events import Entry
from emulator.report import panel
from emulator.report.event_text import describe
from emulator.report.live import LiveView, now
from emulator.report.terminal import LivePrinter
from emulator.results import RunCallbacks

if TYPE_CHECKING:
    from emulator.analysis.run_state import RunState

log = logging.getLogger("emulator")

WIDTH = 100
"""Characters of a line."""
RECENT = 5
"""Lines of output that are shown below the panel."""
_PRE = '<pre style="line-height:1.25;margin:0">{code}</pre>'


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
