"""Which files are one save, when it is over, and what becomes of it (pure).

`Saves` takes what `watch.py` has seen of files, one by one, and returns the events of the history:
one for a save, a read or a removal, however many calls that were. A save is over when its files are
closed, none has an unfinished name, and nothing has been written to them for QUIET seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.faults.saved_files import Checkpoint, File, checkpoints
from emulator.record.events import (
    CheckpointRead,
    CheckpointRemoved,
    CheckpointSaved,
    Entry,
    Witness,
)

QUIET = 0.5
"""Seconds without a write after which a save is over, and without a read after which a load is."""
OFTEN = 0.1
"""Seconds between two saves under one name at least, that both are told."""
LISTED = 16
"""Files of a save that its event names."""
FILES = 20_000
"""Files that are followed; more are not looked at."""


@dataclass
class _File:
    """A file that was written since the witness began."""

    size: int
    first: float
    last: float
    """When it was first and last written, or got its name (seconds since 1970)."""
    is_open: bool = False
    save: str = ""
    """The name of the save that it is known to belong to."""
    told: float = -math.inf
    """When that was told."""
    renamed: bool = False
    """It got this name after it was written."""


@dataclass
class _Load:
    """A save is being read, or the file of one that is being written."""

    began: float
    last: float
    opens: dict[str, int] = field(default_factory=dict)
    """How often each of its files was opened for that."""
    is_unfinished: bool = False

    def told(self, task: str, name: str) -> CheckpointRead:
        """Return the event of it."""
        return CheckpointRead(
            task=task,
            wall=self.began,
            path=name,
            times=max(self.opens.values()),
            seconds=round(self.last - self.began, 6),
            files=sorted(self.opens)[:LISTED],
            unfinished=self.is_unfinished,
        )


@dataclass
class _Place:
    """What is watched: the shared folder, or the disk of a task."""

    task: str
    """Empty: the shared one."""
    since: float
    """What was written before was not saved by the run: it came with the program."""
    files: dict[str, _File] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    """The files that were written, and of which nothing is told yet."""
    saves: dict[str, set[str]] = field(default_factory=dict)
    """The files of each save that is there."""
    loads: dict[str, _Load] = field(default_factory=dict)
    removed: dict[str, float] = field(default_factory=dict)
    """When saves lost a file, of which nothing is told yet."""

    def around(self, paths: Iterable[str]) -> set[str]:
        """Return the saves that have these files, or whose folder they are in."""
        found = {self.files[path].save for path in paths} - {""}
        for path in paths:
            place = path.find("/")
            while place >= 0:
                if path[:place] in self.saves:
                    found.add(path[:place])
                place = path.find("/", place + 1)
        return found

    def inside(self, folder: str) -> list[str]:
        """Return the files in a folder."""
        return [path for path in self.files if path.startswith(f"{folder}/")]

    def quiet_ones(self) -> Iterator[_File]:
        """Yield the files of which something may be told without another event."""
        yield from (self.files[path] for path in self.waiting if not self.files[path].is_open)


class Saves:
    """Follows the files of a run."""

    def __init__(self, tasks: Iterable[str]) -> None:
        self._shared = _Place("", 0.0)
        self._own = {task: _Place(task, math.inf) for task in tasks}
        self._is_full = False

    @property
    def _places(self) -> Sequence[_Place]:
        return [self._shared, *self._own.values()]

    def runs(self, task: str, at: float) -> None:
        """Take note that a task runs: what is written to its disk from now on is its own."""
        if task in self._own:
            self._own[task].since = at

    def ended(self, task: str) -> None:
        """Take note that a task has ended: its disk may be removed, and filled again."""
        if task in self._own:
            self._own[task].since = math.inf

    def see(self, told: Mapping[str, Any]) -> list[Entry]:
        """Take what was seen of a file; return what follows from it at once."""
        at, saw = float(told["at"]), told["saw"]
        if saw == "watching":
            return [Witness(wall=at, sees=True, own=bool(told.get("own")))]
        place, path = self._place_of(told["in"], told["path"])
        if saw == "blind":
            task = place.task if place else ""
            return [Witness(task=task, wall=at, sees=False, path=path, reason=told["why"])]
        if place is None or (saw != "removed" and at < place.since):
            return []
        entries: list[Entry] = []
        match saw:
            case "open":
                entries += self._by_now(place, path, at)
                self._open(place, path, at)
            case "written":
                entries += self._by_now(place, path, at)
                self._written(place, path, told)
            case "moved":
                to = self._place_of(told["in"], told["to"])[1]
                entries += [*self._read_by_now(place, path), *self._by_now(place, to, at)]
                self._moved(place, path, to, at, is_folder=told.get("folder", False))
                for one, size in {to: told.get("bytes"), **told.get("sizes", {})}.items():
                    if one in place.files and size is not None:
                        place.files[one].size = size
            case "removed":
                if path in place.loads and path in place.waiting:
                    entries += self._by_now(place, path, at)
                self._removed(place, path, at, is_folder=told.get("folder", False))
            case "read":
                self._read(place, path, at)
        if len(place.files) >= FILES and not self._is_full:
            self._is_full = True
            why = f"{FILES:,} files are followed already"
            entries.append(Witness(task=place.task, wall=at, sees=False, reason=why))
        return entries

    def _place_of(self, watched: str, path: str) -> tuple[_Place | None, str]:
        """Return what a path is on, and the rest of it: each task has a folder in `own`."""
        if watched != "own":
            return self._shared, path
        task, _, rest = path.partition("/")
        return self._own.get(task), rest

    @property
    def due(self) -> float:
        """When `settle` has something to tell if nothing happens (seconds since 1970)."""
        times = [
            *(file.last for place in self._places for file in place.quiet_ones()),
            *(load.last for place in self._places for load in place.loads.values()),
            *(at for place in self._places for at in place.removed.values()),
        ]
        return max(times) + QUIET if times else math.inf

    def settle(self, now: float) -> list[Entry]:
        """Return what is over by now: saves, loads, removals; infinite: the job has ended."""
        return [one for place in self._places for one in self._settle(place, now)]

    # --- What was seen ----------------------------------------------------------------------------

    def _open(self, place: _Place, path: str, at: float) -> None:
        if len(place.files) < FILES:
            file = place.files.setdefault(path, _File(0, at, at))
            if not file.is_open and path not in place.waiting:
                file.first = at
            file.is_open, file.last = True, at
            place.waiting.add(path)

    def _written(self, place: _Place, path: str, told: Mapping[str, Any]) -> None:
        if path not in place.files and len(place.files) >= FILES:
            return
        before = place.files.get(path)
        first, save = float(told["first"]), "" if before is None else before.save
        when = -math.inf if before is None else before.told
        if before is not None and path in place.waiting:
            first = min(first, before.first)
        place.files[path] = _File(
            told["bytes"] or 0, first, float(told["at"]), save=save, told=when
        )
        place.files[path].renamed = bool(told.get("renamed"))
        place.waiting.add(path)

    def _moved(self, place: _Place, path: str, to: str, at: float, *, is_folder: bool) -> None:
        inside = place.inside(path) if is_folder else place.files.keys() & {path}
        for old in inside:
            new = to + old[len(path) :]
            file = place.files.pop(old)
            if file.save:
                self._lose(place, old, file, at)
            file.last, file.save, file.renamed = at, "", True
            if (replaced := place.files.get(new)) is not None and replaced.save:
                file.save, file.told = replaced.save, replaced.told
            place.waiting.discard(old)
            place.files[new] = file
            place.waiting.add(new)

    def _removed(self, place: _Place, path: str, at: float, *, is_folder: bool) -> None:
        inside = place.inside(path) if is_folder else place.files.keys() & {path}
        for old in inside:
            file = place.files.pop(old)
            place.waiting.discard(old)
            if file.save:
                self._lose(place, old, file, at)

    def _lose(self, place: _Place, path: str, file: _File, at: float) -> None:
        place.saves[file.save].discard(path)
        place.removed.setdefault(file.save, at)

    def _read(self, place: _Place, path: str, at: float) -> None:
        file = place.files.get(path)
        if file is not None and (file.save or path in place.waiting):
            load = place.loads.setdefault(file.save or path, _Load(at, at))
            load.last = at
            load.opens[path] = load.opens.get(path, 0) + 1
            load.is_unfinished |= file.is_open

    def _by_now(self, place: _Place, path: str, at: float) -> Iterator[Entry]:
        """Tell of the save that a file is of, and how it was read, before it is another one."""
        file = place.files.get(path)
        if file is not None and path in place.waiting and not file.is_open:
            if at - file.told >= OFTEN or path in place.loads:
                yield from self._saved(place, at, only=path)
            place.waiting.discard(path)
        yield from self._read_by_now(place, path)

    def _read_by_now(self, place: _Place, path: str) -> Iterator[Entry]:
        file = place.files.get(path)
        for name in {path, path if file is None else file.save} & place.loads.keys():
            yield from self._load(place, name)

    def _load(self, place: _Place, name: str) -> Iterator[Entry]:
        """Tell how a save was read, or a file as soon as it was there."""
        load = place.loads.pop(name)
        file = place.files.get(name)
        save = name if file is None else file.save
        if save or (load.is_unfinished and checkpoints([File(name)])):
            yield load.told(place.task, save or name)

    # --- What is over -----------------------------------------------------------------------------

    def _settle(self, place: _Place, now: float) -> Iterator[Entry]:
        yield from self._saved(place, now)
        for name, load in [*place.loads.items()]:
            if now - load.last >= QUIET and (name not in place.waiting or now == math.inf):
                yield from self._load(place, name)
        for name, at in [*place.removed.items()]:
            if now - at >= QUIET:
                del place.removed[name]
                left = len(place.saves.get(name, ()))
                if not left:
                    place.saves.pop(name, None)
                    place.loads.pop(name, None)
                yield CheckpointRemoved(task=place.task, wall=at, path=name, left=left)

    def _saved(self, place: _Place, now: float, only: str = "") -> Iterator[Entry]:
        """Yield the saves that are over, or the one that a file belongs to."""
        if not place.waiting:
            return
        # What is written again, or into its folder, belongs to a save that is there.
        names = place.around(place.waiting)
        parts = {path for name in names for path in place.saves[name]} | place.waiting
        files = [File(p, place.files[p].size, int(place.files[p].last * 1e9)) for p in parts]
        known = set[str]()
        for one in checkpoints(files):
            paths = {file.path for file in one.files}
            known |= paths
            mine = [place.files[path] for path in paths]
            is_over = all(not file.is_open and now - file.last >= QUIET for file in mine)
            if (is_over or only in paths) and paths & place.waiting:
                yield self._save(place, one, paths)
        for path in [*place.waiting]:  # of no save, or not whole yet
            file = place.files[path]
            if path not in known and not file.is_open and now - file.last >= QUIET:
                place.waiting.discard(path)

    def _save(self, place: _Place, one: Checkpoint, paths: set[str]) -> Entry:
        written = [place.files[path] for path in paths if path in place.waiting]
        place.waiting -= paths
        place.removed.pop(one.name, None)
        began, ended = min(f.first for f in written), max(f.last for f in written)
        for path in paths:
            place.files[path].save = one.name
            place.files[path].told = ended
        place.saves[one.name] = set(paths)
        listed = sorted(paths)[:LISTED]
        return CheckpointSaved(
            task=place.task,
            wall=ended,
            path=one.name,
            format=one.format,
            bytes=one.size,
            seconds=max(0.0, round(ended - began, 6)),
            files={path: place.files[path].size for path in listed},
            count=len(paths),
            renamed=max(written, key=lambda file: file.last).renamed,
        )
