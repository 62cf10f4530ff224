"""Watch folders by inotify(7), and print what becomes of the files in them: a program of its own.

It runs where the files of a job are, from a copy of this one file: it needs only the standard
library of Python 3.8 or later, on Linux, and no right but to read the folders. Its argument names
them, and it prints a line of JSON for each thing that became of a file, until its input ends:

    {"folders": {"shared": "/shared"}, "since": 1700000000.0}
    {"at": 1700000000.1, "saw": "watching", "folders": 1}
    {"at": ..., "saw": "written", "in": "shared", "path": "run/model.pt", "first": ..., "bytes": 8}

`at` is in seconds since 1970. What it sees:

written   a file was written, and has been closed: `first`, when it was first written since it was
          opened; `bytes`, null if it has another name by now. Of one that was there when its folder
          was first looked at, `first` is when it was last written, and `found` is true: it may be
          open still. None that was written before `since` is told. Of one that came from where
          nothing is watched, `renamed` is true, and `first` when it was last written
moved     from `path` to `to`: a file of so many `bytes`, or a folder with all in it (`folder`), and
          the `sizes` of its files that were closed so late that they were not found then
removed   a file, or a folder with all that was in it (`folder`)
read      for the first time since it was opened, or opened if it is read as memory, or empty
open      a file is being written: once, until it is closed
blind     a folder can't be watched or is gone, or events were lost: `why`. Of folders beyond a
          limit only the first is told

Only files that were written since it began are told to be read.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

ACCESS, MODIFY, CLOSE_WRITE, CLOSE_NOWRITE, OPEN = 0x1, 0x2, 0x8, 0x10, 0x20
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
OVERFLOW, IGNORED, IS_FOLDER = 0x4000, 0x8000, 0x40000000
ONLY_FOLDERS, NO_LINKS = 0x01000000, 0x02000000
WANTED = (
    ACCESS | MODIFY | CLOSE_WRITE | CLOSE_NOWRITE | OPEN | MOVED_FROM | MOVED_TO | CREATE | DELETE
)
EVENT = struct.Struct("iIII")
"""The watch, what happened, the cookie that both halves of a move have, the length of a name."""
WATCHES = 2_000
"""Folders that are watched. The machine allows so many watches, of all programs of a user."""
DEPTH = 20
"""Levels of folders."""
KNOWN = 100_000
"""Files of which it is known how they were written."""
MAPPED = (".safetensors",)
"""Files that are read as memory, of which the kernel tells nothing but that they are opened."""
PIECE = 2**18
"""Bytes of events that are read at once."""
REST = 20
"""Pieces at the end: more than the kernel keeps of events (fs.inotify.max_queued_events)."""
PAUSE = 0.01
"""Seconds between two reads: equal events that follow each other are one by then."""
NETWORKED = frozenset(
    {0x6969, 0xFF534D42, 0xFE534D42, 0x517B, 0x65735546, 0x01021997}
    | {0x00C36400, 0x0BD00BD0, 0x47504653, 0x19830326}
)
"""File systems that tell of this machine alone: NFS, CIFS, SMB, FUSE, 9p; Ceph, Lustre, GPFS,
BeeGFS (statfs(2), and stat.c of coreutils)."""


class Watch:
    """What is watched, and what is known of each file."""

    def __init__(self, say: Callable[[Mapping[str, Any]], None], since: float = 0.0) -> None:
        self._say, self._since = say, since
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._folders: dict[int, tuple[str, str]] = {}
        """By watch: the name of what is watched, and the path of the folder in it."""
        self._roots: dict[str, str] = {}
        self._limits = set[str]()
        """Those that were told."""
        self._writing: dict[tuple[str, str], float] = {}
        """When each file was made, or first written since it was opened."""
        self._open: set[tuple[str, str]] = set()
        """Those of which that was told."""
        self._written: set[tuple[str, str]] = set()
        self._reading: set[tuple[str, str]] = set()
        self._empty: set[tuple[str, str]] = set()
        """Files of which nothing can be read, so that the kernel does not tell that they are."""
        self._unsized: set[tuple[str, str]] = set()
        """Those whose folder had another name already when they were closed."""
        self._moving: dict[int, tuple[str, str, bool]] = {}
        """What has left a folder, and may arrive in another one, by cookie."""

    def add(self, name: str, path: str) -> None:
        """Watch a folder with all in it."""
        self._roots[name] = path
        self._add(name, "")

    def follow(self, until: int) -> Iterator[None]:
        """Tell of what happens until an input ends; yield after each piece of events."""
        is_over = False
        while not is_over:
            ready, _, _ = select.select([self._fd, until], [], [])
            is_over = until in ready and not os.read(until, PIECE)
            with contextlib.suppress(BlockingIOError):
                for _ in range(REST if is_over else 1):
                    self._take(os.read(self._fd, PIECE), time.time())
            yield
            time.sleep(0 if is_over else PAUSE)

    # --- Folders ----------------------------------------------------------------------------------

    def _path(self, name: str, path: str) -> str:
        return os.path.join(self._roots[name], path) if path else self._roots[name]

    def _add(self, name: str, path: str) -> None:
        """Watch a folder, and look once into it: it may have had events before."""
        waiting = [path]
        while waiting:
            inner = waiting.pop()
            if inner.count("/") > DEPTH:
                continue
            if len(self._folders) >= WATCHES:
                self._limit(name, inner, f"{WATCHES} folders are watched already")
                return
            where = os.fsencode(self._path(name, inner))
            mask = WANTED | ONLY_FOLDERS | NO_LINKS
            watch = self._libc.inotify_add_watch(self._fd, where, mask)
            if watch < 0:
                code = ctypes.get_errno()
                if code == errno.ENOSPC:
                    self._limit(name, inner, _why(code))
                elif code not in (errno.ENOENT, errno.ENOTDIR):
                    self._tell("blind", name, inner, why=_why(code))
                continue
            self._folders[watch] = (name, inner)
            waiting += self._look(name, inner)

    def _look_again(self) -> None:
        """Find the files and folders of which nothing was told, because events were lost."""
        for known in (self._writing, self._open, self._reading):
            known.clear()
        for name in self._roots:
            self._add(name, "")

    def _limit(self, name: str, path: str, why: str) -> None:
        """Tell once of a limit: a program may make a folder at each step."""
        if why not in self._limits:
            self._limits.add(why)
            self._tell("blind", name, path, why=why)

    def _look(self, name: str, path: str) -> list[str]:
        """Tell of the files that a folder has; return the folders in it."""
        inside: list[str] = []
        try:
            with os.scandir(self._path(name, path)) as entries:
                for entry in entries:
                    inner = f"{path}/{entry.name}" if path else entry.name
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    if stat.S_ISDIR(status.st_mode):
                        inside.append(inner)
                    elif stat.S_ISREG(status.st_mode) and status.st_mtime >= self._since:
                        self._note_found(name, inner, status)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                self._tell("blind", name, path, why=_why(error.errno or 0))
        return inside

    def _note_found(self, name: str, path: str, status: os.stat_result) -> None:
        """Tell of a file that was written before its folder was watched."""
        key = (name, path)
        if key in self._writing or key in self._written:
            return
        self._know(key)
        at = status.st_mtime
        self._tell("written", name, path, at, first=at, bytes=status.st_size, found=True)

    # --- Events -----------------------------------------------------------------------------------

    def _take(self, piece: bytes, now: float) -> None:
        place = 0
        while place < len(piece):
            watch, mask, cookie, length = EVENT.unpack_from(piece, place)
            place += EVENT.size
            called = os.fsdecode(piece[place : place + length].rstrip(b"\0"))
            place += length
            if mask & OVERFLOW:
                self._tell("blind", "", "", now, why="more happened than the kernel keeps")
                self._look_again()
            elif mask & IGNORED:
                name, folder = self._folders.pop(watch, ("", "gone"))
                if not folder:  # no folder above it is watched, which would tell of a new one
                    self._tell("blind", name, "", now, why="it was removed")
            elif watch in self._folders and called:
                name, folder = self._folders[watch]
                path = f"{folder}/{called}" if folder else called
                self._happened(name, path, mask, cookie, now)
        for left, (name, path, is_folder) in list(self._moving.items()):
            del self._moving[left]  # to where nothing is watched
            self._removed(name, path, now, is_folder)

    def _happened(self, name: str, path: str, mask: int, cookie: int, now: float) -> None:
        key, is_folder = (name, path), bool(mask & IS_FOLDER)
        if mask & MOVED_FROM:
            self._moving[cookie] = (name, path, is_folder)
        elif mask & MOVED_TO:
            self._arrived(name, path, cookie, now, is_folder)
        elif mask & DELETE:
            self._removed(name, path, now, is_folder)
        elif is_folder:
            if mask & CREATE:
                self._add(name, path)
        elif mask & CREATE:
            self._created(key, now)
        elif mask & MODIFY:
            if key not in self._open:
                self._open.add(key)
                self._writing.setdefault(key, now)
                self._tell("open", name, path, now)
        elif mask & CLOSE_WRITE:
            self._reading.discard(key)
            self._closed(key, now)
        elif mask & ACCESS:
            self._is_read(key, now)
        elif mask & OPEN:
            if path.endswith(MAPPED) or key in self._empty:
                self._is_read(key, now)
        elif mask & CLOSE_NOWRITE:
            self._reading.discard(key)

    def _is_read(self, key: tuple[str, str], now: float) -> None:
        if key not in self._reading and (key in self._written or key in self._open):
            self._reading.add(key)
            self._tell("read", *key, now)

    def _created(self, key: tuple[str, str], now: float) -> None:
        """Take note of a new file, or of another name of one; links and pipes are none."""
        try:
            status = os.stat(self._path(*key), follow_symlinks=False)
        except OSError:  # it has another name by now, or is gone
            self._writing[key] = now
            return
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            self._note_found(*key, status)
        elif stat.S_ISREG(status.st_mode):
            self._writing[key] = now

    def _closed(self, key: tuple[str, str], now: float) -> None:
        self._open.discard(key)
        first = self._writing.pop(key, None)
        if first is None:
            return  # it was opened for writing, and not written
        self._know(key)
        size = self._size(*key)
        (self._empty.discard if size else self._empty.add)(key)
        (self._unsized.add if size is None else self._unsized.discard)(key)
        self._tell("written", *key, now, first=round(first, 6), bytes=size)

    def _arrived(self, name: str, path: str, cookie: int, now: float, is_folder: bool) -> None:
        came = self._moving.pop(cookie, None)
        if came is None or came[0] != name:
            if came is not None:
                self._removed(came[0], came[1], now, is_folder)
            if is_folder:
                self._add(name, path)
                return
            with contextlib.suppress(OSError):
                status = os.stat(self._path(name, path), follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    self._came(name, path, now, status)
            return
        self._rename(name, came[1], path, is_folder)
        of: dict[str, Any] = {"bytes": self._size(name, path)}
        if is_folder:
            late = [one for one in self._inside(name, path) if one in self._unsized]
            self._unsized.difference_update(late)
            of = {"folder": True, "sizes": {inner: self._size(name, inner) for _, inner in late}}
        self._tell("moved", name, came[1], now, to=path, **of)

    def _came(self, name: str, path: str, now: float, status: os.stat_result) -> None:
        """Tell of a file that was written where nothing is watched, such as in /tmp."""
        self._forget(name, path, False)
        self._know((name, path))
        first, size = min(now, round(status.st_mtime, 6)), status.st_size
        self._tell("written", name, path, now, first=first, bytes=size, renamed=True)

    def _size(self, name: str, path: str) -> int | None:
        """Return the bytes of a file; None: it has another name by now, or is gone."""
        try:
            return os.stat(self._path(name, path), follow_symlinks=False).st_size
        except OSError:
            return None

    def _rename(self, name: str, before: str, after: str, is_folder: bool) -> None:
        """Have all that is known of a file, or of what is in a folder, under the new name."""

        old = self._inside(name, before) if is_folder else [(name, before)]
        new = {one: (name, after + one[1][len(before) :]) for one in old}
        self._forget(name, after, False)
        for known in (self._written, self._reading, self._open, self._empty, self._unsized):
            there = known.intersection(old)
            known -= there
            known |= {new[one] for one in there}
        for one in old:
            if one in self._writing:
                self._writing[new[one]] = self._writing.pop(one)
        for watch, (of, path) in list(self._folders.items()) if is_folder else ():
            if of == name and f"{path}/".startswith(f"{before}/"):
                self._folders[watch] = (of, after + path[len(before) :])

    def _inside(self, name: str, folder: str) -> list[tuple[str, str]]:
        """Return the known files in a folder."""
        every = {*self._written, *self._writing}
        return [one for one in every if one[0] == name and one[1].startswith(f"{folder}/")]

    def _removed(self, name: str, path: str, now: float, is_folder: bool) -> None:
        self._forget(name, path, is_folder)
        self._tell("removed", name, path, now, **({"folder": True} if is_folder else {}))

    def _forget(self, name: str, path: str, is_folder: bool) -> None:
        for one in self._inside(name, path) if is_folder else [(name, path)]:
            for known in (self._written, self._reading, self._open, self._empty, self._unsized):
                known.discard(one)
            self._writing.pop(one, None)

    def _know(self, key: tuple[str, str]) -> None:
        if len(self._written) < KNOWN:
            self._written.add(key)

    def _tell(
        self, saw: str, name: str, path: str, at: float | None = None, **more: object
    ) -> None:
        when = time.time() if at is None else at
        self._say({"at": round(when, 6), "saw": saw, "in": name, "path": path, **more})

    @property
    def count(self) -> int:
        """How many folders are watched."""
        return len(self._folders)


def _why(code: int) -> str:
    """Return why a folder can't be watched, in words."""
    if code == errno.ENOSPC:
        return "the machine allows no more watches (fs.inotify.max_user_watches)"
    if code in (errno.EACCES, errno.EPERM):
        return "it may not be read"
    return os.strerror(code)


def is_networked(path: str) -> bool:
    """Return whether a folder is on a file system that does not tell what others do to it."""
    libc = ctypes.CDLL(None, use_errno=True)
    answer = ctypes.create_string_buffer(256)  # struct statfs begins with its type
    if libc.statfs(os.fsencode(path), answer):
        return False
    return struct.unpack_from("l", answer)[0] & 0xFFFFFFFF in NETWORKED


def main(arguments: list[str]) -> None:
    """Watch until the input ends."""

    def say(what: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(what) + "\n")

    request = json.loads(arguments[0])
    try:
        watch = Watch(say, request.get("since", 0.0))
    except OSError as error:
        why = "the machine allows no more (fs.inotify.max_user_instances)"
        why = why if error.errno == errno.EMFILE else str(error.strerror)
        say({"at": time.time(), "saw": "blind", "in": "", "path": "", "why": why})
        sys.stdout.flush()
        return
    for name, path in request["folders"].items():
        if is_networked(path):
            say(
                {"at": time.time(), "saw": "blind", "in": name, "path": "",
                 "why": "it is on a network file system, which tells nothing"}
            )  # fmt: skip
        watch.add(name, path)
    own = {"own": True} if "own" in request["folders"] else {}
    say({"at": round(time.time(), 6), "saw": "watching", "folders": watch.count, **own})
    sys.stdout.flush()
    for _ in watch.follow(sys.stdin.fileno()):
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
