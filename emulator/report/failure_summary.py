"""A run as text below a failed test: verdicts, figures, events, last output."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console

from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.report import HTML
from emulator.report.data import notes
from emulator.report.event_text import describe
from emulator.report.terminal import print_figures, print_verdicts
from emulator.report.text import printable
from emulator.results import Result
from emulator.validation.units import format_duration

_MOST, _FIRST = 30, 6
"""Lines of events at most; of a longer history the first ones, and the last."""
_WIDTH = 110


def story(result: Result) -> str:
    """Return a summary of a run as plain text, from its folder."""
    text = StringIO()
    console = Console(file=text, width=_WIDTH, color_system=None, force_terminal=False)
    print_verdicts(result.summary, console)
    print_figures(result.summary, console)
    tables = "\n".join(line.rstrip() for line in text.getvalue().splitlines())
    lines = [tables.strip("\n"), "", "what happened:", *event_lines(Record(result.folder).history)]
    for task, words in list(result.last_words.items())[:1]:
        lines += ["", f"the last output of {task}:", *(f"  {printable(line)}" for line in words)]
    if said := [f"{kind}: {printable(text)}" for kind, text in notes(result.summary)]:
        lines += ["", *said]
    lines += ["", f"run     {result.folder}"]
    if (page := result.folder / HTML).is_file():
        lines.append(f"report  {page.as_uri()}")
    return "\n".join(lines)


def event_lines(history: Sequence[Entry]) -> list[str]:
    """Return the events without steps and phases, one a line; of many the first and the last."""
    lines = [
        f"{format_duration(entry.t):>8}  {words}" for entry in history if (words := describe(entry))
    ]
    if len(lines) <= _MOST:
        return lines
    left_out = f"{'':8}  … {len(lines) - _MOST} more …"
    return [*lines[:_FIRST], left_out, *lines[_FIRST - _MOST :]]
