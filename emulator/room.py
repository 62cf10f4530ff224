"""Disks that a run writes to, and whether one is nearly full."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from emulator.units import format_size

__all__ = ["FOR_IMAGES", "FOR_RUNS", "Disk", "disk", "shortages"]

FOR_RUNS = 2 * 2**30
"""Bytes that a run should find free: logs, samples, checkpoints, what containers write."""
FOR_IMAGES = 10 * 2**30
"""Bytes for the CPU image, its base and the builder's stages, with some to spare."""


@dataclass(frozen=True)
class Disk:
    """A folder that a run writes to, and what its disk has left."""

    what: str
    folder: Path
    free: int
    """Bytes."""
    wanted: int = FOR_RUNS
    """Bytes."""
    device: int = -1
    """Two folders with the same one share a disk; negative: not known."""


def disk(what: str, folder: Path, wanted: int = FOR_RUNS) -> Iterator[Disk]:
    """Yield the disk below a folder, or below the nearest one that is there; none if unknown."""
    with contextlib.suppress(OSError, ValueError):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        yield Disk(what, folder, shutil.disk_usage(there).free, wanted, os.stat(there).st_dev)


def shortages(disks: Iterable[Disk]) -> Iterator[str]:
    """Yield a sentence for each disk that has less left than is wanted of it (pure)."""
    said: set[int] = set()
    for one in sorted(disks, key=lambda one: -one.wanted):
        if one.free >= one.wanted or one.device in said:
            continue
        said |= {one.device} if one.device >= 0 else set()
        yield (
            f"the disk of {one.what} ({one.folder}) has {format_size(one.free)} left; "
            f"{format_size(one.wanted)} or more should be free"
        )
