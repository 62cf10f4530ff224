"""samples.jsonl: a line for each sample, of bounded size however long the run is.

Once there are MAX_LINES lines, each two become one and so do all later ones: 1 s apart at first,
then 2, then 4. With 25 tasks a line has about 5 kB, so the file never has more than 50 MB; a day at
1 s ends with about 5400 lines, 16 s apart. It is then what sampling at the longer interval would
have written, with the peaks of memory and the means of GPUs in between (see `samples.halved`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from emulator.errors import RecordError
from emulator.metrics.samples import Sample, from_json, halved, to_json
from emulator.runtime.files import appending, atomic_write
from emulator.validation.stored import open_stored, stored_json, stored_lines

NAME = "samples.jsonl"
MAX_LINES = 10_000
"""Lines that the file has at most: two hours and three quarters at 1 s, before it is thinned."""


class SampleFile:
    """Writes the file. Methods raise OSError."""

    def __init__(self, path: Path, *, max_lines: int = MAX_LINES) -> None:
        self._path, self._max_lines = path, max_lines
        self._per_line = 1
        """So many samples become one line; a power of two."""
        self._buffered: list[Sample] = []
        self._file: IO[bytes] | None = None
        self._lines = 0

    def append(self, sample: Sample) -> None:
        """Store a sample, or keep it until there are enough for a line."""
        self._buffered.append(sample)
        if len(self._buffered) == self._per_line:
            self._write_line()
        if self._lines >= self._max_lines:
            self._thin()

    def close(self) -> None:
        """Store the buffered samples."""
        try:
            if self._buffered:
                self._write_line()
        finally:
            if self._file is not None:
                self._file.close()

    def _write_line(self) -> None:
        while len(self._buffered) > 1:
            self._buffered = halved(self._buffered)
        if self._file is None:
            self._file = appending(self._path)  # nothing is lost by a kill -9
            self._lines = sum(1 for _ in read(self._path))
        self._file.write(_line(self._buffered.pop()))
        self._lines += 1

    def _thin(self) -> None:
        """Replace the file by one of half as many lines, atomically."""
        kept = halved(list(read(self._path)))
        atomic_write(self._path, b"".join(map(_line, kept)), private=True)
        if self._file is not None:
            self._file.close()
        self._file = None  # the next line opens the new file
        self._lines, self._per_line = len(kept), self._per_line * 2


def _line(sample: Sample) -> bytes:
    return json.dumps(to_json(sample)).encode() + b"\n"


def read(path: Path) -> Iterator[Sample]:
    """Yield the samples in a file, up to an incomplete line; none where there is no file."""
    try:
        file = open_stored(path)
    except FileNotFoundError:
        return
    with file:
        for number, line in enumerate(stored_lines(file)):
            try:
                stored = stored_json(line)
            except ValueError:
                return
            try:
                yield from_json(stored)
            except ValueError as error:
                raise RecordError(f"Can't read {path}, line {number + 1}: {error}.") from None
