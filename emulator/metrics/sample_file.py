"""samples.jsonl: a line for each sampling moment, bounded however long the run is.

Once there are MOMENTS lines, each two become one and so do all later ones: 1 s apart at first, then
2, then 4. With 25 tasks a line has about 5 kB, so the file never has more than 50 MB; a day at 1 s
ends with about 5400 moments, 16 s apart. It is then what sampling at the longer interval would have
written, with the peaks of memory and the means of GPUs in between (see `samples.halved`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from emulator.files import atomic_write
from emulator.metrics.samples import Sample, from_json, halved, to_json

__all__ = ["NAME", "SampleFile", "read"]

NAME = "samples.jsonl"
MOMENTS = 10_000
"""Lines that the file has at most: two hours and three quarters at 1 s, before it is thinned."""


class SampleFile:
    """The writing side. Methods raise OSError where the disk does."""

    def __init__(self, path: Path, *, moments: int = MOMENTS) -> None:
        self._path, self._moments = path, moments
        self._every = 1
        """So many moments become one line; a power of two."""
        self._waiting: list[Sample] = []
        self._file: IO[bytes] | None = None
        self._count = 0

    def append(self, sample: Sample) -> None:
        """Store a sample, or keep it until there are enough for a line."""
        self._waiting.append(sample)
        if len(self._waiting) == self._every:
            self._write_waiting()
        if self._count >= self._moments:
            self._thin()

    def close(self) -> None:
        """Store the samples that wait for a line."""
        try:
            if self._waiting:
                self._write_waiting()
        finally:
            if self._file is not None:
                self._file.close()

    def _write_waiting(self) -> None:
        """Write the waiting samples as one line."""
        while len(self._waiting) > 1:
            self._waiting = halved(self._waiting)
        if self._file is None:
            self._file = self._opened()
            self._count = sum(1 for _ in read(self._path))
        self._file.write(_line(self._waiting.pop()))
        self._count += 1

    def _opened(self) -> IO[bytes]:
        # Unbuffered: what was written before a kill -9 is there after it.
        return self._path.open("ab", buffering=0)

    def _thin(self) -> None:
        """Replace the file by one of half as many lines: whole or not at all."""
        kept = halved(list(read(self._path)))
        atomic_write(self._path, b"".join(map(_line, kept)))
        if self._file is not None:
            self._file.close()
        self._file = self._opened()
        self._count, self._every = len(kept), self._every * 2


def _line(sample: Sample) -> bytes:
    return json.dumps(to_json(sample)).encode() + b"\n"


def read(path: Path) -> Iterator[Sample]:
    """Yield the samples in a file, up to a line that was torn; none where there is no file."""
    try:
        lines = path.open("rb")
    except FileNotFoundError:
        return
    with lines:
        for line in lines:
            try:
                yield from_json(json.loads(line))
            except (ValueError, KeyError, TypeError):
                return
