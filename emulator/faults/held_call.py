"""Hold a task just before one of its calls to the kernel, such as its third write to a file.

A program of its own: it runs where the processes of a task are, from a copy of this one file, and
needs only the standard library of Python 3.8 or later, Linux 5.3 or later, and the right to trace
them. Its one argument is a request:

    {"call": "write", "count": 3, "of": ".*/[^/]*[.]pt", "below": 1}

`of` is the regular expression of the paths that are meant.

It prints one line once it traces all of them, and one when it holds the task, or all have ended; or
`error`:

    {"attached": 2}
    {"held": "write", "path": "/shared/model.pt", "pid": 7, "number": 3, "bytes": 4096}

The call has not been made then, and no thread of the task gets further than its next one. It stays
so until this program ends, as it does when its standard input is closed: the kernel then lets all
of them go on. So nothing is left of it, however it ends (ptrace(2)).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import re
import signal
import stat
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

CONT, DETACH, SYSCALL = 7, 17, 24
SEIZE, INTERRUPT, LISTEN, GET_SYSCALL_INFO = 0x4206, 0x4207, 0x4208, 0x420E
OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10
"""Calls are told from signals; what the task starts is traced as well: fork, vfork, clone, exec."""
EVENT_STOP = 128
ALL = 0x40000000
"""waitpid: also threads that are no children of this one."""
ENTRY = 1
INFO = struct.Struct("=B3xIQQQ6Q")
"""What GET_SYSCALL_INFO says of a call that is about to be made (linux/ptrace.h)."""
LONGEST_PATH = 4096
AT_FDCWD = -100

# Numbers of calls (asm/unistd.h): x86-64, and those of all newer architectures.
_CALLS = {
    "x86_64": {
        **{1: "write", 18: "pwrite64", 20: "writev", 296: "pwritev", 328: "pwritev2"},
        **{40: "sendfile", 326: "copy_file_range", 74: "fsync", 75: "fdatasync"},
        **{82: "rename", 264: "renameat", 316: "renameat2", 87: "unlink", 263: "unlinkat"},
    },
    "aarch64": {
        **{64: "write", 68: "pwrite64", 66: "writev", 70: "pwritev", 287: "pwritev2"},
        **{71: "sendfile", 285: "copy_file_range", 82: "fsync", 83: "fdatasync"},
        **{38: "renameat", 276: "renameat2", 35: "unlinkat"},
    },
}
KINDS = {
    "write": ("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range"),
    "fsync": ("fsync", "fdatasync"),
    "rename": ("rename", "renameat", "renameat2"),
    "unlink": ("unlink", "unlinkat"),
}
"""The calls that count as one kind."""
_FILE = {"copy_file_range": 2}
"""Which argument is the file that is written to; the first of the others."""
_NAMES = {
    "rename": ((None, 0), (None, 1)),
    "renameat": ((0, 1), (2, 3)),
    "renameat2": ((0, 1), (2, 3)),
    "unlink": ((None, 0),),
    "unlinkat": ((0, 1),),
}
"""Which arguments are names, each with that of the folder it is relative to."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class Call(NamedTuple):
    """A call that a thread is about to make."""

    name: str
    arguments: Sequence[int]


class Gone(Exception):
    """The thread has ended."""


def ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> int:
    """Call the kernel. Raises Gone, OSError."""
    result: int = _libc.ptrace(request, thread, address, data)
    if result < 0:
        code = ctypes.get_errno()
        if code == errno.ESRCH:
            raise Gone
        raise OSError(code, os.strerror(code))
    return result


class Tracer:
    """Traces all threads of some processes, and those that they start."""

    def __init__(self, call: str, count: int, of: str) -> None:
        numbers = _CALLS[platform.machine()]
        self._wanted = {number: name for number, name in numbers.items() if name in KINDS[call]}
        self._count, self._matches = count, re.compile(of).match
        self._seen = 0
        self._info = ctypes.create_string_buffer(INFO.size)

    def attach(self, ancestor: int, *, itself: bool) -> int:
        """Trace what a process has started, until no new thread is found; return how many."""
        traced: set[int] = set()
        while new := [one for one in threads(ancestor, itself=itself) if one not in traced]:
            for thread in new:
                with contextlib.suppress(Gone):
                    ptrace(SEIZE, thread, 0, OPTIONS)
                    ptrace(INTERRUPT, thread)
                traced.add(thread)
        return len(traced)

    def run(self) -> dict[str, Any] | None:
        """Let the threads run until the call is about to be made; None: all have ended."""
        while True:
            try:
                thread, status = os.waitpid(-1, ALL)
            except ChildProcessError:
                return None
            if not os.WIFSTOPPED(status):
                continue
            with contextlib.suppress(Gone):
                if held := self._stopped(thread, status):
                    return held

    def _stopped(self, thread: int, status: int) -> dict[str, Any] | None:
        """Look at what a thread has stopped for; let it run on, or return what it is held at."""
        number, event = os.WSTOPSIG(status), status >> 16
        if number == signal.SIGTRAP | 0x80:
            call = self._call(thread)
            if call is not None and (held := self._held(thread, call)):
                return held
            ptrace(SYSCALL, thread)
        elif event == EVENT_STOP and number in (19, 20, 21, 22):
            ptrace(LISTEN, thread)  # it was stopped by a signal, and stays so
        elif event or number == signal.SIGTRAP:
            ptrace(SYSCALL, thread)
        else:
            ptrace(SYSCALL, thread, 0, number)  # the signal is its own
        return None

    def _call(self, thread: int) -> Call | None:
        """Return the call that a thread is about to make, if it is one of those wanted."""
        address = ctypes.addressof(self._info)
        ptrace(GET_SYSCALL_INFO, thread, INFO.size, address)
        kind, _, _, _, number, *arguments = INFO.unpack(self._info.raw)
        if kind != ENTRY or number not in self._wanted:
            return None
        return Call(self._wanted[number], arguments)

    def _held(self, thread: int, call: Call) -> dict[str, Any] | None:
        """Count a call to a file that is meant; return what it is if it is the one."""
        with contextlib.suppress(OSError):
            path = next((one for one in paths(thread, call) if self._matches(one)), None)
            if path is None:
                return None
            self._seen += 1
            if self._seen == self._count:
                size = call.arguments[2] if call.name in ("write", "pwrite64") else None
                seen = {"held": call.name, "path": path, "pid": thread, "number": self._seen}
                return {**seen, **({} if size is None else {"bytes": size})}
        return None


def threads(ancestor: int, *, itself: bool) -> Iterator[int]:
    """Yield the threads of all that a process has started, or of that and `itself`."""
    if itself:
        with contextlib.suppress(OSError):
            yield from map(int, os.listdir(f"/proc/{ancestor}/task"))
    found, below = parents(), {ancestor}
    found.pop(os.getpid(), None)
    while more := {one for one, parent in found.items() if parent in below} - below:
        below |= more
    for process in below - {ancestor}:
        with contextlib.suppress(OSError):
            yield from map(int, os.listdir(f"/proc/{process}/task"))


def parents() -> dict[int, int]:
    """Return the parent of each process that is seen here."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
            found[int(name)] = int(file.read().rpartition(b") ")[2].split()[1])
    return found


def paths(thread: int, call: Call) -> Iterator[str]:
    """Yield the paths of the regular files that a call is about. Raises OSError."""
    if call.name not in _NAMES:
        link = f"/proc/{thread}/fd/{call.arguments[_FILE.get(call.name, 0)]}"
        if stat.S_ISREG(os.stat(link).st_mode):
            yield os.readlink(link).replace(" (deleted)", "")
        return
    for folder, name in _NAMES[call.name]:
        path = text_at(thread, call.arguments[name])
        if not path.startswith("/"):
            at = AT_FDCWD if folder is None else ctypes.c_int(call.arguments[folder]).value
            where = f"/proc/{thread}/" + ("cwd" if at == AT_FDCWD else f"fd/{at}")
            path = os.path.normpath(os.path.join(os.readlink(where), path))
        yield path


def text_at(thread: int, address: int) -> str:
    """Return the text at an address of a thread. Raises OSError."""
    found = b""
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
    try:
        while b"\0" not in found and len(found) < LONGEST_PATH:
            found += os.pread(memory, 256 - (address + len(found)) % 256, address + len(found))
    finally:
        os.close(memory)
    return found.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def say(what: dict[str, Any]) -> None:
    """Print an answer."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _end_with_input() -> None:
    """End when who asks has ended, or wants that."""
    while os.read(0, 1):
        pass
    os._exit(0)


def main(arguments: Sequence[str]) -> None:
    """Answer one request."""
    request = json.loads(arguments[0])
    if platform.machine() not in _CALLS:
        return say({"error": f"calls on {platform.machine()} can't be told apart"})
    threading.Thread(target=_end_with_input, daemon=True).start()
    tracer = Tracer(request["call"], request["count"], request["of"])
    try:
        attached = tracer.attach(request["below"], itself=bool(request.get("itself")))
    except OSError as error:
        return say({"error": f"its processes can't be traced here ({error.strerror})"})
    say({"attached": attached})
    try:
        held = tracer.run()
    except OSError as error:
        return say({"error": f"its calls can't be told ({error.strerror})"})
    say(held or {"ended": True})
    with contextlib.suppress(ChildProcessError):
        while held:
            os.waitpid(-1, ALL)  # one that was killed has ended only then


if __name__ == "__main__":
    main(sys.argv[1:])
