"""A run's API over TCP, for clients that can't use a unix socket: on 127.0.0.1, with a token.

Every user of the machine can connect to a port, and so can a web page in its user's browser. So
each request needs the token, which only the owner of the run folder can read. Its `Host` must be
this machine's own name: a page that makes its own name point here (DNS rebinding) sends that one.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.errors import RecordError, UsageError
from emulator.record.remains import PORT, TOKEN
from emulator.runtime.files import os_errors

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

ADDRESS = "127.0.0.1"
HOSTS = frozenset({ADDRESS, "localhost"})
PORTS = 65535
VARIABLE = "EMULATOR_API_TOKEN"

_WORD = re.compile(r"[!-~]+")


class TcpEndpoint:
    """A listening port and the token for it.

    It listens from the start, and clients wait until the API answers: two processes can bind the
    same port as long as neither listens, and the second would fail when its tasks already run.
    """

    def __init__(self, port: int) -> None:
        """Take a port, 0: any that is free. Raises UsageError."""
        given = os.environ.pop(VARIABLE, None)  # tasks inherit what is left there
        if given is not None and not _WORD.fullmatch(given):
            raise UsageError(
                f"{VARIABLE} is no token.", "It is one word of ASCII, or leave it out."
            )
        self.token = given or secrets.token_urlsafe(32)
        self._given = given is not None
        if not 0 <= port <= PORTS:
            raise UsageError(
                f"There is no port {port}: the last one is {PORTS}.",
                "`--api-port 0` takes a free one.",
            )
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((ADDRESS, port))
            self.socket.listen(16)
        except OSError as error:
            self.socket.close()
            raise UsageError(
                f"Can't take port {port} of {ADDRESS}: {error.strerror or error}.",
                "`--api-port 0` takes a free one.",
            ) from None
        self.port = int(self.socket.getsockname()[1])

    def describe(self, folder: Path) -> str:
        """Return its address and where its token is, as a message."""
        token = f"is that of {VARIABLE}" if self._given else f"in {folder / TOKEN}"
        return f"API and /metrics on http://{ADDRESS}:{self.port} once all tasks run; token {token}"

    @contextlib.contextmanager
    def listening(self, folder: Path) -> Iterator[None]:
        """Have its port in a file of the run folder, and a token of ours in another."""
        files = {PORT: str(self.port)} | ({} if self._given else {TOKEN: self.token})
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self.socket.close)
            for name, text in files.items():
                path = folder / name
                with os_errors(RecordError, f"Can't write {path}"):
                    path.unlink(missing_ok=True)  # of a supervisor that was killed
                    cleanup.callback(path.unlink, missing_ok=True)
                    mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                    with os.fdopen(os.open(path, mode, 0o600), "w") as file:  # only for its owner
                        file.write(f"{text}\n")
            yield


def require_token(application: ASGIApp, token: str) -> ASGIApp:
    """Return an application that over TCP answers only requests with the token."""
    from starlette.responses import JSONResponse

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        _, port = scope.get("server") or (None, None)  # a unix socket has none
        refusal = None if port is None else _refusal(dict(scope["headers"]), token.encode())
        if refusal is None:
            await application(scope, receive, send)
            return
        status, sentence = refusal
        headers = {"www-authenticate": "Bearer"}
        await JSONResponse({"error": sentence}, status, headers)(scope, receive, send)

    return guard


def _refusal(headers: Mapping[bytes, bytes], token: bytes) -> tuple[int, str] | None:
    """Return status and sentence for a request that is refused."""
    host = headers.get(b"host", b"").decode("latin-1").rpartition(":")
    name = host[0] or host[2]
    if name.lower() not in HOSTS:
        return 421, f"This is {ADDRESS}, not {name!r}."
    scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), token):
        return 401, f"That takes `Authorization: Bearer TOKEN`, with the token of {TOKEN}."
    return None
