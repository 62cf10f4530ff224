"""Find the latest checkpoint below a folder, and break it: a program of its own.

It runs where the files of a job are, from a copy of this one file: it needs only the standard
library of Python 3.8 or later. Its one argument is a request, and it prints one answer:

    {"folder": "/shared", "how": "torn", "of": "latest"}
    {"checkpoint": "run/model-20.pt", "format": "torch", "number": 20, "path": "run/model-20.pt",
     "inode": 1234, "written": 1796009000.25, "before": 8001597, "after": 4000798,
     "at": 1796009001.5}

If the request `waits`, it prints `{"plan": ..}` before that: all that says whether the change was
made. It makes it once it is sent a line, and nothing if its standard input ends. A request with
`again` gets the plan of an earlier one as a line first: what that has made is not made twice.

What it changes lies below the folder: no link is followed on the way. A file that a process has
open is left alone until it is closed. Who asks the kernel for a write lease on a file gets it only
while nobody else, in whichever container, has it open, and whoever opens it then waits (fcntl(2),
F_SETLEASE).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import operator
import os
import re
import signal
import stat
import sys
import time
from functools import lru_cache
from time import time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

ENTRIES = 200_000
"""Files and folders that are looked at."""
DEPTH = 20
"""Levels of folders."""
NOT_ITS_OWN = ("proc", "sys", "dev", "shared")
"""Folders of a container's file system that are no files of its task alone."""
PATIENCE = 30.0
"""Seconds in which all files that are open have to be closed."""
NEXT_SAVE = 30.0
"""Seconds in which a file that is saved under one name has to be saved again."""
POLL = 0.01
"""Seconds between two looks at a file that is open or has not changed."""
PIECE = 2**20
"""Bytes that are copied at once."""
BIT = 6
"""The bit that is flipped: in each byte of a number, it changes more than the last digit."""
SHOWN = 8
"""Names that an error, or a list, shows."""
LIST = "list"
"""`how` of a request that changes nothing: the answer is that of `listed`."""


class File(NamedTuple):
    """A regular file, or a folder, as it was seen."""

    path: str
    """Relative to the folder that is searched."""
    size: int = 0
    time: int = 0
    """When it was last written (ns since 1970)."""
    is_folder: bool = False
    why_not: str = ""
    """Why it may be of others than the run, and is left alone."""


class Part(NamedTuple):
    """A file or folder of a checkpoint, or TensorFlow's files with one prefix."""

    path: str
    """What the paths of its files are, or begin with."""
    format: str
    files: Sequence[File]
    is_folder: bool = False
    role: str = ""
    """What its path has in common with those of the same part in other saves."""
    span: Sequence[int] = ()
    """Where in its path the number is that grows; empty: there is none."""


class Checkpoint(NamedTuple):
    """Files that were saved together, under names of their own."""

    name: str
    """The path of the file or folder, or what the names of its files begin with; with `*` where
    those of several parts differ."""
    parts: Sequence[Part]
    step: int | None = None
    """The number in its name that grows by saves."""

    @property
    def format(self) -> str:
        """The format of the part that was written last."""
        return self.parts[-1].format

    @property
    def files(self) -> Sequence[File]:
        """All of its files."""
        return [file for part in self.parts for file in part.files]

    @property
    def is_folder(self) -> bool:
        """Whether it has a folder of its own."""
        return any(part.is_folder for part in self.parts)

    @property
    def time(self) -> int:
        """When the last of it was written (ns since 1970)."""
        return max((file.time for file in self.files), default=0)

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(file.size for file in self.files)

    @property
    def largest(self) -> File:
        """Its largest file, where its numbers are; of several, the one that was written last."""
        return max(self.files, key=lambda file: (file.size, file.time, file.path))


class Failure(Exception):
    """Why nothing was changed, in words."""


# --- Numbers in names (pure) ----------------------------------------------------------------------

STEP, PART, FIXED, MEASURED, MAYBE, MOMENT = "step", "part", "fixed", "measured", "maybe", 1
"""What a number is by the word before it: one that grows by saves, that of a part of a save, one
that all saves of a job have, a value or a time of one save; or the word does not say."""
STEP_WORDS = {
    **dict.fromkeys(("step", "steps"), 5),
    **dict.fromkeys(("iter", "iters", "iteration", "iterations", "update", "updates"), 4),
    **dict.fromkeys(("ba", "it", "round"), 4),
    **dict.fromkeys(("epoch", "epochs", "ep"), 3),
}
"""Of several in a name, the one with the greatest number here counts."""
_SAVE_WORD = re.compile("checkpoint|ckpt|snapshot")
"""Words before a number of a save, whatever it counts."""
_PART_WORD = re.compile(
    "rank|shard|part|of|worker|gpu|device|node|proc|process|replica|host|mp|tp|pp|dp|stage|layer"
    "|expert|split|chunk|bucket|slice|partition|task"
)
_FIXED_WORD = re.compile(
    "v|ver|version|seed|fold|trial|run|exp|experiment|fp|bf|int|uint|float|bits?|lr|bs|size|dim"
    "|hidden|heads?|depth|width|job|attempt"
)
_MEASURED_WORD = re.compile(
    "loss|acc|accuracy|score|auc|f|bleu|ppl|perplexity|reward|return|mae|r?mse|psnr|ssim|m?iou"
    "|m?ap|metric|val|valid|err|error|wer|cer|fid|dice|samples|tokens|time"
)
_LONG = re.compile(r"(?:step|iteration|epoch|checkpoint|ckpt|rank|shard|version|loss|accuracy)s?$")
_VALUE = re.compile(
    r"(?P<word>[^\W\d_]*)(?P<gap>[-_=. ]?)(?P<digits>\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)?)"
    r"(?P<unit>[a-z]*)(?P<of>[-_]of[-_]\d)?",
    re.IGNORECASE,
)
_MOMENT = re.compile(
    r"(?:19|20)\d\d[-_]?(?:0[1-9]|1[0-2])[-_]?(?:0[1-9]|[12]\d|3[01])"
    r"(?:[-_T ]?[0-2]\d[-_:]?[0-5]\d(?:[-_:]?[0-5]\d)?)?(?!\d)"
)
_ENDS_WITH_NUMBER = re.compile(r"\.(?:h5|hdf5)$", re.IGNORECASE)


class Number(NamedTuple):
    """A number in a path."""

    begin: int
    end: int
    kind: str
    """Of STEP, PART, FIXED, MEASURED and MAYBE."""
    weight: int
    """Of several that may grow by saves, the greatest does; under 0: only if it is seen to. Of one
    that is measured: MOMENT if it is a time."""
    value: int
    """-1: it is no whole number."""


@lru_cache(maxsize=2**17)
def numbers(path: str) -> Sequence[Number]:
    """Return the numbers of a path, each with what its word says that it is."""
    found: list[Number] = []
    ending = _ENDS_WITH_NUMBER.search(path)
    position, end = 0, ending.start() if ending else len(path)
    while True:
        match = _VALUE.search(path, position, end)
        if match is None:
            return tuple(found)
        begin, position = match.span("digits")
        word = match["word"].lower()
        if word not in STEP_WORDS and (long := _LONG.search(word)):
            word = long.group()
        value = int(match["digits"]) if match["digits"].isdigit() else -1
        kind, weight = _kind_of(match, word)
        if word not in STEP_WORDS and (moment := _MOMENT.match(path, begin, end)):
            position = moment.end()
            kind, value, weight = MEASURED, -1, MOMENT
        elif kind == MAYBE:
            in_name = "/" not in path[begin:]
            around = path[path.rfind("/", 0, begin) + 1 :].partition("/")[0]
            weight = 0 if around == match["digits"] or _SAVE_WORD.fullmatch(word) else -1
            if in_name and (weight == 0 or match["gap"] or not word):
                weight = 1
        found.append(Number(begin, position, kind, weight, value))


def _kind_of(match: re.Match[str], word: str) -> tuple[str, int]:
    """Return the kind and weight of a number by its word."""
    if "." in match["digits"]:
        return MEASURED, 0
    if not match["digits"].isdigit():
        return FIXED, 0  # such as a learning rate
    if match["of"] or _PART_WORD.fullmatch(word):
        return PART, 0
    if word in STEP_WORDS:
        return STEP, STEP_WORDS[word]
    if _FIXED_WORD.fullmatch(word) or match["unit"]:
        return FIXED, 0
    return (MEASURED, 0) if _MEASURED_WORD.fullmatch(word) else (MAYBE, 0)


class Name(NamedTuple):
    """What a path of a save says, among those of others."""

    step: int | None
    span: Sequence[int]
    """Where the number is that grows; of a name with a time, the last of its digits."""
    save: str
    """What the paths of all parts of one save have in common."""
    role: str
    """What the paths of one part have in common in all saves."""


def names(paths: Sequence[str]) -> dict[str, Name]:
    """Return what paths say that were saved in this order.

    The number that grows by saves is one with such a word (`step=20`, `epoch3`), or else one that
    is in the name of the file, rather than of a folder; where there are several, one that does not
    go back. Never one of a part, a metric, a version, a precision, or a size.
    """
    alike: dict[str, list[str]] = {}
    for path in paths:
        same = _with(path, lambda _, one, text: text if one.kind == FIXED else f"#{one.kind}")
        alike.setdefault(same, []).append(path)
    return {path: name for group in alike.values() for path, name in _alike(group).items()}


def steps_of(paths: Sequence[str]) -> list[int | None]:
    """Return the step of each of these paths of saves, which were saved in this order."""
    found = names(paths)
    return [found[path].step for path in paths]


def _with(path: str, text_of: Callable[[int, Number, str], str]) -> str:
    """Return a path with other texts for its numbers, by the place of each among them."""
    pieces, position = [], 0
    for place, one in enumerate(numbers(path)):
        pieces += [path[position : one.begin], text_of(place, one, path[one.begin : one.end])]
        position = one.end
    return "".join(pieces) + path[position:]


def _alike(paths: Sequence[str]) -> dict[str, Name]:
    """Return what paths say that differ in their numbers only."""
    rows = [numbers(path) for path in paths]
    first, columns = rows[0], range(len(rows[0]))
    values = [[row[column].value for row in rows] for column in columns]
    back = [sum(map(operator.gt, column, column[1:])) for column in values]
    varies = [len(set(column)) > 1 for column in values]
    by_word = [column for column in columns if first[column].kind == STEP]
    saves = {tuple(row[column].value for column in by_word) for row in rows}

    def fits(column: int) -> tuple[int, ...]:
        one = first[column]
        if one.kind == STEP:  # and of one save alone
            is_own = len(saves) == len(set(values[column]))
            grows = varies[column] or not others_grow
            return (1, is_own, varies[column], one.weight, column) if grows else (-1,)
        return 0, one.weight, -back[column], varies[column], column

    may_be = [n for n in columns if first[n].kind == MAYBE and (first[n].weight >= 0 or varies[n])]
    grow = [n for n in may_be if first[n].weight > 0 and varies[n] and not back[n]]
    others_grow = any(not _counted(values[n]) for n in grow)
    grows = max([*by_word, *may_be], key=fits) if by_word or may_be else -1
    parts = {n for n in may_be if n != grows and back[n] and _counted(values[n])}
    parts |= {n for n in columns if first[n].kind == PART}
    fixed = {
        n
        for n in columns
        if first[n].kind == MAYBE and n != grows and (first[n].weight < 1 or back[n])
    }
    fixed |= parts | {n for n in columns if first[n].kind == FIXED}
    found = {}
    for path in paths:
        row = numbers(path)
        span: Sequence[int] = ()
        if grows >= 0:
            span = row[grows].begin, row[grows].end
        elif moments := [one for one in row if one.weight == MOMENT]:
            digits = re.search(r"\d+$", path[: moments[-1].end])
            span = digits.span() if digits else ()
        step = row[grows].value if grows >= 0 else None
        save = _with(path, lambda n, _, text: "*" if n in parts else text)
        role = _with(path, lambda n, _, text: text if n in fixed else "#")
        found[path] = Name(step, span, save, role)
    return found


def _counted(values: Sequence[int]) -> bool:
    """Say whether these are numbers of parts: each from 0, or 1, up to the last."""
    several = set(values)
    first, last = min(several), max(several)
    return len(several) > 1 and first in (0, 1) and last == first + len(several) - 1


# --- What is there (pure) -------------------------------------------------------------------------

FORMATS = {
    ".pt": "torch",
    ".pth": "torch",
    ".bin": "torch",
    ".ckpt": "Lightning",
    ".safetensors": "safetensors",
    ".keras": "Keras",
    ".h5": "HDF5",
    ".hdf5": "HDF5",
    ".npz": "NumPy",
    ".msgpack": "Flax",
    ".pkl": "pickle",
    ".pdparams": "Paddle",
    ".pdopt": "Paddle",
    ".ubj": "XGBoost",
    ".txt": "text",
}
"""Formats of one file."""
ANYTHING = (".bin", ".h5", ".hdf5", ".npz", ".pkl", ".ubj")
"""Those in which other things are stored as well."""
MARKERS = (
    (".metadata", "DCP"),
    ("saved_model.pb", "SavedModel"),
    ("_CHECKPOINT_METADATA", "Orbax"),
    (".snapshot_metadata", "torchsnapshot"),
)
"""Files that say that their folder is one checkpoint."""
_SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")
_UNFINISHED = re.compile(
    r"\.(?:tmp|temp|part|partial|lock)$|_temp$|\.tmp[-.]|^_?tmp[-_]|orbax-checkpoint-tmp|tempstate"
    r"|^\.(?!metadata$|snapshot_metadata$)"
)
_SAVED = re.compile(
    r"(?<![^\W\d_])(?:checkpoint|ckpt|model|weight|state|last|best|latest|final|epoch|step|optim|iter"
    r"|snapshot|param|adapter|backup|save)",
    re.IGNORECASE,
)
_DATA = re.compile(
    r"(?<![^\W\d_])(?:train|training|val|valid|validation|test|tokens?|tokenizer|data|dataset|corpus|vocab"
    r"|history|metrics?|logs?|cache|cached|features?|embeddings?)(?![^\W\d_])",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(?<![^\W\d_])(?:checkpoint|ckpt|snapshot)[-_=. ]?\d|^\d+$", re.IGNORECASE)
"""Names of folders that may be one save; those with a step may be as well."""
_DATA_FOLDER = re.compile(r"(?:^|/)(?:data|datasets?|corpus|cache)(?:/|$)", re.IGNORECASE)
_LAST = re.compile(r"(?<![^\W\d_])(?:last|latest|best|final)(?![^\W\d_])", re.IGNORECASE)
_TEXT_MODEL = re.compile(
    r"(?:^|.*[^a-z])(?:model|booster|checkpoint|ckpt)[-_.]?\d+\.txt$", re.IGNORECASE
)


def checkpoints(files: Sequence[File]) -> list[Checkpoint]:
    """Return the checkpoints among files, the latest first; unfinished ones are none."""
    found = [file for file in files if not any(map(_UNFINISHED.search, file.path.split("/")))]
    grouped: dict[tuple[str, str, bool], list[File]] = {}
    folders = _folders(found)
    single: list[File] = []
    for file in found:
        folder = _uppermost(file.path, folders)
        if folder:
            grouped.setdefault((folder, folders[folder], True), []).append(file)
        elif file.is_folder:
            continue
        elif file.path.endswith(".index") or _SHARD.search(file.path):
            prefix = _SHARD.sub("", file.path)
            prefix = prefix[: -len(".index")] if prefix.endswith(".index") else prefix
            grouped.setdefault((prefix, "TensorFlow", False), []).append(file)
        elif file.path.endswith(tuple(FORMATS)):
            single.append(file)
    for file in _saved(single):
        grouped[file.path, FORMATS[os.path.splitext(file.path)[1]], False] = [file]
    parts = [
        Part(name, form, [one for one in members if not one.is_folder], is_folder)
        for (name, form, is_folder), members in grouped.items()
    ]
    return _latest_first(_together(_named(parts)))


def _saved(files: Sequence[File]) -> Iterator[File]:
    """Yield those of some files that are no data: by a word, or one of a series of saves."""
    known = names(_in_order({file.path: file.time for file in files}))
    series: dict[str, int] = {}
    for one in known.values():
        series[one.role] = series.get(one.role, 0) + (one.step is not None)
    for file in files:
        path, (folder, _, name) = file.path, file.path.rpartition("/")
        is_any, has_step = name.endswith(ANYTHING), known[path].step is not None
        words = bool(_DATA.search(name) or _DATA_FOLDER.search(folder))
        is_data = words and (is_any or not has_step)
        is_data = is_data or (is_any and series[known[path].role] < 2)
        is_saved = _TEXT_MODEL.match(name) if name.endswith(".txt") else _SAVED.search(path)
        if is_saved or not (is_data or name.endswith(".txt")):
            yield file


def _folders(files: Sequence[File]) -> dict[str, str]:
    """Return the folders that are one checkpoint each, with their formats."""
    found = {}
    inside: dict[str, list[File]] = {}
    """What is in each folder with a number that may be that of a save."""
    for file in files:
        folder, _, name = file.path.rpartition("/")
        for marker, form in MARKERS:
            if name == marker and folder:
                found[folder] = form
        parts = file.path.split("/")
        for depth in range(1, len(parts)):
            name = parts[depth - 1]
            if _NUMBERED.search(name) or any(one.kind == STEP for one in numbers(name)):
                inside.setdefault("/".join(parts[:depth]), []).append(file)
    without = unfinished_dcp(files)
    spans: dict[str, list[tuple[int, int, str]]] = {}
    """When each folder was written whose name is a number alone, with others beside it."""
    for folder, members in inside.items():
        if folder in found or _has_saves(folder, members):
            continue
        if any(file.path.rpartition("/")[0] in without for file in members):
            continue
        parent, _, name = folder.rpartition("/")
        times = [file.time for file in members if not file.is_folder]
        if name.isdigit() and times:
            spans.setdefault(parent, []).append((min(times), max(times), folder))
        else:
            found[folder] = "folder"
    for beside in spans.values():
        found |= dict.fromkeys(_alone(beside), "folder")
    return found


def _alone(spans: Sequence[tuple[int, int, str]]) -> Iterator[str]:
    """Yield the folders that were written when none of the others was."""
    ordered, latest = sorted(spans), -1
    for place, (begin, end, folder) in enumerate(ordered):
        after = ordered[place + 1][0] if place + 1 < len(ordered) else end
        if latest <= begin and end <= after:
            yield folder
        latest = max(latest, end)


def unfinished_dcp(files: Sequence[File]) -> set[str]:
    """Return the folders of DCP whose index, which is written last, is not there."""
    begun = {file.path.rpartition("/")[0] for file in files if file.path.endswith(".distcp")}
    done = (".metadata", "metadata.json")
    return begun - {
        folder for folder, _, name in (file.path.rpartition("/") for file in files) if name in done
    }


def _has_saves(folder: str, members: Sequence[File]) -> bool:
    """Say whether a folder with a number in its name has several saves in it, or may have them.

    A number alone may be anything: that of a rank, a trial, a seed, or of the save itself.
    """
    own = folder.rpartition("/")[2]
    is_bare = own.isdigit()
    of_folder = {one.value for one in numbers(own)}
    inner: dict[tuple[str, int], set[int]] = {}
    """The values of each number that may be a step, in names that differ in their numbers alone."""
    for file in members:
        parts = file.path[len(folder) + 1 :].split("/")
        is_file = not file.is_folder and parts[-1].endswith(tuple(FORMATS))
        for part in parts if is_file or file.is_folder else parts[:-1]:
            if is_bare and _LAST.search(part):
                return True
            alike = _with(part, lambda *_: "#")
            for place, one in enumerate(numbers(part)):
                if one.kind == STEP or (one.kind == MAYBE and one.weight >= 0):
                    inner.setdefault((alike, place), set()).add(one.value)
                    several = one.kind == STEP and len(inner[alike, place]) > 1
                    if several or (is_bare and one.value not in of_folder):
                        return True
    return any(len(values) > 1 and not _counted([*values]) for values in inner.values())


def _uppermost(path: str, folders: Mapping[str, str]) -> str:
    """Return the uppermost of some folders that has a path in it; empty: none has."""
    position = path.find("/")
    while position >= 0:
        if path[:position] in folders:
            return path[:position]
        position = path.find("/", position + 1)
    return ""


def _in_order(paths: Mapping[str, int]) -> list[str]:
    """Return paths, with when they were written, in that order, and else that of their numbers."""
    return sorted(paths, key=lambda path: (paths[path], [one.value for one in numbers(path)], path))


def _named(parts: Sequence[Part]) -> list[tuple[Part, Name]]:
    """Return parts in the order of writing, with what their names say among the others."""
    own = {part.path: part for part in parts}
    times = {path: max((file.time for file in part.files), default=0) for path, part in own.items()}
    known = names(_in_order(times))
    return [
        (own[path]._replace(role=known[path].role, span=known[path].span), known[path])
        for path in _in_order(times)
    ]


def _together(parts: Sequence[tuple[Part, Name]]) -> list[Checkpoint]:
    """Return the saves that parts are of, which are in the order of writing.

    One save are those that differ in the number of the part alone, and those of one step in one
    folder between which none of another step was written.
    """
    saves: dict[str, list[Part]] = {}
    steps: dict[str, int | None] = {}
    before: dict[str, tuple[int, str]] = {}
    """The step of what was written last into each folder, and the save that it is of."""
    for part, name in parts:
        folder, _, last = name.save.rpartition("/")
        key = name.save
        if name.step is not None and not _LAST.search(last):
            step, with_it = before.get(folder, (-1, ""))
            if step == name.step and all(one.role != part.role for one in saves[with_it]):
                key = with_it
            before[folder] = name.step, key
        saves.setdefault(key, []).append(part)
        steps[key] = name.step
    return [
        Checkpoint(_common([part.path for part in own]), own, steps[key])
        for key, own in saves.items()
    ]


def _common(paths: Sequence[str]) -> str:
    """Return what paths have in common at their beginnings and ends, with `*` between."""
    if len(paths) == 1:
        return paths[0]
    begin = _prefix(paths)
    end = _prefix([path[len(begin) :][::-1] for path in paths])
    return f"{begin}*{end[::-1]}"


def _prefix(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    return first[: next((n for n, char in enumerate(first) if last[n : n + 1] != char), len(first))]


def matching(files: Sequence[File], pattern: str) -> list[Checkpoint]:
    """Return each file or folder that a pattern matches, the latest first.

    `*` is a part of a name, `**` any folders; a pattern without `/` is that of a name, and one that
    begins with it is that of a path from the folder on.
    """
    match = re.compile(translated(pattern.lstrip("/"))).match
    found = []
    for file in files:
        name = file.path if "/" in pattern else file.path.rpartition("/")[2]
        if match(name):
            inside = [one for one in files if one.path.startswith(f"{file.path}/")]
            members = [one for one in inside if not one.is_folder] if file.is_folder else [file]
            suffix = os.path.splitext(file.path)[1]
            form = "folder" if file.is_folder else FORMATS.get(suffix, "file")
            found.append(Part(file.path, form, members, file.is_folder))
    return _latest_first([Checkpoint(part.path, [part], name.step) for part, name in _named(found)])


def translated(pattern: str) -> str:
    """Return the regular expression of a pattern."""
    expression = ""
    for part in re.split(r"(\*\*/|\*\*|\*|\?|\[[^]/]+\])", pattern):
        if part == "**/":
            expression += "(?:.*/)?"
        elif part == "**":
            expression += ".*"
        elif part == "*":
            expression += "[^/]*"
        elif part == "?":
            expression += "[^/]"
        elif part.startswith("[") and part.endswith("]"):
            inner = re.escape(part[1:-1]).replace("\\-", "-")
            expression += "[" + re.sub(r"^\\?!", "^", inner) + "]"
        else:
            expression += re.escape(part)
    return expression + r"\Z"


def split_absolute(pattern: str) -> tuple[str, str]:
    """Return the folder that all matches of an absolute pattern are in, and the rest of it."""
    parts = pattern.split("/")
    count = next((n for n, part in enumerate(parts) if re.search(r"[*?[]", part)), len(parts) - 1)
    return "/".join(parts[:count]) or "/", "/" + "/".join(parts[count:])


def listed(files: Sequence[File]) -> dict[str, Any]:
    """Return what there is in a few words: `saved`, the checkpoints, and `others`; latest first."""
    found = [one for one in checkpoints(files) if one.files]
    known = {file.path for one in found for file in one.files}
    rest = [one for one in files if not one.is_folder and one.path not in known]
    return {
        "saved": [
            {"path": one.name, "format": one.format, "bytes": one.size, "wall": one.time / 1e9}
            for one in found[:SHOWN]
        ],
        "others": [one.path for one in sorted(rest, key=lambda one: -one.time)[:SHOWN]],
    }


def _latest_first(found: Sequence[Checkpoint]) -> list[Checkpoint]:
    return sorted(found, key=lambda one: (one.time, one.step or 0, one.name), reverse=True)


def older(one: Checkpoint, found: Sequence[Checkpoint]) -> Checkpoint | None:
    """Return the checkpoint that was saved before one, and has the same parts, if it is there."""
    roles = {part.role for part in one.parts}
    for other in found[found.index(one) + 1 :]:
        if any(part.role in roles for part in other.parts):
            return other
    return None


def counterparts(one: Checkpoint, before: Checkpoint) -> list[tuple[File, File]]:
    """Return the files of a checkpoint, each with that of an older one which it is in place of."""
    theirs = dict(_roles(before))
    pairs = [(file, theirs.get(key)) for key, file in _roles(one)]
    return [(file, other) for file, other in pairs if other is not None]


def _roles(one: Checkpoint) -> Iterator[tuple[tuple[str, str], File]]:
    """Yield each file with what its path has in common with those of other saves."""

    def without_step(_: int, number: Number, text: str) -> str:
        return "#" if number.value == one.step and number.kind in (STEP, MAYBE) else text

    for part in one.parts:
        for file in part.files:
            yield (part.role, _with(file.path[len(part.path) :], without_step)), file


def newer_names(one: Checkpoint, before: Checkpoint | None) -> list[tuple[str, Part]]:
    """Return what the parts of the next checkpoint would be called, each with the part of this one.

    Raises Failure without a number.
    """
    spans = [part for part in one.parts if part.span]
    if not spans:
        raise Failure(f"{one.name} has no number in its name, so that none is newer")
    last = -1 if before is None or before.step is None else before.step
    step = one.step - last if one.step is not None and 0 <= last < one.step else 1
    found = []
    for part in spans:
        begin, end = part.span
        number = str(int(part.path[begin:end]) + step).zfill(end - begin)
        found.append((part.path[:begin] + number + part.path[end:], part))
    return found


def what_is_there(files: Sequence[File]) -> str:
    """Return in words what a folder has, the latest first."""
    paths = [file.path for file in sorted(files, key=lambda one: -one.time) if not file.is_folder]
    if not paths:
        return "there are no files"
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return (
        f"there are {', '.join(paths[:SHOWN])}{more}" if len(paths) > 1 else f"there is {paths[0]}"
    )


# --- Files ----------------------------------------------------------------------------------------


class Folder:
    """The folder that is searched, open; all paths are relative to it."""

    def __init__(self, path: str) -> None:
        self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.deadline = time.monotonic() + PATIENCE
        """Until when a file that is open has to be closed (monotonic)."""
        self.kept: dict[str, bytes] = {}
        """The content of files as they were, by path."""
        self._mount = os.fstat(self._root).st_dev
        self._left_out = NOT_ITS_OWN if os.path.realpath(path) == "/" else ()

    def close(self) -> None:
        """Close it; nothing can be asked of it any more."""
        os.close(self._root)

    def files(self, since: float = 0.0) -> list[File]:
        """Return the folders, and the regular files that were written since a time (since 1970).

        What may not be read is left out.
        """
        found: list[File] = []
        waiting = [("", 0)]
        while waiting:
            path, depth = waiting.pop()
            with contextlib.suppress(OSError), self._in(path) as folder:
                for name in os.listdir(folder):
                    if len(found) >= ENTRIES:
                        return found
                    if not path and name in self._left_out:
                        continue
                    with contextlib.suppress(OSError):
                        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        inner = f"{path}/{name}" if path else name
                        if stat.S_ISDIR(status.st_mode):
                            found.append(File(inner, 0, status.st_mtime_ns, True))
                            if depth < DEPTH:
                                waiting.append((inner, depth + 1))
                        elif stat.S_ISREG(status.st_mode) and status.st_mtime >= since:
                            found.append(
                                File(
                                    inner,
                                    status.st_size,
                                    status.st_mtime_ns,
                                    why_not=self._why_not(status),
                                )
                            )
        return found

    def _why_not(self, status: os.stat_result) -> str:
        """Say why a file is left alone; empty: it is the run's."""
        if status.st_nlink > 1:
            return f"it has {status.st_nlink} names (hard links), and may be another's as well"
        return "" if status.st_dev == self._mount else "it is on another mount"

    def has(self, path: str) -> bool:
        """Return whether there is a file or folder."""
        folder, _, name = path.rpartition("/")
        try:
            with self._in(folder) as parent:
                os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def content_for(self, aim: Mapping[str, Any]) -> bytes:
        """Return what is to be written to a file. Raises Failure."""
        if aim["from"]:
            with self.opened(aim["from"], os.O_RDONLY) as source:
                return _content(source)
        if aim["path"] not in self.kept:
            raise Failure(f"the version of {aim['path']} that was kept is gone")
        return self.kept[aim["path"]]

    @contextlib.contextmanager
    def _in(self, path: str) -> Iterator[int]:
        """Open a folder below; no part of the way may be a link."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        current = os.dup(self._root)
        try:
            for part in filter(None, path.split("/")):
                inner = os.open(part, flags, dir_fd=current)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)

    @contextlib.contextmanager
    def opened(self, path: str, flags: int) -> Iterator[int]:
        """Open a regular file below."""
        folder, _, name = path.rpartition("/")
        with self._in(folder) as parent:
            # O_NONBLOCK: what was put in its place may be a pipe.
            file = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise Failure(f"{path} is no file any more")
            yield file
        finally:
            os.close(file)

    @contextlib.contextmanager
    def alone(self, path: str, *, even_open: bool) -> Iterator[int]:
        """Open a file that nobody else has open, or wait until that is so; nobody else opens it.

        Raises Failure.
        """
        while True:
            with self.opened(path, os.O_RDWR) as file:
                if even_open or _lease(file, path):
                    yield file
                    return
            if time.monotonic() > self.deadline:
                raise Failure(f"{path} was open all the time: it is being written or read")
            time.sleep(POLL)

    def remove(self, path: str, *, is_folder: bool = False) -> None:
        """Remove a file or an empty folder."""
        folder, _, name = path.rpartition("/")
        with self._in(folder) as parent:
            (os.rmdir if is_folder else os.unlink)(name, dir_fd=parent)

    def make(self, path: str, like: str, *, is_folder: bool = False) -> None:
        """Make an empty file or folder, of the same owner and mode as another."""
        folder, _, name = path.rpartition("/")
        with self._in(like.rpartition("/")[0]) as parent:
            other = os.stat(like.rpartition("/")[2], dir_fd=parent, follow_symlinks=False)
        with self._in(folder) as parent:
            if is_folder:
                os.mkdir(name, stat.S_IMODE(other.st_mode), dir_fd=parent)
            else:
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
                os.close(os.open(name, flags, stat.S_IMODE(other.st_mode), dir_fd=parent))
            with contextlib.suppress(PermissionError):
                os.chown(name, other.st_uid, other.st_gid, dir_fd=parent, follow_symlinks=False)


def _lease(file: int, path: str) -> bool:
    """Return whether nobody else has a file open; until it is closed, nobody else opens it then.

    Raises Failure where the kernel does not say: to another than the owner, of a file that is on a
    network, and everywhere but on Linux.
    """
    lease, why = getattr(fcntl, "F_SETLEASE", None), "not Linux"
    try:
        if lease is not None:
            fcntl.fcntl(file, lease, fcntl.F_WRLCK)
            return True
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return False
        why = error.strerror or ""
    raise Failure(
        f"the kernel does not say whether {path} is open ({why}); "
        "`even_open: true` changes it all the same"
    )


# --- What is done ---------------------------------------------------------------------------------


class Change(NamedTuple):
    """What is asked for."""

    folder: Folder
    files: Sequence[File]
    found: Sequence[Checkpoint]
    """The checkpoints that are meant; the first is the latest."""
    even_open: bool
    newest: int
    held: bool = False
    """A task waits for the change, so that nothing is saved meanwhile."""

    @property
    def latest(self) -> Checkpoint:
        """The one that is changed."""
        return self.found[0]


class Aims(NamedTuple):
    """What is to be done."""

    aims: list[dict[str, Any]]
    """The `path` of each file or folder, and what to `do`: half, flip, empty, remove, write (the
    content of the one that it is `from`; empty: the one that was kept), make, remove folder, make
    folder (`like` another)."""
    done: dict[str, Any]
    """The answer when it has been done."""


def tear(asked: Change) -> Aims:
    """Cut the largest file to half of its size."""
    path = asked.latest.largest.path
    return Aims([{"path": path, "do": "half"}], {"path": path})


def flip_bit(asked: Change) -> Aims:
    """Flip one bit in the middle of the largest file; its time of writing stays."""
    path = asked.latest.largest.path
    return Aims([{"path": path, "do": "flip"}], {"path": path})


def remove(asked: Change) -> Aims:
    """Remove all files of it, and its folder."""
    one = asked.latest
    aims = [{"path": file.path, "do": "remove"} for file in one.files]
    folders = [file.path for file in asked.files if file.is_folder]
    for part in one.parts:
        if part.is_folder:
            inner = [path for path in folders if path.startswith(f"{part.path}/")]
            for path in sorted((*inner, part.path), reverse=True):
                aims.append({"path": path, "do": "remove folder"})
    return Aims(aims, {"path": one.name, "before": one.size, "after": None})


def empty(asked: Change) -> Aims:
    """Cut all files of the newest ones to nothing; their times of writing stay."""
    meant = asked.found[: asked.newest]
    if len(meant) < asked.newest:
        raise Failure(f"there are only {len(meant)} of the newest {asked.newest}: {meant[0].name}")
    aims = [{"path": file.path, "do": "empty"} for one in meant for file in one.files if file.size]
    if not aims:
        raise Failure(f"{meant[0].name} is empty")
    size = sum(one.size for one in meant)
    saves = {"saves": [one.name for one in meant]} if asked.newest > 1 else {}
    return Aims(aims, {"path": asked.latest.name, "before": size, "after": 0, **saves})


def put_older_back(asked: Change) -> Aims:
    """Put the content of the same parts of the checkpoint before it in its place.

    One that is saved under the same name each time is kept, and put back after the next save.
    """
    one, before = asked.latest, older(asked.latest, asked.found)
    pairs = counterparts(one, before) if before else []
    if before is None or not pairs:
        return _keep_and_put_back(asked, one)
    aims = [{"path": file.path, "do": "write", "from": other.path} for file, other in pairs]
    return Aims(aims, {"path": one.name, "version": before.name})


def _keep_and_put_back(asked: Change, one: Checkpoint) -> Aims:
    if asked.held:
        raise Failure(f"{one.name} has no older version, and is not saved again before the change")
    kept = {}
    for file in one.files:
        with asked.folder.alone(file.path, even_open=asked.even_open) as source:
            kept[file.path] = _version(source), _content(source)
    deadline = time.monotonic() + NEXT_SAVE
    path = one.largest.path
    while time.monotonic() < deadline:
        # A new version may take the place of the old one by a rename.
        with contextlib.suppress(OSError), asked.folder.opened(path, os.O_RDONLY) as now:
            if _version(now) != kept[path][0]:
                break
        time.sleep(POLL)
    else:
        raise Failure(f"{path} was not saved again within {NEXT_SAVE:g} s")
    asked.folder.deadline = time.monotonic() + PATIENCE
    asked.folder.kept = {path: content for path, (_, content) in kept.items()}
    aims = [{"path": path, "do": "write", "from": ""} for path in kept]
    return Aims(aims, {"path": one.name, "version": one.name})


def _version(file: int) -> tuple[int, int, int]:
    status = os.fstat(file)
    return status.st_ino, status.st_size, status.st_mtime_ns


def _content(file: int) -> bytes:
    pieces, position = [], 0
    while piece := os.pread(file, PIECE, position):
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)


def _write(file: int, content: bytes) -> None:
    position = 0
    while position < len(content):
        position += os.pwrite(file, content[position : position + PIECE], position)
    os.ftruncate(file, len(content))


def make_newer(asked: Change) -> Aims:
    """Make the next name without content: an empty folder, or empty files."""
    one, aims = asked.latest, []
    named = newer_names(one, older(one, asked.found))
    for name, part in named:
        if part.is_folder:
            aims.append({"path": name, "do": "make folder", "like": part.path})
        for file in () if part.is_folder else part.files:
            path = f"{name}{file.path[len(part.path) :]}"
            aims.append({"path": path, "do": "make", "like": file.path})
    there = [aim["path"] for aim in aims if asked.folder.has(aim["path"])]
    if there:
        raise Failure(f"{there[0]} is there already")
    return Aims(aims, {"path": _common([name for name, _ in named]), "before": None, "after": 0})


HOW = {
    "torn": tear,
    "bitflip": flip_bit,
    "missing": remove,
    "stale": put_older_back,
    "empty-newer": make_newer,
    "zeroed": empty,
}


# --- Once, however often it is asked for ----------------------------------------------------------

MOST = 1000
"""Files of a change that are told before it."""


def measure(folder: Folder, aim: dict[str, Any], file: int) -> None:
    """Note how a file is before something is done to it, and how it is `then`."""
    status, do = os.fstat(file), aim["do"]
    size = status.st_size
    aim.update(inode=status.st_ino, size=size, mtime_ns=status.st_mtime_ns)
    if do in ("half", "flip") and not size:
        raise Failure(f"{aim['path']} is empty")
    if do == "half":
        aim["then"] = size // 2
    elif do == "empty":
        aim["then"] = 0
    elif do == "flip":
        aim["byte"] = size // 2
        aim["then"] = os.pread(file, 1, aim["byte"])[0] ^ 1 << BIT
    elif do == "write":
        content = folder.content_for(aim)
        aim["then"], aim["sum"] = len(content), hashlib.sha256(content).hexdigest()


def is_done(folder: Folder, aim: Mapping[str, Any], file: int | None) -> bool:
    """Return whether it was done. Raises Failure where somebody has written the file since."""
    do = aim["do"]
    if file is None:
        if do in ("remove", "remove folder"):
            return True
        if do.startswith("make"):
            return False
    else:
        status = os.fstat(file)
        if do.startswith("make"):
            done: bool | None = True if not status.st_size else None
        else:
            then = (aim["size"], aim["mtime_ns"])
            as_before = (status.st_size, status.st_mtime_ns) == then
            done = _is_then(aim, file, status, as_before=as_before)
            if status.st_ino != aim["inode"]:
                done = None
        if done is not None:
            return done
    since = "it is gone now" if file is None else "it has been written again since"
    raise Failure(
        f"whether {aim['path']} was changed is not known: the emulator was killed meanwhile, and "
        f"{since}"
    )


def _is_then(
    aim: Mapping[str, Any], file: int, status: os.stat_result, *, as_before: bool
) -> bool | None:
    """Return whether a file is as after a change; None: neither that nor as before."""
    do, now = aim["do"], status.st_size == aim.get("then")
    if do == "flip":
        return os.pread(file, 1, aim["byte"])[0] == aim["then"] if as_before else None
    if do == "write":
        now = now and hashlib.sha256(_content(file)).hexdigest() == aim["sum"]
    if do == "empty" and aim["size"]:
        as_before = status.st_size == aim["size"] and as_before
    if now and do != "remove":
        return True
    return False if as_before else None


def perform(folder: Folder, aim: Mapping[str, Any], file: int | None) -> None:
    """Do it."""
    do, path = aim["do"], aim["path"]
    if do.startswith("make"):
        folder.make(path, aim["like"], is_folder=do == "make folder")
    elif do == "remove":
        folder.remove(path)
    elif do == "remove folder":
        with contextlib.suppress(OSError):  # somebody else has put something there meanwhile
            folder.remove(path, is_folder=True)
    elif file is not None:
        if do == "write":
            _write(file, folder.content_for(aim))
        elif do == "flip":
            os.pwrite(file, bytes([aim["then"]]), aim["byte"])
        else:
            os.ftruncate(file, aim["then"])
        if do in ("flip", "empty"):
            os.utime(file, ns=(os.fstat(file).st_atime_ns, aim["mtime_ns"]))


def chosen(request: Mapping[str, Any], folder: Folder, files: Sequence[File], of: str) -> Aims:
    """Return what is to be done, by a request. Raises Failure."""
    how, newest, where = request["how"], request.get("newest", 1), request["folder"]
    found = checkpoints(files) if of == "latest" else matching(files, of)
    found = [one for one in found if one.files or one.is_folder]
    if not found:
        wanted = "there is no checkpoint" if of == "latest" else f"nothing matches {of.lstrip('/')}"
        there = what_is_there(files)
        if request.get("since"):
            every = folder.files()
            came = checkpoints(every) if of == "latest" else matching(every, of)
            names = ", ".join(one.name for one in came[:SHOWN])
            there += f"; older than the run, and not saved by it: {names}" if names else ""
        raise Failure(f"{wanted} in {where}: {there}")
    others = {one.name: file for one in found for file in one.files if file.why_not}
    own = [one for one in found if one.name not in others]
    meant = own if of == "latest" else found
    for one in (meant or found)[:newest]:
        if one.name in others:
            file = others[one.name]
            raise Failure(f"{file.path} is left alone: {file.why_not}")
    if not meant[0].files and how not in ("missing", "empty-newer"):
        raise Failure(f"{meant[0].name} is empty")
    even_open, held = bool(request.get("even_open")), bool(request.get("held"))
    asked = Change(folder, files, meant, even_open, newest, held)
    aims, done = HOW[how](asked)
    one = meant[0]
    left_out = [each.name for each in found[: found.index(one)]]
    more = {"left_out": left_out[:SHOWN]} if left_out else {}
    step = -1 if one.step is None else one.step
    return Aims(
        aims, {"checkpoint": one.name, "format": one.format, "number": step, **done, **more}
    )


def sizes(aims: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the answer says of the files: how they were before, and how they are then."""
    files = [aim for aim in aims if "inode" in aim]
    if not files:
        return {}
    largest = max(files, key=lambda aim: (aim["size"], aim["path"]))
    written = max(aim["mtime_ns"] for aim in files)
    told = {"inode": largest["inode"], "written": written / 1e9}
    if largest["do"] == "flip":
        size = largest["size"]
        return {**told, "before": size, "after": size, "byte": largest["byte"], "bit": BIT}
    if largest["do"] in ("half", "write"):
        told["before"] = sum(aim["size"] for aim in files)
        told["after"] = sum(aim["then"] for aim in files)
    return told


def talk(request: Mapping[str, Any]) -> Generator[dict[str, Any], None, dict[str, Any]]:
    """Find what is to be changed and yield it; change it; return what was done.

    What is yielded says enough to find out whether it was done already, when it is the `plan` of
    another request. From then on nobody else opens these files. Returns `error`: why nothing was
    done.
    """
    path, of = request["folder"], request["of"]
    if of.startswith("/") and request.get("anywhere"):
        path, of = split_absolute(of)
    try:
        folder = Folder(path)
        if request["how"] == LIST:
            return listed(folder.files(request.get("since", 0.0)))
        plan, even_open = request.get("plan"), bool(request.get("even_open"))
        if plan:
            aims, done = plan["aims"], plan["done"]
        else:
            files = folder.files(request.get("since", 0.0))
            aims, done = chosen({**request, "folder": path}, folder, files, of)
        with contextlib.ExitStack() as held:
            left: list[tuple[dict[str, Any], int | None]] = []
            at = 0
            for aim in aims:
                file = None
                if "folder" not in aim["do"] and folder.has(aim["path"]):
                    file = held.enter_context(folder.alone(aim["path"], even_open=even_open))
                if plan and is_done(folder, aim, file):
                    at = max(at, os.fstat(file).st_ctime_ns if file is not None else 0)
                    continue
                if not plan and file is not None:
                    measure(folder, aim, file)
                left.append((aim, file))
            if plan and plan.get("more") and left:
                raise Failure(f"{done['path']} may have been changed in part")
            if not plan:
                done.update(sizes(aims))
            more = {"more": len(aims) - MOST} if len(aims) > MOST else {}
            yield {"aims": aims[:MOST], "done": done, **more}
            for aim, file in left:
                perform(folder, aim, file)
                at = time_ns()
    except Failure as failure:
        return {"error": str(failure)}
    except OSError as error:
        return {"error": f"{error.filename or path}: {error.strerror}"}
    return {**done, "at": at / 1e9} if at else done


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what is asked for; return what was done, or `error`: why nothing was."""
    talking = talk(request)
    try:
        while True:
            next(talking)
    except StopIteration as end:
        found: dict[str, Any] = end.value
        return found


def main(arguments: Sequence[str]) -> None:
    """Answer one request; if it `waits`, tell first what will be changed, and wait for a line."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # somebody wants to open what it has a lease on
    request = json.loads(arguments[0])
    if request.get("again"):
        request["plan"] = json.loads(sys.stdin.readline())
    talking = talk(request)
    try:
        while True:
            plan = next(talking)
            if request.get("waits"):
                _print({"plan": plan})
                if not sys.stdin.readline():
                    return  # who has asked was killed
    except StopIteration as end:
        _print(end.value)


def _print(what: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
