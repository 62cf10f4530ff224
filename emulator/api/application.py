"""What the API of a run answers, as an ASGI application.

    GET    /v1/run            tasks and faults as they are now
    GET    /v1/history        the events, a line of JSON each, followed until the run is over;
                              `?after=N` leaves out the events up to number N
    GET    /v1/samples        usage of tasks and GPUs, a line of JSON each, followed as well;
                              `?last=N` begins with the last N samples
    GET    /v1/lines          output of the tasks, `{"task", "text", "wall"}` a line, followed as
                              well; `?task=NAME` only of that one, `?last=N` begins with the last N
                              lines of each, `?since=TIME` with what was printed since then
    GET    /metrics           the run as it is now, for Prometheus: a plug-in's, as others may be
    POST   /v1/faults         inject a fault; the body is an entry of `faults:` without `at`
    DELETE /v1/faults/{id}    heal a fault; `all` for every one
    POST   /v1/stop           end the job as Ctrl-C does; a second time: at once

Requests are performed by the supervisor on its own thread, so there is one writer. Errors are
`{"error": "one sentence"}`, with 422 for a request that makes no sense here, 410 for one to a
supervisor that has ended, and 500 for a failure.

What serves takes half a second of CPU to load, so this module is imported for the first client.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from emulator.errors import EmulatorError, RunOver, UsageError
from emulator.faults.kinds import OneFault
from emulator.faults.spec import FaultSpec
from emulator.metrics import sample_file
from emulator.record.task_log import LogTimes, beginning, last_lines, new_lines
from emulator.runtime import plugins
from emulator.runtime.unexpected import explained

if TYPE_CHECKING:
    from emulator.api.server import RecordWatcher
    from emulator.supervisor.control import RunControl

Number = TypeVar("Number", int, float)

LARGEST_BODY = 2**20
"""Bytes of a request; a fault takes some hundred."""
ANSWER_WITHIN = 60.0
"""Seconds; the supervisor answers between two events."""


def application(control: RunControl, folder: Path, watcher: RecordWatcher) -> Starlette:
    """Return the API of one run as an ASGI application."""
    requests, streams = _Requests(control, watcher), _Streams(control, folder, watcher)
    return Starlette(
        routes=[
            Route("/v1/run", requests.run),
            Route("/v1/faults", requests.faults, methods=["POST"]),
            Route("/v1/faults/{id:path}", requests.heal, methods=["DELETE"]),
            Route("/v1/stop", requests.stop, methods=["POST"]),
            Route("/v1/history", streams.history),
            Route("/v1/samples", streams.samples),
            Route("/v1/lines", streams.lines),
            *(Route(one.path, _Page(folder, one).answer) for one in plugins.pages()),
        ],
        exception_handlers={
            EmulatorError: _refuse,
            HTTPException: _unknown,
            ClientDisconnect: _gone,
            Exception: _defect,
        },
    )


class _Requests:
    """What the supervisor is asked for."""

    def __init__(self, control: RunControl, watcher: RecordWatcher) -> None:
        self._control, self._watcher = control, watcher

    async def run(self, request: Request) -> Response:
        return JSONResponse(await self._ask(self._control.status))

    async def faults(self, request: Request) -> Response:
        spec = _fault(await _body(request))
        faults = await self._ask(lambda: self._control.inject(spec))
        return JSONResponse({"faults": faults}, 201)

    async def heal(self, request: Request) -> Response:
        name = request.path_params["id"]
        healed = await self._ask(lambda: self._control.heal("" if name == "all" else name))
        if not healed and name != "all":
            raise UsageError(f"There is nothing to heal of a fault {name!r}.")
        return JSONResponse({"healed": healed})

    async def stop(self, request: Request) -> Response:
        await self._ask(self._control.stop)
        return JSONResponse({}, 202)

    async def _ask(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401  whatever the call returns
        if self._watcher.refusing:
            raise RunOver
        return await run_in_threadpool(self._control.ask(call).result, ANSWER_WITHIN)


class _Streams:
    """What is read from the run folder, until the run is over."""

    def __init__(self, control: RunControl, folder: Path, watcher: RecordWatcher) -> None:
        self._control, self._folder, self._watcher = control, folder, watcher

    async def history(self, request: Request) -> Response:
        return _streamed(self._entries(_number(request, "after", int)))

    async def _entries(self, after: int | None) -> AsyncIterator[bytes]:
        files = {"history": self._folder / "history.jsonl"}
        async for _, _, some in self._watcher.lines(lambda: files):
            yield b"".join(
                line for line in some if after is None or int(json.loads(line)["n"]) > after
            )

    async def samples(self, request: Request) -> Response:
        return _streamed(self._measured(_number(request, "last", int)))

    async def _measured(self, last: int | None) -> AsyncIterator[bytes]:
        latest = -1.0
        files = {"samples": self._folder / sample_file.NAME}
        begin = None if last is None else partial(last_lines, count=last)
        async for _, _, some in self._watcher.lines(lambda: files, begin):
            for line in some:
                t = float(json.loads(line)["t"])
                if t > latest:  # else sent before the thinning
                    latest = t
                    yield line

    async def lines(self, request: Request) -> Response:
        only, last = request.query_params.get("task"), _number(request, "last", int)
        since = _number(request, "since", float)
        if only is not None and only not in self._control.printing:
            raise UsageError(
                f"No task is called {only!r}.", f"There are {', '.join(self._control.printing)}."
            )
        return _streamed(self._printed(only, partial(beginning, last=last, since=since)))

    async def _printed(self, only: str | None, begin: Callable[[Path], int]) -> AsyncIterator[str]:
        logs, times = self._folder / "logs", dict[str, LogTimes]()

        def files() -> dict[str, Path]:
            return {log.stem: log for log in sorted(logs.glob("*.log")) if only in (None, log.stem)}

        async for task, offset, some in self._watcher.lines(files, begin, new_lines):
            if task not in times:
                times[task] = LogTimes(logs / f"{task}.log")
            objects = []
            for line in some:
                text = line.decode("utf-8", "replace").removesuffix("\n")
                wall = times[task].at(offset)
                objects.append(json.dumps({"task": task, "text": text, "wall": wall}) + "\n")
                offset += len(line)
            yield "".join(objects)


def _streamed(lines: AsyncIterator[str] | AsyncIterator[bytes]) -> Response:
    return StreamingResponse(lines, media_type="application/x-ndjson")


@dataclass(frozen=True)
class _Page:
    """The run as it is now, as another tool reads it."""

    folder: Path
    page: plugins.Page

    async def answer(self, request: Request) -> Response:
        text, kind = await run_in_threadpool(self._made, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": kind})

    @cached_property
    def _made(self) -> Callable[[str], tuple[bytes, str]]:
        return self.page.open(self.folder)


# --- Errors ---------------------------------------------------------------------------------------


async def _refuse(request: Request, error: Exception) -> Response:
    code = 410 if isinstance(error, RunOver) else 422 if isinstance(error, UsageError) else 500
    return JSONResponse({"error": str(error)}, code)


async def _defect(request: Request, error: Exception) -> Response:
    # It is raised again after the answer: uvicorn reports it.
    return JSONResponse({"error": str(explained(error))}, 500)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}"
    return JSONResponse({"error": f"{what}: {error.detail}."}, error.status_code)


# --- Requests -------------------------------------------------------------------------------------


def _number(request: Request, key: str, kind: Callable[[str], Number]) -> Number | None:
    """Return a number from the query; None if the key is missing. Raises UsageError."""
    text = request.query_params.get(key)
    try:
        return None if text is None else kind(text)
    except ValueError:
        raise UsageError(f"{text!r} is no number.") from None


async def _body(request: Request) -> bytes:
    """Return the body of a request. Raises HTTPException, ClientDisconnect."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise HTTPException(413, f"A body has at most {LARGEST_BODY // 2**20} MiB")
    return bytes(body)


def _fault(body: bytes) -> FaultSpec:
    """Read a fault of a request. Raises UsageError."""
    try:
        return TypeAdapter[FaultSpec](OneFault).validate_json(body)
    except ValidationError as error:
        reasons = "; ".join(
            ": ".join([*map(str, one["loc"]), one["msg"].removeprefix("Value error, ")])
            for one in error.errors()
        )
        raise UsageError(f"That is no fault: {reasons}.") from None
