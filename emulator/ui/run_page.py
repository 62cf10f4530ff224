"""The page of a run, and the files of its folder that it links to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from emulator.record.folder import GIVEN
from emulator.record.reader import Record
from emulator.report import page
from emulator.report.data import read
from emulator.results import judge
from emulator.ui.listing import Stamp, stamp_of
from emulator.ui.live import page as live_page
from emulator.ui.site import Site, served
from emulator.validation.stored import open_stored

KEPT = 8
"""Pages that are kept; making one takes a second."""
FILES = frozenset(
    {
        *("history.jsonl", "samples.jsonl", "summary.json", "verdicts.json", "plan.json"),
        *("scenario.yaml", "report.md", "junit.xml", *GIVEN),
    }
)
"""Files of a run folder that can be read, beside the logs."""


def routes(site: Site) -> Sequence[BaseRoute]:
    """Return the routes of runs."""
    pages = _Pages(site)
    return [
        Route("/runs/{id}", pages.folder),
        Route("/runs/{id}/", pages.page),
        Route("/runs/{id}/{file:path}", pages.file),
    ]


def found(site: Site, request: Request) -> Record:
    """Return the run of a request's path. Raises HTTPException."""
    record = site.listing.record(request.path_params["id"])
    if record is None:
        raise HTTPException(404, f"There is no such run in {site.out}.")
    return record


class _Pages:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, Stamp], str] = {}

    async def folder(self, request: Request) -> Response:
        record = await run_in_threadpool(found, self._site, request)
        return RedirectResponse(f"/runs/{record.run_id}/", 307)

    async def page(self, request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self._page, request))

    def _page(self, request: Request) -> str:
        name = request.path_params["id"]
        if name in self._site.expected and self._site.listing.record(name) is None:
            return self._site.page("waiting.html.j2", scripts=["waiting.js"], run=name)
        record = found(self._site, request)
        if record.live:
            return live_page.first(record)
        key = record.run_id, stamp_of(record.path)
        with self._lock:  # one at a time: each takes a core
            if key not in self._kept:
                self._kept[key] = rendered(record)
                while len(self._kept) > KEPT:
                    del self._kept[next(iter(self._kept))]
            return self._kept[key]

    async def file(self, request: Request) -> Response:
        return await run_in_threadpool(self._file, request)

    def _file(self, request: Request) -> Response:
        record = found(self._site, request)
        asked = request.path_params["file"]
        # Of names that are known, never of what the request says.
        of = record.outline
        logs = {f"logs/{name}.log" for name in (*of.tasks, *of.helpers)}
        name = next((one for one in (*FILES, *logs) if one == asked), None)
        try:
            file = None if name is None else open_stored(record.path / Path(name))
        except FileNotFoundError:
            file = None
        if file is None:
            raise HTTPException(404, "There is no such file of this run.")
        # What tasks have printed is text, whatever it looks like.
        return StreamingResponse(_pieces(file), media_type="text/plain; charset=utf-8")


def rendered(record: Record) -> str:
    """Return the page of a run as it is now. Raises RecordError."""
    return page.render(read(record, judge(record)), served=served())


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(2**16):
            yield piece
