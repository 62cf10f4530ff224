"""What changes in a folder of runs: its pages are told, and nothing polls.

The folder, and those of runs that are not over, are watched by the system's own notifications. The
end of a run is that of its lock, which the kernel releases however its supervisor ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.record.lock import is_live, wait_until_over
from emulator.record.remains import SOCKET
from emulator.validation.run_id import is_run_id

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver, ObservedWatch

NAMES = frozenset({"plan.json", "summary.json", "report.html", SOCKET})
"""Files of a run folder with which its row or its page changes, and where its API answers."""


class Follower:
    """One page that is told."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._told = asyncio.Event()

    def tell(self, name: str) -> None:
        """Add the name of a run that has changed; empty: only wake it."""
        self._names.add(name)
        self._told.set()

    async def changed(self) -> set[str]:
        """Wait for a change; return the names of runs that have changed since the last call."""
        await self._told.wait()
        self._told.clear()
        names, self._names = self._names - {""}, set()
        return names


class Changes:
    """Watches a folder of runs from `start` to `stop`."""

    def __init__(self, out: Path) -> None:
        self._out = out.resolve()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._followers: set[Follower] = set()
        self._observer: BaseObserver | None = None
        self._lock = threading.Lock()
        self._watched: dict[str, ObservedWatch] = {}
        self._waited: set[str] = set()
        self.over = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to watch; pages are told on this loop. Raises OSError."""
        from watchdog.events import FileSystemEventHandler
        from watchdog.observers import Observer

        changes = self

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                changes._happened(event)

        # It reports on stderr where a watch ends while its thread is at work, which is no mistake.
        logging.getLogger("watchdog").addHandler(logging.NullHandler())
        self._loop, self._handler = loop, Handler()
        self._observer = Observer()
        self._observer.start()
        self._observer.schedule(self._handler, str(self._out), event_filter=_appearing())

    def stop(self) -> None:
        """End every stream, and watch no longer."""
        self.over = True
        self._tell("")
        if self._observer is not None:
            self._observer.stop()

    def attend(self, name: str) -> None:
        """Watch a run that is not over: until it has a summary, or its supervisor has ended."""
        folder = self._out / name
        with self._lock:
            if self.over or self._observer is None:
                return
            if name not in self._watched:
                with contextlib.suppress(OSError):  # gone, or more than the system can watch
                    self._watched[name] = self._observer.schedule(
                        self._handler, str(folder), event_filter=_appearing()
                    )
            if name in self._waited or not is_live(folder):
                return
            self._waited.add(name)
        threading.Thread(target=self._await_end, args=[name], daemon=True).start()

    def tell(self, name: str) -> None:
        """Tell all pages that a run has changed; from any thread."""
        self._tell(name)

    async def follow(self) -> AsyncGenerator[list[str], None]:
        """Yield the names of runs that have changed, until `stop`."""
        with self.follower() as follower:
            while not self.over:
                if names := await follower.changed():
                    yield sorted(names)

    @contextlib.contextmanager
    def follower(self) -> Iterator[Follower]:
        """Yield one that is told of all changes from now on; also when it is `over`."""
        follower = Follower()
        self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    def _happened(self, event: FileSystemEvent) -> None:
        for given in (event.src_path, event.dest_path):
            path = Path(str(given)) if given else self._out
            if path.parent == self._out and is_run_id(path.name):
                if event.is_directory and path.is_dir():
                    self.attend(path.name)
                self.tell(path.name)
            elif path.parent.parent == self._out and path.name in NAMES:
                name = path.parent.name
                if path.name == "plan.json":
                    self.attend(name)
                self.tell(name)

    def _await_end(self, name: str) -> None:
        with contextlib.suppress(OSError):
            wait_until_over(self._out / name)
        with self._lock:
            self._waited.discard(name)
            watch = self._watched.pop(name, None)
            if watch is not None and self._observer is not None and not self.over:
                with contextlib.suppress(KeyError, OSError):
                    self._observer.unschedule(watch)
        self.tell(name)

    def _tell(self, name: str) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._wake, name)

    def _wake(self, name: str) -> None:
        for follower in self._followers:
            follower.tell(name)


def _appearing() -> list[type[FileSystemEvent]]:
    """Return the kinds of events that tell what is new or gone; not what is written to files."""
    from watchdog import events

    return [
        *(events.DirCreatedEvent, events.DirDeletedEvent, events.DirMovedEvent),
        *(events.FileCreatedEvent, events.FileDeletedEvent, events.FileMovedEvent),
    ]
