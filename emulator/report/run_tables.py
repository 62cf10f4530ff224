"""Many runs on the terminal: side by side with their differences, or one a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from emulator.analysis.comparison import COMPARED, COUNTED, MEASURED, Row, called, cell, written
from emulator.analysis.figures import FIGURES
from emulator.analysis.listing import LISTED, Listed
from emulator.report.terminal import STATUS_COLOURS

__all__ = ["print_comparison", "print_listing"]

_NUMBERS = 88
"""Characters that the numbers take at least; a name for which too few are left goes above."""
_WORDS = ("outcome", "verdict", *(FIGURES[key].column for key in COUNTED))
"""Columns without ratios."""
_COLUMNS = ("run", *_WORDS, *(FIGURES[key].column for key in MEASURED))
_SCALED = "efficiency"
"""The column of runs that are held against a baseline."""
_BY_STEPS = (
    "* by steps, which holds where a step is the same work with any number of workers; "
    "tell examples for the rest (docs/results.md)"
)


def print_comparison(rows: Sequence[Row], console: Console) -> None:
    """Print what was varied, and a row for each run with its ratios to the first."""
    for key in rows[0].differs:
        values = " | ".join(written(row.differs[key]) for row in rows)
        console.print(f"{key}: {values}", markup=False, highlight=False, soft_wrap=True)
    names = list(called(rows))
    scaled = any(row.efficiency is not None for row in rows)
    room = console.width - _NUMBERS - (len(_SCALED) + 1 if scaled else 0)
    narrow = max(len(word) for name in names for word in name.split()) > room
    if narrow:
        for number, name in enumerate(names, start=1):
            console.print(f"{number}: {name}", markup=False, highlight=False, soft_wrap=True)
        names = [str(number) for number in range(1, len(rows) + 1)]
    table = Table(box=SIMPLE_HEAD, padding=(0, 0 if narrow else 1, 0, 0), pad_edge=False)
    for column in (*_COLUMNS, _SCALED) if scaled else _COLUMNS:
        table.add_column(column, overflow="fold", no_wrap=column in (*_WORDS, _SCALED))
    # A fixed width: rich moves ratios below their numbers before it breaks a name.
    table.columns[0].width = min(max(map(len, names)), room) if not narrow else None
    for name, row in zip(names, rows, strict=True):
        efficiency = [_efficiency(row)] if scaled else []
        table.add_row(escape(name), *_cells(row, rows[0]), *efficiency)
    console.print(table)
    if any(row.efficiency_by == "steps" for row in rows):
        console.print(_BY_STEPS, highlight=False, soft_wrap=True)


def _efficiency(row: Row) -> str:
    if row.efficiency is None:
        return ""
    return f"{row.efficiency:.2f}" + ("*" if row.efficiency_by == "steps" else "")


def _cells(row: Row, reference: Row) -> Iterator[str]:
    colour = STATUS_COLOURS[row.verdict]
    yield row.outcome
    yield f"[{colour}]{row.verdict}[/{colour}]"
    for key in COMPARED:
        yield cell(row, reference, key)


# --- One a line ---

_OF_A_RUN = ("run", "scenario", "when", "outcome", "verdict")
_LISTED = (*_OF_A_RUN, *(FIGURES[key].column for key in LISTED))


def print_listing(rows: Sequence[Listed], console: Console) -> None:
    """Print runs, in the order given; times are the machine's own."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in _LISTED:
        shown.add_column(name, overflow="fold", no_wrap=name != "scenario")
    for row in rows:
        colour = STATUS_COLOURS.get(row.verdict or "", "default")
        shown.add_row(
            escape(row.run_id),
            escape(f"{row.scenario} {row.variant}".strip()),
            "" if row.began is None else f"{datetime.fromtimestamp(row.began):%m-%d %H:%M}",
            row.outcome,
            f"[{colour}]{row.verdict}[/{colour}]" if row.verdict else "",
            *(FIGURES[key].text(row.figures.get(key), "") for key in LISTED),
        )
    console.print(shown)
