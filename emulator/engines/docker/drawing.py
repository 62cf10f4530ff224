"""What containers draw on a line before it is finished, read by attaching to them.

The engine's log has a line only once it is finished, and a progress bar finishes one in an epoch.
Attaching shows each write at once, but can't be resumed, and has no stamps. So the log remains what
is stored, read again and decides; this is read in addition, and says only what has been drawn on
the line that follows the last line of the log.

Attached before its container starts, it counts the same lines as the log. Attached later, it finds
its place by a line that both have. A newline that it has missed can only make it fall behind: then
it says nothing.

It is not needed by most programs, and each connection costs. So it ends after QUIET reads in which
nothing was drawn, and begins again when the log has a line that was drawn.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from emulator.engines.base import Line
from emulator.engines.docker.connection import Frames
from emulator.engines.kit.lines import DrawnLine
from emulator.engines.kit.streams import AT_ONCE, Arrived, Streams

if TYPE_CHECKING:
    from emulator.engines.docker.logs import LogParser
    from emulator.engines.kit.byte_stream import ByteStream

QUIET = 50
"""Reads in a row with whole lines only, after which a program is taken to draw nothing."""
SAME = 300
"""Bytes of a drawn line, at least, by which it is recognised in the log: several drawings with
their times and losses."""


def is_drawn(text: str) -> bool:
    """Return whether a finished line was drawn more than once."""
    return "\r" in text or "\b" in text


class Drawing:
    """Aligns the bytes of one start of a container with the lines of its log (pure)."""

    def __init__(self, log: LogParser, *, from_start: bool) -> None:
        """`from_start`: it was attached before anything was printed that the log will have."""
        self._log, self._from_start = log, from_start
        self._frames = Frames()
        self._streams: defaultdict[int, DrawnLine] = defaultdict(DrawnLine)
        self._missed: dict[int, int] = {}
        """Lines of each stream that the log had before the first of these; aligned if known."""
        self._quiet = 0

    @property
    def is_needless(self) -> bool:
        """Whether the program prints whole lines only."""
        return self._quiet > QUIET

    def feed(self, data: bytes) -> None:
        """Take the next bytes: frames of standard output and standard error."""
        for stream, frame in self._frames.feed(data):
            self._streams[stream].feed(frame)
        if any(line.is_drawn for line in self._streams.values()):
            self._quiet = 0
        elif data:
            self._quiet = self._quiet + 1 if len(data) < AT_ONCE else QUIET + 1

    def take_drawn(self) -> list[str]:
        """Return what was drawn on the lines that follow those of the log."""
        return [
            line.take_drawn()
            for stream, line in self._streams.items()
            if line.is_drawn and self._is_next(stream, line)
        ]

    def _is_next(self, stream: int, line: DrawnLine) -> bool:
        count, latest = self._log.last(stream)
        missed = self._missed.get(stream, 0 if self._from_start else None)
        if missed is not None and line.newlines + missed >= count:
            return line.newlines + missed == count  # else the log has yet to come
        number, end = line.last_drawn
        if len(end) < SAME:
            return False
        text = end.decode("utf-8", "surrogateescape").rstrip("\r")
        for place, one in enumerate(latest, count - len(latest) + 1):
            if one.endswith(text):
                self._missed[stream] = place - number
                return line.newlines + place - number == count
        return False


class DrawnStream:
    """A container to which the emulator is attached, as a source of `Streams`.

    Its end, or an error, is no event: the log decides.
    """

    def __init__(
        self, stream: ByteStream, drawing: Drawing, lines: Callable[[], list[Line]]
    ) -> None:
        """`lines` returns what can be reported now."""
        self._stream, self._drawing, self._lines = stream, drawing, lines
        self.has_ended = False

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._stream.fileno()

    def give_up(self) -> None:
        """End with the next read: the log has the lines."""
        self.has_ended = True

    def read(self) -> Arrived:
        """Return what has been drawn."""
        if self.has_ended:
            return Arrived([], 0, has_ended=True)
        try:
            data, _, self.has_ended = self._stream.receive()
        except (OSError, ValueError):
            self.has_ended = True
            return Arrived([], 0, has_ended=True)
        self._drawing.feed(data)
        self.has_ended = self.has_ended or self._drawing.is_needless
        return Arrived(self._lines(), len(data), self.has_ended)

    def ended(self, error: Exception | None) -> None:
        """Close the connection."""
        self.has_ended = True
        self._stream.close()


class Drawings:
    """What one start of a container draws, beside its log: attached only while that is of use."""

    def __init__(
        self, task: str, log: LogParser, streams: Streams, attach: Callable[[], ByteStream]
    ) -> None:
        """`attach` has what the container draws from then on."""
        self._task, self._log, self._streams, self._attach = task, log, streams, attach
        self._drawing = Drawing(log, from_start=False)
        self._source: DrawnStream | None = None
        self._is_over = False

    def begin(self, attached: ByteStream | None) -> None:
        """Read what was attached before the start, or find its place in the log later."""
        if attached is not None:
            self._read(attached, from_start=True)
        else:
            self._attach_late()

    def lines_after(self, lines: Iterable[Line]) -> list[Line]:
        """Return what was drawn after lines of the log, which are the last that it has.

        If one of them was drawn, against expectation, attach again.
        """
        if self._is_over:
            return []
        source, ended = self._source, self._drawing.is_needless
        if ended and source is not None and any(is_drawn(one.text) for one in lines):
            self._source = None
            threading.Thread(target=self._attach_late, name="attach", daemon=True).start()
        now = time.time()
        return [
            Line(self._task, now, text, is_finished=False) for text in self._drawing.take_drawn()
        ]

    def finish(self) -> None:
        """End: the log has ended, but the container of a warm task lives on."""
        self._is_over = True
        if self._source is not None and not self._source.has_ended:
            self._source.give_up()
            self._streams.look_at(self._source)

    def _attach_late(self) -> None:
        with contextlib.suppress(Exception):  # any: the log decides
            self._read(self._attach(), from_start=False)

    def _read(self, stream: ByteStream, *, from_start: bool) -> None:
        if self._is_over:
            stream.close()
            return
        self._drawing = drawing = Drawing(self._log, from_start=from_start)
        self._source = DrawnStream(stream, drawing, lambda: self.lines_after(()))
        self._streams.add(self._source)
        if self._is_over:  # meanwhile
            self.finish()
