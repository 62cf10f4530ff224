"""The list of runs, its rows as they change, and the curve in each row."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from emulator.analysis.figures import FIGURES
from emulator.analysis.throughput import curve
from emulator.errors import RecordError
from emulator.record.folder import VERDICTS
from emulator.record.reader import Record
from emulator.ui.listing import FIGURES as SHOWN
from emulator.ui.listing import Row, Stamp, stamp_of
from emulator.ui.site import Site

POINTS = 48
"""Of the curve in a row."""
SPARKS = 1000
"""Curves that are kept."""
AT_ONCE = 200
"""Runs of one request at most."""


def routes(site: Site) -> Sequence[BaseRoute]:
    """Return the routes of the list."""
    lists = _Lists(site)
    return [
        Route("/", lists.page),
        Route("/rows", lists.rows),
        Route("/events", lists.events),
        Route("/sparks", lists.sparks),
    ]


class _Lists:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._sparks: dict[tuple[str, Stamp], dict[str, Any]] = {}

    async def page(self, request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self._page))

    def _page(self) -> str:
        rows = self._rows(None)
        return self._site.page(
            "runs.html.j2",
            scripts=["runs.js"],
            rows=rows,
            starts=self._site.starts.shown(),
            heads=[FIGURES[key].column for key in SHOWN],
            verdicts=["live", *VERDICTS],
            out=str(self._site.out.resolve()),
        )

    async def rows(self, request: Request) -> Response:
        names = None if "all" in request.query_params else asked(request)
        html = await run_in_threadpool(
            lambda: self._site.page(
                "rows.html.j2", rows=self._rows(names), starts=self._site.starts.shown()
            )
        )
        return HTMLResponse(html)

    def _rows(self, names: Sequence[str] | None) -> list[dict[str, Any]]:
        rows = self._site.listing.rows(names)
        for row in rows:
            if row.live or row.listed.outcome == "crashed":
                self._site.changes.attend(row.run_id)
        return [shown(row) for row in rows]

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._told(), media_type="text/event-stream")

    async def _told(self) -> AsyncIterator[str]:
        yield ": the names of runs that have changed\n\n"
        async for names in self._site.changes.follow():
            yield f"data: {json.dumps({'runs': names})}\n\n"

    async def sparks(self, request: Request) -> Response:
        names = asked(request)
        found = await run_in_threadpool(lambda: {name: self._spark(name) for name in names})
        return JSONResponse({name: one for name, one in found.items() if one is not None})

    def _spark(self, name: str) -> dict[str, Any] | None:
        record = self._site.listing.record(name)
        if record is None:
            return None
        key = name, stamp_of(record.path)
        with self._lock:  # one at a time: each takes a core
            if key not in self._sparks or record.live:
                self._sparks[key] = spark(record)
                while len(self._sparks) > SPARKS:
                    del self._sparks[next(iter(self._sparks))]
            return self._sparks[key]


def asked(request: Request) -> list[str]:
    """Return the runs that a request names: `?run=ID&run=ID`, none twice."""
    return list(dict.fromkeys(request.query_params.getlist("run")))[:AT_ONCE]


def shown(row: Row) -> dict[str, Any]:
    """Return a row as the templates show it."""
    one = row.listed
    when = None if one.began is None else datetime.fromtimestamp(one.began).astimezone()
    return {
        "id": one.run_id,
        "live": row.live,
        "scenario": one.scenario,
        "variant": one.variant,
        "engine": one.engine,
        "began": when,
        "order": one.began or 0.0,
        "outcome": one.outcome,
        "verdict": one.verdict,
        "commit": one.commit,
        "figures": [
            (FIGURES[key].column, FIGURES[key].text(one.figures.get(key), "")) for key in SHOWN
        ],
    }


def spark(record: Record) -> dict[str, Any]:
    """Return the job's steps per second over its time, and when faults hit, both from 0 to 1.

    Nothing of a record that can't be read.
    """
    try:
        timeline = record.timeline
        duration = timeline.end or 1.0
        rates = curve(timeline, duration, bins=POINTS).job
        hits = (one.triggered for one in timeline.faults.values())
        faults = [round(t / duration, 3) for t in hits if t is not None]
    except RecordError:
        return {"rates": [], "faults": []}
    most = max(rates, default=0.0) or 1.0
    return {"rates": [round(rate / most, 3) for rate in _of(rates, POINTS)], "faults": faults}


def _of(rates: Sequence[float], count: int) -> Iterator[float]:
    """Yield at most `count` means of as many stretches."""
    size = max(1, -(-len(rates) // count))
    for begin in range(0, len(rates), size):
        some = rates[begin : begin + size]
        yield sum(some) / len(some)
