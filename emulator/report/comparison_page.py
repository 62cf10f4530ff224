"""A page that compares several runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.analysis.comparison import COMPARED, Row, called, cell, written
from emulator.analysis.figures import FIGURES
from emulator.report import HTML
from emulator.report.charts import curve_points, line_chart, line_style, line_trace
from emulator.report.data import Facts
from emulator.report.page import Cause, causes, linker, page, series

__all__ = ["render"]

HEIGHT = 300
"""Pixels of the curves."""


@dataclass(frozen=True)
class _Run:
    name: str
    row: Row
    cells: Sequence[tuple[str, str]]
    """Heads of columns, and figures with their ratios to the first run's."""
    causes: Sequence[Cause]
    link: str
    """To the run's own page; empty if it has none."""


def render(rows: Sequence[Row], facts: Sequence[Facts], *, place: Path) -> str:
    """Return the page; its links are relative to the folder `place`."""
    names = list(called(rows))
    unit = next((row.efficiency_by for row in rows if row.efficiency_by), None)
    curves = [
        line_trace(name, curve_points(one.speed, one.speed.job), line_style(number), "steps/s")
        for number, (name, one) in enumerate(zip(names, facts, strict=True))
    ]
    return page(
        "compare.html.j2",
        {"curves": line_chart(curves, HEIGHT, max(one.end for one in facts))},
        runs=[
            _Run(name, row, list(_cells(row, rows[0], unit)), list(causes(one.analysis.time)), link)
            for name, row, one in zip(names, rows, facts, strict=True)
            for link in [linker(one.folder, place)(HTML) if HTML in one.files else ""]
        ],
        differs=[(key, [written(row.differs[key]) for row in rows]) for key in rows[0].differs],
        series=list(series(names, names)),
    )


def _cells(row: Row, reference: Row, unit: str | None) -> Iterator[tuple[str, str]]:
    """Yield the same columns for every row; `unit` of the efficiencies, None if there are none."""
    for key in COMPARED:
        yield FIGURES[key].title, cell(row, reference, key)
    if unit is not None:
        other = f" by {row.efficiency_by}" if row.efficiency_by != unit else ""
        text = "" if row.efficiency is None else f"{row.efficiency:.2f}{other}"
        yield f"Scaling efficiency, by {unit}", text
