"""A sweep as a table, and as a page with a chart."""

from __future__ import annotations

from emulator.report.charts import Axis, Group, line_chart
from emulator.report.data import HTML
from emulator.report.document import document, linker
from emulator.report.tables import Table
from emulator.search.outcomes import WORDS
from emulator.search.sweep import SweepResult

PAGE = "sweep.html"
HEIGHT = 260
"""Pixels of the chart."""
RESUMED, SAVED = "resumed from", "last complete save"
_STATUS = {"right": "ok", "unknown": "unknown"}


def table(result: SweepResult) -> Table:
    """Return a row for each moment; why it is so is said as each run ends, and on the page."""
    heads = ("moment", "outcome", "last save", "resumed from", "lost steps", "verdict")
    rows = [
        (
            point.moment.words,
            WORDS[point.outcome.what],
            point.outcome.saved,
            point.outcome.resumed,
            point.outcome.lost,
            point.verdict,
        )
        for point in result.points
    ]
    return Table(heads, rows, numbers=heads[2:5])


def render(result: SweepResult) -> str:
    """Return the page, whose links are relative to the folder of the sweep."""
    rows = [
        {
            "moment": point.moment.words,
            "status": _STATUS.get(point.outcome.what, "failed"),
            "what": WORDS[point.outcome.what],
            "cells": (point.outcome.saved, point.outcome.resumed, point.outcome.lost),
            "verdict": point.verdict,
            "why": point.outcome.why,
            "link": _link(result, number),
        }
        for number, point in enumerate(result.points)
    ]
    lines = {
        RESUMED: [
            (float(number), None if point.outcome.resumed is None else float(point.outcome.resumed))
            for number, point in enumerate(result.points, start=1)
        ],
        SAVED: [
            (float(number), None if point.outcome.saved is None else float(point.outcome.saved))
            for number, point in enumerate(result.points, start=1)
        ],
    }
    groups = [Group(RESUMED, 0), Group(SAVED, 1)]
    axis = Axis("moments", 1.0, float(max(2, len(result.points))))
    chart = line_chart(lines, groups, "step", HEIGHT, axis)
    chart["layout"]["xaxis"]["ticksuffix"] = ""
    return document("sweep.html.j2", {"steps": chart}, result=result, rows=rows, series=groups)


def _link(result: SweepResult, number: int) -> str:
    run = result.points[number].run
    if run is None or not (run / HTML).is_file():
        return ""
    return linker(run, result.folder)(HTML)
