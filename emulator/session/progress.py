"""What a run that is started from Python shows of itself: see `progress=` of `emulator.up`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from emulator.record.events import Entry
from emulator.report.event_text import describe
from emulator.report.live import LivePrinter, NotebookView, in_notebook
from emulator.results import RunCallbacks

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
