"""A scenario over its runs: one sees when it got worse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from emulator.analysis.figures import FIGURES
from emulator.ui.listing import Row
from emulator.ui.lists import shown
from emulator.ui.site import Site

DRAWN = ("worst_recovery", "lost_steps", "steps_per_second")
"""Figures that are drawn over the runs."""
BETTER = {"worst_recovery": -1, "lost_steps": -1, "steps_per_second": 1}
"""Whether more is better (1) or worse (-1)."""
WORSE = 0.2
"""The share of the median of the runs before by which a run has to be worse to be marked."""
BEFORE = 5
"""Runs of which that is the median, at most."""
MOST = 200
"""Runs of a history: the newest."""
WIDTH, HEIGHT, MARGIN = 960, 110, 10
"""Of a drawing, in its own units."""


def routes(site: Site) -> Sequence[BaseRoute]:
    """Return the route of histories."""

    async def page(request: Request) -> Response:
        name = request.path_params["name"]
        return HTMLResponse(await run_in_threadpool(rendered, site, name))

    return [Route("/scenarios/{name}", page)]


def rendered(site: Site, name: str) -> str:
    """Return the page of a scenario's runs. Raises HTTPException."""
    rows = [row for row in site.listing.rows() if row.listed.scenario == name]
    if not rows:
        raise HTTPException(404, f"There is no run of {name} in {site.out}.")
    over = [row for row in rows if not row.live][:MOST][::-1]
    marks = {key: worse([row.listed.figures.get(key) for row in over], key) for key in DRAWN}
    return site.page(
        "scenario.html.j2",
        scripts=["history.js"],
        name=name,
        drawings=[drawing(over, key, marks[key]) for key in DRAWN],
        rows=[
            {
                **shown(row),
                "cells": [
                    (
                        FIGURES[key].title,
                        FIGURES[key].text(row.listed.figures.get(key)),
                        marks[key][number],
                    )
                    for key in DRAWN
                ],
            }
            for number, row in reversed(list(enumerate(over)))
        ],
        live=[shown(row) for row in rows if row.live],
        share=f"{WORSE:.0%}",
        before=BEFORE,
    )


def worse(values: Sequence[float | None], key: str) -> list[str]:
    """Return by how much each value is worse than the median of those before it (pure).

    Empty where it is not, or where nothing before it is known; values are in the order of time.
    """
    found = []
    known: list[float] = []
    for value in values:
        text = ""
        if value is not None and known:
            usual = sorted(known[-BEFORE:])[(len(known[-BEFORE:]) - 1) // 2]
            text = _worse_than(value, usual, BETTER[key])
        found.append(text)
        if value is not None:
            known.append(value)
    return found


def _worse_than(value: float, usual: float, better: int) -> str:
    if math.isinf(value) or math.isinf(usual):
        return "never" if better < 0 and math.isinf(value) and not math.isinf(usual) else ""
    change = value - usual
    if change * better >= 0 or abs(change) < WORSE * abs(usual):
        return ""
    return f"{change / usual:+.0%}" if usual else f"+{value:g}"


@dataclass(frozen=True)
class Point:
    """A run in a drawing."""

    x: float
    y: float
    run: str
    text: str
    mark: str
    verdict: str


def drawing(rows: Sequence[Row], key: str, marks: Sequence[str]) -> dict[str, Any]:
    """Return a figure over runs as a drawing: a point each, from 0 to the largest value."""
    figure = FIGURES[key]
    values = [row.listed.figures.get(key) for row in rows]
    finite = [value for value in values if value is not None and not math.isinf(value)]
    most = max(finite, default=0.0) or 1.0
    step = (WIDTH - 2 * MARGIN) / max(1, len(rows) - 1)
    points = [
        Point(
            x=round(MARGIN + number * step, 1),
            y=round(HEIGHT - MARGIN - min(1.0, value / most) * (HEIGHT - 2 * MARGIN), 1),
            run=row.run_id,
            text=figure.text(value),
            mark=mark,
            verdict=row.listed.verdict or "unknown",
        )
        for number, (row, value, mark) in enumerate(zip(rows, values, marks, strict=True))
        if value is not None
    ]
    return {
        "key": key,
        "title": figure.title,
        "note": figure.note,
        "points": points,
        "line": " ".join(f"{point.x},{point.y}" for point in points),
        "most": figure.text(most) if finite else "",
        "width": WIDTH,
        "height": HEIGHT,
        "margin": MARGIN,
    }
