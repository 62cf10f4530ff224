"""Files that users name: read only where they are regular files of a bounded size.

A device never ends, a named pipe waits for a writer, and to open some devices does something. So it
is asked first what a path is.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from emulator.units import format_size

__all__ = ["kind_of", "readable", "text_of"]

UNREAL = ("/proc", "/sys", "/dev")
"""Where the kernel shows itself as files: their sizes are not true, some wait, some never end."""
REAL = ("/dev/shm",)
"""Where there are ordinary files all the same."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)


def kind_of(mode: int) -> str:
    """Return what a file is by its mode: `a folder`, `a named pipe`; empty for a regular file."""
    return next((kind for is_one, kind in _KINDS if is_one(mode)), "")


def is_unreal(path: Path) -> bool:
    """Say whether an absolute path lies where the kernel shows itself as files."""
    inside = [Path(folder) in (path, *path.parents) for folder in UNREAL]
    return any(inside) and not any(Path(folder) in path.parents for folder in REAL)


def readable(path: Path, most: int) -> None:
    """See that `path` is a regular file of at most `most` bytes that can be read.

    Raises ValueError with the reason.
    """
    try:
        real = path.resolve()
        found = real.stat()
        may = os.access(real, os.R_OK)
    except (OSError, RuntimeError) as error:
        raise ValueError(reason(error)) from None
    if kind := kind_of(found.st_mode):
        raise ValueError(f"it is {kind}, not a file")
    if is_unreal(real):
        raise ValueError(f"{real} is a file of the kernel's")
    if found.st_size > most:
        raise ValueError(f"it has {format_size(found.st_size)}; {format_size(most)} is the most")
    if not may:
        raise ValueError("Permission denied")


def text_of(path: Path, most: int) -> str:
    """Return the text of a regular file of at most `most` bytes, in UTF-8.

    Raises ValueError with the reason where it is none.
    """
    readable(path, most)
    try:
        # Somebody may have put something else there by now.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if kind := kind_of(os.fstat(descriptor).st_mode):
                raise ValueError(f"it is {kind}, not a file")
            content = file.read(most + 1)
    except OSError as error:
        raise ValueError(reason(error)) from None
    if len(content) > most:
        raise ValueError(f"it has more than {format_size(most)}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"it is no text: line {line} is not UTF-8") from None


def reason(error: Exception) -> str:
    """Return why something can't be read, as the system puts it."""
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
