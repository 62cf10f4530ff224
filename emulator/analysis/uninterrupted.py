"""Whether a run ended as it does without a fault: what it reported of its steps, and what it left.

`figures_of` has what can be compared of a run, `agreed` what two runs without a fault have alike,
and `differences` what is not so in another one (all pure). Numbers are alike if they differ by no
more than `tolerance`, as a share of the greater one; of an array, its distance from the other as a
share of the greater norm, which sketches estimate (`supervisor/witness/arrays.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from emulator.faults.spec import path_pattern
from emulator.record.events import Entry, Samples, Step, StepSource, TaskStart
from emulator.record.timeline import Timeline
from emulator.validation.units import format_count

TOLERANCE = 1e-6
LOSS = re.compile(r"(?i)loss")
"""Names of numbers that are losses."""
RESULTS, UNINTERRUPTED = "results.json", "uninterrupted.json"
"""What a run has left, and the figures that it is compared with; in its folder."""

_MACHINE = re.compile(
    r"(?i)time|second|elapsed|eta(?![a-z])|duration|throughput|speed|per_?s|_rate$|/s|\bmem|memory|util"
    r"|^v_num$"
)
"""Names of what measures the machine: two runs may have it alike by luck. (Not `learning_rate`.)
Lightning shows the number of its log as `v_num`, which is another after a restart."""
WITHOUT, OTHER = "without a fault", "in the other"
File = Mapping[str, Any]
"""What is known of a file, or of a save that is several: see `witness/arrays.py`."""


@dataclass(frozen=True)
class Figures:
    """What can be compared of a run."""

    steps: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """What tasks reported, by task and name and the number of the step."""
    last_step: int | None = None
    files: Mapping[str, File] = field(default_factory=dict)
    """By path, which begins with `/shared/` or the name of a task."""
    samples: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What tasks have read, by task and the number of the step: a digest."""
    unlike: str = ""
    """Of what two runs have alike: the first number, or save, that they have not. Then what is
    alike tells little: a step may be, and the weights are not."""

    def as_data(self) -> dict[str, Any]:
        """Return it for a file."""
        return asdict(self)

    def with_files(self, glob: str) -> Figures:
        """Return the same with the files alone that a glob means."""
        matches = re.compile(path_pattern(glob)).match
        files = {path: one for path, one in self.files.items() if any(map(matches, _paths(path)))}
        return replace(self, files=files)


def _paths(path: str) -> tuple[str, str]:
    """Return a path as it is named, and as a task has it, whose name it may begin with."""
    return path, path[path.find("/") :]


@dataclass(frozen=True)
class Comparison:
    """A run beside those without a fault."""

    compared: Sequence[str] = ()
    """What was, in words."""
    differs: Sequence[str] = ()
    """What is not alike; a sentence each."""
    missing: Sequence[str] = ()
    """What could not be compared, and why."""


def figures_of(
    timeline: Timeline,
    results: Mapping[str, Any] | None,
    since: int = -1,
    until: float = math.inf,
    *,
    is_anew: bool = False,
) -> Figures:
    """Return what can be compared of a run; of its steps, of those between two events.

    These are numbers of the history, and neither is included. The last report of a step counts.
    `is_anew`: its counter began anew, so that its numbers are those of other steps. Evaluators read
    whatever save is there.
    """
    steps: dict[str, dict[str, dict[str, float]]] = {}
    last: int | None = None
    evaluators = timeline.plan.evaluators
    history = timeline.history if not is_anew else ()
    for entry in history:
        if isinstance(entry, Step) and entry.task not in evaluators:
            last = entry.step if last is None else max(last, entry.step)
            if not since < entry.n < until or entry.count > 1:  # of several the last is known
                continue
            for name in entry.values:
                if (number := entry.number(name)) is not None and not _MACHINE.search(name):
                    own = steps.setdefault(entry.task, {}).setdefault(name, {})
                    own[str(entry.step)] = number
    files = (results or {}).get("files", {})
    return Figures(steps, last, files, _samples(history, since, until))


def _samples(history: Iterable[Entry], since: int, until: float) -> dict[str, dict[str, str]]:
    """Return what tasks have read, by the number of the step that they reported next.

    This goes by the order of the lines, since times are those of whole pieces of output. What is
    read before it is known what has the steps is of none of them: these steps come all at once.
    """
    samples: dict[str, dict[str, str]] = {}
    read: dict[str, list[str]] = {}
    for entry in sorted(history, key=lambda entry: entry.n):
        is_meant = since < entry.n < until
        if isinstance(entry, Samples) and entry.step is not None:
            if is_meant:
                samples.setdefault(entry.task, {})[str(entry.step)] = entry.digest
        elif isinstance(entry, Samples):
            read.setdefault(entry.task, []).append(entry.digest)
        elif isinstance(entry, TaskStart) or (isinstance(entry, StepSource) and entry.counts):
            read.pop(entry.task, None)
        elif isinstance(entry, Step):
            digests = read.pop(entry.task, None)
            if digests and is_meant and entry.count == 1:
                samples.setdefault(entry.task, {})[str(entry.step)] = " ".join(digests)
    return samples


def from_data(data: Mapping[str, Any]) -> Figures:
    """Return figures from a file."""
    return Figures(
        data.get("steps", {}),
        data.get("last_step"),
        data.get("files", {}),
        data.get("samples", {}),
        data.get("unlike", ""),
    )


def agreed(one: Figures, other: Figures, tolerance: float) -> tuple[Figures, Sequence[str]]:
    """Return what two runs have alike, and what they have not: a sentence each.

    Where arrays of a save are alike, a number that is not a loss says nothing of the training: it
    may be a measurement.
    """
    differs: list[str] = []
    losses, others = list[str](), list[str]()
    steps: dict[str, dict[str, Mapping[str, float]]] = {}
    for task, name, mine, theirs in _series(one, other):
        if (what := _first_apart(task, name, mine, theirs, tolerance)) is None:
            both = {step: value for step, value in mine.items() if step in theirs}
            steps.setdefault(task, {})[name] = both
        else:
            differs.append(f"{what[0]} {what[1]:.8g} and {what[2]:.8g}")
            (losses if LOSS.search(name) else others).append(differs[-1])
    samples: dict[str, Mapping[str, str]] = {}
    for task, digests in one.samples.items():
        if words := _other_samples(task, digests, other.samples.get(task, {})):
            differs.append(words)
        else:
            samples[task] = digests
    last = one.last_step
    if last != other.last_step:
        differs.append(f"the last step is {last} and {other.last_step}")
        last = None
    files: dict[str, File] = {}
    saves: list[str] = []
    for path in sorted({*one.files} & {*other.files}):
        alike, apart = _alike(path, one.files[path], other.files[path], tolerance, OTHER)
        if alike is not None:
            files[path] = alike
        if apart:
            differs.append(apart[0].words)
            saves += [what.words for what in apart if what.tells]
    values = [one for file in files.values() for one in file.get("values", {}).values()]
    has_arrays = any("sketch" in one for one in values)
    unlike = [*losses, *saves, *([] if has_arrays else others), ""][0]
    return Figures(steps, last, files, samples, unlike), differs


def differences(run: Figures, twin: Figures, tolerance: float) -> Comparison:
    """Return how a run compares with those without a fault.

    If these differ, a measured number that they have alike may be so by luck: then only counts
    tell, such as the last step, and what can't be read.
    """
    compared, differs, missing = list[str](), list[str](), list[str]()
    for task, name, mine, theirs in _series(run, twin):
        count = len({*mine} & {*theirs})
        if (what := _first_apart(task, name, mine, theirs, tolerance)) is not None:
            if not twin.unlike:
                differs.append(f"{what[0]} {what[1]:.8g}, and without a fault {what[2]:.8g}")
        elif count:
            compared.append(f"{name} of {format_count(count, 'step')} of {task}")
    for task, own in run.samples.items():
        theirs_of = twin.samples.get(task, {})
        if words := _other_samples(task, own, theirs_of):
            differs.append(f"{words} than without a fault")
        elif count := len({*own} & {*theirs_of}):
            compared.append(f"samples of {format_count(count, 'step')} of {task}")
    ends = (run.last_step, twin.last_step)
    if None not in ends and run.last_step != twin.last_step:
        differs.append(f"it ended with step {ends[0]}, and without a fault with {ends[1]}")
    for path, before in twin.files.items():
        if (file := run.files.get(path)) is None:
            missing.append(f"{path} is not there")
            continue
        if "unread" in file or "unread" in before:
            missing.append(f"{path}: {file.get('unread') or before.get('unread')}")
            continue
        alike, apart = _alike(path, file, before, tolerance, WITHOUT)
        differs += [what.words for what in apart if what.counts or not twin.unlike]
        if alike is not None and not apart:
            compared.append(path)
    if twin.unlike:
        missing.append(f"two runs without a fault differ: {twin.unlike}")
        compared.clear()
    return Comparison(tuple(compared), tuple(differs), tuple(missing))


def _series(
    one: Figures, other: Figures
) -> Iterator[tuple[str, str, Mapping[str, float], Mapping[str, float]]]:
    """Yield what both have reported: task, name, and the values by step."""
    for task, names in one.steps.items():
        for name, mine in names.items():
            if theirs := other.steps.get(task, {}).get(name):
                yield task, name, mine, theirs


def _first_apart(
    task: str,
    name: str,
    mine: Mapping[str, float],
    theirs: Mapping[str, float],
    tolerance: float,
) -> tuple[str, float, float] | None:
    """Return the first step of which two values are not alike, in words, and both."""
    for step in sorted({*mine} & {*theirs}, key=int):
        if _apart(mine[step], theirs[step]) > tolerance:
            return f"{name} of step {int(step):,} of {task} is", mine[step], theirs[step]
    return None


def _other_samples(task: str, mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return the first step for which other samples were read, in words; empty: there is none."""
    for step in sorted({*mine} & {*theirs}, key=int):
        if mine[step] != theirs[step]:
            return f"{task} has read other samples for step {int(step):,}"
    return ""


def _apart(one: float, other: float) -> float:
    """Return how far two numbers are apart, as a share of the greater one."""
    if one == other:
        return 0.0
    return abs(one - other) / max(abs(one), abs(other))


class _Apart(NamedTuple):
    """Something that two files have not alike."""

    words: str
    tells: bool = True
    """It is a number, or a save: not when or how fast something was done."""
    counts: bool = False
    """It is not a matter of how exact a training is repeated."""


_NO_SAVES = ("file", "text", "JSON")
"""Formats of files that may be a log."""
_DATES = [(1.5e9 * unit, 4e9 * unit) for unit in (1, 1e3, 1e6, 1e9)]
"""Times since 1970 of these years, in seconds down to nanoseconds."""


def _alike(
    path: str, mine: File, theirs: File, tolerance: float, where: str
) -> tuple[File | None, Sequence[_Apart]]:
    """Return what two files have alike (None: nothing to compare), and what is not.

    What the bytes are does not matter where both were read.
    """
    if mine.get("digest") == theirs.get("digest"):
        return (mine if "values" in mine else theirs), ()
    if "unread" in mine or "unread" in theirs:
        return None, ()
    if "broken" in mine or "broken" in theirs:
        why = mine.get("broken") or theirs.get("broken")
        return None, [_Apart(f"{path} can't be read: {why}", counts=True)]
    if "values" not in mine or "values" not in theirs:
        tells = mine.get("format") not in _NO_SAVES
        return None, [_Apart(f"{path} has other bytes than {where}", tells)]
    apart = list(_values_apart(path, mine["values"], theirs["values"], tolerance, where))
    if not apart:
        return mine, ()
    alike = {
        name: value
        for name, value in mine["values"].items()
        if (other := theirs["values"].get(name)) and _distance(value, other) <= tolerance
    }
    about = {key: mine[key] for key in ("format",) if key in mine}
    return ({**about, "values": alike} if alike else None), apart


def _values_apart(
    path: str,
    mine: Mapping[str, Any],
    theirs: Mapping[str, Any],
    tolerance: float,
    where: str,
) -> Iterator[_Apart]:
    for name, other in theirs.items():
        words = f"{name} in {path}"
        if (value := mine.get(name)) is None:
            yield _Apart(f"{name} is missing in {path}", counts=True)
        elif "number" in other and _MACHINE.search(name):
            continue
        elif (distance := _distance(value, other)) > tolerance:
            if "number" in value and "number" in other:
                one, two = value["number"], other["number"]
                is_date = any(low < one < high and low < two < high for low, high in _DATES)
                is_count = isinstance(one, int) and isinstance(two, int)
                yield _Apart(f"{words} is {one}, and {where} {two}", not is_date, is_count)
            else:
                share = f", by about {distance:.1g} of its size" if distance < math.inf else ""
                is_number = "sketch" in value or "number" in value
                yield _Apart(f"{words} differs from what it is {where}{share}", is_number)


def _distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return how far two values are apart, as a share of the greater one; infinite: not known."""
    if one.get("digest") == other.get("digest"):
        return 0.0
    if "number" in one and "number" in other:
        return _apart(one["number"], other["number"])
    if "sketch" not in one or "sketch" not in other or one.get("shape") != other.get("shape"):
        return math.inf
    square = sum((a - b) ** 2 for a, b in zip(one["sketch"], other["sketch"], strict=True))
    greater = max(one["norm"], other["norm"])
    return math.sqrt(square / len(one["sketch"])) / greater if greater else 0.0
