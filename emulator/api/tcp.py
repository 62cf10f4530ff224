"""A run's API over TCP, for who can't reach a unix socket: only on 127.0.0.1, only with a token.

Anybody on the machine can connect to a port, and so can a web page in its user's browser. So each
request has to bring the token, which only the owner of the run folder can read; and its `Host` has
to be this machine's own name, because a page that makes its own name point here (DNS rebinding)
comes with that one.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from emulator.errors import RecordError, UsageError
from emulator.files import os_errors
from emulator.record.remains import PORT, TOKEN

__all__ = ["PORT", "TOKEN", "VARIABLE", "TcpEndpoint", "guarded"]

ADDRESS = "127.0.0.1"
HOSTS = frozenset({ADDRESS, "localhost"})
VARIABLE = "EMULATOR_API_TOKEN"

_WORD = re.compile(r"[!-~]+")

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Coroutine[Any, Any, None],
]


class TcpEndpoint:
    """A port that is taken, and the token for it.

    Who connects waits until somebody answers: two may bind the same port as long as neither
    listens, and the second would learn of it when its tasks run already.
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
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((ADDRESS, port))
            self.socket.listen(16)
        except (OSError, OverflowError) as error:
            self.socket.close()
            why = getattr(error, "strerror", None) or error
            raise UsageError(
                f"Can't take port {port} of {ADDRESS}: {why}.", "`--api-port 0` takes a free one."
            ) from None
        self.port = int(self.socket.getsockname()[1])

    def said(self, folder: Path) -> str:
        """Say where it is."""
        token = f"is that of {VARIABLE}" if self._given else f"in {folder / TOKEN}"
        return f"API and /metrics on http://{ADDRESS}:{self.port} once all tasks run; token {token}"

    @contextlib.contextmanager
    def listening(self, folder: Path) -> Iterator[None]:
        """Say in the run folder where it is; a token of ours only to the folder's owner."""
        files = [folder / PORT, *([] if self._given else [folder / TOKEN])]
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self.socket.close)
            for path, text in zip(files, (str(self.port), self.token), strict=False):
                with os_errors(RecordError, f"Can't write {path}"):
                    path.unlink(missing_ok=True)  # of a supervisor that was killed
                    cleanup.callback(path.unlink, missing_ok=True)
                    mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                    with os.fdopen(os.open(path, mode, 0o600), "w") as file:
                        file.write(f"{text}\n")
            yield


def guarded(application: Application, token: str) -> Application:
    """Return an ASGI application that lets in who comes by the unix socket or has the token."""
    wanted = token.encode()

    async def guard(
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        _, port = scope.get("server") or (None, None)  # a unix socket has none
        if port is not None and (refused := _refusal(dict(scope["headers"]), wanted)):
            status, sentence = refused
            body = json.dumps({"error": sentence}).encode()
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await application(scope, receive, send)

    return guard


def _refusal(headers: dict[bytes, bytes], token: bytes) -> tuple[int, str] | None:
    """Return status and sentence where a request is not let in."""
    host = headers.get(b"host", b"").decode("latin-1").rpartition(":")
    name = host[0] or host[2]
    if name.lower() not in HOSTS:
        return 421, f"This is {ADDRESS}, not {name or 'nobody'}."
    scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), token):
        return 401, f"That takes `Authorization: Bearer TOKEN`, with the token of {TOKEN}."
    return None
