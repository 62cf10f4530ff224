"""Ends a run before a disk that it writes to is full: its results need some room."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emulator.errors import RecordError
from emulator.files import MAKE_ROOM, is_nearly_full
from emulator.supervisor.timers import Timers
from emulator.validation.units import format_size

EVERY = 0.5
"""Seconds between two looks at the disks."""


class DiskWatch:
    """Looks at the disks of some folders as long as a run is under way."""

    def __init__(self, folders: Sequence[Path], timers: Timers) -> None:
        self._folders, self._timers = folders, timers

    def begin(self) -> None:
        """Look now and then again and again. Raises RecordError where a disk is nearly full."""
        for folder in self._folders:
            if (free := is_nearly_full(folder)) is not None:
                raise RecordError(
                    f"The disk of {folder} has {format_size(free)} left: the run ends before the "
                    "disk is full, while there is room for its results.",
                    MAKE_ROOM,
                )
        self._timers.after(EVERY, self.begin)
