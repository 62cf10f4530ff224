"""The comparison of several runs on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from emulator.analysis.comparison import COMPARED, Row, called, cell, costs_of, reported, written
from emulator.analysis.figures import FIGURES
from emulator.report.tables import GAP, Table, print_table, status_text

_NUMBERS = 88
"""Least characters for the numbers; a name with less room than the rest is printed above."""
_EFFICIENCY = "efficiency"
"""The column of runs that are compared with a baseline."""
_BY_STEPS = (
    "* by steps, which holds where a step is the same work with any number of workers; "
    "report examples otherwise"
)
_Column = tuple[str, Sequence[Text | str]]
"""A head, and a cell for each run."""


def print_comparison(rows: Sequence[Row], console: Console) -> None:
    """Print what was varied, and a row for each run with its ratios to the first."""
    for key in rows[0].differs:
        values = " | ".join(written(row.differs[key]) for row in rows)
        console.out(f"{key}: {values}", highlight=False)
    names = list(called(rows))
    scaled = any(row.efficiency is not None for row in rows)
    room = console.width - _NUMBERS - (len(_EFFICIENCY) + 1 if scaled else 0)
    narrow = max(len(word) for name in names for word in name.split()) > room
    if narrow:
        for number, name in enumerate(names, start=1):
            console.out(f"{number}: {name}", highlight=False)
        names = [str(number) for number in range(1, len(rows) + 1)]
    gap = 1 if narrow else 2
    outcomes: list[_Column] = [
        ("outcome", [row.outcome for row in rows]),
        ("verdict", [status_text(row.verdict) for row in rows]),
    ]
    scaling = [(_EFFICIENCY, [_efficiency(row) for row in rows])] if scaled else []
    _print(console, names, [*outcomes, *_figures(rows, COMPARED), *scaling], gap, room)
    if columns := reported(rows):
        _print(console, names, columns, gap)
    if any(row.efficiency_by == "steps" for row in rows):
        console.out(_BY_STEPS, highlight=False)
    if costs := costs_of(rows):
        _print(console, names, _figures(rows, costs))


def _figures(rows: Sequence[Row], keys: Sequence[str]) -> list[_Column]:
    return [(FIGURES[key].column, [cell(row, rows[0], key) for row in rows]) for key in keys]


def _print(
    console: Console,
    names: Sequence[str],
    columns: Sequence[_Column],
    gap: int = GAP,
    room: int = sys.maxsize,
) -> None:
    """Print a row for each run; its name is wrapped where it is longer than `room`."""
    heads = ["run", *(head for head, _ in columns)]
    rows = [*zip(names, *(cells for _, cells in columns), strict=True)]
    print_table(console, Table(heads, rows, most={"run": room}, gap=gap))


def _efficiency(row: Row) -> str:
    if row.efficiency is None:
        return ""
    return f"{row.efficiency:.2f}" + ("*" if row.efficiency_by == "steps" else "")
