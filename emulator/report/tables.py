"""Tables as values, and on the terminal; how tasks and states are shown there and elsewhere.

A table is shown by `print_table`, by report.md (`files.py`), and on a page by the templates' macro
`grid`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from emulator.report.text import printable

FOLD = 12
"""With more tasks than this, equal ones share a line."""
STYLES = {
    **dict.fromkeys(("pending", "ended", "waiting", "skipped", "optional"), "dim"),
    **dict.fromkeys(("starting", "ending", "backoff", "unknown", "missing", "warning"), "yellow"),
    **dict.fromkeys(("preparing", "announced", "triggered", "applied", "interrupted"), "yellow"),
    **dict.fromkeys(("running", "healed", "succeeded", "ok"), "green"),
    **dict.fromkeys(("down", "failed", "timeout", "error", "fatal"), "red"),
}
"""Styles of states of tasks and jobs, stages of faults, outcomes, verdicts, `doctor`'s findings."""
Row = Sequence[Text | str | int | None]
"""The cells of a row; the first is its name, None is an empty one."""
GAP, _EDGES = 3, 2
"""Characters between two columns, and at the two ends of a line."""
_WORD = re.compile(r"(?m)^[^\S\n]*\S+|\S+")
"""A word, with the blanks before the first one of a line."""


@dataclass(frozen=True)
class Table:
    """Rows below the heads of their columns."""

    heads: Sequence[str]
    rows: Sequence[Row]
    whole: Collection[str] = ()
    """The columns that are never wrapped, as is the first one."""
    spare: Collection[str] = ()
    """The columns, the last ones, that are left out and named where there is no room."""
    most: Mapping[str, int] = field(default_factory=dict)
    """The characters of columns that are wrapped, the first one too, where they have more."""
    gap: int = GAP
    """Characters between two columns, where there is room."""
    numbers: Collection[str] = ()
    """The columns of numbers, which the page aligns to the right."""
    every: Sequence[Row] = ()
    """The row of every task, where `rows` has fewer."""


# --- On the terminal ------------------------------------------------------------------------------


def print_table(console: Console, table: Table) -> None:
    """Print a table, as it is, without markup; no word of it is broken, and nothing left unsaid.

    Where it is too wide, its cells are wrapped, then its columns are closer to each other, then
    each row becomes lines with a cell each.
    """
    rows = [list(map(_cell, row)) for row in (table.heads, *table.rows)]
    columns = list(zip(*rows, strict=True))
    room = console.width - _EDGES
    widest = [max(map(_width, column)) for column in columns]
    count = len(columns)
    while table.heads[count - 1] in table.spare and sum(widest) + table.gap * (count - 1) > room:
        count -= 1
        widest.pop()
    for gap in range(table.gap, 0, -1):
        widths = _widths(table, columns[:count], room - gap * (count - 1))
        if widths is not None:
            _print_rows(rows, widths, gap, console)
            break
    else:
        _print_cells([row[:count] for row in rows], console)
    if left_out := table.heads[count:]:
        console.out(f"no room for {', '.join(left_out)}", highlight=False)


def _cell(cell: Text | str | int | None) -> Text:
    return cell if isinstance(cell, Text) else Text("" if cell is None else printable(str(cell)))


def _width(text: Text) -> int:
    return max(map(cell_len, text.plain.splitlines()), default=0)


def _longest_word(text: Text) -> int:
    return max(map(cell_len, _WORD.findall(text.plain)), default=0)


def _widths(table: Table, columns: Sequence[Sequence[Text]], room: int) -> list[int] | None:
    """Return the widths of columns that fit, the widest ones reduced; None if no words fit."""
    least, widths = [], []
    for number, (head, column) in enumerate(zip(table.heads, columns, strict=False)):
        wide = max(map(_width, column))
        is_whole = head in table.whole or (number == 0 and head not in table.most)
        words = max(map(_longest_word, column[1:]), default=0)
        least.append(wide if is_whole else max(cell_len(head), words))
        widths.append(max(min(wide, table.most.get(head, room), room), least[-1]))
    for _ in range(sum(widths) - room):
        places = [place for place, width in enumerate(widths) if width > least[place]]
        if not places:
            return None
        widths[max(places, key=lambda place: (widths[place], place))] -= 1
    return widths


def _print_rows(
    rows: Sequence[Sequence[Text]], widths: Sequence[int], gap: int, console: Console
) -> None:
    """Print columns; without blanks at the ends of lines where it is not for a terminal."""
    padding = (0, int(gap > 1), 0, int(gap > 2))  # besides a blank between two columns
    found = RichTable(box=SIMPLE_HEAD, padding=padding, pad_edge=False)
    for head, width in zip(rows[0], widths, strict=False):
        found.add_column(head, overflow="fold", width=width)
    for row in rows[1:]:
        found.add_row(*row[: len(widths)])
    if console.is_terminal:
        console.print(found)
        return
    with console.capture() as capture:
        console.print(found)
    lines = capture.get().splitlines()
    console.file.write("\n".join([*map(str.rstrip, lines), ""]))


def _print_cells(rows: Sequence[Sequence[Text]], console: Console) -> None:
    """Print the cells of each row below each other, each behind its head."""
    heads, *others = rows
    width = max(map(_width, heads))
    for row in others:
        console.print()
        for head, cell in zip(heads, row, strict=True):
            name = head.plain
            room = max(console.width - width - GAP - 1, _longest_word(cell))
            for line in cell.wrap(console, room) or [Text()]:
                text = Text.assemble((f" {set_cell_size(name, width + GAP)}", "bold"), line)
                text.rstrip()
                console.print(text, soft_wrap=True)
                name = ""
    console.print()


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


def name_list(names: Sequence[str]) -> str:
    """Return up to three names, or a range."""
    return range_label(names) if len(names) > 3 else ", ".join(names)


# --- Of tasks -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of a table of tasks: its head, the values that are known, and a value as text."""

    head: str
    values: Mapping[str, Any]
    text: Callable[[Any], str] = str
    number: bool = True


def table_of(
    first: str, names: Sequence[str], columns: Sequence[Column], most: int = FOLD
) -> Table:
    """Return a table with a row for each name; of more than `most`, with a row for each role."""
    heads = [first, *(column.head for column in columns)]
    numbers = {column.head for column in columns if column.number}
    every = [_row([name], columns) for name in names]
    if len(names) <= most:
        return Table(heads, every, numbers=numbers)
    roles: dict[str, list[str]] = {}
    for name in names:
        roles.setdefault(name.rpartition("-")[0] or name, []).append(name)
    rows = [_row(members, columns) for members in roles.values()]
    return Table(heads, rows, numbers=numbers, every=every)


def _row(names: Sequence[str], columns: Sequence[Column]) -> Row:
    cells = (_summary(map(column.values.get, names), column.text) for column in columns)
    return [range_label(names), *cells]


def _summary(values: Iterable[Any], text: Callable[[Any], str]) -> str:
    """Return a value, the range of several numbers, or how often each of several texts occurs."""
    known = [value for value in values if value is not None]
    texts = list(dict.fromkeys(text(value) for value in known))
    if len(texts) <= 1:
        return "".join(texts)
    if all(isinstance(value, int | float) for value in known):
        return f"{text(min(known))} to {text(max(known))}"
    counted = Counter(text(value) for value in known).most_common()
    shown = [f"{word} ({count})" for word, count in counted[:3]]
    return ", ".join([*shown, "…"] if len(counted) > 3 else shown)
