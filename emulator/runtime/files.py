"""Files on this machine: atomic writes, readable errors, free space of disks."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from emulator.errors import EmulatorError
from emulator.validation.units import format_size

MAKE_ROOM = "Make room, or choose another place."
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk, or of a share of it, that is full."""

FOR_RUNS = 2 * 2**30
"""Bytes that should be free for a run: logs, samples, checkpoints, disks of containers."""
RESERVE = 200 * 2**20
"""Bytes of a disk that a run under way leaves free, for its history, summary and report; of a small
disk a twentieth."""
FOR_IMAGES = 10 * 2**30
"""Bytes that should be free for the CPU image, its base and the builder's stages."""


def cache_dir(*parts: str) -> Path:
    """Return a folder in this user's cache (`~/.cache/emulator` on Linux); it may not exist yet."""
    from platformdirs import user_cache_path  # few commands have a cache

    return user_cache_path("emulator").joinpath(*parts)


FOR_OWNER = 0o700
"""The mode of a folder that only its owner can enter."""


def for_owner(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as `opener` of `open`: a new one can be opened by its owner only."""
    return os.open(path, flags, 0o600)


def appending(path: Path) -> io.FileIO:
    """Open a file for its owner only, to append to it without a buffer. Raises OSError."""
    return io.FileIO(path, "a", opener=for_owner)


def atomic_write(
    path: Path, content: str | bytes, *, many_writers: bool = False, private: bool = False
) -> None:
    """Write a file completely or not at all; text in UTF-8. Raises OSError.

    It is `<stem>.partial` until it is complete. With `many_writers` that has a unique name: several
    processes may write at the same time, and the last one replaces the file. A `private` file can
    be opened by its owner only.
    """
    unique = path.with_name(f"{path.name}.{uuid4().hex[:8]}.partial")
    partial = unique if many_writers else path.with_suffix(".partial")
    try:
        with open(partial, "wb", opener=for_owner if private else None) as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


@contextlib.contextmanager
def os_errors(kind: type[EmulatorError], what: str, hint: str = "") -> Iterator[None]:
    """Turn an OSError into an error of `kind` that reads `<what>: <reason>.`.

    The hint MAKE_ROOM becomes "Choose another place." where it is not the disk that is full.
    """
    try:
        yield
    except OSError as error:
        if hint == MAKE_ROOM and error.errno not in FULL:
            hint = "Choose another place."
        reason = error.strerror or error
        if isinstance(error, FileExistsError):  # where a folder has to be
            reason = os.strerror(errno.ENOTDIR)
        raise kind(f"{what}: {reason}.", hint) from None


@dataclass(frozen=True)
class Disk:
    """A folder that a run writes to, and the free space on its disk."""

    what: str
    folder: Path
    free: int
    """Bytes."""
    needed: int = FOR_RUNS
    """Bytes that should be free."""
    device: int = -1
    """The same for two folders on one disk; negative: unknown."""


def disk(what: str, folder: Path, needed: int = FOR_RUNS) -> Iterator[Disk]:
    """Yield the disk of a folder, or of its nearest parent that exists; none if unknown."""
    with contextlib.suppress(OSError, ValueError):
        path = next(path for path in (folder, *folder.parents) if path.exists())
        yield Disk(what, folder, shutil.disk_usage(path).free, needed, os.stat(path).st_dev)


def is_nearly_full(folder: Path) -> int | None:
    """Return how many bytes a folder's disk has left, if that is less than a run leaves free."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:  # what can't be asked can't be judged
        return None
    return usage.free if usage.free < min(RESERVE, usage.total // 20) else None


def shortages(disks: Iterable[Disk]) -> Iterator[str]:
    """Yield a warning for each disk with too little free space (pure)."""
    reported: set[int] = set()
    for one in sorted(disks, key=lambda one: -one.needed):
        if one.free >= one.needed or one.device in reported:
            continue
        reported |= {one.device} if one.device >= 0 else set()
        yield (
            f"the disk of {one.what} ({one.folder}) has {format_size(one.free)} left; "
            f"{format_size(one.needed)} or more should be free"
        )
