"""Lines of a growing file: complete ones since an offset, and the last ones."""

from __future__ import annotations

import os
from pathlib import Path

from emulator.validation.stored import MOST, open_stored

BLOCK = 64 * 1024


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
