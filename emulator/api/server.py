"""The HTTP API of a running scenario: a unix socket in the run folder, for its owner only.

With `--api-port` also on a TCP port, see `tcp.py`.

    GET    /v1/run            tasks and faults as they are now
    GET    /v1/history        the events, a line of JSON each, followed until the run is over;
                              `?after=N` leaves out the events up to number N
    GET    /v1/samples        usage of tasks and GPUs, a line of JSON each, followed as well;
                              `?last=N` begins with the last N samples
    GET    /v1/lines          output of the tasks, `{"task", "text", "wall"}` a line, followed as
                              well; `?task=NAME` only of that one, `?last=N` begins with the last N
                              lines of each, `?since=TIME` with what was printed since then
    GET    /metrics           the run as it is now, for Prometheus
    POST   /v1/faults         inject a fault; the body is an entry of `faults:` without `at`
    DELETE /v1/faults/{id}    heal a fault; `all` for every one
    POST   /v1/stop           end the job as Ctrl-C does; a second time: at once

Requests are performed by the supervisor on its own thread, so there is one writer. Errors are
`{"error": "one sentence"}`, with 422 for a request that makes no sense here, and 500 for a failure.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import socket
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from emulator.api.tcp import TcpEndpoint, require_token
from emulator.errors import EmulatorError, UsageError
from emulator.faults.spec import FaultSpec
from emulator.faults.table import OneFault
from emulator.metrics import sample_file
from emulator.metrics.samples import Sample
from emulator.record.events import AllRunning, Attached, Entry, Suspension
from emulator.record.reader import Record
from emulator.record.remains import SOCKET, TEMPORARY
from emulator.record.tail import last_lines, whole_lines
from emulator.record.task_log import LogTimes, beginning, new_lines
from emulator.runtime.waiting import Event, for_event
from emulator.supervisor.control import RunControl
from emulator.unexpected import explained

if TYPE_CHECKING:
    import asyncio

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from emulator.api.prometheus import Page

Number = TypeVar("Number", int, float)

LONGEST_PATH = 100
"""Bytes of a socket's path that every system takes (Linux 108, macOS 104)."""
LINES_AT_A_TIME = 100
"""Sent to one reader before another is served: sending waits only where the reader is slow. They
are sent in one piece, so that no more than one is sent to a reader that has just gone."""
LARGEST_BODY = 2**20
"""Bytes of a request; a fault takes some hundred."""
ANSWER_WITHIN = 60.0
"""Seconds; the supervisor answers between two events."""


class RecordWatcher:
    """Notifies the streams of the API, from any thread, when the record has grown."""

    def __init__(self) -> None:
        self._streams: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notified = False
        self.refusing = False
        """The supervisor has ended: requests to it are refused."""
        self.over = False

    @property
    def is_followed(self) -> bool:
        """Whether there is any stream."""
        return bool(self._streams)

    def notify(self) -> None:
        """Wake every stream; costs nothing if there is none."""
        # Once is enough: a task that prints without end must not pile these up.
        if self._streams and self._loop is not None and not self._notified:
            self._notified = True
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """Let every stream end once it has sent all."""
        self.over = True
        self.notify()

    def _wake(self) -> None:
        self._notified = False
        for event in self._streams:
            event.set()

    async def lines(
        self,
        files: Callable[[], Mapping[str, Path]],
        begin: Callable[[Path], int] | None = None,
        read: Callable[[Path, str, dict[str, int]], list[bytes]] = whole_lines,
    ) -> AsyncIterator[tuple[str, int, list[bytes]]]:
        """Yield (name, offset, lines) of growing files, complete lines only, until the run is over.

        They are at most LINES_AT_A_TIME lines, with the offset of the first one. `begin` returns
        the offset to begin at, of each file that exists already.
        """
        import asyncio  # 30 ms of CPU, which most runs are spared

        self._loop = asyncio.get_running_loop()
        grown = asyncio.Event()
        self._streams.add(grown)
        offsets: dict[str, int] = {}
        if begin is not None:
            offsets = {name: begin(path) for name, path in files().items()}
        try:
            while True:
                over = self.over
                grown.clear()
                found = False
                for name, path in files().items():
                    lines = read(path, name, offsets)
                    found = found or bool(lines)
                    offset = offsets.get(name, 0) - sum(map(len, lines))
                    for first in range(0, len(lines), LINES_AT_A_TIME):
                        piece = lines[first : first + LINES_AT_A_TIME]
                        yield name, offset, piece
                        offset += sum(map(len, piece))
                        await asyncio.sleep(0)
                if found:
                    continue  # there may be more
                if over:
                    return
                await grown.wait()
        finally:
            self._streams.discard(grown)


def application(control: RunControl, folder: Path, watcher: RecordWatcher) -> Starlette:
    """Return the API of one run as an ASGI application."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.responses import Response as PlainResponse
    from starlette.routing import Route

    page: Page | None = None

    async def ask(call: Callable[[], Any]) -> Any:  # noqa: ANN401  whatever the call returns
        if watcher.refusing:
            raise UsageError("The run is over.")
        return await run_in_threadpool(control.ask(call).result, ANSWER_WITHIN)

    def stream(lines: AsyncIterator[str | bytes]) -> Response:
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def run(request: Request) -> Response:
        return JSONResponse(await ask(control.status))

    async def faults(request: Request) -> Response:
        spec = _fault(await _body(request))
        return JSONResponse({"faults": await ask(lambda: control.inject(spec))}, 201)

    async def heal(request: Request) -> Response:
        name = request.path_params["id"]
        healed = await ask(lambda: control.heal("" if name == "all" else name))
        if not healed and name != "all":
            raise UsageError(f"There is nothing to heal of a fault {name!r}.")
        return JSONResponse({"healed": healed})

    async def stop(request: Request) -> Response:
        await ask(control.stop)
        return JSONResponse({}, 202)

    async def suspension(request: Request) -> Response:
        await ask(lambda: control.suspend(suspended=request.method == "PUT"))
        return JSONResponse({}, 202)

    async def history(request: Request) -> Response:
        after = _number(request, "after", int)

        async def entries() -> AsyncIterator[bytes]:
            async for _, _, some in watcher.lines(lambda: {"history": folder / "history.jsonl"}):
                yield b"".join(
                    line for line in some if after is None or int(json.loads(line)["n"]) > after
                )

        return stream(entries())

    async def samples(request: Request) -> Response:
        last = _number(request, "last", int)

        async def measured() -> AsyncIterator[bytes]:
            latest = -1.0
            files = {"samples": folder / sample_file.NAME}
            begin = None if last is None else partial(last_lines, count=last)
            async for _, _, some in watcher.lines(lambda: files, begin):
                for line in some:
                    if (
                        t := float(json.loads(line)["t"])
                    ) > latest:  # else sent before the thinning
                        latest = t
                        yield line

        return stream(measured())

    async def lines(request: Request) -> Response:
        only, last = request.query_params.get("task"), _number(request, "last", int)
        since = _number(request, "since", float)
        if only is not None and only not in control.printing:
            raise UsageError(
                f"No task is called {only!r}.", f"There are {', '.join(control.printing)}."
            )

        def files() -> dict[str, Path]:
            logs = sorted((folder / "logs").glob("*.log"))
            return {log.stem: log for log in logs if only in (None, log.stem)}

        async def printed() -> AsyncIterator[str]:
            times: dict[str, LogTimes] = {}
            begin = partial(beginning, last=last, since=since)
            async for task, offset, some in watcher.lines(files, begin, new_lines):
                if task not in times:
                    times[task] = LogTimes(folder / "logs" / f"{task}.log")
                objects = []
                for line in some:
                    text = line.decode("utf-8", "replace").removesuffix("\n")
                    wall = times[task].at(offset)
                    objects.append(json.dumps({"task": task, "text": text, "wall": wall}) + "\n")
                    offset += len(line)
                yield "".join(objects)

        return stream(printed())

    async def metrics(request: Request) -> Response:
        nonlocal page
        if page is None:
            from emulator.api.prometheus import Page

            page = Page(folder, Record(folder).plan)
        text, kind = await run_in_threadpool(page.text, request.headers.get("accept", ""))
        return PlainResponse(text, headers={"content-type": kind})

    async def refuse(request: Request, error: Exception) -> Response:
        code = 422 if isinstance(error, UsageError) else 500
        return JSONResponse({"error": str(error)}, code)

    async def defect(request: Request, error: Exception) -> Response:
        # It is raised again after the answer: uvicorn reports it.
        return JSONResponse({"error": str(explained(error))}, 500)

    async def gone(request: Request, error: Exception) -> Response:
        return PlainResponse(status_code=400)  # nobody reads it

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        what = f"{request.method} {request.url.path}"
        return JSONResponse({"error": f"{what}: {error.detail}."}, error.status_code)

    return Starlette(
        routes=[
            Route("/v1/run", run),
            Route("/v1/faults", faults, methods=["POST"]),
            Route("/v1/faults/{id:path}", heal, methods=["DELETE"]),
            Route("/v1/stop", stop, methods=["POST"]),
            Route("/v1/suspension", suspension, methods=["PUT", "DELETE"]),
            Route("/v1/history", history),
            Route("/v1/samples", samples),
            Route("/v1/lines", lines),
            Route("/metrics", metrics),
        ],
        exception_handlers={
            EmulatorError: refuse,
            HTTPException: unknown,
            ClientDisconnect: gone,
            Exception: defect,
        },
    )


def _number(request: Request, key: str, kind: Callable[[str], Number]) -> Number | None:
    """Return a number from the query; None if the key is missing. Raises UsageError."""
    text = request.query_params.get(key)
    try:
        return None if text is None else kind(text)
    except ValueError:
        raise UsageError(f"{text!r} is no number.") from None


async def _body(request: Request) -> bytes:
    """Return the body of a request. Raises HTTPException, ClientDisconnect."""
    from starlette.exceptions import HTTPException

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


class _Sentences(logging.Handler):
    """Prints what uvicorn reports, of a defect one sentence; the terminal is that of `up`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message, or the error that nobody foresaw."""
        error = record.exc_info[1] if record.exc_info else None
        words = explained(error) if isinstance(error, Exception) else record.getMessage()
        print(f"emulate: the run's API: {words}", file=sys.stderr)  # noqa: T201


class ApiServer:
    """Serves the API of one run on a thread of its own, from the first connection on.

    Until then it costs nothing: the libraries that serve take half a second of CPU to load, at the
    very time when the tasks need it.
    """

    def __init__(
        self,
        control: RunControl,
        folder: Path,
        reachable: Callable[[], None],
        *,
        endpoint: TcpEndpoint | None = None,
    ) -> None:
        """`reachable` is called, on another thread, as soon as clients can connect."""
        self._control, self._folder, self._reachable = control, folder, reachable
        self._endpoint = endpoint
        self._watcher = RecordWatcher()
        self._thread: threading.Thread | None = None
        self._closed = Event()
        self._server: Any = None
        self._closing = False
        self._wakes, self._wake = socket.socketpair()

    @property
    def hurried(self) -> bool:
        """Whether a client follows the run, which may react to what it reads."""
        return self._watcher.is_followed

    def open(self) -> None:
        """Begin to listen; returns at once."""
        if self._thread is not None:
            return  # a run that was taken over before all its tasks ran
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)
        self._thread.start()

    def entry(self, entry: Entry) -> None:
        """Take an event that was written; the API is open once all tasks run, or none is to."""
        if isinstance(entry, AllRunning | Attached | Suspension):
            self.open()
        self._watcher.notify()

    def lines(self, lines: Sequence[tuple[str, str]]) -> None:
        """Take lines that tasks printed."""
        self._watcher.notify()

    def sample(self, sample: Sample) -> None:
        """Take a sample that was stored."""
        self._watcher.notify()

    def refuse(self) -> None:
        """Refuse all requests to the supervisor, also those without an answer: it has ended."""
        self._watcher.refusing = True
        self._control.refuse_all()

    def close(self) -> None:
        """Send what there is, end every stream, remove the socket."""
        self._closing = True
        self.refuse()
        self._watcher.close()
        self._wake.close()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            for_event(self._closed)
        self._wakes.close()
        if self._endpoint is not None:
            self._endpoint.socket.close()  # also if the tasks never ran all at once

    def _serve(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._closed.set)
            sockets = [stack.enter_context(_listening(self._folder / SOCKET))]
            if self._endpoint is not None:
                stack.enter_context(self._endpoint.listening(self._folder))
                sockets.append(self._endpoint.socket)
            self._reachable()  # from now on clients can connect, and are served after a moment
            _wait_for_any([*sockets, self._wakes])
            if self._closing:
                return
            import uvicorn

            app = application(self._control, self._folder, self._watcher)
            config = uvicorn.Config(
                app if self._endpoint is None else require_token(app, self._endpoint.token),
                log_config={
                    "version": 1,
                    "disable_existing_loggers": False,
                    "handlers": {"sentences": {"()": _Sentences}},
                    "loggers": {"uvicorn": {"handlers": ["sentences"], "propagate": False}},
                },
                log_level="error",
                lifespan="off",
                access_log=False,
                ws="none",
                timeout_graceful_shutdown=5,
            )
            self._server = uvicorn.Server(config)
            if not self._closing:
                self._server.run(sockets=sockets)


def _wait_for_any(sockets: Sequence[socket.socket]) -> None:
    """Wait until one is ready; unlike `select` also with file descriptors above 1023."""
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            selector.register(one, selectors.EVENT_READ)
        selector.select()


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """Yield a socket that only its owner can use; if the path is too long, it is a link to it."""
    with contextlib.ExitStack() as cleanup:
        real = path
        if len(os.fsencode(path)) > LONGEST_PATH:
            short = cleanup.enter_context(tempfile.TemporaryDirectory(prefix=TEMPORARY))
            real = Path(short, SOCKET)
        path.unlink(missing_ok=True)  # of a supervisor that was killed
        sock = cleanup.enter_context(socket.socket(socket.AF_UNIX))
        sock.bind(str(real))
        real.chmod(0o600)  # no client can connect before it listens
        sock.listen(16)
        if real != path:
            path.symlink_to(real)
        cleanup.callback(path.unlink, missing_ok=True)
        yield sock
