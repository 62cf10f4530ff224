"""The log of one task, and beside it when its lines were printed.

`logs/TASK.log` has the lines as they were printed and nothing else. `logs/TASK.times` has a row
each time that some RESOLUTION has passed: the offset in the log, in bytes, of the first line of
that time, and the time in seconds since 1970, as the engine stamped it. A row is written before its
line, so a line that can be read has its time.
"""

from __future__ import annotations

import bisect
import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from emulator.files import appending
from emulator.record.tail import last_lines, whole_lines

RESOLUTION = 0.01
"""Seconds; lines that follow sooner have the time of the row before them."""


class Printed(NamedTuple):
    """A line that a task has printed."""

    task: str
    text: str
    wall: float | None
    """Seconds since 1970; None in a record of a version that did not write it."""


def times_of(log: Path) -> Path:
    """Return the file with the times of a log's lines."""
    return log.with_suffix(".times")


def has_times(log: Path) -> bool:
    """Return whether a log has the times of its lines; that of an older version does not."""
    return times_of(log).is_file() or not log.is_file()


class LogWriter:
    """Appends lines to a log; unbuffered, so that what is written survives a kill -9."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[tuple[bytes, float]] = []
        self._files: tuple[IO[bytes], IO[bytes]] | None = None
        self._size = 0
        """Of the log, in bytes."""
        self._latest = -math.inf
        """The time in the last row."""

    def add(self, text: str, wall: float) -> None:
        """Have a line written with the next `write`."""
        self._waiting.append((text.encode("utf-8", "surrogateescape") + b"\n", wall))

    def write(self) -> None:
        """Write the lines that were added. Raises OSError."""
        if not self._waiting:
            return
        if self._files is None:
            times = appending(times_of(self._path))
            self._files = appending(self._path), times
            self._size = self._files[0].tell()
        size, latest = self._size, self._latest
        lines, rows = [], []
        for line, wall in self._waiting:
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
        self._waiting.clear()  # only now: what a full disk did not take is written later

    def close(self) -> None:
        """Close the files."""
        for file in self._files or ():
            file.close()


def cut_times(log: Path) -> None:
    """Cut off the rows of lines that are not in the log, and a torn one."""
    size = log.stat().st_size
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
        return (int(offset), float(wall)) if row.endswith(b"\n") else None
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

    def at(self, offset: int) -> float | None:
        """Return when the line at an offset was printed; None if that is not known."""
        if offset >= self._covered:
            self._update()
        row = bisect.bisect_right(self._offsets, offset) - 1
        return self._walls[row] if row >= 0 else None

    def since(self, wall: float) -> int:
        """Return the offset of the first line that was not printed before a time."""
        self._update()
        row = bisect.bisect_left(self._walls, wall)
        return self._offsets[row] if row < len(self._offsets) else self._covered

    def _update(self) -> None:
        try:
            covered = self.log.stat().st_size
        except FileNotFoundError:
            return
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
        0 if last is None else last_lines(log, last),
        0 if since is None else LogTimes(log).since(since),
    )


def printed(log: Path, begin: int = 0) -> Iterator[Printed]:
    """Yield the lines of a log from an offset on; none where there is no such file."""
    times = LogTimes(log)
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(begin)
        for line in file:
            text = line.decode("utf-8", "replace").removesuffix("\n")
            yield Printed(log.stem, text, times.at(begin))
            begin += len(line)
