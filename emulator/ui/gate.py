"""Who is let in: the only way into `emulate ui`, before any of its routes.

Everybody on this machine can connect to a port of it, and so can any page that is open in the
user's browser. So a request has to come from the user's own processes, as far as the kernel tells;
to name this machine as its host (a page that makes its own name point here sends that name); not to
come from another page; and to carry the secret of this server. That is first in the address, which
is exchanged for a cookie. A cookie goes to every port of its host, so another server on this
machine can read it; what it can't do is send it as this user (see `peer.py`), nor have the browser
send a request whose `Origin` is this server's.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs

from emulator.ui.peer import is_owner

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ADDRESS = "127.0.0.1"
HOSTS = frozenset({ADDRESS, "localhost"})
ENTRY = "/enter"
"""Where the token of the address is exchanged for a cookie."""
HEADER = "x-emulate-ui"
"""What a request that changes something has besides: no form and no image of a page can add it."""
SAFE = frozenset({"GET", "HEAD"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: "
    "blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Scripts are files of this server alone; Plotly and charts need styles of their own."""
HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Of every answer that does not have others."""


@dataclass(frozen=True)
class Asked:
    """What of a request decides whether it is answered."""

    method: str
    path: str
    token: str
    """That of the address; empty: none."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    is_owner: bool | None = True
    """Whether a process of this user has sent it; None: unknown."""


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused."""

    status: int
    sentence: str


@dataclass(frozen=True)
class Secrets:
    """What the user's browser has to know. They are never stored, nor in a command line."""

    token: str
    """In the address that is printed."""
    session: str
    """In the cookie."""
    cookie: str
    """Its name."""

    @classmethod
    def new(cls, port: int) -> Secrets:
        """Return new ones; the cookie's name keeps servers apart, which the browser does not."""
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(32), f"emulate-ui-{port}")


def decide(asked: Asked, known: Secrets) -> Literal["enter", "pass"] | Refusal:
    """Return what follows from a request (pure): `enter` sets the cookie."""
    if asked.is_owner is False:
        return Refusal(403, "These pages are another user's.")
    host = asked.headers.get("host", "")
    if not _is_here(host):
        return Refusal(421, f"This is {ADDRESS}, not {host[:80]!r}.")
    if asked.path == ENTRY and asked.method == "GET":
        if hmac.compare_digest(asked.token.encode(), known.token.encode()):
            return "enter"
        return Refusal(401, "This address is not that of the server: take the one it has printed.")
    if foreign := _foreign(asked, f"http://{host}"):
        return foreign
    if not hmac.compare_digest(_cookie(asked, known.cookie).encode(), known.session.encode()):
        return Refusal(401, "Open the address that `emulate ui` has printed.")
    if asked.method not in SAFE and not asked.headers.get(HEADER):
        return Refusal(403, f"A request that changes something needs the header {HEADER}.")
    return "pass"


def _is_here(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    name = name if colon else host
    return name.lower() in HOSTS and (not colon or port.isdigit())


def _foreign(asked: Asked, here: str) -> Refusal | None:
    """Return why a request is not the user's nor that of a page of this server; None if it is."""
    origin, site = asked.headers.get("origin"), asked.headers.get("sec-fetch-site")
    other = Refusal(403, "Another page has sent this.")
    if asked.method not in SAFE:
        return None if origin == here and site in (None, "same-origin") else other
    if origin not in (None, here):
        return other
    # `none`: the user has typed it, or opened a bookmark.
    return None if site in (None, "same-origin", "none") else other


def _cookie(asked: Asked, name: str) -> str:
    try:
        found = SimpleCookie(asked.headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


class Gate:
    """An ASGI application before another one, which lets in what `decide` says."""

    def __init__(
        self,
        application: ASGIApp,
        known: Secrets,
        page: str = "/",
        is_owner: Callable[[Any, Any], bool | None] = is_owner,
    ) -> None:
        """`page` follows the exchange of the token; `is_owner` says whose a connection is."""
        self._application, self._known, self._is_owner = application, known, is_owner
        self._entered = _ENTERED.format(page=page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        from starlette.responses import HTMLResponse, PlainTextResponse

        if scope["type"] != "http":
            return
        verdict = decide(
            _asked(scope, self._is_owner(scope.get("client"), scope.get("server"))), self._known
        )
        if verdict == "pass":
            await self._application(scope, receive, _with_headers(send))
        elif verdict == "enter":
            # No redirection: the browser would take what follows for a request of the page that
            # had the link, and send no cookie.
            response = HTMLResponse(self._entered)
            response.set_cookie(
                self._known.cookie, self._known.session, httponly=True, samesite="strict", path="/"
            )
            await response(scope, receive, _with_headers(send))
        else:
            answer = PlainTextResponse(f"{verdict.sentence}\n", verdict.status)
            await answer(scope, receive, _with_headers(send))


_ENTERED = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>emulate</title>
<meta http-equiv="refresh" content="0;url={page}"><link rel="icon" href="data:,"></head>
<body><p><a href="{page}">The runs</a></p></body></html>
"""


def _asked(scope: Scope, is_owner: bool | None) -> Asked:
    headers: dict[str, str] = {}
    for key, value in scope["headers"]:
        name, text = key.decode("latin-1").lower(), value.decode("latin-1")
        # One that is sent twice is none that a browser sends: no check may read the other one.
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    query = parse_qs(scope["query_string"].decode("latin-1"))
    return Asked(
        method=scope["method"],
        path=scope["path"],
        token=query.get("token", [""])[0],
        headers=headers,
        is_owner=is_owner,
    )


def _with_headers(send: Send) -> Send:
    """Return a function that sends HEADERS with every answer, except those that it has itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {key.lower() for key, _ in message["headers"]}
            more = [(key.encode(), value.encode()) for key, value in HEADERS.items()]
            kept = [pair for pair in more if pair[0] not in own]
            message = {**message, "headers": [*message["headers"], *kept]}
        await send(message)

    return sending
