"""The comparison of several runs on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from emulator.analysis.comparison import (
    COMPARED,
    COUNTED,
    Row,
    called,
    cell,
    costs_of,
    reported,
    written,
)
from emulator.analysis.figures import FIGURES
from emulator.report.tables import print_table, put, status_text

_NUMBERS = 88
"""Least characters for the numbers; a name with less room than the rest is printed above."""
_EFFICIENCY = "efficiency"
"""The column of runs that are compared with a baseline."""
_BY_STEPS = (
    "* by steps, which holds where a step is the same work with any number of workers; "
    "report examples otherwise"
)


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
    table = Table(box=SIMPLE_HEAD, padding=(0, 0 if narrow else 1, 0, 0), pad_edge=False)
    # A fixed width: rich moves ratios below their numbers before it breaks a name.
    table.add_column(
        "run", overflow="fold", width=None if narrow else min(max(map(len, [*names, "run"])), room)
    )
    for column in ("outcome", "verdict"):
        table.add_column(column, no_wrap=True)
    for key in COMPARED:
        table.add_column(FIGURES[key].column, overflow="fold", no_wrap=key in COUNTED)
    if scaled:
        table.add_column(_EFFICIENCY, no_wrap=True)
    for name, row in zip(names, rows, strict=True):
        figures = [cell(row, rows[0], key) for key in COMPARED]
        efficiency = [_efficiency(row)] if scaled else []
        table.add_row(Text(name), row.outcome, status_text(row.verdict), *figures, *efficiency)
    put(table, console)
    if columns := reported(rows):
        put(_reported(names, columns, narrow=narrow), console)
    if any(row.efficiency_by == "steps" for row in rows):
        console.out(_BY_STEPS, highlight=False)
    if costs := costs_of(rows):
        _print_costs(names, rows, costs, console)


def _print_costs(
    names: Sequence[str], rows: Sequence[Row], keys: Sequence[str], console: Console
) -> None:
    """Print what the runs cost, with the ratios to the first."""
    columns = ("run", *(FIGURES[key].column for key in keys))
    cells = (
        (name, *(cell(row, rows[0], key) for key in keys))
        for name, row in zip(names, rows, strict=True)
    )
    print_table(console, columns, cells)


def _reported(
    names: Sequence[str], columns: Sequence[tuple[str, Sequence[str]]], *, narrow: bool
) -> Table:
    """Return the second table: what the tasks reported, a row for each run."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 0 if narrow else 1, 0, 0), pad_edge=False)
    table.add_column("run", overflow="fold")
    for head, _ in columns:
        table.add_column(Text(head), overflow="fold")
    for number, name in enumerate(names):
        table.add_row(Text(name), *(Text(texts[number]) for _, texts in columns))
    return table


def _efficiency(row: Row) -> str:
    if row.efficiency is None:
        return ""
    return f"{row.efficiency:.2f}" + ("*" if row.efficiency_by == "steps" else "")
