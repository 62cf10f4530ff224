"""What the page of a run that goes on asks for, below the address of the run.

GET    /runs/ID/live/events               updates, as server-sent events
GET    /runs/ID/live/lines?task=NAME      what tasks print, as server-sent events
GET    /runs/ID/live/refused              the buttons that the run's engine can't do
POST   /runs/ID/live/faults               inject a fault: {"kind", "target", "other", "options"}
DELETE /runs/ID/live/faults/FAULT         heal a fault; `all` for every one
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from emulator.api.client import Cluster
from emulator.api.following import Gone, follow
from emulator.errors import UsageError
from emulator.record.reader import Record
from emulator.report.text import printable
from emulator.ui.live.by_hand import asked, refused
from emulator.ui.live.feed import TICK, Feed
from emulator.ui.run_page import found
from emulator.ui.site import Site

T = TypeVar("T")

LINES = 200
"""Of each task, printed before the page follows it."""
AT_ONCE = 500
"""Lines of a batch that are sent; of more, the last ones."""
LARGEST_BODY = 2**16


def routes(site: Site) -> Sequence[BaseRoute]:
    """Return the routes of runs that go on."""
    live = _Live(site)
    return [
        Route("/runs/{id}/live/events", live.events),
        Route("/runs/{id}/live/lines", live.lines),
        Route("/runs/{id}/live/refused", live.refused),
        Route("/runs/{id}/live/faults", live.inject, methods=["POST"]),
        Route("/runs/{id}/live/faults/{fault:path}", live.heal, methods=["DELETE"]),
    ]


class _Live:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._feeds: dict[str, Feed] = {}

    async def events(self, request: Request) -> Response:
        record = await run_in_threadpool(found, self._site, request)
        return _sent(self._updates(record))

    async def _updates(self, record: Record) -> AsyncIterator[object]:
        feed = self._feeds.get(record.run_id)
        if feed is None or not feed.is_followed:
            feed = self._feeds[record.run_id] = Feed(self._site, record)
        try:
            async for update in feed.updates():
                yield update
        finally:
            if not feed.is_followed and self._feeds.get(record.run_id) is feed:
                del self._feeds[record.run_id]

    async def lines(self, request: Request) -> Response:
        record = await run_in_threadpool(found, self._site, request)
        task = request.query_params.get("task") or None
        if task is not None and task not in record.plan.printing:
            raise UsageError(f"No task is called {task!r}.")
        return _sent(_lines(record, task))

    async def refused(self, request: Request) -> Response:
        status = await self._ask(request, Cluster.status)
        return JSONResponse(refused(status["capabilities"], status["engine"]))

    async def inject(self, request: Request) -> Response:
        given = await _body(request)
        options = {str(key): str(value) for key, value in given.get("options", {}).items()}
        kind, target, other = (str(given.get(key, "")) for key in ("kind", "target", "other"))
        entry = asked(kind, target, other, options)
        return await self._answer(request, "faults", lambda cluster: cluster.fault(**entry))

    async def heal(self, request: Request) -> Response:
        fault = request.path_params["fault"]
        return await self._answer(request, "healed", lambda cluster: cluster.heal(fault))

    async def _answer(
        self, request: Request, key: str, call: Callable[[Cluster], object]
    ) -> Response:
        """Answer with what the run says; a refusal is an answer as well, in its words."""
        try:
            return JSONResponse({key: await self._ask(request, call)})
        except UsageError as error:
            return JSONResponse({"refused": str(error)})

    async def _ask(self, request: Request, call: Callable[[Cluster], T]) -> T:
        """Ask the run, as the command line does; its refusals are the same sentences."""
        record = await run_in_threadpool(found, self._site, request)

        def ask() -> T:
            with Cluster(record) as cluster:
                return call(cluster)

        return await run_in_threadpool(ask)


async def _lines(record: Record, task: str | None) -> AsyncIterator[object]:
    try:
        async for lines in follow(record.path, "lines", every=TICK, task=task, last=LINES):
            some = [json.loads(line) for line in lines[-AT_ONCE:]]
            yield {
                "left_out": len(lines) - len(some),
                "lines": [[one["task"], printable(one["text"]), one["wall"]] for one in some],
            }
    except Gone:
        pass
    yield {"over": True}


def _sent(updates: AsyncIterator[object]) -> Response:
    async def events() -> AsyncIterator[str]:
        async for update in updates:
            yield f"data: {json.dumps(update, separators=(',', ':'))}\n\n"

    headers = {"cache-control": "no-store"}
    return StreamingResponse(events(), headers=headers, media_type="text/event-stream")


async def _body(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise UsageError("That is too long for a fault.")
    try:
        given = json.loads(body)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not isinstance(given.get("options", {}), dict):
        raise UsageError("That is no fault: it is no object of JSON.")
    return given
