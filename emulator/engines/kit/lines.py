r"""Lines of output: cut at the same length by every engine (pure).

A line is kept up to `LONGEST_LINE` bytes; a longer one is cut and marked with the number of missing
bytes. The text depends on the whole line alone, not on the pieces in which it was read: when an
engine reads a line a second time, after `emulate attach`, the text is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

LONGEST_LINE = 1024 * 1024
"""Bytes of a line that are kept."""
END = 64 * 1024
"""Bytes at the end of an output that are kept although more than that was left out."""
DRAWN = 4096
"""Bytes of an unfinished line that are passed on: several times the width of a progress bar."""


class PrintedLine(NamedTuple):
    """A line of a container's log."""

    stamp: str
    """The engine's, of its beginning (RFC 3339, nine digits, one zone), so that stamps compare.
    Empty: not the program's line but the engine's, such as the reason why it can't read on."""
    text: str
    last_stamp: str = ""
    """Of its last piece, where the engine has one for each."""


def seconds(stamp: str) -> float:
    """Return the seconds since 1970 of a stamp (RFC 3339)."""
    return datetime.fromisoformat(stamp).timestamp()


class UnfinishedLine:
    """The bytes of one line as they arrive; about `longest` of them are in memory at most."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._kept = bytearray()
        self._length = 0
        self._last = b""

    def __bool__(self) -> bool:
        """Say whether anything of the line has arrived."""
        return self._length > 0

    def add(self, piece: bytes) -> None:
        """Add the next bytes of the line, which have no newline."""
        # One byte more than the limit shows whether the cut splits a character.
        self._kept += piece[: self._longest + 1 - len(self._kept)]
        self._length += len(piece)
        self._last = piece[-1:] or self._last

    def finish(self, piece: bytes = b"") -> str:
        """Add the last bytes of the line; return it without its carriage return, cut and marked.

        Begins the next line.
        """
        if not self._length and len(piece) <= self._longest:  # most lines
            return piece.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        self.add(piece)
        length = self._length - (self._last == b"\r")
        end = min(length, self._longest)
        if length > end:
            end = _between_characters(self._kept, end)
        text = self._kept[:end].decode("utf-8", "surrogateescape")
        self._kept, self._length, self._last = bytearray(), 0, b""
        return text if length == end else f"{text} [cut: {length - end} bytes more]"


class DrawnLine:
    """The end of a line that a program draws again and again with `\\r` or `\\b`."""

    def __init__(self) -> None:
        self.newlines = 0
        """Lines that were finished."""
        self.last_drawn = (0, b"")
        """The number of the last of them that was drawn, and its end, without its newline."""
        self._end = b""
        self._taken = 0
        """Bytes of it that were taken, up to its last drawing."""
        self._is_new = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the output, if there are any."""
        if not data:
            return  # what was drawn before is not new
        first, last = data.find(b"\n"), data.rfind(b"\n")
        if first < 0:
            self._taken = max(0, self._taken - max(0, len(self._end) + len(data) - DRAWN))
            self._end = (self._end + data[-DRAWN:])[-DRAWN:]
        else:
            if _is_redrawn(data) or _is_redrawn(self._end):
                lines = [self._end + data[:first], *data[first + 1 : last].split(b"\n")]
                for number, line in enumerate(lines, self.newlines + 1):
                    if _is_redrawn(line):
                        self.last_drawn = (number, line[-DRAWN:])
            self.newlines += data.count(b"\n")
            self._end, self._taken = data[last + 1 :][-DRAWN:], 0
        self._is_new = bool(self._end)

    @property
    def is_drawn(self) -> bool:
        """Whether something was drawn on the unfinished line since it was last taken."""
        return self._is_new and _is_redrawn(self._end)

    def take_drawn(self) -> str:
        """Return what was drawn on the unfinished line since the last time, if `is_drawn`.

        It begins with the last drawing of then, which may not have been whole.
        """
        self._is_new = False
        new = self._end[self._taken :]
        self._taken = max(self._end.rfind(b"\r"), self._end.rfind(b"\b"), 0)
        return new.decode("utf-8", "surrogateescape")


def _is_redrawn(data: bytes) -> bool:
    return b"\r" in data or b"\b" in data


def _between_characters(line: bytearray, end: int) -> int:
    """Return the last place up to `end` where no UTF-8 character of `line` is split."""
    for place in range(end, max(end - 4, -1), -1):
        if line[place] & 0xC0 != 0x80:  # no continuation of the character before
            return place
    return end  # no UTF-8


class LineSplitter:
    """Turns pieces of output into lines of `longest` bytes; a longer one is cut and marked.

    The work grows with the number of bytes, and the memory does not.
    """

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._line = UnfinishedLine(longest)

    def feed(self, data: bytes) -> Iterator[str]:
        """Take the next bytes; yield the lines that they finish."""
        *finished, rest = data.split(b"\n")
        for piece in finished:
            yield self._line.finish(piece)
        self._line.add(rest)

    @property
    def is_between_lines(self) -> bool:
        """Whether the next byte begins a line."""
        return not self._line

    def finish(self) -> Iterator[str]:
        """Yield the last line, if it lacks its newline."""
        if self._line:
            yield self._line.finish()


class EndOfOutput:
    """Keeps the last lines of an output of which the rest is left out."""

    def __init__(self, size: int = END, *, is_between_lines: bool = False) -> None:
        """`size`: so many bytes are kept; `is_between_lines`: the first one begins a line."""
        self._size = size
        self._begins_a_line = is_between_lines
        self._kept = b""
        self._came = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._came += len(data)
        self._kept = (self._kept + data)[-self._size :]

    @property
    def left_out(self) -> int:
        """How many bytes are not among `lines`."""
        return self._came - len(self._whole)

    def lines(self) -> Iterator[str]:
        """Yield the last lines; the first begins where a line began."""
        splitter = LineSplitter()
        yield from splitter.feed(self._whole)
        yield from splitter.finish()

    @property
    def _whole(self) -> bytes:
        if self._begins_a_line and self._came <= self._size:
            return self._kept
        # What came before the first newline belongs to a line that began earlier.
        return self._kept.partition(b"\n")[2]


def overlap(read: Sequence[str], printed: Sequence[str]) -> int:
    """Return how many of the first printed lines are the last ones that were read (pure).

    `read` may begin with lines of earlier containers; if a container repeats itself, the longest
    match counts. This is the prefix function of Knuth, Morris and Pratt.
    """
    text: list[str | None] = [*printed, None, *read[-len(printed) :]] if printed else []
    borders = [0] * len(text)
    for here in range(1, len(text)):
        length = borders[here - 1]
        while length and text[here] != text[length]:
            length = borders[length - 1]
        borders[here] = length + (text[here] == text[length])
    return borders[-1] if borders and read else 0
