"""One list and watch of one kind of object, which reports each change once.

A list says what there is and at which version; a watch goes on from that version, for as long as
the API server likes. It may be cut at any time, and a version may be too old to go on from (410
Gone): then everything is listed again, and what has changed meanwhile is found by comparing.
Nothing is polled. See "Efficient detection of changes" in the API concepts of Kubernetes.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from urllib3.exceptions import HTTPError

from emulator.engines.kit.byte_stream import shut, socket_of
from emulator.errors import EngineError, EngineLost

if TYPE_CHECKING:
    from emulator.plugins.kubernetes.connection import ApiServer

Object = Mapping[str, Any]
Kind = Literal["ADDED", "MODIFIED", "DELETED"]
OnChange = Callable[[Kind, Object], None]

WATCH_FOR = 300
"""Seconds after which the server is asked to end a watch: its end is then no surprise."""
DELAYS = (0.0, 0.1, 0.3, 1.0, 2.0)
"""Seconds before each attempt to go on; the last one repeats."""
_MAY_PASS = frozenset({401, 410, 429, 500, 502, 503, 504})
"""Statuses of a refused watch after which a list may succeed."""


class Known:
    """The objects of a kind as far as they were reported (pure).

    Versions are compared for equality only; what else they mean is the server's business.
    """

    def __init__(self, keep: Callable[[Object], Object] = lambda one: one) -> None:
        """`keep`: what to remember of an object, to be reported if it is gone."""
        self._keep = keep
        self._objects: dict[str, tuple[str, Object]] = {}
        """By unique id: version, and what is kept of it."""

    def listed(self, objects: Iterable[Object]) -> Iterator[tuple[Kind, Object]]:
        """Take everything that there is; yield the changes since what was known."""
        there = {one["metadata"]["uid"]: one for one in objects}
        for identity in [one for one in self._objects if one not in there]:
            yield "DELETED", self._objects.pop(identity)[1]
        for one in there.values():
            yield from self.told("MODIFIED", one)

    def told(self, kind: Kind, changed: Object) -> Iterator[tuple[Kind, Object]]:
        """Take what a watch says of one object; yield the change, if it is news."""
        identity = changed["metadata"]["uid"]
        version = changed["metadata"].get("resourceVersion", "")
        before = self._objects.get(identity)
        if kind == "DELETED":
            if self._objects.pop(identity, None) is not None:
                yield "DELETED", changed
        elif before is None or before[0] != version:
            self._objects[identity] = version, self._keep(changed)
            yield ("ADDED" if before is None else "MODIFIED"), changed


NEVER = float("inf")
"""In seconds: a wait has no end of its own."""


class Watched:
    """Objects as a watch tells of them on any thread, and waiting for what becomes of them."""

    def __init__(self) -> None:
        self._there: dict[str, Object] = {}
        """By unique id."""
        self._changed = threading.Condition()
        self._error: Exception | None = None

    def told(self, kind: Kind, seen: Object) -> None:
        """Take what the watch says of an object."""
        with self._changed:
            if kind == "DELETED":
                self._there.pop(seen["metadata"]["uid"], None)
            else:
                self._there[seen["metadata"]["uid"]] = seen
            self._changed.notify_all()

    def seen(self, uid: str) -> Object | None:
        """Return an object as it was told of last; None: it is gone."""
        return self._there.get(uid)

    def fail(self, error: Exception) -> None:
        """End all waiting: nothing will be told any more."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def wait(self, until: Callable[[float], float | None], timeout: float | None = None) -> bool:
        """Wait until something is reached; return whether it was, within `timeout` seconds.

        `until` gets monotonic seconds, and is called again after each change. It returns None when
        it is reached, else the latest time at which to call it again (NEVER: any). Raises what
        `fail` got.
        """
        deadline = NEVER if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                now = time.monotonic()
                again = until(now)
                if again is None:
                    return True
                if self._error is not None:
                    raise self._error
                if now >= deadline:
                    return False
                left = min(again, deadline) - now
                self._changed.wait(None if left == NEVER else max(0.0, left))

    def wait_for(self, reached: Callable[[], bool], timeout: float) -> bool:
        """Wait until something is so; return whether it was, within `timeout` seconds.

        Raises what `fail` got.
        """
        return self.wait(lambda _: None if reached() else NEVER, timeout)


class Watcher:
    """Lists and watches the objects of one kind on one thread, until it is closed.

    Changes are reported on that thread, those of one object in their order. `on_error` is called
    once at most, after which nothing more is reported.
    """

    def __init__(
        self,
        cluster: ApiServer,
        path: str,
        selector: str,
        on_change: OnChange,
        on_error: Callable[[EngineError], None],
        *,
        fields: str = "",
        keep: Callable[[Object], Object] = lambda one: one,
    ) -> None:
        """`path`: of the kind in its namespace. `selector`: of labels; `fields`: of fields.

        `keep`: see `Known`.
        """
        self._cluster, self._path = cluster, path
        query = {"labelSelector": selector, "fieldSelector": fields}
        self._query: dict[str, Any] = {key: value for key, value in query.items() if value}
        self._on_change, self._on_error = on_change, on_error
        self._outage = cluster.outage_timeout
        self._known = Known(keep)
        self._version = ""
        """From which to watch; empty: everything must be listed first."""
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        """Of the watch under way."""

    def start(self) -> None:
        """List what there is, report it, and watch from there on. Raises EngineError."""
        self._list()
        threading.Thread(target=self._run, name=f"watch {self._path}", daemon=True).start()

    def close(self) -> None:
        """End the watch; a change that is being reported may still be."""
        self._closed.set()
        self.cut()

    def cut(self) -> None:
        """Have the watch go on with another connection; may be called on any thread."""
        with self._lock:
            if self._socket is not None:
                shut(self._socket)

    def _run(self) -> None:
        attempt, away_since = 0, None
        while not self._closed.wait(DELAYS[min(attempt, len(DELAYS) - 1)]):
            attempt += 1
            try:
                if not self._version:
                    self._list()
                for _ in self._watch():
                    attempt, away_since = 0, None
                continue
            except (HTTPError, OSError, ValueError) as cut:  # perhaps in mid-line
                error: EngineError = EngineLost(f"The watch of {self._path} was cut: {cut}")
            except EngineError as refused:
                error = refused
            except Exception as bug:  # any: a run that sees no changes would never end
                self._fail(EngineLost(f"Watching {self._path} failed: {bug!r}."))
                return
            now = time.monotonic()
            away_since = away_since or now
            match what_next(error, listing=not self._version):
                case "fail":
                    self._fail(error)
                    return
                case "list":
                    self._version = ""
            if now - away_since > self._outage:
                self._fail(error)
                return

    def _fail(self, error: EngineError) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._on_error(error)

    def _report(self, changes: Iterable[tuple[Kind, Object]]) -> None:
        for kind, changed in changes:
            if self._closed.is_set():
                return
            self._on_change(kind, changed)

    def _list(self) -> None:
        """Report what has changed since what is known; the watch goes on from there."""
        items, version = self._cluster.list_all(self._path, **self._query)
        self._report(self._known.listed(items))
        self._version = version

    def _watch(self) -> Iterator[None]:
        """Report changes until the server ends the watch; yield after everything that came."""
        response = self._cluster.stream(
            self._path,
            **self._query,
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=self._version,
            timeoutSeconds=WATCH_FOR,
        )
        try:
            with self._lock:
                self._socket = socket_of(response)
            if self._closed.is_set():  # before there was a socket to shut down
                return
            for line in response:
                told = json.loads(line)
                if told["type"] == "ERROR":
                    # Gone (410), as a rule. Whatever it is, a list leads on.
                    self._version = ""
                    return
                if told["type"] != "BOOKMARK":
                    self._report(self._known.told(told["type"], told["object"]))
                self._version = told["object"]["metadata"]["resourceVersion"]
                yield
        finally:
            with self._lock:
                self._socket = None
            response.close()


def what_next(error: EngineError, *, listing: bool) -> Literal["watch", "list", "fail"]:
    """Return how a watch goes on after an error (pure).

    A list has been repeated before it fails, and a lost login was renewed; a watch has not.
    """
    status = getattr(error, "status", 0)
    if listing or (status and status not in _MAY_PASS):
        return "fail"
    return "list" if status else "watch"
