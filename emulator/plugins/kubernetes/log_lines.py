"""Lines of a Pod's log as its bytes arrive, and where to go on after a cut (pure).

The kubelet writes each record of a container's log with its stamp in front. A record is a line, or
a piece of one: container runtimes cut lines at 16 KiB, and Docker ends a last line without a
newline. Older kubelets put a stamp in front of every piece, in the midst of the line. Standard
output and standard error are one stream here, so a last line without a newline may be followed by
a line of the other one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from emulator.engines.kit.lines import PrintedLine, UnfinishedLine, seconds

PIECE = 16 * 1024
"""Bytes of a piece of a line."""
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) ")
_LONGEST_STAMP = 36
"""Bytes of a stamp and the blank after it."""
_REPLACED = "\N{REPLACEMENT CHARACTER}".encode()
"""What Docker's log has in place of a byte that is no UTF-8: three bytes, which count as one where
it cuts lines. A program may have written the character itself."""
_TOGETHER = 10.0
"""Seconds within which the streams of a program end, at most."""
_CROSSED = 0.01
"""Seconds by which the ends of two streams may have their stamps in the wrong order."""
_MANY = 4 * PIECE
"""Bytes of an unfinished line that wait to be looked at together."""


def canonical(stamp: str) -> str:
    """Return an RFC 3339 stamp in UTC, with nine digits after the second: so stamps compare."""
    if len(stamp) == 30 and stamp[-1] == "Z":
        return stamp
    whole, _, rest = stamp.partition(".")
    zone = rest.lstrip("0123456789")
    fraction = rest.removesuffix(zone)
    if not rest:  # the zone is part of `whole`
        whole, zone = whole[:19], whole[19:]
    moment = datetime.fromisoformat(whole + zone).astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction:0<9}Z"


class LogParser:
    """Turns the bytes of a log with stamps into lines; long ones are cut as in `lines.py`."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        """Bytes of the last line that may still turn out to be a stamp."""
        self._text = UnfinishedLine()
        self._stamp = self._last_stamp = ""
        """Of the line, and of its last piece; empty: nothing of a line has come."""
        self._is_foreign = False
        """Whether the line began without a stamp."""
        self._in_piece = self._replaced = 0
        """Bytes of the last piece so far, and characters among them that stand for one byte."""

    def feed(self, data: bytes) -> Iterator[PrintedLine]:
        """Take the next bytes; yield the lines that they finish."""
        *ends, rest = data.split(b"\n")
        for line in ends:
            is_begun = self._waiting or self._stamp or self._is_foreign
            blank = 0 if is_begun else line.find(b" ", 0, _LONGEST_STAMP)
            simple = blank > 0 and len(line) < PIECE and line.find(b"Z ", blank) < 0
            if simple and _STAMP.match(line):  # most lines need no second look
                text = line[blank + 1 :].removesuffix(b"\r").decode("utf-8", "surrogateescape")
                yield PrintedLine(canonical(line[:blank].decode()), text)
            else:
                self._waiting += line
                yield from self._whole()
        self._waiting += rest
        if len(self._waiting) > _MANY:
            yield from self._look()

    def finish(self) -> Iterator[PrintedLine]:
        """Yield the last line if it lacks its newline: the log has ended."""
        yield from self._whole(is_last=True)

    def _whole(self, *, is_last: bool = False) -> Iterator[PrintedLine]:
        yield from self._look(is_whole=True, is_last=is_last)
        if self._stamp or self._is_foreign or self._text:
            yield self._finish()

    def _look(self, *, is_whole: bool = False, is_last: bool = False) -> Iterator[PrintedLine]:
        """Look for stamps in what is waiting; keep what may still become one."""
        while True:
            if not self._stamp and not self._is_foreign and not self._begin():
                return
            found = self._next_stamp(is_last=is_last)
            if found is None:
                keep = 0 if is_whole else _LONGEST_STAMP
                self._consume(max(len(self._waiting) - keep, 0))
                return
            begin, end, stamp = found
            self._consume(begin)
            del self._waiting[: end - begin]
            if not self._is_full():  # the end of one stream, and a line of the other
                yield self._finish()
                self._stamp = stamp
            self._last_stamp = stamp
            self._in_piece = self._replaced = 0

    def _begin(self) -> bool:
        """Take the stamp of a line; return whether anything of it has come."""
        if not self._waiting:
            return False
        if found := _STAMP.match(self._waiting):
            self._stamp = self._last_stamp = canonical(found[0][:-1].decode())
            del self._waiting[: found.end()]
        else:
            self._is_foreign = True
        self._in_piece = self._replaced = 0
        return True

    def _next_stamp(self, *, is_last: bool) -> tuple[int, int, str] | None:
        """Return the place of the next stamp that the kubelet wrote, and the stamp.

        A program writes stamps as well, but of a time before the kubelet's for the same line. Only
        at the end of a log, where both streams may lack a newline, may the kubelet's be earlier.
        """
        if self._is_foreign:
            return None
        for found in _STAMP.finditer(self._waiting):
            try:
                stamp = canonical(found[0][:-1].decode())
                later = seconds(stamp) - seconds(self._last_stamp)
            except ValueError:  # the 31st of February
                continue
            is_next = stamp >= self._last_stamp or (is_last and later > -_CROSSED)
            if is_next and (self._is_full(found.start()) or later < _TOGETHER):
                return found.start(), found.end(), stamp
        return None

    def _is_full(self, more: int = 0) -> bool:
        """Say whether a piece ends after so many more bytes."""
        size = self._in_piece + more
        replaced = self._replaced + self._waiting.count(_REPLACED, 0, more)
        return size - 2 * replaced <= PIECE <= size

    def _consume(self, size: int) -> None:
        piece = bytes(self._waiting[:size])
        del self._waiting[:size]
        self._in_piece += size
        self._replaced += piece.count(_REPLACED)
        self._text.add(piece)

    def _finish(self) -> PrintedLine:
        printed = PrintedLine(self._stamp, self._text.finish())
        self._stamp, self._is_foreign = "", False
        return printed


class Position:
    """The place in a log up to which its lines were reported.

    A log can be read from a whole second on. It is then compared with what was read: so no line is
    lost or repeated, though stamps of standard output and standard error come in any order.
    """

    def __init__(self) -> None:
        self._last: PrintedLine | None = None
        self._same = 0
        """How many lines with this stamp and text there were up to it."""
        self.newest = ""
        """The latest stamp of them."""
        self._seen = 0
        self._is_passing = False
        """Whether lines come that were reported before."""

    @property
    def since(self) -> str:
        """The stamp from which to read the log; empty: from its beginning.

        It is in the second before that of the last line, where a late line of the other stream may
        have its stamp.
        """
        if self._last is None:
            return ""
        return f"{datetime.fromisoformat(self._last.stamp[:19]) - timedelta(seconds=1):%FT%T}Z"

    def begin_again(self) -> None:
        """Expect the log from `since` on."""
        self._is_passing, self._seen = self._last is not None, 0

    def passes(self, line: PrintedLine) -> bool:
        """Take the next line of the log; return whether it is new."""
        if self._is_passing:
            if line == self._last:
                self._seen += 1
                self._is_passing = self._seen < self._same
                return False
            if line.stamp <= self.newest:
                return False
            self._is_passing = False  # what was read has been rotated away
        self._same = self._same + 1 if line == self._last else 1
        self._last = line
        self.newest = max(self.newest, line.stamp)
        return True
