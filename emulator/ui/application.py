"""The pages of `emulate ui`, as an ASGI application behind the gate.

    GET   /                  the list of runs; /rows?run=ID&run=ID are rows of it, as HTML
    GET   /events            names of runs that have changed, as server-sent events
    GET   /sparks?run=ID     the job's rate over time, as JSON
    GET   /runs/ID/          the page of a run, and the files of its folder below it
    GET   /compare?run=ID&run=ID
    GET   /scenarios/NAME    the runs of a scenario over time
    GET   /start             the form; POST /plan answers with the plan, POST /start starts the run

A part of it is a function of PARTS, which returns its routes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from emulator.errors import EmulatorError, UsageError
from emulator.runtime.unexpected import explained
from emulator.ui import comparing, lists, run_page, scenario_page, starting
from emulator.ui.live import routes as live
from emulator.ui.site import TYPES, Site, static, url

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PARTS: Sequence[Callable[[Site], Sequence[BaseRoute]]] = (
    lists.routes,
    live.routes,  # before the files of runs
    run_page.routes,
    comparing.routes,
    scenario_page.routes,
    starting.routes,
)


def application(site: Site) -> ASGIApp:
    """Return all pages of a folder of runs."""
    return Starlette(
        routes=[
            Route("/static/{digest}/{name}", _static),
            *(route for part in PARTS for route in part(site)),
        ],
        exception_handlers={
            EmulatorError: _refuse,
            HTTPException: _unknown,
            Exception: _defect,
        },
    )


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in static() or request.url.path != url(name):
        raise HTTPException(404, "There is no such file.")
    kept = {"cache-control": "private, max-age=31536000, immutable"}
    kind = next(kind for end, kind in TYPES.items() if name.endswith(end))
    return Response(static()[name], headers=kept, media_type=kind)


async def _refuse(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 422 if isinstance(error, UsageError) else 500)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(f"{error.detail}\n", error.status_code)


async def _defect(request: Request, error: Exception) -> Response:
    # It is raised again after the answer: the server reports it.
    return PlainTextResponse(f"{explained(error)}\n", 500)
