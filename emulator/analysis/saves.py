"""Which saves a run made, their steps, and which of them were whole (pure).

A save is what the witness saw of files that were written together (`supervisor/witness`). It is
whole if the task that wrote its files has closed and renamed them. The kernel closes them as well
when a task is killed. So what was closed from then on counts as cut off, or as unsure, unless it
was renamed, its end was reported, or it is as large as the one before it, but for some bytes.

What a fault did to a file looks like a save, and is told apart by what the fault says it changed.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import lt
from typing import TYPE_CHECKING, Any

from emulator.faults.checkpoint import Checkpoint
from emulator.faults.saved_files import names
from emulator.record.events import CheckpointRemoved, CheckpointSaved, Phase, TaskExit

if TYPE_CHECKING:
    from emulator.record.timeline import FaultTimeline, Incarnation, Timeline

NEAR = 0.1
"""Seconds by which what the witness saw may be stamped later than a line that was printed then."""
LATE = 1.0
"""The same on a machine that is very busy."""
SAME = 0.001
"""Seconds by which two stamps of one clock may be in the wrong order."""
CLOSED = 0.5
"""Seconds after an exit until which the kernel closes the files of a task."""
CRASH = 3.0
"""Seconds before an exit with an error from which on a file may have been closed by that error."""
KILLED = 1.0
"""Seconds before the exit of a task whose grace period was over in which it was killed."""
LONGER = 1.001
"""By how much a whole save may be larger than the one before it, where it may have been cut off."""
MADE, GONE, STALE = "empty-newer", "missing", "stale"
"""How a fault makes a file, removes one, and puts an older content into one."""


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
    """The last that was done was to give a file, or the folder, its name."""
    step: int | None = None
    is_exact: bool = False
    """The step was reported, or is in its name and fits to what was trained then; otherwise it is
    that of the last step before it."""
    whole: bool | None = True
    """None: it is not known."""
    why: str = ""
    """Why it is not whole, or that is not known."""
    is_in_pieces: bool = False
    """It was told several times, each time with more files."""
    removed: float = math.inf
    """When a file of it was removed, or it was saved again."""

    def is_there(self, t: float) -> bool:
        """Return whether it has its name, or some of its files, at a time."""
        return (self.ended if self.renamed and not self.is_in_pieces else self.began) <= t


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

    @property
    def in_short(self) -> str:
        """It as a state."""
        verb = "removed" if self.how == GONE else "broken"
        return f"{verb} by fault {self.fault} ({self.how})"


def saves_of(timeline: Timeline) -> tuple[Sequence[Save], Sequence[Change]]:
    """Return the saves of a run in the order in which they ended, and what faults did to files."""
    told = [entry for entry in timeline.history if isinstance(entry, CheckpointSaved)]
    changes, own, before = _changes(timeline, told)
    saves = [_save(entry, before.get(entry.n)) for entry in told if entry.n not in own]
    saves = _in_one(sorted(saves, key=lambda one: one.ended))
    return _with_wholeness(timeline, _with_steps(timeline, _with_ends(timeline, saves))), changes


def _in_one(saves: Sequence[Save]) -> list[Save]:
    """Return saves with those in one that were told in pieces, such as by the ranks of a job."""
    found: dict[tuple[str, str], list[Save]] = {}
    for save in saves:
        alike = found.setdefault((save.task, save.path), [])
        before = alike[-1] if alike else None
        if before is not None and before.files.items() < save.files.items():
            save = replace(save, began=before.began, is_in_pieces=True)
            alike.pop()
        alike.append(save)
    every = [save for alike in found.values() for save in alike]
    return sorted(every, key=lambda one: one.ended)


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
    for times in gone.values():
        times.sort()
    found = []
    for save in saves:
        times = gone[save.task, save.path]
        place = bisect_right(times, save.ended)
        found.append(replace(save, removed=times[place] if place < len(times) else math.inf))
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
    found: dict[int, Save] = {}
    for (task, _), alike in _series(saves).items():
        of_task = _Reports([one for one in reports if not task or one.task == task])
        made = _Made(timeline, task)
        named = names(list(dict.fromkeys(save.path for save in alike)))
        numbers = [named[save.path].step for save in alike]
        begins = [*(one.began for one in alike[1:]), math.inf]
        told = [of_task.ends(save, after) for save, after in zip(alike, begins, strict=True)]
        are_steps = all(
            number is None or number in ends or (len(ends) != 1 and made.may_have(number, save))
            for save, number, ends in zip(alike, numbers, told, strict=True)
        )
        for save, number, ends in zip(alike, numbers, told, strict=True):
            step = number if are_steps else None
            if step is None:
                step = next(iter(ends)) if len(ends) == 1 else of_task.begun(save, ends)
            exact = step is not None
            step = step if exact else made.before(save.began)
            found[id(save)] = replace(save, step=step, is_exact=exact)
    return [found[id(save)] for save in saves]


def _series(saves: Sequence[Save]) -> Mapping[tuple[str, str], list[Save]]:
    """Return the saves of each place whose names differ in numbers that grow."""
    paths: dict[str, list[str]] = {}
    for save in saves:
        paths.setdefault(save.task, []).append(save.path)
    named = {task: names(list(dict.fromkeys(of))) for task, of in paths.items()}
    series: dict[tuple[str, str], list[Save]] = {}
    for save in saves:
        series.setdefault((save.task, named[save.task][save.path].role), []).append(save)
    return series


class _Reports:
    """What was reported of saves, in the order of time."""

    def __init__(self, reports: Sequence[Phase]) -> None:
        self._reports = reports
        self._times = [one.t for one in reports]

    def ends(self, save: Save, after: float) -> set[int | None]:
        """Return the steps whose saves ended, by reports, from a save until the next one began."""
        first = bisect_left(self._times, save.began - NEAR / 2)
        last = bisect_left(self._times, after - NEAR / 2)
        return {one.step for one in self._reports[first:last] if one.state == "end"}

    def begun(self, save: Save, ends: set[int | None]) -> int | None:
        """Return the step whose save began last when a save began, if that is one of the ends."""
        until = bisect_right(self._times, save.began + NEAR)
        begins = (one.step for one in reversed(self._reports[:until]) if one.state == "begin")
        step = next(begins, None)
        return step if not ends or step in ends else None


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
            place, later = (bisect_left(steps, (t,)) for t in (save.began, save.ended))
            after = steps[later][1] if later < len(steps) else math.inf
            before = steps[place - 1][2] if place else 0
            stride = max(
                (b[1] - a[2] for a, b in pairwise(steps[max(0, place - 6) : place])), default=1
            )
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
    found: dict[int, Save] = {}
    for alike in _series(saves).values():
        last = None
        for save in alike:
            whole, why = _whole(save, last, ends, done)
            found[id(save)] = judged = replace(save, whole=whole, why=why)
            last = judged if whole else last
    return [found[id(save)] for save in saves]


def _whole(
    save: Save, before: Save | None, ends: Sequence[_End], done: Sequence[Phase]
) -> tuple[bool | None, str]:
    """Return whether a save is whole (None: unknown), and why not."""
    fewer = before is not None and save.count < before.count
    cut = next(
        (
            end
            for end in ends
            if end.since - NEAR / 5 <= save.ended <= end.until and save.task in ("", end.task)
        ),
        None,
    )
    # Of a folder the number may vary; the parts of ranks are as many each time.
    if before is not None and fewer and ("*" in save.path or (cut and not save.renamed)):
        return None if cut is None else False, f"it has {save.count} of {before.count} files"
    if cut is None or save.renamed:
        return True, ""
    if any(
        save.began - NEAR <= one.t <= cut.until and one.step in (None, save.step)
        for one in done
        if not save.task or one.task == save.task
    ):
        return True, ""
    if before is not None and _is_as_large(save, before):
        return True, ""
    if before is not None and save.bytes < before.bytes:
        return False, f"{cut.words}, {save.bytes:,} of {before.bytes:,} bytes"
    return None, cut.words


def _is_as_large(save: Save, before: Save) -> bool:
    """Return whether no file of a save is smaller than it was before, and all are little larger.

    Numbers that are written as text, such as that of the step, make some a few bytes longer.
    """
    sizes, old = (sorted(one.files.values()) for one in (save, before))
    is_less = len(sizes) != len(old) or any(map(lt, sizes, old))
    return not is_less and before.bytes <= save.bytes <= before.bytes * LONGER
