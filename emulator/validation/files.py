"""Reading files that users name: only regular files of a limited size.

A device never ends, a named pipe waits for a writer, and opening some devices has side effects. So
the type of a file is checked before it is opened.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from emulator.validation.units import format_size

UNREAL = ("/proc", "/sys", "/dev")
"""File systems of the kernel: sizes are wrong, reads may block or never end."""
REAL = ("/dev/shm",)
"""Exceptions that contain ordinary files."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)


def kind_of(mode: int) -> str:
    """Return the type of a file from its mode: `a folder`, `a named pipe`; empty if regular."""
    return next((kind for is_one, kind in _KINDS if is_one(mode)), "")


def is_unreal(path: Path) -> bool:
    """Return whether an absolute path is in a file system of the kernel."""
    inside = [Path(folder) in (path, *path.parents) for folder in UNREAL]
    return any(inside) and not any(Path(folder) in path.parents for folder in REAL)


def readable(path: Path, most: int) -> None:
    """Check that `path` is a readable regular file of at most `most` bytes.

    Raises ValueError with the reason.
    """
    try:
        real = path.resolve()
        status = real.stat()
        is_allowed = os.access(real, os.R_OK)
    except (OSError, RuntimeError) as error:
        raise ValueError(reason(error)) from None
    if kind := kind_of(status.st_mode):
        raise ValueError(f"it is {kind}, not a file")
    if is_unreal(real):
        raise ValueError(f"{real} is a kernel file")
    if status.st_size > most:
        raise ValueError(f"it has {format_size(status.st_size)}; {format_size(most)} is the most")
    if not is_allowed:
        raise ValueError("Permission denied")


def text_of(path: Path, most: int) -> str:
    """Return the UTF-8 text of a regular file of at most `most` bytes.

    Raises ValueError with the reason if it is not one.
    """
    readable(path, most)
    try:
        # The file may have been replaced since the check.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if kind := kind_of(os.fstat(descriptor).st_mode):
                raise ValueError(f"it is {kind}, not a file")
            content = file.read(most + 1)
    except OSError as error:
        raise ValueError(reason(error)) from None
    return decoded(content, most)


def decoded(content: bytes, most: int) -> str:
    """Return the text of at most `most` bytes of UTF-8. Raises ValueError with the reason."""
    if len(content) > most:
        raise ValueError(f"it has more than {format_size(most)}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"it is not text: line {line} is not UTF-8") from None


def reason(error: Exception) -> str:
    """Return the operating system's reason for an error."""
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)
