"""Many runs on the terminal, one a line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from emulator.analysis.listing import Listed
from emulator.report.terminal import STATUS_COLOURS
from emulator.units import format_duration, format_number

__all__ = ["print_listing"]

_COLUMNS = ("run", "scenario", "when", "outcome", "verdict", "steps/s", "goodput", "lost", "took")


def print_listing(rows: Sequence[Listed], console: Console) -> None:
    """Print runs, in the order given; times are the machine's own."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in _COLUMNS:
        shown.add_column(name, overflow="fold", no_wrap=name != "scenario")
    for row in rows:
        colour = STATUS_COLOURS.get(row.verdict or "", "default")
        shown.add_row(
            escape(row.run_id),
            escape(f"{row.scenario} {row.variant}".strip()),
            "" if row.began is None else f"{datetime.fromtimestamp(row.began):%m-%d %H:%M}",
            row.outcome,
            f"[{colour}]{row.verdict}[/{colour}]" if row.verdict else "",
            "" if row.steps_per_second is None else format_number(row.steps_per_second, 1),
            "" if row.goodput is None else f"{row.goodput:.0%}",
            "" if row.lost_steps is None else str(row.lost_steps),
            "" if row.duration is None else format_duration(row.duration),
        )
    console.print(shown)
