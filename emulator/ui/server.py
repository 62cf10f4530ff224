"""Serves the pages: on this machine's own address, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from emulator.errors import UsageError
from emulator.runtime.unexpected import explained
from emulator.runtime.waiting import Event
from emulator.ui.gate import ADDRESS, ENTRY, Gate, Secrets

if TYPE_CHECKING:
    from emulator.ui.site import Site


class _Sentences(logging.Handler):
    """Prints what uvicorn reports, of a defect one sentence."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message, or the error that nobody foresaw."""
        error = record.exc_info[1] if record.exc_info else None
        words = explained(error) if isinstance(error, Exception) else record.getMessage()
        print(f"emulate: ui: {words}", file=sys.stderr)  # noqa: T201


class UiServer:
    """A server on a thread of its own, from `start` to `stop`."""

    def __init__(self, site: Site, port: int = 0, page: str = "/") -> None:
        """Take a port, 0: any that is free; `page` is what its address shows. Raises UsageError."""
        self._site, self._page = site, page
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((ADDRESS, port))
            self._socket.listen(64)
        except (OSError, OverflowError) as error:
            self._socket.close()
            why = getattr(error, "strerror", None) or error
            raise UsageError(
                f"Can't take port {port} of {ADDRESS}: {why}.", "`--port 0` takes a free one."
            ) from None
        self.port = int(self._socket.getsockname()[1])
        self.secrets = Secrets.new(self.port)
        self.ended = Event()
        self._stopping = threading.Event()
        self._wake: Callable[[], None] = self._stopping.set

    @property
    def url(self) -> str:
        """The address with the token, which nobody else may see."""
        return f"http://{ADDRESS}:{self.port}{ENTRY}?token={self.secrets.token}"

    def start(self) -> None:
        """Begin to serve; clients that connect before it does are answered then."""
        threading.Thread(target=self._serve, name="ui", daemon=True).start()

    def stop(self) -> None:
        """End every stream and the server; `ended` is set then."""
        self._stopping.set()
        self._wake()

    def _serve(self) -> None:
        try:
            asyncio.run(self._until_stopped())
        finally:
            self._socket.close()
            self.ended.set()

    async def _until_stopped(self) -> None:
        import uvicorn

        from emulator.ui.application import application

        config = uvicorn.Config(
            Gate(application(self._site), self.secrets, self._page),
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
            proxy_headers=False,  # who has sent a request is what the kernel says
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._site.changes.start(loop)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[self._socket]))

        def wake() -> None:
            loop.call_soon_threadsafe(stop.set)

        self._wake = wake
        if self._stopping.is_set():
            stop.set()
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        self._site.changes.stop()
        server.should_exit = True
        await serving
        stopped.cancel()
