"""The log of one task, beside it when its lines were printed, and lines of any growing file.

`logs/TASK.log` has the lines as they were printed and nothing else. `logs/TASK.times` has a row
each time that some RESOLUTION has passed: the offset in the log, in bytes, of the first line of
that time, and the time in seconds since 1970, as the engine stamped it. A row is written before its
line, so a line that can be read has its time.

A log has a limit. `TASK.log` has its first half. What follows is in files of an eighth of the limit
each, `TASK.parts/OFFSET`, of which the latest are kept. So beginning and end can be read at every
moment, and an offset is always that among all bytes that the task has printed.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from emulator.runtime.files import appending
from emulator.validation.stored import MOST, open_stored
from emulator.validation.units import LAST_MOMENT, format_size

PARTS = 8
"""Parts of a log that has reached its limit: its first half is one file, each other one another."""
RESOLUTION = 0.01
"""Seconds; lines that follow sooner have the time of the row before them."""

DIGITS = 19
"""Of an offset; no file is so long."""
BLOCK = 64 * 1024
"""Bytes that are read at once from the end of a file."""
_PIECE = 16 * 2**20
"""Bytes of a line that are shown at once; engines cut lines that are longer than a part of that."""


class Printed(NamedTuple):
    """A line that a task has printed."""

    task: str
    text: str
    wall: float
    """Seconds since 1970; 0: not known, in a record that is damaged."""


def times_of(log: Path) -> Path:
    """Return the file with the times of a log's lines."""
    return log.with_suffix(".times")


class Part(NamedTuple):
    """A file with a part of a log, and the offset of its first byte."""

    begin: int
    path: Path

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        try:
            return self.begin + self.path.stat().st_size
        except OSError:  # its turn to be removed
            return self.begin


def parts_of(log: Path) -> list[Part]:
    """Return the files of a log, in order; the first may not exist."""
    try:
        others = [int(name) for name in os.listdir(_parts(log)) if name.isdecimal()]
    except (FileNotFoundError, NotADirectoryError):  # most logs do not reach their limit
        others = []
    return [Part(0, log), *(Part(begin, _parts(log) / str(begin)) for begin in sorted(others))]


def _parts(log: Path) -> Path:
    return log.with_suffix(".parts")


class LogWriter:
    """Appends lines to a log; unbuffered, so that what is written survives a kill -9."""

    def __init__(self, path: Path, limit: int) -> None:
        """`limit`: about so many bytes are kept."""
        self._path, self._limit = path, limit
        self._files: tuple[IO[bytes], IO[bytes]] | None = None
        self.leaves_out = False
        """Whether something in the middle of the log was removed."""
        self._size = self._begin = 0
        """Of all that was printed, in bytes, and of what stands before the current part."""
        self._latest = -math.inf
        """The time in the last row."""

    def write(self, printed: Iterable[tuple[str, float]]) -> None:
        """Append lines, each with its time in seconds since 1970. Raises OSError."""
        if self._files is None:
            times = appending(times_of(self._path))
            self._begin, current = parts_of(self._path)[-1]
            self._files = appending(current), times
            self._size = self._begin + self._files[0].tell()
        if self._size - self._begin >= self._limit // (PARTS if self._begin else 2):
            self._begin_part(*self._files)
        size, latest = self._size, self._latest
        lines, rows = [], []
        for text, wall in printed:
            line = text.encode("utf-8", "surrogateescape") + b"\n"
            if wall >= latest + RESOLUTION:
                latest = wall
                rows.append(b"%d %.3f\n" % (size, wall))
            size += len(line)
            lines.append(line)
        log, index = self._files
        if rows:
            index.write(b"".join(rows))
        log.write(b"".join(lines))
        self._size, self._latest = size, latest

    def _begin_part(self, full: IO[bytes], times: IO[bytes]) -> None:
        """Go on in another file, and remove the oldest after the first if there are too many."""
        folder = _parts(self._path)
        folder.mkdir(mode=0o700, exist_ok=True)
        self._files = appending(folder / str(self._size)), times
        self._begin = self._size
        full.close()
        _, *parts = parts_of(self._path)
        for part in parts[: -PARTS // 2]:
            part.path.unlink()
            self.leaves_out = True

    def close(self) -> None:
        """Close the files."""
        for file in self._files or ():
            file.close()


def cut_torn(log: Path) -> None:
    """Cut off a torn line at the end, and in the times the rows of lines that are not there."""
    part = parts_of(log)[-1]
    with part.path.open("r+b") as file:
        file.truncate(last_lines(part.path, 0))
    size = part.end
    with contextlib.suppress(FileNotFoundError), times_of(log).open("r+b") as file:
        kept = 0
        for row in file:
            parsed = _parsed(row)
            if parsed is None or parsed[0] >= size:
                break
            kept += len(row)
        file.truncate(kept)


def _parsed(row: bytes) -> tuple[int, float] | None:
    """Return the offset and the time in a row; None for a torn one."""
    with contextlib.suppress(ValueError):
        offset, wall = row.split()
        if row.endswith(b"\n") and len(offset) < DIGITS and 0 <= float(wall) < LAST_MOMENT:
            return int(offset), float(wall)
    return None


@dataclass
class LogTimes:
    """When the lines of a log were printed, also of one that grows."""

    log: Path
    _offsets: list[int] = field(default_factory=list)
    _walls: list[float] = field(default_factory=list)
    _read: dict[str, int] = field(default_factory=dict)
    _covered: int = 0
    """So many bytes of the log have all their rows here."""

    def at(self, offset: int) -> float:
        """Return when the line at an offset was printed; 0 if that is not known."""
        if offset >= self._covered:
            self._update()
        row = bisect.bisect_right(self._offsets, offset) - 1
        return self._walls[row] if row >= 0 else 0.0

    def since(self, wall: float) -> int:
        """Return the offset of the first line that was not printed before a time."""
        self._update()
        row = bisect.bisect_left(self._walls, wall)
        return self._offsets[row] if row < len(self._offsets) else self._covered

    def _update(self) -> None:
        covered = parts_of(self.log)[-1].end
        for row in filter(None, map(_parsed, whole_lines(times_of(self.log), "", self._read))):
            self._offsets.append(row[0])
            # The clock of the machine may have been set back; to search, times must not decrease.
            self._walls.append(max(row[1], self._walls[-1] if self._walls else 0.0))
        self._covered = covered


def beginning(log: Path, *, last: int | None, since: float | None) -> int:
    """Return the offset of the first line of those asked for.

    `last`: no more than so many complete lines; `since`: none that was printed before that time.
    """
    return max(
        0 if last is None else _last_lines(log, last),
        0 if since is None else LogTimes(log).since(since),
    )


def _last_lines(log: Path, count: int) -> int:
    """Return the offset of the last `count` complete lines that are kept."""
    for part in reversed(parts_of(log)):
        if (offset := last_lines(part.path, count)) or not part.begin:
            break
        with contextlib.suppress(FileNotFoundError), open_stored(part.path) as file:
            count -= sum(1 for _ in file)
        if not count:
            break
    return part.begin + offset


def end_of_log(log: Path, size: int) -> list[str]:
    """Return the lines in the last `size` bytes of a log; the first may be a part of one."""
    lines: list[str] = []
    for part in reversed(parts_of(log)):
        if size <= 0:
            break
        lines = end_of(part.path, size) + lines
        size -= part.end - part.begin
    return lines


def new_lines(log: Path, name: str, offsets: dict[str, int]) -> list[bytes]:
    """Return complete lines after the offset in `offsets`, and advance that.

    They follow one another, and are not all if the log has several files. What was removed
    meanwhile is passed over.
    """
    for part in parts_of(log):
        here = max(offsets.get(name, 0) - part.begin, 0)
        inside = {name: here}
        if here < part.end - part.begin and (lines := whole_lines(part.path, name, inside)):
            offsets[name] = part.begin + inside[name]
            return lines
    return []


def printed(log: Path, begin: int = 0) -> Iterator[Printed]:
    """Yield the lines of a log from an offset on; none where there is no such file.

    Where something was left out, a line says so.
    """
    times = LogTimes(log)
    for part in parts_of(log):
        if begin < part.begin:
            words = left_out(part.begin - begin)
            yield Printed(log.stem, words, times.at(part.begin))
            begin = part.begin
        with contextlib.suppress(FileNotFoundError), open_stored(part.path) as file:
            file.seek(begin - part.begin)
            while line := file.readline(_PIECE):
                text = line.decode("utf-8", "replace").removesuffix("\n")
                yield Printed(log.stem, text, times.at(begin))
                begin += len(line)


def left_out(size: int) -> str:
    """Return the line that stands for so many bytes of a log that has reached its limit."""
    return f"[{format_size(size)} left out: the log has reached its limit]"


# --- Any growing file -----------------------------------------------------------------------------


def whole_lines(path: Path, name: str, offsets: dict[str, int]) -> list[bytes]:
    """Return the complete lines of a file after its offset in `offsets`, and advance that."""
    try:
        with open_stored(path) as file:
            if begin := offsets.get(name, 0):
                # Without a newline before the offset, the file was replaced by a thinned one.
                file.seek(begin - 1)
                offsets[name] = begin if file.read(1) == b"\n" else 0
                file.seek(offsets[name])
            new = file.read(MOST)
    except FileNotFoundError:
        return []
    complete = new[: new.rfind(b"\n") + 1]
    offsets[name] = offsets.get(name, 0) + len(complete)
    # Not splitlines: that also splits at carriage returns.
    return [line + b"\n" for line in complete.split(b"\n")[:-1]]


def last_lines(path: Path, count: int) -> int:
    """Return the offset of the last `count` complete lines, 0 if there are fewer.

    Reads only about as much of the file.
    """
    try:
        with open_stored(path) as file:
            end = file.seek(0, os.SEEK_END)
            text = b""
            while end > 0 and text.count(b"\n") <= count and len(text) < MOST:
                begin = max(0, end - BLOCK)
                file.seek(begin)
                text = file.read(end - begin) + text
                end = begin
    except FileNotFoundError:
        return 0
    complete = text[: text.rfind(b"\n") + 1]
    kept = complete.split(b"\n")[:-1][-count:] if count > 0 else []
    return end + len(complete) - sum(len(line) + 1 for line in kept)


def end_of(path: Path, size: int) -> list[str]:
    """Return the lines in the last `size` bytes of a file; none where there is no such file.

    The first line may be a part of one. Unlike with splitlines, only a newline ends a line.
    """
    try:
        with open_stored(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            text = file.read()
    except FileNotFoundError:
        return []
    return text.decode("utf-8", "replace").removesuffix("\n").split("\n") if text else []
