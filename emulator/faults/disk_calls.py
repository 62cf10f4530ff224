"""What a disk that fails or is slow does to the calls of a task: rules of its tracer.

It runs behind a copy of `held_call.py`, as one program with it (`tracer.py`), and needs no more
than that. The rules:

    {"do": "error", "errno": 5, "calls": ["write"], "of": ".*[.]pt", "in": "shared"}
    {"do": "error", "errno": 30, "only": "changes", ...}    EROFS: what changes nothing is made
    {"do": "error", "errno": 28, "only": "growth", ...}     ENOSPC: what needs no room is made
    {"do": "delay", "seconds": 0.2, "calls": [...], ...}    the call is made so much later

It says once of a rule, with its id, that a call has met it:

    {"met": "0", "name": "openat", "path": "/shared/model.pt"}

`of` is the regular expression of the paths that are meant, and `in` says where: `shared`, the
folder that all tasks have; `home`, the working directory of the task and what is below; otherwise
anywhere. `calls` are of KINDS, by default all. A call that is refused is not made, and its caller
gets the error.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple

from emulator.faults import held_call
from emulator.faults.held_call import LEAVING, Call, Rule, flags_of, paths, ptrace, say

POKEUSER, GETREGSET, SETREGSET = 6, 0x4204, 0x4205
ORIG_RAX, RAX = 15 * 8, 10 * 8
"""Where the number of a call and its result are (sys/user.h of x86-64)."""
NT_PRSTATUS, NT_ARM_SYSTEM_CALL = 1, 0x404
AARCH64_REGISTERS = 34
NO_CALL = 2**64 - 1

# Numbers of calls (asm/unistd.h), besides those that `held_call` knows.
NUMBERS = {
    "x86_64": {
        **{0: "read", 17: "pread64", 19: "readv", 295: "preadv", 327: "preadv2"},
        **{285: "fallocate", 84: "rmdir"},
        **{83: "mkdir", 258: "mkdirat", 88: "symlink"},
        **{266: "symlinkat", 90: "chmod", 91: "fchmod", 268: "fchmodat", 280: "utimensat"},
    },
    "aarch64": {
        **{63: "read", 67: "pread64", 65: "readv", 69: "preadv", 286: "preadv2"},
        47: "fallocate",
        **{34: "mkdirat", 36: "symlinkat"},
        **{52: "fchmod", 53: "fchmodat", 88: "utimensat"},
    },
}
NAMES = {
    **dict.fromkeys(("mkdir", "rmdir", "chmod"), ((None, 0),)),
    **dict.fromkeys(("mkdirat", "fchmodat", "utimensat"), ((0, 1),)),
    "symlink": ((None, 1),),
    "symlinkat": ((1, 2),),
}
"""Which arguments are names, as in `held_call`."""
KINDS = {
    "open": held_call.OPENS,
    "read": ("read", "pread64", "readv", "preadv", "preadv2"),
    "write": (*held_call.KINDS["write"], "truncate", "ftruncate", "fallocate"),
    "fsync": held_call.KINDS["fsync"],
    "rename": held_call.RENAMES,
    "unlink": (*held_call.KINDS["unlink"], "rmdir"),
    "mkdir": ("mkdir", "mkdirat", "link", "linkat", "symlink", "symlinkat"),
}
"""The calls of each kind that a fault can name."""
ATTRIBUTES = ("chmod", "fchmod", "fchmodat", "utimensat")
CHANGES = {*KINDS["write"], *KINDS["rename"], *KINDS["unlink"], *KINDS["mkdir"], *ATTRIBUTES}
"""What changes a file system, whatever its arguments."""
GROWTH = {*held_call.KINDS["write"], "fallocate", *KINDS["mkdir"]}
"""What needs room on one."""


class Place(NamedTuple):
    """The files that are meant."""

    of: re.Pattern[str]
    inside: str
    """`shared`, `home`, or empty for anywhere."""
    shared: str
    """The folder that all tasks have."""
    home: str
    """The working directory of the task."""

    def has(self, path: str) -> bool:
        """Return whether a path is meant (pure)."""
        if self.inside == "shared" and not is_below(path, self.shared):
            return False
        if self.inside == "home" and not (is_below(path, self.home) and self._is_own(path)):
            return False
        return self.of.match(path) is not None

    def _is_own(self, path: str) -> bool:
        return not any(is_below(path, one) for one in (self.shared, "/proc", "/sys", "/dev"))


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or below it (pure)."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_refused(only: str, name: str, flags: int, found: int | None) -> bool:
    """Return whether a disk refuses a call of that name (pure).

    `only`: `changes` of one that is read-only, `growth` of one that is full, or empty: every call.
    `flags` are those of an open, and `found` is the mode of the file that is there; None: none is.
    """
    if not only:
        return True
    if name not in KINDS["open"]:
        return name in (CHANGES if only == "changes" else GROWTH)
    creates = bool(flags & os.O_CREAT) and found is None
    creates = creates or flags & os.O_TMPFILE == os.O_TMPFILE
    if only == "growth" or creates:
        return creates
    # What is not there is not found; a pipe or a device is no file of the disk.
    is_file = found is not None and (stat.S_ISREG(found) or stat.S_ISLNK(found))
    return is_file and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC))


class DiskRule(Rule):
    """A rule about some calls to the files of a place."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        super().__init__(asked)
        kinds = asked.get("calls") or KINDS
        self.calls = [name for kind in kinds for name in KINDS[kind]]
        if asked.get("only") == "changes":
            self.calls += ATTRIBUTES
        shared, home = asked.get("shared", ""), asked.get("home", "")
        self._place = Place(re.compile(asked.get("of", "")), asked.get("in", ""), shared, home)
        self._is_met = False

    def means(self, thread: int, call: Call) -> str | None:
        """Return the path by which a call is meant; None: it is not. Raises OSError."""
        return next((one for one in paths(thread, call) if self._place.has(one)), None)

    def met(self, call: Call, path: str) -> None:
        """Say that a call has met it, if it is the first one."""
        if not self._is_met:
            self._is_met = True
            say({"met": self.id, "name": call.name, "path": path})


class Error(DiskRule):
    """Calls are refused with an error."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        super().__init__(asked)
        self._errno, self._only = int(asked["errno"]), asked.get("only", "")

    def entered(self, thread: int, call: Call) -> float | None:
        """Have it not made if it is meant."""
        path = self.means(thread, call)
        if path is None:
            return None
        flags, found = 0, None
        if self._only and call.name in KINDS["open"]:
            flags, found = flags_of(thread, call), mode_of(thread, path)
        if not is_refused(self._only, call.name, flags, found):
            return None
        self.met(call, path)
        skip(thread)
        return LEAVING

    def left(self, thread: int, result: int) -> None:
        """Let it have failed."""
        fail(thread, self._errno)


class Delay(DiskRule):
    """Calls are made later."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        super().__init__(asked)
        self._seconds = float(asked["seconds"])

    def entered(self, thread: int, call: Call) -> float | None:
        """Return by how many seconds it is late, if it is meant."""
        if (path := self.means(thread, call)) is None:
            return None
        self.met(call, path)
        return self._seconds


def mode_of(thread: int, path: str) -> int | None:
    """Return the mode of what a task has at a path, links not followed; None: nothing."""
    try:
        return os.lstat(f"/proc/{thread}/root{path}").st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def skip(thread: int) -> None:
    """Have a thread not make the call that it is about to make. Raises Gone, OSError.

    The kernel makes none of this number; a filter of the task's container may say ENOSYS.
    """
    if platform.machine() == "x86_64":
        ptrace(POKEUSER, thread, ORIG_RAX, NO_CALL)
    else:
        _transfer(SETREGSET, thread, NT_ARM_SYSTEM_CALL, ctypes.c_int(-1))


def fail(thread: int, code: int) -> None:
    """Let the call that a thread has just made have failed with an error. Raises Gone, OSError."""
    if platform.machine() == "x86_64":
        ptrace(POKEUSER, thread, RAX, 2**64 - code)
        return
    registers = (ctypes.c_uint64 * AARCH64_REGISTERS)()
    _transfer(GETREGSET, thread, NT_PRSTATUS, registers)
    registers[0] = 2**64 - code
    _transfer(SETREGSET, thread, NT_PRSTATUS, registers)


def _transfer(request: int, thread: int, what: int, data: Any) -> None:  # noqa: ANN401  of ctypes
    where = (ctypes.c_uint64 * 2)(ctypes.addressof(data), ctypes.sizeof(data))
    ptrace(request, thread, what, ctypes.addressof(where))


held_call.extend(NUMBERS, NAMES, {"error": Error, "delay": Delay})
