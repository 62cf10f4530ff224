"""The runs of a folder, as the list has them: read once, and again when their results change."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.analysis.listing import Listed, listed
from emulator.record.folder import RunFolder, runs_in
from emulator.record.lock import is_live
from emulator.record.reader import Record

FIGURES = ("final_step", "steps_per_second", "lost_steps", "worst_recovery", "goodput", "duration")
"""Those of a list and of a history."""

Stamp = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One run of a list."""

    listed: Listed
    live: bool
    stamp: Stamp

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.listed.run_id

    @property
    def order(self) -> tuple[bool, float]:
        """What rows are sorted by, the last one first: live ones, then the newest."""
        return self.live, self.listed.began or 0.0


class Listing:
    """The runs of a folder. Its methods may be called on any thread."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}

    def rows(self, names: Sequence[str] | None = None) -> list[Row]:
        """Return the runs that are there now, live ones first, then the newest; with `names` those.

        Only a run of which something has changed is read again.
        """
        found = [run for run in runs_in(self.out) if names is None or run.run_id in names]
        with self._lock:
            rows = {run.run_id: self._row(run) for run in reversed(found)}
            self._rows = rows if names is None else {**self._rows, **rows}
        return sorted(rows.values(), key=lambda row: row.order, reverse=True)

    def record(self, run_id: str) -> Record | None:
        """Return a run that is in the folder now; None: there is none of that name."""
        # No path is made of what a request says: only of what was found.
        found = next((run for run in runs_in(self.out) if run.run_id == run_id), None)
        return None if found is None else Record(found.path)

    def _row(self, run: RunFolder) -> Row:
        live, stamp = is_live(run.path), stamp_of(run.path)
        known = self._rows.get(run.run_id)
        if known is not None and (known.live, known.stamp) == (live, stamp):
            return known
        return Row(listed(run, FIGURES), live, stamp)


def stamp_of(folder: Path) -> Stamp:
    """Return what changes with the results of a run."""
    stamp: Stamp = ()
    for name in ("plan.json", "summary.json"):
        with contextlib.suppress(OSError):
            seen = os.stat(folder / name)
            stamp += (seen.st_ino, seen.st_size, seen.st_mtime_ns)
    return stamp
