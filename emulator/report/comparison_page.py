"""A page that compares several runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from emulator.analysis.comparison import COMPARED, Row, called, cell, reported
from emulator.analysis.figures import FIGURES
from emulator.report.charts import (
    SECONDS,
    STEPS,
    Axis,
    Chart,
    Group,
    Points,
    curve_points,
    line_chart,
    series_colour,
)
from emulator.report.curves import leading_steps, leading_values, rate_over_steps
from emulator.report.data import HTML, Facts, causes
from emulator.report.document import document, linker

HEIGHT = 300
"""Pixels of its charts."""


def render_comparison(rows: Sequence[Row], facts: Sequence[Facts], *, place: Path) -> str:
    """Return a page that compares runs; its links are relative to the folder `place`."""
    names = list(called(rows))
    unit = next((row.efficiency_by for row in rows if row.efficiency_by), None)
    runs = [
        {
            "name": name,
            "row": row,
            "cells": list(_cells(row, rows[0], unit)),
            "causes": causes(one.analysis.time),
            "link": linker(one.folder, place)(HTML) if HTML in one.files else "",
        }
        for name, row, one in zip(names, rows, facts, strict=True)
    ]
    groups = [Group(name, number) for number, name in enumerate(names)]
    return document(
        "compare.html.j2",
        _charts(dict(zip(names, facts, strict=True)), groups),
        runs=runs,
        reported=reported(rows),
        differs=[(key, [row.words(key) for row in rows]) for key in rows[0].differs],
        series=groups,
    )


def _cells(row: Row, reference: Row, unit: str | None) -> Iterator[tuple[str, str]]:
    """Yield the same columns for every row; `unit` of the efficiencies, None if there are none."""
    for key in COMPARED:
        yield FIGURES[key].title, cell(row, reference, key)
    if unit is not None:
        other = f" by {row.efficiency_by}" if row.efficiency_by != unit else ""
        text = "" if row.efficiency is None else f"{row.efficiency:.2f}{other}"
        yield f"Scaling efficiency, by {unit}", text


def _charts(runs: Mapping[str, Facts], groups: Sequence[Group]) -> dict[str, Chart]:
    """Return the steps by time, the rates by time, since the first step and by step, the loss."""
    rates = {name: curve_points(one.speed, one.speed.job) for name, one in runs.items()}
    aligned = {name: list(_since_first_step(runs[name], rates[name])) for name in runs}
    steps = {name: list(rate_over_steps(one)) for name, one in runs.items()}
    made = {name: list(leading_steps(one)) for name, one in runs.items()}
    charts = {
        "made": _chart(made, groups, SECONDS, unit="steps"),
        "curves": _chart(rates, groups, SECONDS),
        "aligned": _chart(aligned, groups, f"{SECONDS} since the first step"),
        "steps": _chart(steps, groups, STEPS),
    }
    losses = {name: list(leading_values(one, "loss")) for name, one in runs.items()}
    if any(losses.values()):
        charts["loss"] = _chart(losses, groups, STEPS, unit="")
    for chart in ("made", "curves"):
        charts[chart]["layout"] |= {"shapes": list(_fault_lines(runs, groups))}
    return charts


def _chart(
    lines: Mapping[str, Points], groups: Sequence[Group], counts: str, unit: str = "steps/s"
) -> Chart:
    last = max((x for points in lines.values() for x, _ in points), default=1.0)
    axis = Axis(counts, 0.0, last)
    return line_chart(lines, groups, unit, HEIGHT, axis, from_zero=bool(unit))


def _since_first_step(facts: Facts, points: Points) -> Iterator[tuple[float, float | None]]:
    first = facts.analysis.first_step
    if first is not None:
        yield from ((x - first, y) for x, y in points if x >= first)


def _fault_lines(runs: Mapping[str, Facts], groups: Sequence[Group]) -> Iterator[dict[str, object]]:
    """Yield a dotted line at each fault, in the colour of its run."""
    for group in groups:
        for when, _ in runs[group.name].triggered:
            style = {"color": series_colour(group.number), "width": 1, "dash": "dot"}
            place = {"x0": when, "x1": when, "y0": 0, "y1": 1}
            yield {"type": "line", "xref": "x", "yref": "paper", **place, "line": style}
