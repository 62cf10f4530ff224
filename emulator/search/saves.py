"""The calls of one save, from a run that recorded them, as moments (pure).

The save is the second one: there is a complete one before it. A name that differs from that in the
save before it, by the number of the step or at random, becomes a glob, so that the trigger of
another run meets it. What counts are all calls to such files since the task began: those of the
first save as well.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, takewhile
from typing import Any

from emulator.errors import UsageError
from emulator.metrics.steps import StepReader
from emulator.record.events import Entry, KernelCall
from emulator.search.moments import CallsOfSave, Moment, Whole
from emulator.supervisor.tracing import path_pattern
from emulator.trial.answer import is_kept


@dataclass(frozen=True)
class Save:
    """The calls of one save of a task, by their numbers among all of the task."""

    task: str
    calls: Sequence[int]
    step: int | None = None
    """That was reported with it, or the last that was printed before; None: none was."""
    is_exact: bool = False
    """It was reported."""


@dataclass(frozen=True)
class Recorded:
    """What a task did: its calls, and which of them are saves."""

    task: str
    calls: Sequence[KernelCall]
    saves: Sequence[Save]


def recorded(
    history: Sequence[Entry], task: str, rules: Sequence[str] = ("auto",), run: str = ""
) -> Recorded:
    """Return the calls of a task in their order, and its saves; `run` is the folder of the run.

    Where it reports the phase `checkpoint`, a save is what it calls in one, or in several for the
    same step. Where its steps are read of its lines, by the `rules` of the scenario, it is what it
    calls between two of them to files that it writes again and again, but not each time. Otherwise
    it is what it calls between the longest pauses, as long as that is always for the same files.
    What is kept nowhere is part of no save, such as a cache.
    """
    calls: list[KernelCall] = []
    begins, saves = None, list[Save]()
    gaps: list[list[int]] = [[]]
    """The calls between two steps."""
    steps: list[int | None] = [None]
    """That before each gap."""
    kept: set[int] = set()
    own = [one for one in history if isinstance(one, KernelCall) and one.task == task]
    moved = {one.path for one in own if one.to is not None and is_kept(one.to, run)}
    reader = StepReader(rules)
    for one in own:  # it holds the first steps back, until it knows what has them
        reader.read(one.line or "")
    reader = reader.again()
    for one in own:
        if one.line is None:
            if one.path in moved or is_kept(one.path, run):
                gaps[-1].append(len(calls))
                kept.add(len(calls))
            calls.append(one)
            continue
        for seen in reader.read(one.line):
            step = seen.data.get("step")
            number = step if isinstance(step, int) else None
            if seen.event == "step":
                gaps.append([])
                steps.append(number)
            elif seen.data["phase"] != "checkpoint":
                continue
            elif seen.data["state"] == "begin":
                begins = len(calls)
            elif begins is not None:
                is_exact = number is not None
                between = [call for call in range(begins, len(calls)) if call in kept]
                save = Save(task, between, number if is_exact else steps[-1], is_exact)
                begins = None
                if saves and is_exact and saves[-1].is_exact and saves[-1].step == number:
                    save = replace(save, calls=[*saves.pop().calls, *save.calls])
                saves.append(save)
    saves = list(_without_logs(calls, saves))
    if not saves and len(gaps) > ENOUGH:
        saves = list(_between_steps(task, calls, gaps, steps))
    if not saves:
        saves = list(_between_pauses(task, calls, sorted(kept)))
    return Recorded(task, calls, [one for one in saves if one.calls])


Life = tuple[str, int]
"""A path, and how often a file of this name has begun anew."""
ENOUGH = 2
"""Steps, or files of the same name, that tell one save from the next."""
OFTEN = 0.8
"""The share of steps after which a file is written that is a log, if others are written less
often."""


def _without_logs(calls: Sequence[KernelCall], saves: Sequence[Save]) -> Iterator[Save]:
    """Yield saves without files that only grow, if there are others."""
    names, grow = _names(calls), _that_grow(calls, [save.calls for save in saves])
    for save in saves:
        own = [call for call in save.calls if names[call] not in grow]
        yield replace(save, calls=own or save.calls)


def _that_grow(calls: Sequence[KernelCall], groups: Sequence[Sequence[int]]) -> set[str]:
    """Return the names of files that are written in several groups, and never begin anew."""
    names, lives = _names(calls), _lives(calls, [call for group in groups for call in group])
    written: dict[str, set[tuple[int, Life]]] = {}
    for number, group in enumerate(groups):
        for call in group:
            if calls[call].call == "write":
                written.setdefault(names[call], set()).add((number, lives[call]))
    return {name for name, own in written.items() if len(own) > len({life for _, life in own}) == 1}


def _between_steps(
    task: str,
    calls: Sequence[KernelCall],
    gaps: Sequence[Sequence[int]],
    steps: Sequence[int | None],
) -> Iterator[Save]:
    """Yield what is called between two steps, to files that are not written after each of them.

    A file that only grows is a log as well, if there are others.
    """
    names = _names(calls)
    files: dict[str, set[int]] = {}
    for number, gap in enumerate(gaps):
        for call in gap:
            files.setdefault(names[call], set()).add(number)
    between = len(gaps) - 2  # not what is before the first, or after the last
    several = {file for file, own in files.items() if len(own) > 1}
    often = {file for file, own in files.items() if len(own) >= OFTEN * between}
    grow = _that_grow(calls, gaps)
    logs = next((some for some in (often | grow, often) if several - some), set[str]())
    again = several - logs
    for number, gap in enumerate(gaps):
        if any(names[call] in again for call in gap):
            own = [call for call in gap if names[call] not in logs]
            yield Save(task, own, steps[number])


PAUSES = 1000
"""Pauses that are looked at, the longest ones."""
SHORT = 0.1
"""The share of the longest pause below which a pause is within a save: saves come evenly."""


def _between_pauses(task: str, calls: Sequence[KernelCall], kept: Sequence[int]) -> Iterator[Save]:
    """Yield what is called between pauses, if that is always for the same files but for numbers.

    What a file gets until it is emptied, or has another name, is of one save. A file that only
    grows is a log.
    """
    lives, names = _lives(calls, kept), _names(calls)
    files: dict[str, set[Life]] = {}
    for call, life in lives.items():
        files.setdefault(names[call], set()).add(life)
    enough = max(ENOUGH, max(map(len, files.values()), default=0) / 2)
    again = {file for file, own in files.items() if len(own) >= enough}
    own = [call for call in kept if names[call] in again]
    places: dict[Life, list[int]] = {}
    for place, call in enumerate(own):
        if call in lives:
            places.setdefault(lives[call], []).append(place)
    within = {place for some in places.values() for place in range(some[0] + 1, some[-1] + 1)}
    pauses = [calls[two].t - calls[one].t for one, two in pairwise(own)]
    longest = sorted(range(1, len(own)), key=lambda place: -pauses[place - 1])[:PAUSES]
    ends = [0, len(own)]
    for place in longest:
        if pauses[place - 1] < SHORT * pauses[longest[0] - 1]:
            break
        at = bisect(ends, place)
        parts = (own[ends[at - 1] : place], own[place : ends[at]])
        made = [{names[one] for one in part if one in lives} for part in parts]
        if place not in within and made == [again, again]:
            ends.insert(at, place)
    if len(ends) > 2:
        for begin, end in pairwise(ends):
            yield Save(task, own[begin:end])


def _names(calls: Sequence[KernelCall]) -> list[str]:
    """Return the file of each call, by the name that it gets in the end, without numbers."""
    becomes = {one.path: one.to for one in calls if one.to is not None}
    return [without_numbers(becomes.get(one.path, one.path)) for one in calls]


def _lives(calls: Sequence[KernelCall], kept: Sequence[int]) -> dict[int, Life]:
    """Return which life of which path each call is for, but for those that remove a file.

    A life begins when a file is emptied, or is made anew after it got another name.
    """
    lives: dict[int, Life] = {}
    number: Counter[str] = Counter()
    for call in kept:
        kind, path = calls[call].call, calls[call].path
        number[path] += kind in ("truncate", "unlink")
        if kind != "unlink":
            lives[call] = (path, number[path])
        if kind == "rename":
            number.update([path, calls[call].to or path])
    return lives


CHANGES = ("write", "truncate", "rename")
"""Calls without which a save is not whole; what it has written is kept by the kernel."""


def of_second_save(
    asked: Sequence[CallsOfSave], found: Recorded, folders: Sequence[tuple[str, str]], target: str
) -> list[Moment]:
    """Return a moment for each call that is asked for, in the order in which they are made.

    `folders` are the paths of a run's folders, each with what a trigger writes for it; `target` is
    the task that the fault is on. Raises UsageError where there is nothing to aim at.
    """
    if len(found.saves) < 2:
        made = "no save" if not found.saves else "only one save"
        raise UsageError(
            f"{found.task} made {made} that can be told from the rest; a sweep of its calls needs "
            "two, since a complete one comes before that which is broken.",
            'Have it save twice, and print `{"emulate": "phase", "phase": "checkpoint", ...}`.',
        )
    before, save = found.saves[:2]
    moments: dict[str, Moment] = {}
    for place, number in enumerate(save.calls):
        call = found.calls[number]
        if not any(one.means(call.call) and _is_of(one.of, call) for one in asked):
            continue
        twins = [_twin(found, save, other, place) for other in found.saves if other is not save]
        glob = _glob(call.path, [one.path for one in twins if one is not None], folders)
        earlier = found.calls[: number + 1]
        count = sum(one.call == call.call and _is_of(glob, one) for one in earlier)
        size = "" if call.bytes is None else f" ({call.bytes:,} byte{'s' * (call.bytes != 1)})"
        trigger: dict[str, Any] = {call.call: count, "of": glob}
        if found.task != target:
            trigger["task"] = found.task
        words = f"{call.call} {count} of {glob}{size}"
        left = (found.calls[one].call for one in save.calls[place:])
        whole = (
            _whole(before, None) if any(map(CHANGES.__contains__, left)) else _whole(save, before)
        )
        moments.setdefault(words, Moment(words, trigger, whole=whole, during=save.step))
    if not moments:
        kinds = ", ".join(f"{one.kind} of {one.of}" for one in asked)
        others = ", ".join(sorted({found.calls[one].call for one in save.calls}))
        raise UsageError(
            f"The second save of {found.task} has no {kinds}.", f"It has calls of these: {others}."
        )
    return list(moments.values())


def _twin(found: Recorded, save: Save, before: Save, place: int) -> KernelCall | None:
    """Return the call of another save that is the same as one by its place in a save.

    The first save empties and removes nothing, so calls of a kind are counted: of the same name but
    for numbers, or else, as that may be random, of any.
    """

    def alike(one: KernelCall, other: KernelCall, *, by_name: bool) -> bool:
        names = without_numbers(one.path) == without_numbers(other.path)
        return one.call == other.call and (names or not by_name)

    call = found.calls[save.calls[place]]
    for by_name in (True, False):
        earlier = [found.calls[one] for one in save.calls[:place]]
        count = sum(alike(one, call, by_name=by_name) for one in earlier)
        others = [found.calls[one] for one in before.calls]
        same = [one for one in others if alike(one, call, by_name=by_name)]
        if count < len(same):
            return same[count]
    return None


def _whole(save: Save, before: Save | None) -> Whole | None:
    """Return a save as the one that is whole; None: its step is not known."""
    if save.step is None:
        return None
    earlier = before.step if before is not None else 0
    return Whole(save.step, earlier or 0, is_exact=save.is_exact)


def without_numbers(path: str) -> str:
    """Return a path with a `*` for each number."""
    return re.sub(r"\d+", "*", path)


def _glob(path: str, others: Sequence[str], folders: Sequence[tuple[str, str]]) -> str:
    """Return the glob that means a file in every run and in every save."""
    parts = [_shortened(one, folders).split("/") for one in (path, *others)]
    parts = [one for one in parts if len(one) == len(parts[0])]
    return "/".join(map(_glob_of_name, zip(*parts, strict=True)))


def _glob_of_name(names: Sequence[str]) -> str:
    """Return the glob of the name of a file or a folder, which may be another in each save."""
    if len({*names}) == 1:
        return _escaped(names[0])
    globs = [without_numbers(_escaped(name)) for name in names]
    if len({*globs}) == 1:
        return globs[0]
    begin = _begin(names)
    rest = min(map(len, names)) - len(begin)
    end = _begin([name[::-1] for name in names])[:rest]  # names are random
    return f"{_escaped(_no_chance(begin))}*{_escaped(_no_chance(end)[::-1])}"


def _begin(names: Sequence[str]) -> str:
    """Return what all texts begin with."""
    alike = takewhile(lambda chars: len({*chars}) == 1, zip(*names, strict=False))
    return "".join(chars[0] for chars in alike)


def _no_chance(common: str) -> str:
    """Return what random names have not in common by chance: one or two characters, or digits."""
    return re.sub(r"[a-zA-Z0-9]+$" if len(common) <= 2 else r"[0-9]+$", "", common)


def _shortened(path: str, folders: Sequence[tuple[str, str]]) -> str:
    for folder, written in folders:
        if path.startswith(f"{folder}/"):
            return written + path[len(folder) + 1 :]
    return path


def _escaped(path: str) -> str:
    """Return the glob of one path: what means others is any character."""
    return re.sub(r"[*?\[\]]", "?", path)


def _is_of(glob: str, call: KernelCall) -> bool:
    pattern = _pattern(glob)
    return any(pattern.match(path) for path in (call.path, call.to) if path is not None)


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(path_pattern(glob))
