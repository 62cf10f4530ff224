"""Which saves a run made, which of them were whole, and what a task that goes on has loaded (pure).

Saves and loads are what the witness saw of files (`emulator/witness`). Of a file on /shared nobody
sees which task reads it: a task that starts again, or reports a restore, has read what was read
meanwhile, as far as its step and its rank agree with that.

A save is whole if its files were closed and renamed by the task that wrote them. The kernel closes
them as well when a task is killed. So what was closed from then on counts as cut off, or as unsure,
unless it was renamed, its end was reported, or it is as large as the one before it.

What a fault did to a file looks like a save, and is told apart by what the fault says it changed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from emulator.analysis.setbacks import Begin, begin_of
from emulator.faults.checkpoint import Checkpoint
from emulator.faults.saved_files import PART, names, numbers
from emulator.record.events import (
    Attached,
    CheckpointRead,
    CheckpointRemoved,
    CheckpointSaved,
    Phase,
    Step,
    TaskExit,
    Witness,
)

if TYPE_CHECKING:
    from emulator.record.timeline import FaultTimeline, Incarnation, TaskTimeline, Timeline

NEAR = 0.1
"""Seconds by which what the witness saw may be stamped later than a line that was printed then."""
SAME = 0.001
"""Seconds by which two stamps of one clock may be in the wrong order."""
LATE = 1.0
"""The same on a machine that is very busy."""
CLOSED = 0.5
"""Seconds after an exit until which the kernel closes the files of a task."""
CRASH = 3.0
"""Seconds before an exit with an error from which on a file may have been closed by that error."""
MADE = "empty-newer"
"""How a fault makes a file."""
GONE = "missing"
"""How a fault removes a file, rather than to change it."""
KILLED = 1.0
"""Seconds before the exit of a task whose grace period was over in which it was killed."""


@dataclass(frozen=True)
class Save:
    """A save, as the witness saw it. What is saved under the same name later is another one."""

    task: str
    """On whose disk it is; empty: on /shared."""
    path: str
    format: str
    bytes: int
    files: Mapping[str, int]
    """Bytes of its files by path; at most 16."""
    count: int
    began: float
    ended: float
    """When it was first and last written, or renamed."""
    renamed: bool
    """It got its name when it was written."""
    step: int | None = None
    is_exact: bool = False
    """The step was reported, or is in its name and fits to what was trained then; otherwise it is
    that of the last step before it."""
    whole: bool | None = True
    """None: it is not known."""
    why: str = ""
    """Why it is not whole, or that is not known."""
    removed: float = math.inf
    """When a file of it was removed, or it was saved again."""

    @property
    def where(self) -> str:
        """It in words."""
        return f"{self.path} on {f'the disk of {self.task}' if self.task else '/shared'}"


@dataclass(frozen=True)
class Change:
    """What a fault did to the content of a file."""

    t: float
    n: int
    """Of the event with which it was seen: what was told before it happened before it."""
    fault: str
    how: str
    task: str
    """On whose disk; empty: on /shared."""
    path: str

    @property
    def words(self) -> str:
        """It as the end of a sentence."""
        return f"fault {self.fault} had broken ({self.how})"


@dataclass(frozen=True)
class Read:
    """A save was read."""

    entry: CheckpointRead
    save: Save | None
    """None: it was made by a fault."""
    broken: Mapping[str, Change]
    """By file, what had been done to it by then."""

    @property
    def step(self) -> int | None:
        """The step of the save; of what a fault made, the number in its name."""
        if self.save is None:
            return names([self.entry.path])[self.entry.path].step
        return None if self.entry.unfinished else self.save.step

    @property
    def is_exact(self) -> bool:
        """Whether the step is certain."""
        return self.save is None or (self.save.is_exact and not self.entry.unfinished)


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
    others: Sequence[Read] = ()
    """What else was read meanwhile."""
    rivals: Sequence[str] = ()
    """Tasks that went on at the same time, and may have read the same."""

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
            found[why] = is_sure
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
        told = [e for e in timeline.history if isinstance(e, CheckpointSaved)]
        changes, own, began_before = _changes(timeline, told)
        self.changes: Sequence[Change] = changes
        """What faults did to files, in order."""
        saves = [_save(e, began_before.get(e.n)) for e in told if e.n not in own]
        saves = _with_steps(timeline, _with_ends(timeline, saves))
        self.saves: Sequence[Save] = _with_wholeness(timeline, saves)
        """In the order in which they ended."""
        reads = [e for e in timeline.history if isinstance(e, CheckpointRead)]
        self.reads: Sequence[Read] = [self._read(e) for e in reads]
        self.loaded: Sequence[Loaded] = _with_rivals([*self._loaded()])
        """Each time that a task went on, or reported that it had restored something, in order."""

    @property
    def is_seen(self) -> bool:
        """Whether a witness saw files at all."""
        return any(isinstance(one, Witness) and one.sees for one in self._sight)

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
        return any(
            change.task == save.task
            and change.path in save.files
            and save.ended < change.t < min(at, save.removed + LATE)
            for change in self.changes
        )

    def _read(self, entry: CheckpointRead) -> Read:
        before = [
            save
            for save in self.saves
            if (save.task, save.path) == (entry.task, entry.path)
            and (save.ended if save.renamed else save.began) <= entry.t
        ]
        save = before[-1] if before else None
        files = entry.files or ([entry.path] if save is None else [*save.files])
        broken = {}
        for change in self.changes:
            is_before = (change.t, change.n) < (entry.t, entry.n)
            if (
                change.task == entry.task
                and change.path in files
                and is_before
                and change.how != GONE
            ):
                is_saved_again = any(
                    change.path in other.files and change.t < other.ended <= entry.t
                    for other in self.saves
                    if other.task == entry.task
                )
                if not is_saved_again:
                    broken[change.path] = change
        return Read(entry, save, broken)

    def _loaded(self) -> Iterator[Loaded]:
        evaluators = self._timeline.plan.evaluators
        for task in self._timeline.tasks.values():
            origin = next((one.steps for one in task.incarnations if one.steps), [])
            for life in task.incarnations:
                since, count = life.begin, 0
                reports = [
                    one
                    for one in life.reports
                    if isinstance(one, Phase) and (one.phase, one.state) == ("restore", "end")
                ]
                for report in reports:
                    steps = [step for step in life.steps if step.t >= report.t]
                    yield self._goes_on(task, life, since, report.t, report, steps, origin)
                    since, count = report.t, count + 1
                is_again = life is not task.incarnations[0] and task.name not in evaluators
                if not count and is_again and life.steps:
                    steps = life.steps
                    yield self._goes_on(task, life, since, steps[0].t, None, steps, origin)

    def _goes_on(
        self,
        task: TaskTimeline,
        life: Incarnation,
        since: float,
        at: float,
        report: Phase | None,
        steps: Sequence[Step],
        origin: Sequence[Step],
    ) -> Loaded:
        begin = begin_of(task, steps, origin) if steps else None
        first = begin_of(task, origin, []) if origin else Begin(0, 0)
        is_anew = begin is not None and life.steps != origin and begin.least <= first.most
        rank = self._ranks.index(task.name) if task.name in self._ranks else None
        found = Loaded(task.name, rank, life, since, at, report, begin, is_anew)
        seen = self._between(task.name, since, at)
        reads = _matching(found, seen)
        return replace(found, reads=reads, others=[one for one in seen if one not in reads])

    def _between(self, task: str, since: float, until: float) -> Sequence[Read]:
        """Return what may have been read by a task in a time, without what faults read."""
        for before, after in ((NEAR, NEAR), (0.0, LATE)):
            found = [
                read
                for read in self.reads
                if read.entry.task in ("", task)
                and read.entry.t + read.entry.seconds >= since + (before if since else 0.0)
                and read.entry.t <= until + after
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


def _matching(found: Loaded, reads: Sequence[Read]) -> Sequence[Read]:
    """Return which of the saves that were read a task may have loaded, by its step."""
    if not reads or found.from_scratch:
        return ()
    if found.step is not None:
        least = most = found.step
    elif found.begin is not None:
        least, most = found.begin.least, found.begin.most
    else:
        return reads
    exact = [one for one in reads if one.is_exact and one.step is not None]
    fit = [one for one in exact if one.step is not None and least <= one.step <= most]
    if fit:
        return fit
    about = [
        one
        for one in reads
        if not one.is_exact and (one.step is None or least - 2 <= one.step <= most + 2)
    ]
    if about:
        return about
    paths = {one.entry.path for one in reads}
    # Its content is not what its name says, or its steps are counted in another way.
    return reads if len(paths) == 1 and (found.step is None or _is_changed(reads)) else ()


def _is_changed(reads: Sequence[Read]) -> bool:
    return any(one.broken for one in reads)


def _with_rivals(loaded: Sequence[Loaded]) -> Sequence[Loaded]:
    found = []
    for one in sorted(loaded, key=lambda each: each.at):
        rivals = {
            other.task
            for other in loaded
            if other.task != one.task and other.since <= one.at and one.since <= other.at
        }
        found.append(replace(one, rivals=sorted(rivals)))
    return found


# --- Saves ----------------------------------------------------------------------------------------


def _save(entry: CheckpointSaved, ended: float | None) -> Save:
    return Save(
        task=entry.task,
        path=entry.path,
        format=entry.format,
        bytes=entry.bytes,
        files=entry.files,
        count=entry.count,
        began=entry.t - entry.seconds,
        ended=entry.t if ended is None else ended,
        renamed=entry.renamed,
    )


def _with_ends(timeline: Timeline, saves: Sequence[Save]) -> list[Save]:
    """Return saves with when they were gone, or replaced by another one."""
    gone: dict[tuple[str, str], list[float]] = {}
    for entry in timeline.history:
        if isinstance(entry, CheckpointRemoved):
            gone.setdefault((entry.task, entry.path), []).append(entry.t)
    for save in saves:
        gone.setdefault((save.task, save.path), []).append(save.ended)
    found = []
    for save in sorted(saves, key=lambda one: one.ended):
        later = [t for t in gone[save.task, save.path] if t > save.ended]
        found.append(replace(save, removed=min(later, default=math.inf)))
    return found


def _changes(
    timeline: Timeline, told: Sequence[CheckpointSaved]
) -> tuple[list[Change], set[int], dict[int, float]]:
    """Return what faults did to files, and the events that are of that alone.

    Also those that are of a save with it: when its last file had been written before.
    """
    found: list[Change] = []
    own: set[int] = set()
    before: dict[int, float] = {}
    for fault in timeline.faults.values():
        applied = fault.stages.get("applied")
        if fault.kind != Checkpoint.kind or applied is None or not applied.changed:
            continue
        done = applied.changed
        wall = float(done.get("at", applied.wall))
        task = fault.planned.target if fault.planned.target in timeline.tasks else ""
        aims = _aims(fault, done)
        event = _event_of(aims, task, wall, applied.wall, told)
        t, n = min(applied.t - applied.wall + wall, applied.t), applied.n
        if event is not None:
            began = event.wall - event.seconds
            written = [aim["mtime_ns"] / 1e9 for aim in aims if "mtime_ns" in aim]
            if began < wall - NEAR and written and max(written) < wall:
                before[event.n] = max(written) - event.wall + event.t
            else:
                own.add(event.n)
            t, n = event.t - max(0.0, event.wall - max(wall, began)), event.n
        found += [
            Change(t, n, fault.id, str(done.get("how")), task, str(aim["path"]))
            for aim in aims
            if "folder" not in str(aim["do"])
        ]
    return sorted(found, key=lambda one: one.t), own, before


def _aims(fault: FaultTimeline, done: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the files that a fault changed, as it told them before."""
    if fault.found is not None and fault.found.changed:
        return list(fault.found.changed.get("aims", ()))
    do = "remove" if done.get("how") == "missing" else "write"
    return [{"path": done["path"], "do": do}] if "path" in done else []


def _event_of(
    aims: Sequence[Mapping[str, Any]],
    task: str,
    at: float,
    applied: float,
    told: Sequence[CheckpointSaved],
) -> CheckpointSaved | None:
    """Return the event with which the witness saw what a fault did, if it did."""
    then = {aim["path"]: aim.get("then") for aim in aims if aim["do"] != "flip"}
    paths = {aim["path"] for aim in aims}
    for event in told:
        if event.task == task and at <= event.wall + SAME and paths & {*event.files}:
            as_then = all(event.files.get(path, size) == size for path, size in then.items())
            if event.wall <= at + 3 * NEAR or (as_then and event.wall <= applied + LATE):
                return event
    return None


# --- The step of a save ---------------------------------------------------------------------------


def _with_steps(timeline: Timeline, saves: Sequence[Save]) -> list[Save]:
    """Return saves with their steps.

    It is what was reported between the first write of a save and that of the next one; where
    several were, the one that its name has. Without a report it is the number in its name, if those
    of all are steps that had been made by then, or else the last step that was made.
    """
    reports = [
        entry
        for entry in timeline.history
        if isinstance(entry, Phase) and entry.phase == "checkpoint" and entry.step is not None
    ]
    series: dict[tuple[str, str], list[Save]] = {}
    paths: dict[str, list[str]] = {}
    for save in saves:
        paths.setdefault(save.task, []).append(save.path)
    named = {task: names(list(dict.fromkeys(of))) for task, of in paths.items()}
    for save in saves:
        series.setdefault((save.task, named[save.task][save.path].role), []).append(save)
    found: dict[int, Save] = {}
    for (task, _), alike in series.items():
        made = _Made(timeline, task)
        of_task = [one for one in reports if not task or one.task == task]
        numbered = [named[task][save.path].step for save in alike]
        told = [
            _reported(save, after, number, of_task)
            for save, after, number in zip(
                alike, [*(one.began for one in alike[1:]), math.inf], numbered, strict=True
            )
        ]
        are_steps = all(
            made.may_have(number, save)
            for save, number in zip(alike, numbered, strict=True)
            if number is not None
        )
        for save, number, step in zip(alike, numbered, told, strict=True):
            if step is None and number is not None and are_steps:
                step = number
            exact = step is not None
            found[id(save)] = replace(
                save, step=step if exact else made.before(save.began), is_exact=exact
            )
    return [found[id(save)] for save in saves]


def _reported(save: Save, after: float, number: int | None, reports: Sequence[Phase]) -> int | None:
    """Return the step that was reported for a save; None: nothing, or nothing that is certain."""
    near = {one.step for one in reports if save.began - LATE <= one.t <= max(after, save.ended)}
    if number is not None and number in near:
        return number
    ends = {
        one.step
        for one in reports
        if one.state == "end" and save.began - NEAR / 2 <= one.t < after - NEAR / 2
    }
    if len(ends) == 1:
        return ends.pop()
    begins = [one.step for one in reports if one.state == "begin" and one.t <= save.began + NEAR]
    return begins[-1] if begins and (not ends or begins[-1] in ends) else None


class _Made:
    """How far the tasks were that may have saved to a disk."""

    def __init__(self, timeline: Timeline, task: str) -> None:
        aside = timeline.plan.evaluators
        self._steps = [
            [(step.t, step.first, step.step) for step in one.steps]
            for one in timeline.tasks.values()
            if (one.name == task if task else one.name not in aside) and one.steps
        ]

    def before(self, t: float) -> int | None:
        """Return the last step that was made before a time."""
        last = [
            steps[place - 1][2]
            for steps in self._steps
            if (place := bisect_left(steps, (t + NEAR / 2,)))
        ]
        return max(last, default=None)

    def may_have(self, number: int, save: Save) -> bool:
        """Return whether a number may be the step of a save: one that was made just then."""
        if not self._steps:
            return True
        least, most = [], []
        for steps in self._steps:
            place = bisect_left(steps, (save.began,))
            after = next((one[1] for one in steps if one[0] >= save.ended), math.inf)
            before = steps[place - 1][2] if place else 0
            stride = max((b[1] - a[2] for a, b in pairwise(steps[:place][-6:])), default=1)
            least.append(before - max(2, stride))
            most.append(max(after, before + max(2, stride)))
        return min(least) <= number <= max(most)


# --- Whether a save is whole ----------------------------------------------------------------------


@dataclass(frozen=True)
class _End:
    """A task ended while it may have been saving."""

    task: str
    since: float
    """From when on its files may have been closed by that."""
    until: float
    words: str


def _ends(timeline: Timeline) -> list[_End]:
    """Return the ends of tasks that were no end of the program's own."""
    found = []
    for task in timeline.tasks.values():
        for life in task.incarnations:
            if life.exit is None or not life.exit.exit_code:
                continue
            asked = _asked(timeline, task.name, life, life.exit)
            since = life.exit.t - CRASH if asked is None else asked
            words = f"{task.name} ended as it was written"
            found.append(_End(task.name, since, life.exit.t + CLOSED, words))
    return found


def _asked(timeline: Timeline, task: str, life: Incarnation, end: TaskExit) -> float | None:
    """Return when a task was made to end; None: it was not."""
    times = [] if life.stop is None else [life.stop.t]
    for entry in _ended_by(timeline, task):
        triggered, applied = entry.stages.get("triggered"), entry.stages["applied"]
        if triggered is None or not life.begin <= triggered.t <= end.t:
            continue
        has_grace = entry.planned.spec.kills_after
        is_killed = applied.killed and has_grace
        times.append(max(triggered.t, end.t - KILLED) if is_killed else triggered.t)
    return max(times, default=None)


def _ended_by(timeline: Timeline, task: str) -> list[FaultTimeline]:
    return [
        fault
        for fault in timeline.faults.values()
        if task in fault.planned.tasks
        and "applied" in fault.stages
        and fault.stages["applied"].exit_code is not None
    ]


def _with_wholeness(timeline: Timeline, saves: Sequence[Save]) -> list[Save]:
    ends = _ends(timeline)
    done = [
        entry
        for entry in timeline.history
        if isinstance(entry, Phase) and (entry.phase, entry.state) == ("checkpoint", "end")
    ]
    last: dict[tuple[str, str], Save] = {}
    found = []
    named = names(list(dict.fromkeys(save.path for save in saves)))
    for save in saves:
        key = save.task, named[save.path].role
        whole, why = _whole(save, last.get(key), ends, done)
        save = replace(save, whole=whole, why=why)
        if whole:
            last[key] = save
        found.append(save)
    return found


def _whole(
    save: Save, before: Save | None, ends: Sequence[_End], done: Sequence[Phase]
) -> tuple[bool | None, str]:
    """Return whether a save is whole (None: unknown), and why not."""
    if before is not None and save.count < before.count:
        return None, f"it has {save.count} of {before.count} files"
    cut = next(
        (
            end
            for end in ends
            if end.since - NEAR / 5 <= save.ended <= end.until and save.task in ("", end.task)
        ),
        None,
    )
    if cut is None or save.renamed:
        return True, ""
    if any(
        save.began - NEAR <= one.t <= cut.until and one.step in (None, save.step)
        for one in done
        if not save.task or one.task == save.task
    ):
        return True, ""
    if before is not None and save.bytes == before.bytes:
        return True, ""
    if before is not None and save.bytes < before.bytes:
        return False, f"{cut.words}, {save.bytes:,} of {before.bytes:,} bytes"
    return None, cut.words
