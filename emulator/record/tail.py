"""The whole lines of a file that grows: what has come since, and the last of them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["last_lines", "whole_lines"]

BLOCK = 64 * 1024


def whole_lines(path: Path, name: str, offsets: dict[str, int]) -> list[bytes]:
    """Return the complete lines of a file beyond its offset in `offsets`, and move that."""
    try:
        with path.open("rb") as file:
            if begin := offsets.get(name, 0):
                # What was read ended with a line: else it was thinned meanwhile, to another file.
                file.seek(begin - 1)
                offsets[name] = begin if file.read(1) == b"\n" else 0
                file.seek(offsets[name])
            new = file.read()
    except FileNotFoundError:
        return []
    whole = new[: new.rfind(b"\n") + 1]
    offsets[name] = offsets.get(name, 0) + len(whole)
    return [line + b"\n" for line in whole.split(b"\n")[:-1]]  # a carriage return ends none


def last_lines(path: Path, count: int) -> int:
    """Return the offset at which the last `count` complete lines begin; reads no more than those.

    Where there are fewer it is 0.
    """
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            found = b""
            while end > 0 and found.count(b"\n") <= count:
                begin = max(0, end - BLOCK)
                file.seek(begin)
                found = file.read(end - begin) + found
                end = begin
    except FileNotFoundError:
        return 0
    whole = found[: found.rfind(b"\n") + 1]
    kept = whole.split(b"\n")[:-1][-count:] if count > 0 else []
    return end + len(whole) - sum(len(line) + 1 for line in kept)
