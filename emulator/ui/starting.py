"""Start a run: a scenario with changed values, its plan, and `emulate up -d`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from emulator.engines import AUTO, REMOTE, choose, names
from emulator.engines.requirements import make_ready
from emulator.errors import UsageError, printable
from emulator.planning.plan import new_run_id
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.report.plan_tables import plan_text
from emulator.runtime.bundled import scenarios
from emulator.scenario.given import NOTHING, read_scenario
from emulator.session.launch import find

if TYPE_CHECKING:
    from emulator.ui.site import Site

Launch = Callable[[Sequence[str], str, Callable[[str], None]], int]
"""Runs `emulate` with these arguments, of a run with this id, and passes on the lines that it says;
returns its exit code."""

LARGEST = 2**16
"""Bytes of a form."""
WIDTH = 100
"""Characters of a plan."""


def routes(site: Site) -> Sequence[BaseRoute]:
    """Return the routes of the form."""

    async def form(request: Request) -> Response:
        given = request.query_params.get("scenario", "")
        page = site.page(
            "start.html.j2",
            scripts=["start.js"],
            given=given,
            bundled=[path.stem for path in scenarios()],
            engines=[AUTO, *names()],
            here=str(Path.cwd()),
        )
        return HTMLResponse(page)

    async def plan(request: Request) -> Response:
        wanted = Wanted.of(await _body(request))
        return JSONResponse({"plan": await run_in_threadpool(planned, wanted, site.out)})

    async def start(request: Request) -> Response:
        wanted = Wanted.of(await _body(request))
        run_id = await run_in_threadpool(site.starts.begin, wanted)
        return JSONResponse({"run": run_id}, 201)

    return [
        Route("/start", form, methods=["GET"]),
        Route("/start", start, methods=["POST"]),
        Route("/plan", plan, methods=["POST"]),
    ]


@dataclass(frozen=True)
class Wanted:
    """What a form says."""

    scenario: str
    """A file, its folder, or the name of a bundled scenario."""
    sets: Sequence[str] = ()
    """As `--set` takes them."""
    engine: str = AUTO

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Wanted:
        """Read a form. Raises UsageError."""
        scenario, sets, engine = (found.get(key) for key in ("scenario", "sets", "engine"))
        if not isinstance(scenario, str) or not scenario.strip():
            raise UsageError("No scenario was given.", "Name a bundled one, or a file.")
        lines = sets if isinstance(sets, list) else []
        if not all(isinstance(line, str) for line in lines):
            raise UsageError("Changed values are lines of text.", "Example: cluster.worker=4")
        if engine not in (AUTO, *names()):
            raise UsageError(f"There is no engine {engine!r}.", f"There are {', '.join(names())}.")
        return cls(scenario.strip(), [line.strip() for line in lines if line.strip()], str(engine))

    def requested(self) -> RequestedScenario:
        """Find and read the scenario. Raises UsageError."""
        path = find(self.scenario, [Path.cwd()])
        return RequestedScenario(read_scenario(path, NOTHING), path, chosen=tuple(self.sets))


def planned(wanted: Wanted, out: Path) -> str:
    """Return what `emulate plan` prints. Raises EmulatorError."""
    requested = wanted.requested()
    with contextlib.closing(choose(wanted.engine)) as engine:
        with requested.placed():
            plan, _ = make_ready(requested, engine, RunOptions(out=out))
        capacity = None if engine.name in REMOTE else engine.capacity()
    return plan_text(plan, WIDTH, capacity)


@dataclass
class Start:
    """A run that was started here, and is not up yet or could not be."""

    run_id: str
    scenario: str
    said: list[str] = field(default_factory=list)
    """The lines that `emulate up -d` has printed."""
    code: int | None = None
    """Its exit code; None: it still runs."""


class Starts:
    """The runs that were started here, until they are up; those that failed stay."""

    def __init__(self, out: Path, launch: Launch, tell: Callable[[str], None]) -> None:
        self._out, self._launch, self._tell = out, launch, tell
        self._lock = threading.Lock()
        self._starts: dict[str, Start] = {}

    def begin(self, wanted: Wanted) -> str:
        """Start a run in the background; return its id. Raises UsageError."""
        requested = wanted.requested()
        name = requested.scenario.name
        start = Start(new_run_id(name), name)
        arguments = [
            *("up", "--detach", f"--engine={wanted.engine}", f"--out={self._out}"),
            *(f"--run-id={start.run_id}", *(f"--set={one}" for one in wanted.sets)),
            *("--", str(requested.path)),
        ]
        with self._lock:
            self._starts[start.run_id] = start
        threading.Thread(target=self._run, args=[start, arguments], daemon=True).start()
        return start.run_id

    def shown(self) -> list[Start]:
        """Return the runs that are not up yet, and those that could not be started."""
        with self._lock:
            return [one for one in self._starts.values() if one.code != 0]

    def _run(self, start: Start, arguments: Sequence[str]) -> None:
        def say(line: str) -> None:
            start.said.append(printable(line))
            self._tell(start.run_id)

        start.code = self._launch(arguments, start.run_id, say)
        self._tell(start.run_id)


async def _body(request: Request) -> Mapping[str, Any]:
    """Return a form. Raises HTTPException, UsageError."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST:
            raise HTTPException(413, f"A form has at most {LARGEST // 2**10} KiB.")
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError("That is no form.", "It is JSON.")
    return found
