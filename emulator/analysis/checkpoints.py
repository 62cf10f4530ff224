"""The saves of a run, and what a task that goes on has loaded of them (pure).

The witness sees that a file is read, and on /shared not by whom. A task that starts again, or that
reports a restore, has loaded what was read meanwhile, as far as its step and its rank agree.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from emulator.analysis.saves import GONE, LATE, MADE, NEAR, STALE, Change, Save, saves_of
from emulator.analysis.setbacks import Begin, begin_of
from emulator.faults.checkpoint import Checkpoint
from emulator.faults.saved_files import PART, names, numbers
from emulator.record.events import (
    Attached,
    CheckpointRead,
    Phase,
    Step,
    Witness,
)

if TYPE_CHECKING:
    from emulator.record.timeline import Incarnation, Timeline


ABOUT = 2
"""Steps by which one that is not certain may be wrong."""
LISTED = 100
"""Saves that a summary has, besides those that were loaded."""


@dataclass(frozen=True)
class Read:
    """A save was read."""

    entry: CheckpointRead
    save: Save | None
    """None: a fault has made it, or how it was saved was not seen."""
    broken: Mapping[str, Change]
    """By file, what had been done to it by then."""

    @property
    def step(self) -> int | None:
        """The step of the save; of what a fault made, the number in its name."""
        if self._is_made:
            return names([self.entry.path])[self.entry.path].step
        return None if self.entry.unfinished or self.save is None else self.save.step

    @property
    def is_exact(self) -> bool:
        """Whether the step is certain."""
        is_known = self.save is not None and self.save.is_exact and not self.entry.unfinished
        return self._is_made or is_known

    @property
    def _is_made(self) -> bool:
        return self.save is None and any(one.how == MADE for one in self.broken.values())

    def is_of(self, least: int, most: int) -> bool:
        """Return whether it is certainly the save of one of these steps."""
        return self.is_exact and self.step is not None and least <= self.step <= most

    def is_near(self, least: int, most: int) -> bool:
        """Return whether it is about of one of these steps."""
        return self.step is not None and least - ABOUT <= self.step <= most + ABOUT


@dataclass(frozen=True)
class Loaded:
    """A task went on: what it has loaded for that, as far as it was seen."""

    task: str
    rank: int | None
    """Its place among the tasks of the training."""
    life: Incarnation
    since: float
    at: float
    """When it reported that, or made its first step."""
    report: Phase | None
    """None: it has reported no restore."""
    begin: Begin | None
    """From where its steps go on; None: no step followed."""
    begins_anew: bool
    """It began where it had begun at first."""
    reads: Sequence[Read] = ()
    """What it has loaded; several: one of them."""
    fits: bool = True
    """It goes on from the step of what was read."""
    others: Sequence[Read] = ()
    """What else was read meanwhile."""

    @property
    def step(self) -> int | None:
        """The step that it has reported."""
        return None if self.report is None else self.report.step

    @property
    def from_scratch(self) -> bool:
        """Whether it has loaded nothing, by its steps and reports."""
        return self.step == 0 or (self.begins_anew and self.step is None)

    @property
    def resumed(self) -> int | None:
        """The step that it went on from, by its report, or else by what it has read."""
        steps = {read.step if read.is_exact else None for read in self.reads}
        return steps.pop() if self.step is None and len(steps) == 1 else self.step

    @property
    def is_first(self) -> bool:
        """Whether it is the first of its life."""
        return self.since == self.life.begin

    @property
    def read_at(self) -> float:
        """When it has loaded that."""
        return self.at if self.report or not self.reads else self.reads[0].entry.t

    @property
    def is_of_ranks(self) -> bool:
        """Whether each rank has files of its own in what was loaded."""
        paths = [path for read in self.reads for path in read.entry.files]
        return bool(_of_rank(paths, self.rank))

    @property
    def words(self) -> str:
        """It as the beginning of a sentence."""
        if self.step is not None:
            return f"{self.task} restored step {self.step}"
        path = self.reads[0].entry.path if self.reads else "a checkpoint"
        return f"{self.task} loaded {path}"

    def states(self) -> dict[str, bool | None]:
        """Return what was wrong with what it may have loaded: certain, or not known (None).

        The key is empty for what was whole.
        """
        found: dict[str, bool | None] = {}
        own = _of_rank([read.entry.path for read in self.reads], self.rank)
        for read in self.reads:
            if own and read.entry.path not in own:
                continue
            why, is_sure = _wrong(read, self.rank)
            found[why] = is_sure if self.fits else None
        return found


def _wrong(read: Read, rank: int | None) -> tuple[str, bool | None]:
    """Return what was wrong with a save when it was read, and whether that is certain."""
    own = _of_rank(read.entry.files, rank) or read.entry.files
    broken = [change for path, change in read.broken.items() if path in own or not own]
    path = f"{read.entry.path}, which " if read.save is None or read.save.step is None else "which "
    if broken:
        return path + broken[0].words, True
    if read.entry.unfinished:
        return f"{path}was being written then", True
    if read.save is not None and read.save.whole is not True:
        return f"{path}was not whole: {read.save.why}", read.save.whole is False or None
    return "", False


def _of_rank(files: Iterable[str], rank: int | None) -> list[str]:
    """Return the files that have a rank as the number of a part, if some have other ones."""
    parts = {
        path: {one.value for one in numbers(path) if one.kind == PART} for path in files
    }  # of a path of several, the one that differs
    if len({frozenset(values) for values in parts.values()}) < 2:
        return []
    return [path for path, values in parts.items() if rank in values]


@lru_cache(maxsize=1)
def checkpoints_of(timeline: Timeline) -> Checkpoints:
    """Return the saves of a run, which several ask for one after the other."""
    return Checkpoints(timeline)


class Checkpoints:
    """The saves of a run, and what its tasks loaded of them."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        evaluators = timeline.plan.evaluators
        training = [task.name for task in timeline.plan.in_training]
        self._ranks = [name for name in training if name not in evaluators]
        self._sight = [e for e in timeline.history if isinstance(e, Witness | Attached)]
        self.saves, self.changes = saves_of(timeline)
        self._alike: dict[tuple[str, str], list[Save]] = {}
        """By place, and by the name or a file."""
        for save in self.saves:
            for path in {save.path, *save.files}:
                self._alike.setdefault((save.task, path), []).append(save)
        reads = [e for e in timeline.history if isinstance(e, CheckpointRead)]
        self.reads: Sequence[Read] = [self._read(e) for e in reads]
        """In the order in which they began."""
        self._longest = max((e.seconds for e in reads), default=0.0)
        self.loaded: Sequence[Loaded] = sorted(self._loaded(), key=lambda one: one.at)
        """Each time that a task went on, or reported that it had restored something, in order."""

    def sees(self, task: str, since: float, until: float) -> bool:
        """Return whether all that a task may have read or written in a time was seen."""
        sees = own = False
        for one in self._sight:
            if one.t > until:
                break
            if isinstance(one, Attached):
                sees = False
            elif one.sees:
                sees, own = sees or one.t <= since, one.own
            elif one.task in ("", task):
                return False
        return sees and (own or not task)

    def as_data(self) -> list[dict[str, Any]]:
        """Return the saves and who has loaded each, for `summary.json`; of many the last ones.

        Those that were loaded are always among them.
        """
        loaded: dict[int, list[dict[str, Any]]] = {}
        for one in self.loaded:
            is_sure = len(one.reads) == 1
            for read in one.reads:
                if read.save is not None:
                    who = {"task": one.task, "at": round(one.at, 4), "sure": is_sure}
                    loaded.setdefault(id(read.save), []).append(who)
        last = {id(save) for save in self.saves[-LISTED:]} | loaded.keys()
        return [
            {
                "path": save.path,
                "task": save.task,
                "format": save.format,
                "step": save.step if save.is_exact else None,
                "saved": round(save.ended, 4),
                "seconds": round(save.ended - save.began, 4),
                "bytes": save.bytes,
                "files": save.count,
                "whole": save.whole,
                "why": save.why,
                "broken": next((one.in_short for one in self._broken_by(save)), ""),
                "removed": None if math.isinf(save.removed) else round(save.removed, 4),
                "loaded": loaded.get(id(save), []),
            }
            for save in self.saves
            if id(save) in last
        ]

    def _broken_by(self, save: Save) -> Iterator[Change]:
        """Yield what faults did to a save while it was there."""
        for change in self.changes:
            is_there = save.ended < change.t < save.removed + LATE
            if change.task == save.task and change.path in save.files and is_there:
                yield change

    def rivals(self, one: Loaded) -> Sequence[str]:
        """Return the tasks that went on at the same time, and may have read the same."""
        names = {
            other.task
            for other in self.loaded
            if other.task != one.task and other.since <= one.at and one.since <= other.at
        }
        return sorted(names)

    def saved_in(
        self, task: str, since: float, until: float, *, unsure: bool = False
    ) -> Sequence[Save]:
        """Return the whole saves that ended in a time, where a task may save."""
        return [
            save
            for save in self.saves
            if save.task in ("", task) and since < save.ended <= until
            if save.whole or (unsure and save.whole is None)
        ]

    def there(self, task: str, at: float) -> Sequence[Save]:
        """Return the saves that a task could have loaded at a time, and that may be whole.

        Those that a fault had broken or removed are left out.
        """
        there = [save for save in self._before(task, at) if save.removed > at]
        return [save for save in there if not self._is_broken(save, at)]

    def complete(self, task: str, at: float) -> Sequence[Save]:
        """Return the same, and what was saved over since: those that were whole at some time."""
        again = {(save.task, save.path, save.ended) for save in self.saves}
        return [
            save
            for save in self._before(task, at)
            if save.removed > at or (save.whole and (save.task, save.path, save.removed) in again)
            if not self._is_broken(save, at)
        ]

    def was_newest(self, fault: str, task: str, at: float) -> bool | None:
        """Return whether a fault had broken or removed the newest that a task could have loaded.

        Or had made what looks newer. None: it is not known, since nothing was seen of either.
        """
        own = [one for one in self.changes if one.fault == fault and one.task in ("", task)]
        before = self._before(task, at)
        last = [save for save in before if save.removed > at or self._is_broken(save, at)][-1:]
        if not own or not last:
            return None
        if own[0].how == MADE:
            return last[0].ended < own[0].t
        return any(one.path in last[0].files and one.t > last[0].ended for one in own)

    def taken_by_faults(self, task: str, at: float) -> bool:
        """Return whether faults had broken or removed all that a task could have loaded."""
        before = self._before(task, at)
        left = [save for save in before if save.removed > at or self._is_broken(save, at)]
        return bool(left) and all(self._is_broken(save, at) for save in left)

    def _before(self, task: str, at: float) -> list[Save]:
        return [
            save
            for save in self.saves
            if save.task in ("", task) and save.ended < at and save.whole is not False
        ]

    def _is_broken(self, save: Save, at: float) -> bool:
        return any(change.t < at for change in self._broken_by(save))

    def _read(self, entry: CheckpointRead) -> Read:
        # A save may be told under another name once there are others beside it.
        keys = [(entry.task, path) for path in (*entry.files, entry.path)]
        alike = next((self._alike[key] for key in keys if key in self._alike), [])
        place = bisect_right(alike, entry.t, key=lambda one: one.ended)
        near = reversed(alike[max(0, place - 1) : place + 1])
        save = next((one for one in near if one.is_there(entry.t)), None)
        files = entry.files or ([entry.path] if save is None else [*save.files])
        broken = {
            change.path: change
            for change in self.changes
            if change.task == entry.task
            and change.path in files
            and (change.t, change.n) < (entry.t, entry.n)
            and change.how != GONE
            and not self._is_saved_again(change, entry.t)
        }
        return Read(entry, save, broken)

    def _is_saved_again(self, change: Change, until: float) -> bool:
        return any(
            save.task == change.task
            and change.path in save.files
            and change.t < save.ended <= until
            for save in self.saves
        )

    def _loaded(self) -> Iterator[Loaded]:
        evaluators = self._timeline.plan.evaluators
        for task in self._timeline.tasks.values():
            origin = next((one.steps for one in task.incarnations if one.steps), [])
            rank = self._ranks.index(task.name) if task.name in self._ranks else None
            for life in task.incarnations:
                since, steps = life.begin, life.steps
                reports = [
                    one
                    for one in life.reports
                    if isinstance(one, Phase) and (one.phase, one.state) == ("restore", "end")
                ]
                is_again = life is not task.incarnations[0] and task.name not in evaluators
                ends: list[Phase | Step] = [*reports]
                if not reports and is_again:
                    ends = [*steps[:1]]
                for end in ends:
                    later = [step for step in steps if step.t >= end.t]
                    begin = begin_of(task, later, origin) if later else None
                    first = begin_of(task, origin, []) if origin else Begin(0, 0)
                    is_anew = begin is not None and steps != origin and begin.least <= first.most
                    report = end if isinstance(end, Phase) else None
                    one = Loaded(task.name, rank, life, since, end.t, report, begin, is_anew)
                    seen = self._between(task.name, since, end.t)
                    reads, fits = _matching(one, seen)
                    others = [read for read in seen if read not in reads]
                    yield replace(one, reads=reads, fits=fits, others=others)
                    since = end.t

    def _between(self, task: str, since: float, until: float) -> Sequence[Read]:
        """Return what may have been read by a task in a time, without what faults read."""
        for before, after in ((NEAR, NEAR), (0.0, LATE)):
            begin = since + (before if since else 0.0)
            first = bisect_left(self.reads, begin - self._longest, key=_when)
            last = bisect_right(self.reads, until + after, key=_when)
            found = [
                read
                for read in self.reads[first:last]
                if read.entry.task in ("", task)
                and read.entry.t + read.entry.seconds >= begin
                and not self._is_of_fault(read.entry)
            ]
            if found:
                return found
        return ()

    def _is_of_fault(self, entry: CheckpointRead) -> bool:
        """Return whether a fault has read what it was about to change."""
        for fault in self._timeline.faults.values():
            triggered, applied = fault.stages.get("triggered"), fault.stages.get("applied")
            if fault.kind != Checkpoint.kind or triggered is None or applied is None:
                continue
            if (
                triggered.t <= entry.t <= applied.t
                and entry.times == 1
                and any(
                    (change.fault, change.task) == (fault.id, entry.task)
                    and (entry.t, entry.n) < (change.t, change.n)
                    for change in self.changes
                )
            ):
                return True
        return False


def _matching(found: Loaded, reads: Sequence[Read]) -> tuple[Sequence[Read], bool]:
    """Return which of the saves that were read a task may have loaded, and whether its step fits.

    Some count their steps from 0.
    """
    if not reads or found.from_scratch:
        return (), True
    ranges = [] if found.step is None else [(found.step, found.step)]
    if found.begin is not None and not found.begins_anew:
        ranges.append((found.begin.least, found.begin.most))
    for least, most in ranges:  # what it reports may contradict how it goes on
        for near in (0, 1):
            if fit := [one for one in reads if one.is_of(least - near, most + near)]:
                return fit, True
        about = [one for one in reads if not one.is_exact]
        if about := [one for one in about if one.step is None or one.is_near(least, most)]:
            return about, True
    if not ranges:
        return reads, False
    if len({one.entry.path for one in reads}) > 1:
        return (), True
    # Its content is not what its name says, or its steps are counted in another way.
    is_older = any(change.how == STALE for one in reads for change in one.broken.values())
    return (reads if is_older or found.step is None else ()), is_older


def _when(read: Read) -> float:
    return read.entry.t
