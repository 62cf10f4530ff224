"""A task that sees late what is new on the shared volume: a rule of its tracer.

It runs behind `held_call.py` and `disk_calls.py`, as one program with them (`tracer.py`). The rule:

    {"do": "late", "seconds": 29, "of": ".*"}

Names that appear on the shared volume after it has begun are not there for the task until so many
seconds after; `of` is the regular expression of their paths. What the task makes itself is there.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from emulator.faults import disk_calls, held_call
from emulator.faults.disk_calls import fail, skip
from emulator.faults.held_call import LEAVING, Call, Rule, bytes_at, flags_of, paths

# Numbers of calls (asm/unistd.h), besides those that the others know.
NUMBERS = {
    "x86_64": {
        **{4: "stat", 6: "lstat", 21: "access", 78: "getdents", 80: "chdir", 89: "readlink"},
        **{217: "getdents64", 262: "newfstatat", 267: "readlinkat", 269: "faccessat"},
        **{332: "statx", 439: "faccessat2"},
    },
    "aarch64": {
        **{48: "faccessat", 49: "chdir", 61: "getdents64", 78: "readlinkat", 79: "newfstatat"},
        **{291: "statx", 439: "faccessat2"},
    },
}
NAMES = {
    **dict.fromkeys(("stat", "lstat", "access", "chdir", "readlink"), ((None, 0),)),
    **dict.fromkeys(("newfstatat", "readlinkat", "faccessat", "statx", "faccessat2"), ((0, 1),)),
}
"""Which arguments are names, as in `held_call`."""
OPENS, MOVES = ("open", "openat", "openat2"), held_call.RENAMES
MAKES = {*MOVES, *disk_calls.KINDS["mkdir"], "creat"}
"""Calls that make a name: their last one."""
LISTS = ("getdents", "getdents64")


class Names:
    """What a task sees below a folder: a name that appears is there for it so many seconds later.

    Names that are there now it knows, and those that it makes itself. A name begins to be new when
    the file, as it is first looked at, was last changed.
    """

    def __init__(self, seconds: float, matches: Callable[[str], object], folder: str) -> None:
        self._seconds, self._matches, self._folder = seconds, matches, folder.rstrip("/")
        self._known: set[str] = set()
        self._since: dict[str, float] = {}

    def learn(self, root: str) -> None:
        """Take what is there now for known; `root` is where the task's files are seen here."""
        at = root + self._folder
        for folder, folders, files in os.walk(at):
            below = folder[len(at) :]
            self._known.update(f"{below}/{name}" for name in (*folders, *files))

    def below(self, path: str) -> str:
        """Return the part of a path that is below the folder, from its slash on; empty: none is."""
        prefix = f"{self._folder}/"
        return path[len(prefix) - 1 :] if path.startswith(prefix) else ""

    def made(self, path: str, before: str = "") -> None:
        """The task makes a name, from the name `before` if it moves that."""
        new, old = self.below(path), self.below(before)
        if not new:
            return
        self._known.add(new)
        if old:
            inner = [name for name in self._known if name.startswith(f"{old}/")]
            self._known.update(new + name[len(old) :] for name in inner)

    def hides(self, path: str, root: str, now: float) -> bool:
        """Say whether a path is not there yet for the task, or a folder on the way to it."""
        parts = self.below(path).split("/")[1:]
        names = ["/" + "/".join(parts[: n + 1]) for n in range(len(parts)) if parts[n]]
        return any(self._hides(name, root, now) for name in names)

    def _hides(self, name: str, root: str, now: float) -> bool:
        if name in self._known:
            return False
        path = self._folder + name
        try:
            changed = os.lstat(root + path).st_ctime
        except OSError:
            self._since.pop(name, None)
            return False
        since = self._since.setdefault(name, changed)
        if self._matches(path) and now < since + self._seconds:
            return True
        self._known.add(name)
        return False


class Late(Rule):
    """What is hidden is neither found nor listed."""

    calls = (*NAMES, *OPENS, *MAKES, *LISTS)

    def __init__(self, asked: Mapping[str, Any]) -> None:
        super().__init__(asked)
        self._view = Names(float(asked["seconds"]), self._matches, asked["shared"])
        self._lists: dict[int, Call] = {}
        """Threads that list a folder."""

    def begin(self, threads: Collection[int]) -> None:
        """Take what is there now for known."""
        if threads:
            self._view.learn(f"/proc/{min(threads)}/root")

    def entered(self, thread: int, call: Call) -> float | None:
        """Refuse to look up what is hidden; note what the task makes itself."""
        if call.name in LISTS:
            self._lists[thread] = call
            return LEAVING
        self._lists.pop(thread, None)
        names = [os.path.normpath(one) for one in paths(thread, call)]
        if not names or not self._view.below(names[-1]):
            return None
        is_made = call.name in MAKES
        if is_made or (call.name in OPENS and flags_of(thread, call) & os.O_CREAT):
            self._view.made(names[-1], names[0] if call.name in MOVES else "")
        elif self._hides(thread, names[-1]):
            skip(thread)
            return LEAVING
        return None

    def left(self, thread: int, result: int) -> None:
        """Say that what is hidden is not there, or take it out of a list."""
        call = self._lists.pop(thread, None)
        if call is None:
            fail(thread, errno.ENOENT)
        elif result > 0:
            folder = os.readlink(f"/proc/{thread}/fd/{call.arguments[0]}")
            if self._view.below(f"{folder}/x"):
                self._shorten(thread, folder, call, result)

    def _shorten(self, thread: int, folder: str, call: Call, size: int) -> None:
        plain, buffer = call.name == "getdents", call.arguments[1]
        entries = bytes_at(thread, buffer, size)
        listed = [one for one in names_of(entries, plain) if one not in (".", "..")]
        hidden = [one for one in listed if self._hides(thread, f"{folder}/{one}")]
        if hidden:
            write_at(thread, buffer, without(entries, hidden, plain))

    def _hides(self, thread: int, path: str) -> bool:
        return self._view.hides(path, f"/proc/{thread}/root", time.time())


def without(entries: bytes, hidden: Sequence[str], plain: bool) -> bytes:
    """Return what getdents answered without some names, in as many bytes (pure).

    An entry gets as long as it and the hidden one behind it were. A hidden one that is the first is
    called `.`, which every reader of folders skips. `plain`: of getdents, whose entries have no
    type before the name.
    """
    found, at, before, head = bytearray(entries), 0, -1, 18 if plain else 19
    names = {os.fsencode(name) for name in hidden}
    while at < len(found):
        (length,) = struct.unpack_from("=H", found, at + 16)
        name = bytes(found[at + head : at + length]).split(b"\0")[0]
        if name in names and before >= 0:
            (longer,) = struct.unpack_from("=H", found, before + 16)
            if longer + length < 0x10000:
                struct.pack_into("=H", found, before + 16, longer + length)
                at += length
                continue
        if name in names:
            found[at + head : at + head + 2] = b".\0"
        before, at = at, at + length
    return bytes(found)


def names_of(entries: bytes, plain: bool) -> Iterator[str]:
    """Yield the names in what getdents answered (pure)."""
    at, head = 0, 18 if plain else 19
    while at < len(entries):
        (length,) = struct.unpack_from("=H", entries, at + 16)
        yield os.fsdecode(entries[at + head : at + length].split(b"\0")[0])
        at += length


def write_at(thread: int, address: int, content: bytes) -> None:
    """Write into the memory of a thread. Raises OSError."""
    memory = os.open(f"/proc/{thread}/mem", os.O_WRONLY)
    try:
        os.pwrite(memory, content, address)
    finally:
        os.close(memory)


held_call.extend(NUMBERS, NAMES, {"late": Late})
