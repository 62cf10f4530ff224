"""The calls of one save, from a run that recorded them, as moments (pure).

The save is the second one: there is a complete one before it. A name that differs from that in the
save before it, by the number of the step or at random, becomes a glob, so that the trigger of
another run meets it. What counts are all calls to such files since the task began: those of the
first save as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, takewhile
from typing import Any

from emulator.errors import UsageError
from emulator.metrics.readings import PHASES_ONLY
from emulator.metrics.steps import StepReader
from emulator.record.events import Entry, KernelCall
from emulator.search.moments import CallsOfSave, Moment
from emulator.supervisor.tracing import path_pattern


@dataclass(frozen=True)
class Save:
    """The calls of one save of a task, by their numbers among all of the task."""

    task: str
    first: int
    end: int


@dataclass(frozen=True)
class Recorded:
    """What a task did: its calls, and which of them are saves."""

    task: str
    calls: Sequence[KernelCall]
    saves: Sequence[Save]


def recorded(history: Sequence[Entry], task: str) -> Recorded:
    """Return the calls of a task in their order, and its saves.

    Where it reports the phase `checkpoint`, a save is what it calls in one. Otherwise it is what it
    does again and again: the same kinds of calls to files of the same names, but for numbers.
    """
    calls: list[KernelCall] = []
    begins, saves, reader = None, list[Save](), StepReader(PHASES_ONLY)
    own = [one for one in history if isinstance(one, KernelCall) and one.task == task]
    for one in own:
        if one.line is None:
            calls.append(one)
            continue
        for seen in reader.read(one.line):
            if seen.event != "phase" or seen.data["phase"] != "checkpoint":
                continue
            if seen.data["state"] == "begin":
                begins = len(calls)
            elif begins is not None:
                saves.append(Save(task, begins, len(calls)))
                begins = None
    if not saves:
        saves = list(_repeated(task, calls))
    return Recorded(task, calls, [one for one in saves if one.end > one.first])


def _repeated(task: str, calls: Sequence[KernelCall]) -> Iterator[Save]:
    """Yield what is done again and again, as long as it is the same."""
    groups: list[tuple[object, int]] = []
    for key, some in groupby(calls, key=lambda one: (one.call, without_numbers(one.path))):
        groups.append((key, sum(1 for _ in some)))
    keys = [key for key, _ in groups]
    for length in range(2, len(keys) // 2 + 1):  # of one kind alone, one can't be told from two
        if keys[:length] == keys[length : 2 * length] and len({*keys[:length]}) > 1:
            break
    else:
        return
    begin = 0
    for place in range(0, len(keys) - length + 1, length):
        if keys[place : place + length] != keys[:length]:
            return
        end = begin + sum(count for _, count in groups[place : place + length])
        yield Save(task, begin, end)
        begin = end


def of_second_save(
    asked: Sequence[CallsOfSave], found: Recorded, folders: Sequence[tuple[str, str]], target: str
) -> list[Moment]:
    """Return a moment for each call that is asked for, in the order in which they are made.

    `folders` are the paths of a run's folders, each with what a trigger writes for it. Raises
    UsageError where there is nothing to aim at.
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
    for number in range(save.first, save.end):
        call = found.calls[number]
        if not any(call.call == one.kind and _is_of(one.of, call) for one in asked):
            continue
        place = before.first + number - save.first
        twin = found.calls[place] if place < before.end else None
        same = twin is not None and twin.call == call.call
        glob = _glob(call.path, twin.path if twin is not None and same else None, folders)
        earlier = found.calls[: number + 1]
        count = sum(one.call == call.call and _is_of(glob, one) for one in earlier)
        size = "" if call.bytes is None else f" ({call.bytes:,} byte{'s' * (call.bytes != 1)})"
        trigger: dict[str, Any] = {call.call: count, "of": glob}
        if found.task != target:
            trigger["task"] = found.task
        words = f"{call.call} {count} of {glob}{size}"
        moments.setdefault(words, Moment(words, trigger))
    if not moments:
        kinds = ", ".join(f"{one.kind} of {one.of}" for one in asked)
        others = ", ".join(sorted({one.call for one in found.calls[save.first : save.end]}))
        raise UsageError(
            f"The second save of {found.task} has no {kinds}.", f"It has calls of these: {others}."
        )
    return list(moments.values())


def without_numbers(path: str) -> str:
    """Return a path with a `*` for each number."""
    return re.sub(r"\d+", "*", path)


def _glob(path: str, twin: str | None, folders: Sequence[tuple[str, str]]) -> str:
    """Return the glob that means a file in every run and in every save."""
    own, other = _shortened(path, folders), _shortened(twin or path, folders)
    if own == other:  # the same file each time, whatever its name
        return _escaped(own)
    glob = without_numbers(_escaped(own))
    if glob != without_numbers(_escaped(other)):  # at random
        begin = _common(own, other)
        rest = min(len(own), len(other)) - len(begin)
        end = _common(own[::-1], other[::-1])[:rest][::-1]
        glob = f"{_escaped(begin)}*{_escaped(end)}"
    return glob


def _common(one: str, other: str) -> str:
    """Return what two texts begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(char for char, _ in pairs)


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
