"""Many runs on the terminal, one a line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from emulator.analysis.figures import FIGURES
from emulator.analysis.listing import LISTED, Listed
from emulator.report.terminal import STATUS_COLOURS

__all__ = ["print_listing"]

_ABOUT = ("run", "scenario", "when", "outcome", "verdict")
_COLUMNS = (*_ABOUT, *(FIGURES[key].column for key in LISTED))


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
            *(FIGURES[key].text(row.figures.get(key), "") for key in LISTED),
        )
    console.print(shown)
