"""The Docker engine's log stream, read (pure): frames with stamps in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Printed", "join_frames", "seconds"]


@dataclass(frozen=True)
class Printed:
    """One line, and the engine's stamps of its first and last piece."""

    first_stamp: str
    last_stamp: str
    text: str


def join_frames(frames: Iterable[bytes], after: str = "") -> Iterator[Printed]:
    """Turn the frames of a log stream that came after a stamp into lines (pure).

    Stamps have nine digits and one zone, so they compare as text. The engine cuts lines at 16 KiB
    and puts a stamp before each piece; only the last piece of a line ends with a newline.
    """
    first, last, pieces = "", "", list[str]()
    for frame in frames:
        stamp, _, text = frame.decode("utf-8", "surrogateescape").partition(" ")
        if stamp <= after:
            continue
        last = stamp
        first = first or last
        pieces.append(text)
        if text.endswith("\n"):
            line = "".join(pieces).removesuffix("\n").removesuffix("\r")
            yield Printed(first, last, line)
            first, pieces = "", []
    if pieces:
        yield Printed(first, last, "".join(pieces))


def seconds(stamp: str) -> float:
    """Return seconds since 1970 of RFC 3339 with nanoseconds."""
    return datetime.fromisoformat(stamp).timestamp()
