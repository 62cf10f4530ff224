"""Tables as values, and on the terminal; how tasks and states are shown there and elsewhere.

A table is shown by `print_table`, by report.md (`files.py`), and on a page by the templates' macro
`grid`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
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
_SHORT, _END = 16, 7
"""Characters of an id where there is no room for all, and those of its end."""
_WORD = re.compile(r"(?m)^[^\S\n]*\S+|\S+")
"""A word, with the blanks before the first one of a line."""


@dataclass(frozen=True)
class Table:
    """Rows below the heads of their columns."""

    heads: Sequence[str]
    rows: Sequence[Row]
    whole: Collection[str] = ()
    """The columns that are never wrapped, as is the first one."""
    ids: Collection[str] = ()
    """The columns of which only beginning and end are shown where there is no room for all."""
    most: Mapping[str, int] = field(default_factory=dict)
    """The characters of columns that are wrapped, the first one too, where they have more."""
    gap: int = GAP
    """Characters between two columns, where there is room."""
    numbers: Collection[str] = ()
    """The columns of numbers, which the page aligns to the right."""
    every: Sequence[Row] = ()
    """The row of every task, where `rows` has fewer."""


def filled(table: Table) -> Table:
    """Return a table without the columns, after the first, in which no row has anything (pure)."""
    rows = [*table.rows, *table.every]
    kept = [
        number
        for number in range(len(table.heads))
        if number == 0 or not rows or any(_cell(row[number]).plain for row in rows)
    ]

    if len(kept) == len(table.heads):
        return table

    def of(row: Row) -> Row:
        return [row[n] for n in kept]

    heads = [table.heads[n] for n in kept]
    return replace(table, heads=heads, rows=[*map(of, table.rows)], every=[*map(of, table.every)])


# --- On the terminal ------------------------------------------------------------------------------


def print_table(console: Console, table: Table) -> None:
    """Print a table, as it is, without markup; no word of it is broken, and no cell left out.

    Columns without a cell are left out. Where it is too wide, its cells are wrapped, then its
    columns are closer to each other, then ids are shortened, then each row becomes lines with its
    cells behind their heads.
    """
    table = filled(table)
    rows = [list(map(_cell, row)) for row in (table.heads, *table.rows)]
    columns = list(zip(*rows, strict=True))
    room = console.width - _EDGES
    for shorten in (False, True):
        for gap in range(table.gap, 0, -1):
            widths = _widths(table, columns, room - gap * (len(columns) - 1), shorten=shorten)
            if widths is not None:
                _print_rows(
                    _shortened(rows, widths, table) if shorten else rows, widths, gap, console
                )
                return
    _print_stacked(rows, console)


def _cell(cell: Text | str | int | None) -> Text:
    return cell if isinstance(cell, Text) else Text("" if cell is None else printable(str(cell)))


def _width(text: Text) -> int:
    return max(map(cell_len, text.plain.splitlines()), default=0)


def _longest_word(text: Text) -> int:
    return max(map(cell_len, _WORD.findall(text.plain)), default=0)


def _widths(
    table: Table, columns: Sequence[Sequence[Text]], room: int, *, shorten: bool
) -> list[int] | None:
    """Return the widths of columns that fit, the widest ones reduced; None if no words fit."""
    least, widths = [], []
    for number, (head, column) in enumerate(zip(table.heads, columns, strict=False)):
        wide = max(map(_width, column))
        if shorten and head in table.ids and _can_be_shortened(column[1:]):
            least.append(max(min(wide, _SHORT), cell_len(head)))
            widths.append(wide)
            continue
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


def _can_be_shortened(ids: Sequence[Text]) -> bool:
    """Return whether ids are told apart by their beginnings and ends."""
    whole = {cell.plain for cell in ids}
    return len({_cut(one, _SHORT) for one in whole}) == len(whole)


def _cut(text: str, width: int) -> str:
    """Return a text of at most so many characters, `…` for those in its middle."""
    return text if len(text) <= width else f"{text[: width - _END - 1]}…{text[-_END:]}"


def _shortened(
    rows: Sequence[Sequence[Text]], widths: Sequence[int], table: Table
) -> list[list[Text]]:
    """Return the rows with their ids as short as their columns."""
    return [
        [
            Text(_cut(cell.plain, width)) if head in table.ids else cell
            for head, cell, width in zip(table.heads, row, widths, strict=True)
        ]
        for row in rows
    ]


def _print_stacked(rows: Sequence[Sequence[Text]], console: Console) -> None:
    """Print each row as lines: its cells behind their heads, as many in a line as fit."""
    heads, *others = rows
    console.print()
    for row in others:
        line = Text()
        for head, cell in zip(heads, row, strict=True):
            if not cell.plain:
                continue
            pair = Text.assemble((head.plain, "bold"), " " if head.plain else "", cell)
            if not line:
                parts = _wrapped(pair, " ", console)
            elif "\n" not in cell.plain and line.cell_len + GAP + pair.cell_len < console.width:
                parts = [Text.assemble(line, " " * GAP, pair)]
            else:
                parts = [line, *_wrapped(pair, "   ", console)]
            for done in parts[:-1]:
                console.print(done, soft_wrap=True)
            line = parts[-1]
        console.print(line, soft_wrap=True)
    console.print()


def _wrapped(pair: Text, margin: str, console: Console) -> list[Text]:
    """Return a head and its cell as lines, those after the first one further in."""
    room = max(console.width - len(margin) - GAP, _longest_word(pair))
    lines = []
    for number, line in enumerate(pair.wrap(console, room)):
        lines.append(Text.assemble(margin + " " * (2 if number else 0), line))
        lines[-1].rstrip()
    return lines


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
    if len(counted) > 3 and counted[0][1] == 1:  # all differ, as addresses do
        return f"{counted[0][0]} and {len(counted) - 1} more"
    shown = [f"{word} ({count})" for word, count in counted[:3]]
    return ", ".join([*shown, "…"] if len(counted) > 3 else shown)
