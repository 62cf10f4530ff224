"""The Docker engine's log stream, read (pure): frames with stamps in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from emulator.engines.lines import UnfinishedLine

__all__ = ["Printed", "join_frames", "overlap", "seconds"]


@dataclass(frozen=True)
class Printed:
    """One line, and the engine's stamps of its first and last piece."""

    first_stamp: str
    last_stamp: str
    text: str


def join_frames(frames: Iterable[bytes], after: str = "") -> Iterator[Printed]:
    """Turn the frames of a log stream that came after a stamp into lines (pure).

    Stamps have nine digits and one zone, so they compare as text. The engine cuts lines at 16 KiB
    and puts a stamp before each piece; only the last piece of a line ends with a newline. Lines
    that are too long are cut and marked, see `lines.py`.
    """
    first, last, line = "", "", UnfinishedLine()
    for frame in frames:
        head, _, text = frame.partition(b" ")
        if (stamp := head.decode("utf-8", "surrogateescape")) <= after:
            continue
        last = stamp
        first = first or last
        line.add(text.removesuffix(b"\n"))
        if text.endswith(b"\n"):
            yield Printed(first, last, line.finish())
            first = ""
    if first:
        yield Printed(first, last, line.finish())


def overlap(read: Sequence[str], printed: Sequence[str]) -> int:
    """Return how many of the lines that a container printed are the last that were read (pure).

    What was read may hold earlier lives of the task as well; of a container that repeats itself
    the most is taken. This is the prefix function of Knuth, Morris and Pratt.
    """
    text: list[str | None] = [*printed, None, *read[-len(printed) :]] if printed else []
    borders = [0] * len(text)
    for here in range(1, len(text)):
        length = borders[here - 1]
        while length and text[here] != text[length]:
            length = borders[length - 1]
        borders[here] = length + (text[here] == text[length])
    return borders[-1] if borders and read else 0


def seconds(stamp: str) -> float:
    """Return seconds since 1970 of RFC 3339 with nanoseconds."""
    return datetime.fromisoformat(stamp).timestamp()
