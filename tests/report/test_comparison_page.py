"""The page that compares several runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator.analysis.comparison import Row, rows
from emulator.report.comparison_page import render_comparison
from emulator.report.data import Facts
from tests.histories import happened, job
from tests.report.runs import PREEMPT, embedded, facts_of, preempted


def overlaid(*runs: tuple[Facts, str]) -> tuple[str, list[dict[str, Any]]]:
    """Return the page of runs with their variants, the first the baseline, and its curves."""
    judged = [(facts.plan, facts.analysis, facts.verdicts) for facts, _ in runs]
    found: list[Row] = [
        replace(row, variant=variant)
        for row, (_, variant) in zip(rows(judged, judged[-1]), runs, strict=True)
    ]
    html = render_comparison(found, [facts for facts, _ in runs], place=Path("/runs"))
    return html, json.loads(embedded(html, "charts"))["curves"]["data"]


def test_every_run_has_the_columns_of_the_head() -> None:
    silent = facts_of([happened(0, "run"), job(20)])
    html, _ = overlaid((silent, "x=1"), (facts_of(preempted()), "x=2"))
    (table,) = re.findall(r'(?s)<section id="runs">.*?</table>', html)
    cells = [len(re.findall("<t[hd]", row)) for row in re.findall("(?s)<tr>.*?</tr>", table)]
    assert cells == [cells[0]] * 3
    assert "Scaling efficiency, by steps" in table


def test_runs_with_prices_have_a_table_of_what_they_cost() -> None:
    priced = facts_of(preempted(), extra=f"{PREEMPT}prices: {{worker: 3600/h}}\ncurrency: EUR\n")
    html, _ = overlaid((facts_of(preempted()), "x=1"), (priced, "x=2"))
    (table,) = re.findall(r'(?s)<section id="costs".*?</table>', html)
    assert re.findall(r'data-label="Cost">(.*?)<', table) == ["", "35.00 EUR"]
    assert 'id="costs"' not in overlaid((facts_of(preempted()), "x=1"))[0]


def test_the_legends_buttons_know_every_curve_by_its_name() -> None:
    html, curves = overlaid((facts_of(preempted()), "x='a&b'"), (facts_of(preempted()), "x=<c>"))
    assert [curve["name"] for curve in curves] == ["x='a&b'", "x=<c>"]
    assert 'data-series="x=&#39;a&amp;b&#39;"' in html
    assert "<c>" not in "".join(curve["hovertemplate"] for curve in curves)


def test_runs_are_compared_by_step_and_since_their_first_step() -> None:
    html, _ = overlaid((facts_of(preempted()), "x=1"), (facts_of(preempted(), extra=""), "x=2"))
    charts = json.loads(embedded(html, "charts"))
    assert list(charts) == ["curves", "aligned", "steps"]  # no task reported a loss
    aligned, by_step = (charts[name]["data"][0] for name in ("aligned", "steps"))
    assert aligned["x"][0] < 1  # the first step was after 3 s
    assert "s<extra>" in aligned["hovertemplate"]
    assert by_step["x"][-1] == pytest.approx(32, abs=1)
    assert "at step" in by_step["hovertemplate"]
    faults = charts["curves"]["layout"]["shapes"]
    assert [(line["x0"], line["line"]["color"]) for line in faults] == [(7, "--series-1")]
