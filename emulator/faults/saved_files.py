"""Find the latest checkpoint below a folder, and break it: a program of its own.

It runs where the files of a job are, from a copy of this one file: it needs only the standard
library of Python 3.8 or later. Its one argument is a request, and it prints one answer:

    {"folder": "/shared", "how": "torn", "of": "latest"}
    {"checkpoint": "run/model.pt", "format": "torch", "path": "run/model.pt", "before": 8001597,
     "after": 4000798}

What it changes lies below the folder: no link is followed on the way. A file that a process has
open is left alone until it is closed. Who asks the kernel for a write lease on a file gets it only
while nobody else, in whichever container, has it open, and whoever opens it then waits (fcntl(2),
F_SETLEASE).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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


class Checkpoint(NamedTuple):
    """Files that were saved together, under names of their own."""

    name: str
    """The path of the file or folder, or what the names of its files begin with."""
    format: str
    files: Sequence[File]
    is_folder: bool = False

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
        """Its largest file, where its numbers are."""
        return max(self.files, key=lambda file: (file.size, file.path))


class Failure(Exception):
    """Why nothing was changed, in words."""


# --- What is there (pure) -------------------------------------------------------------------------

FORMATS = {
    ".pt": "torch",
    ".pth": "torch",
    ".bin": "torch",
    ".ckpt": "Lightning",
    ".safetensors": "safetensors",
    ".keras": "Keras",
    ".h5": "HDF5",
    ".npz": "NumPy",
    ".msgpack": "Flax",
    ".pkl": "pickle",
}
"""Formats of one file."""
_SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")
_UNFINISHED = re.compile(
    r"\.(?:tmp|temp|part|partial|lock)$|\.tmp[-.]|orbax-checkpoint-tmp|tempstate|^\.(?!metadata$)"
)
_NUMBERED = re.compile(
    r"^(?:|(?:.*[^a-z])?(?:checkpoint|ckpt|step|steps|epoch|iter|iteration|version)[-_=.]?)(\d+)$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?=\D*$)")


def checkpoints(files: Sequence[File]) -> list[Checkpoint]:
    """Return the checkpoints among files, the latest first; unfinished ones are none."""
    seen = {file.path for file in files}
    folders: dict[str, str] = {}
    """The format of each folder that is one checkpoint."""
    grouped: dict[tuple[str, str, bool], list[File]] = {}
    for file in files:
        if any(_UNFINISHED.search(part) for part in file.path.split("/")):
            continue
        folder = _folder_of(file.path, seen, folders)
        if folder is not None:
            key = (folder, folders[folder], True)
        elif file.is_folder:
            continue
        elif file.path.endswith(".index") or _SHARD.search(file.path):
            prefix = _SHARD.sub("", file.path)
            prefix = prefix[: -len(".index")] if prefix.endswith(".index") else prefix
            key = (prefix, "TensorFlow", False)
        elif file.path.endswith(tuple(FORMATS)):
            key = (file.path, FORMATS[os.path.splitext(file.path)[1]], False)
        else:
            continue
        grouped.setdefault(key, []).append(file)
    found = [
        Checkpoint(name, form, [one for one in members if not one.is_folder], is_folder)
        for (name, form, is_folder), members in grouped.items()
    ]
    return _latest_first(found)


def _folder_of(path: str, seen: set[str], known: dict[str, str]) -> str | None:
    """Return the uppermost folder that is one checkpoint and has a path in it, if there is one."""
    parts = path.split("/")
    for depth in range(1, len(parts)):
        folder = "/".join(parts[:depth])
        if folder not in known:
            known[folder] = _folder_format(folder, seen)
        if known[folder]:
            return folder
    return None


def _folder_format(folder: str, seen: set[str]) -> str:
    """Return the format of a folder that is one checkpoint; empty if it is none."""
    for marker, form in ((".metadata", "DCP"), ("saved_model.pb", "SavedModel")):
        if f"{folder}/{marker}" in seen:
            return form
    if f"{folder}/_CHECKPOINT_METADATA" in seen:
        return "Orbax"
    return "folder" if _NUMBERED.match(folder.rpartition("/")[2]) else ""


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
            found.append(Checkpoint(file.path, form, members, file.is_folder))
    return _latest_first(found)


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
    return sorted(found, key=lambda one: (one.time, _number(one.name), one.name), reverse=True)


def _number(name: str) -> int:
    """Return the last number of a name; -1 without one."""
    found = _NUMBER.search(_stem(name))
    return int(found.group()) if found else -1


def _stem(name: str) -> str:
    """Return the last part of a path, without what follows a dot."""
    return name.rpartition("/")[2].partition(".")[0]


def series(name: str) -> str:
    """Return what the names of all checkpoints of a job have in common: all but the number."""
    folder, _, last = name.rpartition("/")
    stem, dot, rest = last.partition(".")
    return f"{folder}/{_NUMBER.sub('#', stem)}{dot}{rest}"


def older(one: Checkpoint, found: Sequence[Checkpoint]) -> Checkpoint | None:
    """Return the checkpoint that the same job saved before one, if it is there."""
    before = found[found.index(one) + 1 :]
    return next((other for other in before if series(other.name) == series(one.name)), None)


def counterparts(one: Checkpoint, before: Checkpoint) -> list[tuple[File, File]]:
    """Return the files of a checkpoint, each with that of an older one which it is in place of."""
    theirs = {series(file.path[len(before.name) :]): file for file in before.files}
    pairs = [(file, theirs.get(series(file.path[len(one.name) :]))) for file in one.files]
    return [(file, other) for file, other in pairs if other is not None]


def newer_name(one: Checkpoint, before: Checkpoint | None) -> str:
    """Return the name that the next checkpoint would have. Raises Failure without a number."""
    number, last = _number(one.name), _number(before.name) if before else -1
    if number < 0:
        raise Failure(f"{one.name} has no number in its name, so that none is newer")
    step = number - last if 0 <= last < number else 1
    folder, slash, name = one.name.rpartition("/")
    stem, dot, rest = name.partition(".")
    stem = _NUMBER.sub(lambda found: str(number + step).zfill(len(found.group())), stem)
    return f"{folder}{slash}{stem}{dot}{rest}"


def what_is_there(files: Sequence[File]) -> str:
    """Return in words what a folder has, the latest first."""
    names = [file.path for file in sorted(files, key=lambda one: -one.time) if not file.is_folder]
    if not names:
        return "there are no files"
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"there are {', '.join(names[:SHOWN])}{more}" if len(names) > 1 else f"there is {names[0]}"
    )


# --- Files ----------------------------------------------------------------------------------------


class Folder:
    """The folder that is searched, open; all paths are relative to it."""

    def __init__(self, path: str) -> None:
        self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.deadline = time.monotonic() + PATIENCE
        """Until when a file that is open has to be closed (monotonic)."""
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
                            found.append(File(inner, status.st_size, status.st_mtime_ns))
        return found

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
    held: bool = False
    """A task waits for the change, so that nothing is saved meanwhile."""

    @property
    def latest(self) -> Checkpoint:
        """The one that is changed."""
        return self.found[0]


def tear(asked: Change) -> dict[str, Any]:
    """Cut the largest file to half of its size."""
    path = asked.latest.largest.path
    with asked.folder.alone(path, even_open=asked.even_open) as file:
        before = os.fstat(file).st_size
        if not before:
            raise Failure(f"{path} is empty")
        os.ftruncate(file, before // 2)
    return {"path": path, "before": before, "after": before // 2}


def flip_bit(asked: Change) -> dict[str, Any]:
    """Flip one bit in the middle of the largest file; its time of writing stays."""
    path = asked.latest.largest.path
    with asked.folder.alone(path, even_open=asked.even_open) as file:
        status = os.fstat(file)
        byte = status.st_size // 2
        found = os.pread(file, 1, byte)
        if not found:
            raise Failure(f"{path} is empty")
        os.pwrite(file, bytes([found[0] ^ 1 << BIT]), byte)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    size = status.st_size
    return {"path": path, "before": size, "after": size, "byte": byte, "bit": BIT}


def remove(asked: Change) -> dict[str, Any]:
    """Remove all files of it, and its folder."""
    one = asked.latest
    with contextlib.ExitStack() as held:
        for file in one.files:
            held.enter_context(asked.folder.alone(file.path, even_open=asked.even_open))
        for file in one.files:
            asked.folder.remove(file.path)
    if one.is_folder:
        folders = [file.path for file in asked.files if file.is_folder]
        inner = [path for path in folders if path.startswith(f"{one.name}/")]
        with contextlib.suppress(OSError):  # somebody else has put something there meanwhile
            for path in sorted((*inner, one.name), reverse=True):
                asked.folder.remove(path, is_folder=True)
    return {"path": one.name, "before": one.size, "after": None}


def put_older_back(asked: Change) -> dict[str, Any]:
    """Put the content of the checkpoint before it in its place.

    One that is saved under the same name each time is kept, and put back after the next save.
    """
    one, before = asked.latest, older(asked.latest, asked.found)
    pairs = counterparts(one, before) if before else []
    if before is None or not pairs:
        return _keep_and_put_back(asked, one)
    for file, other in pairs:
        with asked.folder.opened(other.path, os.O_RDONLY) as source:
            content = _content(source)
        with asked.folder.alone(file.path, even_open=asked.even_open) as target:
            _write(target, content)
    return {"path": one.name, "before": one.size, "after": before.size, "version": before.name}


def _keep_and_put_back(asked: Change, one: Checkpoint) -> dict[str, Any]:
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
    asked.folder.deadline, before = time.monotonic() + PATIENCE, 0
    for path, (_, content) in kept.items():
        with asked.folder.alone(path, even_open=asked.even_open) as target:
            before += os.fstat(target).st_size
            _write(target, content)
    return {"path": one.name, "before": before, "after": one.size, "version": one.name}


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


def make_newer(asked: Change) -> dict[str, Any]:
    """Make the next name without content: an empty folder, or empty files."""
    one = asked.latest
    name = newer_name(one, older(one, asked.found))
    try:
        if one.is_folder:
            asked.folder.make(name, one.name, is_folder=True)
        for file in () if one.is_folder else one.files:
            asked.folder.make(f"{name}{file.path[len(one.name) :]}", file.path)
    except FileExistsError:
        raise Failure(f"{name} is there already") from None
    return {"path": name, "before": None, "after": 0}


HOW = {
    "torn": tear,
    "bitflip": flip_bit,
    "missing": remove,
    "stale": put_older_back,
    "empty-newer": make_newer,
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked for; return what was done, or `error`: why nothing was."""
    of, path = request["of"], request["folder"]
    if of.startswith("/") and request.get("anywhere"):
        path, of = split_absolute(of)
    try:
        folder = Folder(path)
        files = folder.files(request.get("since", 0.0))
        if request["how"] == LIST:
            return listed(files)
        found = checkpoints(files) if of == "latest" else matching(files, of)
        found = [one for one in found if one.files or one.is_folder]
        if not found:
            wanted = (
                "there is no checkpoint" if of == "latest" else f"nothing matches {of.lstrip('/')}"
            )
            raise Failure(f"{wanted} in {path}: {what_is_there(files)}")
        if not found[0].files and request["how"] not in ("missing", "empty-newer"):
            raise Failure(f"{found[0].name} is empty")
        even_open, held = bool(request.get("even_open")), bool(request.get("held"))
        changed = HOW[request["how"]](Change(folder, files, found, even_open, held))
    except Failure as failure:
        return {"error": str(failure)}
    except OSError as error:
        return {"error": f"{error.filename or path}: {error.strerror}"}
    one = found[0]
    return {"checkpoint": one.name, "format": one.format, "number": _number(one.name), **changed}


def main(arguments: Sequence[str]) -> None:
    """Answer one request."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # somebody wants to open what it has a lease on
    sys.stdout.write(json.dumps(answer(json.loads(arguments[0]))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
