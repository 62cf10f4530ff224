"""What a failed test says of a run: verdicts, what happened, the last words of who died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console

from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.report import HTML
from emulator.report.event_text import describe
from emulator.report.terminal import print_figures, print_verdicts
from emulator.report.text import printable
from emulator.results import Result
from emulator.validation.units import format_duration

__all__ = ["happenings", "story"]

MOST = 30
"""Lines of the history; in a long run those of the beginning and of the end."""
FIRST = 6
WIDTH = 110


def story(result: Result) -> str:
    """Return a run in words, from its folder, as plain text."""
    text = StringIO()
    console = Console(file=text, width=WIDTH, color_system=None, force_terminal=False)
    print_verdicts(result.summary, console)
    print_figures(result.summary, console)
    tables = "\n".join(line.rstrip() for line in text.getvalue().splitlines())
    told = [tables.strip("\n"), "", "what happened:"]
    told += happenings(Record(result.folder).history)
    if result.end.last_words and result.outcome != "succeeded":
        told += ["", f"the last output of {result.end.task}:"]
        told += [f"  {printable(line)}" for line in result.end.last_words]
    return "\n".join([*told, "", *_places(result)])


def happenings(history: Sequence[Entry]) -> list[str]:
    """Return the history without steps and phases, a line each; of many the first and the last."""
    lines = [
        f"{format_duration(entry.t):>8}  {words}" for entry in history if (words := describe(entry))
    ]
    if len(lines) <= MOST:
        return lines
    left_out = f"{'':8}  … {len(lines) - MOST} more …"
    return [*lines[:FIRST], left_out, *lines[FIRST - MOST :]]


def _places(result: Result) -> Iterator[str]:
    yield f"run     {result.folder}"
    if (page := result.folder / HTML).is_file():
        yield f"report  {page.as_uri()}"
