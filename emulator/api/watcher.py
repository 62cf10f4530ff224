"""Follows growing files of a run folder, for those who read them over the API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.record.task_log import whole_lines

if TYPE_CHECKING:
    import asyncio

LINES_AT_A_TIME = 100
"""Sent to one reader before another is served: sending waits only where the reader is slow. They
are sent in one piece, so that no more than one is sent to a reader that has just gone."""


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
