"""Tables and styles of the terminal, for results, plans and live views."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from emulator.report.text import printable

FOLD = 12
"""With more tasks than this, equal ones share a line."""
STYLES = {
    **dict.fromkeys(("pending", "ended", "waiting", "skipped", "optional"), "dim"),
    **dict.fromkeys(("starting", "ending", "backoff", "preparing", "triggered"), "yellow"),
    **dict.fromkeys(("applied", "interrupted", "unknown", "missing", "warning"), "yellow"),
    **dict.fromkeys(("running", "healed", "succeeded", "ok"), "green"),
    **dict.fromkeys(("down", "failed", "timeout", "error", "fatal"), "red"),
}
"""Styles of states of tasks and jobs, stages of faults, outcomes, verdicts, `doctor`'s findings."""
Row = Sequence[Text | str | int | None]


def print_table(
    console: Console, columns: Sequence[str], rows: Iterable[Row], no_wrap: Collection[str] = ()
) -> None:
    """Print a table; None is an empty cell. Text is shown as it is, without markup."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        whole = number == 0 or column in no_wrap
        table.add_column(column, overflow="fold", no_wrap=whole, min_width=len(column))
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    put(table, console)


def put(table: Table, console: Console) -> None:
    """Print a table, without blanks at the ends of lines where it is not for a terminal."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    lines = capture.get().splitlines()
    console.file.write("\n".join([*map(str.rstrip, lines), ""]))


def _cell(cell: Text | str | int | None) -> Text:
    return cell if isinstance(cell, Text) else Text("" if cell is None else printable(str(cell)))


def status_text(status: str) -> Text:
    """Return a verdict or the status of a finding in its colour."""
    return Text(status, STYLES[status])


def fold(tasks: Mapping[str, Any], key: Callable[[str], object], limit: int) -> list[list[str]]:
    """Return the names of tasks in groups: with more than `limit`, equal ones of a role."""
    groups: dict[object, list[str]] = {}
    for name in tasks:
        alike = (name.rpartition("-")[0], key(name)) if len(tasks) > limit else name
        groups.setdefault(alike, []).append(name)
    return list(groups.values())


def range_label(names: Sequence[str]) -> str:
    """Return `worker-0`, or `worker-0 .. worker-7 (8)`."""
    return names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]} ({len(names)})"
