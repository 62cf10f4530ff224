"""Several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from emulator.errors import UsageError
from emulator.report.comparison_page import render_comparison
from emulator.report.data import read
from emulator.session.sweep import compare, judge_all
from emulator.ui.lists import asked
from emulator.ui.site import Site, served

MOST = 20
"""Runs side by side; each is judged again."""


def routes(site: Site) -> Sequence[BaseRoute]:
    """Return the route of comparisons."""

    async def page(request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(rendered, site, asked(request)))

    return [Route("/compare", page)]


def rendered(site: Site, names: Sequence[str]) -> str:
    """Return a page that compares runs; ratios are to the first. Raises UsageError, RecordError."""
    if len(names) < 2:
        raise UsageError("A comparison takes two runs or more.", "Select them in the list.")
    if len(names) > MOST:
        raise UsageError(f"A comparison here has at most {MOST} runs.", "Select fewer.")
    records = [site.listing.record(name) for name in names]
    there = [record for record in records if record is not None]
    if len(there) < len(names):
        gone = names[records.index(None)]
        raise UsageError(f"{gone} is no run in {site.out}.", "The list shows those that are there.")
    if live := next((record for record in there if record.live), None):
        raise UsageError(f"{live.run_id} is still under way.", "Compare it when it is over.")
    judged = judge_all(there)
    facts = [read(*run) for run in judged]
    return render_comparison(
        compare(judged), facts, link=lambda one: f"/runs/{one.folder.name}/", served=served()
    )
