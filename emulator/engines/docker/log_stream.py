"""Docker's log stream as bytes arrive: frames with stamps, lines (pure)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from emulator.engines.lines import UnfinishedLine

HEADER = 8
"""Bytes before each frame: the stream, three zeros, and the length (Docker API, attach)."""

LATEST = 4
"""Finished lines of a stream that are kept."""


def seconds(stamp: str) -> float:
    """Return seconds since 1970 of RFC 3339 with nanoseconds."""
    return datetime.fromisoformat(stamp).timestamp()


class Frames:
    """Cuts a stream of the engine into frames: what one output stream wrote, behind a header."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take the next bytes; yield the frames that they complete, each with its stream."""
        waiting = self._waiting
        waiting += data
        at = 0
        while len(waiting) - at >= HEADER:
            end = at + HEADER + int.from_bytes(waiting[at + 4 : at + HEADER], "big")
            if len(waiting) < end:
                break
            yield waiting[at], bytes(waiting[at + HEADER : end])
            at = end
        del waiting[:at]


class PrintedLine(NamedTuple):
    """One line, and the engine's stamps of its first and last piece."""

    first_stamp: str
    last_stamp: str
    text: str


class LogParser:
    """Turns the frames of a log stream into lines.

    Frames with stamps up to `after` are dropped. Stamps have nine digits and one zone, so they
    compare as text. The engine cuts lines at 16 KiB; the pieces have stamps of their own or all the
    first one's, and only the last ends with a newline. Pieces of standard output and standard error
    come in any order. Lines that are too long are cut and marked, see `lines.py`.
    """

    def __init__(self, after: str = "") -> None:
        self._frames = Frames()
        self._lines: defaultdict[int, _Line] = defaultdict(lambda: _Line(after))
        """The last line of each stream."""
        self._start = after

    def last(self, stream: int) -> tuple[int, Sequence[str]]:
        """Return how many lines of a stream were finished here, and the last of them."""
        line = self._lines.get(stream)
        return (line.count, line.latest) if line else (0, ())

    @property
    def after(self) -> str:
        """The stamp after which a log must be read to go on with `begin_again`."""
        return min((line.finished for line in self._lines.values()), default=self._start)

    @property
    def is_whole(self) -> bool:
        """Whether all that has come are whole lines."""
        return not any(line.first_stamp for line in self._lines.values())

    def begin_again(self) -> None:
        """Expect the log again, from `after` on: the unfinished lines, and what follows them."""
        self._frames = Frames()
        for stream, line in self._lines.items():
            self._lines[stream] = _Line(line.finished)

    def feed(self, data: bytes) -> Iterator[PrintedLine]:
        """Take the next bytes of the stream; yield the lines that they finish."""
        for stream, frame in self._frames.feed(data):
            yield from self.frame(stream, frame)

    def frame(self, stream: int, frame: bytes) -> Iterator[PrintedLine]:
        """Take one frame of a stream; yield the line that it finishes, if it does."""
        head, _, text = frame.partition(b" ")
        line = self._lines[stream]
        if (stamp := head.decode("utf-8", "surrogateescape")) <= line.after:
            return
        line.last_stamp = stamp
        line.first_stamp = line.first_stamp or stamp
        if text.endswith(b"\n"):
            yield line.finish(text[:-1])
        else:
            line.text.add(text)

    def finish(self) -> Iterator[PrintedLine]:
        """Yield the lines that lack their newline at the end of the stream."""
        for line in self._lines.values():
            if line.first_stamp:
                yield line.finish(b"")


class _Line:
    """The line that a stream has not finished; no first stamp: nothing of it has come."""

    def __init__(self, after: str) -> None:
        self.after = self.finished = after
        """Frames up to `after` are dropped; `finished` is the stamp of the last whole line."""
        self.first_stamp = self.last_stamp = ""
        self.text = UnfinishedLine()
        self.count, self.latest = 0, deque[str](maxlen=LATEST)

    def finish(self, end: bytes) -> PrintedLine:
        printed = PrintedLine(self.first_stamp, self.last_stamp, self.text.finish(end))
        self.first_stamp, self.finished = "", self.last_stamp
        self.count += 1
        self.latest.append(printed.text)
        return printed
