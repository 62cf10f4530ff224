"""Tables of tasks on the page: of many, a row for each role, and all on demand (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.report.tables import FOLD, range_label


@dataclass(frozen=True)
class Column:
    """A column: its head, the value of a row by its name, and that value as text."""

    head: str
    of: Callable[[str], Any]
    text: Callable[[Any], str] = str
    number: bool = True


@dataclass(frozen=True)
class Row:
    """A row: a task, or a role with the ranges of its tasks."""

    name: str
    cells: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table; `every` has the row of every task where `rows` has fewer."""

    first: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    every: Sequence[Row] = ()


def table(first: str, names: Sequence[str], columns: Sequence[Column], most: int = FOLD) -> Table:
    """Return a table with a row for each name; of more than `most`, with a row for each role."""
    every = [_row([name], columns) for name in names]
    if len(names) <= most:
        return Table(first, columns, every)
    roles: dict[str, list[str]] = {}
    for name in names:
        roles.setdefault(name.rpartition("-")[0] or name, []).append(name)
    return Table(first, columns, [_row(members, columns) for members in roles.values()], every)


def _row(names: Sequence[str], columns: Sequence[Column]) -> Row:
    cells = [_cell([column.of(name) for name in names], column.text) for column in columns]
    return Row(range_label(names), cells)


def _cell(values: Sequence[Any], text: Callable[[Any], str]) -> str:
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
