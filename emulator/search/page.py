"""A sweep as a table, as a page with a chart, and for CI: sweep.html, report.md, junit.xml."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

from emulator.report.charts import Axis, Group, line_chart
from emulator.report.data import HTML
from emulator.report.document import document, linker
from emulator.report.files import (
    JUNIT,
    MARKDOWN,
    MARKS,
    in_markdown,
    put,
    suite_of,
    table_lines,
    xml_of,
)
from emulator.report.tables import Table
from emulator.report.text import printable
from emulator.search.outcomes import Word
from emulator.search.points import SweepResult, said

PAGE = "sweep.html"
HEIGHT = 260
"""Pixels of the chart."""
RESUMED, SAVED = "resumed from", "last complete save"
_STATUS = {"passed": "ok", "undecided": "unknown"}
"""Other words have failed."""
_TONES: Mapping[Word, str] = {
    **{"passed": "ok", "lost work": "lost", "failed": "failed"},
    **{"silently different": "silent", "undecided": "unknown"},
}
"""The colours of the words, see style.css."""


def write(result: SweepResult) -> Path:
    """Write all reports of a sweep into its folder; return the page. Raises RecordError."""
    put(result.folder / MARKDOWN, markdown(result), private=True)
    put(result.folder / JUNIT, junit(result), private=True)
    return put(result.folder / PAGE, render(result), private=True)


def markdown(result: SweepResult) -> str:
    """Return the moments in GitHub's Markdown, as for a summary of its actions."""
    status = {0: "ok", 3: "unknown"}.get(result.exit_code, "failed")
    lines = [f"## {MARKS[status]}: {in_markdown(result.folder.name)}", "", result.figure]
    for what in result.not_compared:
        lines += ["", f"> {in_markdown(f'Not compared, as it differs without a fault: {what}')}"]
    rows = [(one.moment.words, one.outcome.what, one.outcome.why) for one in result.points]
    return "\n".join([*lines, *table_lines(("moment", "outcome", "why"), rows)]) + "\n"


def junit(result: SweepResult) -> str:
    """Return a test suite with a case for each moment."""
    name = result.folder.name
    statuses = [_STATUS.get(one.outcome.what, "failed") for one in result.points]
    suite = suite_of(name, statuses, 0.0)
    for point, status in zip(result.points, statuses, strict=True):
        words = printable(point.moment.words)
        case = ET.SubElement(
            suite, "testcase", name=words, classname=f"emulate.{name}", time="0.000"
        )
        if status != "ok":
            kind = "failure" if status == "failed" else "error"
            ET.SubElement(case, kind, type=point.outcome.what, message=printable(said(point)))
    return xml_of(suite)


def table(result: SweepResult) -> Table:
    """Return a row for each moment; why it is so is said as each run ends, and on the page."""
    heads = ("moment", "outcome", "last save", "resumed from", "lost steps", "verdict")
    rows = [
        (
            point.moment.words,
            point.outcome.what,
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
            "tone": _TONES[point.outcome.what],
            "what": point.outcome.what,
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
    seen = {point.outcome.what for point in result.points}
    return document(
        "sweep.html.j2",
        {"steps": chart},
        result=result,
        rows=rows,
        series=groups,
        words=[(word, tone) for word, tone in _TONES.items() if word in seen],
    )


def _link(result: SweepResult, number: int) -> str:
    run = result.points[number].run
    if run is None or not (run / HTML).is_file():
        return ""
    return linker(run, result.folder)(HTML)
