"""Several runs over each other, as one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from emulator.analysis.comparison import COMPARED, Row, called, cell, written
from emulator.analysis.figures import FIGURES
from emulator.report import HTML
from emulator.report.charts import Chart, axis, layout, line, short, thinned
from emulator.report.data import Facts
from emulator.report.page import Cause, causes, linker, page, series

__all__ = ["curves", "render"]

HEIGHT = 300
"""Pixels of the curves."""


@dataclass(frozen=True)
class _Run:
    name: str
    row: Row
    cells: Sequence[tuple[str, str]]
    """Column and number, with its ratio to the first run's."""
    causes: Sequence[Cause]
    link: str
    """To the run's own page; empty where there is none."""


def render(rows: Sequence[Row], facts: Sequence[Facts], *, place: Path) -> str:
    """Return the page of some runs, which lies in the folder `place`."""
    names = list(called(rows))
    by = next((row.efficiency_by for row in rows if row.efficiency_by), None)
    return page(
        "compare.html.j2",
        {"curves": curves(names, facts)},
        runs=[
            _Run(name, row, list(_cells(row, rows[0], by)), list(causes(one.analysis.time)), link)
            for name, row, one in zip(names, rows, facts, strict=True)
            for link in [linker(one.folder, place)(HTML) if HTML in one.files else ""]
        ],
        differs=[(key, [written(row.differs[key]) for row in rows]) for key in rows[0].differs],
        series=list(series(names, names)),
    )


def curves(names: Sequence[str], facts: Sequence[Facts]) -> Chart:
    """Return the throughput of every run over the seconds since each began."""
    data: list[dict[str, Any]] = []
    for number, (name, one) in enumerate(zip(names, facts, strict=True)):
        speed = one.speed
        points = thinned(
            [(speed.begin + (n + 0.5) * speed.width, rate) for n, rate in enumerate(speed.job)]
        )
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,  # never shown, and what the legend's buttons know it by
                "x": [short(t) for t, _ in points],
                "y": [short(rate) for _, rate in points],
                "line": line(number),
                "hovertemplate": f"{escape(name)}: %{{y:.3~g}} steps/s at %{{x:.1f}} s"
                "<extra></extra>",
            }
        )
    shape = layout(
        HEIGHT,
        margin={"l": 8, "r": 10, "t": 8, "b": 34},
        xaxis=axis(range=[0, max(one.end for one in facts)], ticksuffix=" s", fixedrange=False),
        yaxis=axis(rangemode="tozero", automargin=True, nticks=6),
    )
    return {"height": HEIGHT, "data": data, "layout": shape}


def _cells(row: Row, reference: Row, by: str | None) -> Iterator[tuple[str, str]]:
    """Yield the same columns for every row; `by`: what efficiencies count, None without any."""
    for key in COMPARED:
        yield FIGURES[key].title, cell(row, reference, key)
    if by is not None:
        other = f" by {row.efficiency_by}" if row.efficiency_by != by else ""
        said = "" if row.efficiency is None else f"{row.efficiency:.2f}{other}"
        yield f"Scaling efficiency, by {by}", said
