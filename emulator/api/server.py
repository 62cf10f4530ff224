"""Serves the API of a running scenario: a unix socket in the run folder, for its owner only.

With `--api-port` also on a TCP port, see `tcp.py`. `application.py` says what is answered.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.api.tcp import TcpEndpoint, require_token
from emulator.record.events import AllRunning, Attached, Entry
from emulator.record.remains import SOCKET, folder_of_socket
from emulator.record.task_log import whole_lines
from emulator.runtime.unexpected import explained
from emulator.runtime.waiting import Event, for_event

if TYPE_CHECKING:
    import asyncio

    from emulator.metrics.samples import Sample
    from emulator.supervisor.control import RunControl

LONGEST_PATH = 100
"""Bytes of a socket's path that every system takes (Linux 108, macOS 104)."""
LINES_AT_A_TIME = 100
"""Sent to one reader before another is served: sending waits only where the reader is slow. They
are sent in one piece, so that no more than one is sent to a reader that has just gone."""


class _Sentences(logging.Handler):
    """Prints what uvicorn reports, of a defect one sentence; the terminal is that of `up`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message, or the error that nobody foresaw."""
        error = record.exc_info[1] if record.exc_info else None
        words = explained(error) if isinstance(error, Exception) else record.getMessage()
        print(f"emulate: the run's API: {words}", file=sys.stderr)  # noqa: T201


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
        """Take an event that was written; the API is open once all tasks run."""
        if isinstance(entry, AllRunning | Attached):
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

            from emulator.api.application import application

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
            real = cleanup.enter_context(folder_of_socket()) / SOCKET
        path.unlink(missing_ok=True)  # of a supervisor that was killed
        sock = cleanup.enter_context(socket.socket(socket.AF_UNIX))
        sock.bind(str(real))
        real.chmod(0o600)  # no client can connect before it listens
        sock.listen(16)
        if real != path:
            path.symlink_to(real)
        cleanup.callback(path.unlink, missing_ok=True)
        yield sock
