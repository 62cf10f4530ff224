"""Trace a task, and hold it where its rules say: such as just before its third write to a file.

A program of its own: it runs where the processes of a task are, from a copy of this one file, and
needs only the standard library of Python 3.8 or later, Linux 5.3 or later, and the right to trace
them. A task has one tracer, whatever is done with it. Its one argument is a request:

    {"rules": [{"do": "hold", "id": "0", "call": "write", "count": 3, "of": ".*[.]pt"}], "below": 1}

`of` is the regular expression of the paths that are meant. The rules, and what they print:

    {"do": "begin"}                         the task is held at the beginning, until it may go on
    {"begun": 2}                            so many threads are held; with `"filtered": true` if
                                            the kernel filters its calls
    {"do": "hold", "call": CALL, ...}       it is held before so many a call of a kind
    {"held": "write", "path": "/shared/model.pt", "pid": 7, "number": 3, "bytes": 4096, "id": "0"}
    {"do": "list", "of": ..., "lines": ...} each call to such a file, when it has been made, and
                                            each line of output that `lines` is found in
    {"call": "write", "name": "pwrite64", "path": "/shared/model.pt", "bytes": 4096}
    {"line": "saved step 20"}

Only calls count that change what is there: one that fails does not, nor does one that removes what
is neither a file nor a link. Whether a call will fail is seen before it as far as the names that it
is about say it, and after it for sure.

It prints `{"attached": 2}` once it traces all threads, with `"late": true` if the task has begun
before, so that it may have made calls; `{"ended": true}` when all have ended, and `{"error": ...}`
if it can't do what is asked. All rules are in force then, but those that it names (`"later":
[ID]`): these say `{"added": [ID], ...}` themselves, each when it is. Lines on its standard input
change what it does:

    {"add": [RULE, ...]}    more rules; a call counts from here on, and so it says `{"added": [ID]}`
    {"drop": [ID, ...]}     these rules are over; what is held for one of them goes on; with
                            `"confirm": true` it says `{"dropped": [ID, ...]}`
    {"go": true}            what is held at the beginning goes on

With `"filtered": true` in the request, the gate lets the kernel stop the task at calls that rules
look at, and at no others (`call_filter.py`). The task then ends with this program, which ends with
the task alone.

What is held has not made the call, and no thread of the task gets further than its next one. The
beginning is the first instruction of the command behind the gate (`engines/kit/gate.py`), which
waits until it is traced; or where a task without one happens to be. This program ends when its
standard input is closed, and when no rule is left: the kernel then lets all threads go on. So
nothing is left of it, however it ends (ptrace(2))."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import heapq
import json
import os
import platform
import queue
import re
import signal
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

CONT, DETACH, SYSCALL = 7, 17, 24
SEIZE, INTERRUPT, LISTEN, GET_SYSCALL_INFO = 0x4206, 0x4207, 0x4208, 0x420E
OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10
"""Calls are told from signals; what the task starts is traced as well: fork, vfork, clone, exec."""
FILTERED = 0x80 | 0x100000
"""Calls stop in a filter of the kernel; the task ends with this program, since they fail then."""
EVENT_EXEC, EVENT_FILTER, EVENT_STOP = 4, 7, 128
ALL = 0x40000000
"""waitpid: also threads that are no children of this one."""
ENTRY, EXIT, IN_FILTER = 1, 2, 3
INFO = struct.Struct("=B3xIQQQ6Q")
"""What GET_SYSCALL_INFO says of a call that is about to be made (linux/ptrace.h)."""
LONGEST_PATH = 4096
LONGEST_LINE = 65536
GATE = "emulator-gate"
"""What the command line of the gate has, until it becomes the command of the task."""
LOOK = 0.005
"""Seconds between looks for the first process of a task that has just been started."""
AT_FDCWD = -100

# Numbers of calls (asm/unistd.h): x86-64, and those of all newer architectures.
NUMBERS = {
    "x86_64": {
        **{1: "write", 18: "pwrite64", 20: "writev", 296: "pwritev", 328: "pwritev2"},
        **{40: "sendfile", 275: "splice", 326: "copy_file_range", 74: "fsync", 75: "fdatasync"},
        **{82: "rename", 264: "renameat", 316: "renameat2", 86: "link", 265: "linkat"},
        **{87: "unlink", 263: "unlinkat"},
        **{2: "open", 257: "openat", 437: "openat2", 85: "creat", 76: "truncate", 77: "ftruncate"},
    },
    "aarch64": {
        **{64: "write", 68: "pwrite64", 66: "writev", 70: "pwritev", 287: "pwritev2"},
        **{71: "sendfile", 76: "splice", 285: "copy_file_range", 82: "fsync", 83: "fdatasync"},
        **{38: "renameat", 276: "renameat2", 37: "linkat", 35: "unlinkat"},
        **{56: "openat", 437: "openat2", 45: "truncate", 46: "ftruncate"},
    },
}
RENAMES, LINKS = ("rename", "renameat", "renameat2"), ("link", "linkat")
OPENS = ("open", "openat", "openat2", "creat")
KINDS = {
    "write": (
        *("write", "pwrite64", "writev", "pwritev", "pwritev2"),
        *("sendfile", "splice", "copy_file_range"),
    ),
    "truncate": (*OPENS, "truncate", "ftruncate"),
    "fsync": ("fsync", "fdatasync"),
    "rename": (*RENAMES, *LINKS),
    "unlink": ("unlink", "unlinkat"),
}
"""The calls that count as one kind: a link gives what was written its name, as a rename does. An
open counts if it empties a file."""
_FILE = {"copy_file_range": 2, "splice": 2}
"""Which argument is the file that is written to; the first of the others."""
_NAMES: dict[str, Sequence[tuple[int | None, int]]] = {
    "rename": ((None, 0), (None, 1)),
    "renameat": ((0, 1), (2, 3)),
    "renameat2": ((0, 1), (2, 3)),
    "link": ((None, 0), (None, 1)),
    "linkat": ((0, 1), (2, 3)),
    "unlink": ((None, 0),),
    "unlinkat": ((0, 1),),
    **dict.fromkeys(("open", "creat", "truncate"), ((None, 0),)),
    **dict.fromkeys(("openat", "openat2"), ((0, 1),)),
}
"""Which arguments are names, each with that of the folder it is relative to."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class Call(NamedTuple):
    """A call that a thread is about to make."""

    name: str
    arguments: Sequence[int]


LEAVING, STAYS = -1.0, -2.0
"""Of a call that a rule looks at again when it is over; of one at which its thread stays."""


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


class Rule:
    """What is done about the calls of a task that are of some kinds, to files that are meant."""

    calls: Sequence[str] = ()
    """The names of the calls that it looks at."""
    only: set[int] | None = None
    """The threads whose calls it looks at; None: all. Others cost nothing for it."""
    is_in_force = True
    """At once; otherwise `look` says when it is."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.id = asked.get("id")
        self._matches = re.compile(asked.get("of", "")).match

    def begin(self, threads: Collection[int]) -> None:
        """These threads are traced, and it holds from now on. Raises OSError."""

    def means(self, thread: int, call: Call) -> str | None:
        """Return the path by which a call is meant; None: it is not. Raises OSError."""
        return next((one for one in paths(thread, call) if self._matches(one)), None)

    def entered(self, thread: int, call: Call) -> dict[str, Any] | float | None:
        """A thread is about to make a call; return what to say if the task is to be held here.

        Or by how many seconds this call is late, or LEAVING, or STAYS. Raises OSError, Gone.
        """
        return None

    def left(self, thread: int, result: int) -> None:
        """A call that was LEAVING is over, and its thread has not seen the result.

        Raises OSError, Gone.
        """

    def stays(self, thread: int) -> bool:
        """Return whether a thread that has stopped somewhere stays there."""
        return False

    def look(self, *, is_held: bool) -> float | None:
        """Do what its time has come for; return in how many seconds to look again; None: never."""
        return None

    def forget(self, thread: int) -> None:
        """A thread has ended."""


class Hold(Rule):
    """The task is held before so many a call of a kind."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        super().__init__(asked)
        self.calls, self._count, self._seen = KINDS[asked["call"]], asked["count"], 0
        self._made: dict[int, bool] = {}
        """Threads in such a call, each with whether it was counted."""

    def entered(self, thread: int, call: Call) -> dict[str, Any] | float | None:
        """Count it if it is going to be made; hold the task if it is the one."""
        if never_counts(thread, call):
            return None
        path = self.means(thread, call)
        if path is None or (counts := prospect(thread, call)) is None:
            return None
        self._seen += counts
        if counts and self._seen == self._count:
            seen = {"held": call.name, "path": path, "pid": thread, "number": self._seen}
            return {**seen, **size_of(call)}
        self._made[thread] = counts
        return LEAVING

    def left(self, thread: int, result: int) -> None:
        """Count it if it was made after all, or don't."""
        counted = self._made.pop(thread, None)
        if counted is not None:
            self._seen += (result >= 0) - counted

    def forget(self, thread: int) -> None:
        """A thread has ended."""
        self._made.pop(thread, None)


class List(Rule):
    """Each call that was made is printed, and each line of output that is asked for."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        super().__init__(asked)
        self.calls = [name for names in KINDS.values() for name in names]
        self._lines = re.compile(asked["lines"]).search if asked.get("lines") else None
        self._begun: dict[str, str] = {}
        """What was written of a line that is not finished, by where it goes."""
        self._made: dict[int, dict[str, Any]] = {}
        """Threads in such a call, each with what is to be printed."""

    def entered(self, thread: int, call: Call) -> float | None:
        """Print it when it has been made."""
        if self._lines and call.name in ("write", "writev") and call.arguments[0] in (1, 2):
            self._printed(thread, call, self._lines)
        if never_counts(thread, call):
            return None
        names = list(paths(thread, call))
        if not any(map(self._matches, names)) or prospect(thread, call) is None:
            return None
        kind = next(kind for kind, calls in KINDS.items() if call.name in calls)
        other = {"to": names[1]} if len(names) > 1 else {}
        told = {"call": kind, "name": call.name, "path": names[0], **other, "pid": thread}
        self._made[thread] = {**told, **size_of(call)}
        return LEAVING

    def left(self, thread: int, result: int) -> None:
        """Print it, unless it has failed."""
        told = self._made.pop(thread, None)
        if told is not None and result >= 0:
            say(told)

    def forget(self, thread: int) -> None:
        """A thread has ended."""
        self._made.pop(thread, None)

    def _printed(self, thread: int, call: Call, wanted: Callable[[str], object]) -> None:
        """Print the lines that a write of output finishes."""
        where = os.readlink(f"/proc/{thread}/fd/{call.arguments[0]}")
        text = self._begun.get(where, "") + written(thread, call)
        *lines, rest = re.split(r"[\n\r]", text)  # a bar draws its line anew
        self._begun[where] = rest[-LONGEST_LINE:]
        for line in lines:
            if wanted(line):
                say({"line": line, "pid": thread})


RULES: dict[str, type[Rule]] = {"hold": Hold, "list": List}
"""By `do`; `begin` is the tracer's own, and the files beside this one add more (`tracer.py`)."""


def extend(
    numbers: Mapping[str, Mapping[int, str]],
    names: Mapping[str, Sequence[tuple[int | None, int]]],
    rules: Mapping[str, type[Rule]],
) -> None:
    """Know more calls: their numbers by machine, and which arguments are names; and rules."""
    for machine, known in numbers.items():
        NUMBERS[machine].update(known)
    _NAMES.update(names)
    RULES.update(rules)


class Tracer:
    """Traces all threads of some processes, and those that they start."""

    def __init__(self, places: Mapping[str, Any]) -> None:
        """`places`: what rules may need to know: `shared`, `home`."""
        self._numbers, self._places = NUMBERS[platform.machine()], places
        self._threads: set[int] = set()
        self._rules: list[Rule] = []
        self._wanted: dict[int, list[Rule]] = {}
        """The rules that look at a call, by its number."""
        self._coming: list[Rule] = []
        """Those that are not in force at once, or look at the calls of some threads alone."""
        self._everything = False
        """The calls of all threads are looked at."""
        self._ends_task = bool(places.get("filtered"))
        """All threads end with it, see `FILTERED`."""
        self._is_filtered = False
        """The gate has shown that the kernel stops the task at calls that rules look at."""
        self._held: set[object] = set()
        """The rules for which all are held; None among them: the beginning."""
        self._caught = 0
        """The thread that they hold, if it is one."""
        self._is_late = True
        """There was no gate any more when it came."""
        self._begins = False
        """They are held when the gate becomes the command."""
        self._stopped: list[tuple[int, int]] = []
        """What has stopped while all are held, with its status."""
        self._late: list[tuple[float, int]] = []
        """Threads whose calls are late, each with when it goes on (monotonic seconds): a heap."""
        self._leaving: dict[int, list[Rule]] = {}
        """Threads in a call at whose end rules look."""
        self._staying: dict[int, tuple[Rule, int]] = {}
        """Threads that stay where they are for a rule, with the status to be looked at then; 0:
        that was done."""
        self._info = ctypes.create_string_buffer(INFO.size)
        self._info_at = ctypes.addressof(self._info)

    def add(self, asked: Sequence[Mapping[str, Any]]) -> tuple[list[object], list[object]]:
        """Follow more rules; return the ids of those that are in force, and of those that come.

        Raises KeyError for one that is not known, OSError.
        """
        new = [RULES[one["do"]]({**self._places, **one}) for one in asked]
        self._set([*self._rules, *new])
        for rule in new:
            rule.begin(self._threads)
        come = [rule.id for rule in new if not rule.is_in_force]
        return [rule.id for rule in new if rule.is_in_force], come

    def obey(self, what: Mapping[str, Any]) -> None:
        """Do what a line on standard input asks for. Raises OSError."""
        if more := what.get("add"):
            added, _ = self.add(more)
            if added:
                say({"added": added})
        gone = what.get("drop", ())
        self._set([one for one in self._rules if one.id not in gone])
        if what.get("confirm"):
            say({"dropped": gone})
        if self._held:
            self._held -= {*gone, *([None] if what.get("go") else [])}
            if not self._held:
                self._go_on()

    def _set(self, rules: list[Rule]) -> None:
        self._rules = sorted(rules, key=lambda rule: rule.only is None)  # who stays makes no call
        wanted = {
            number: [rule for rule in self._rules if name in rule.calls]
            for number, name in self._numbers.items()
        }
        self._wanted = {number: some for number, some in wanted.items() if some}
        self._coming = [one for one in rules if not one.is_in_force or one.only is not None]
        was = self._everything
        self._everything = any(rule.calls and rule.only is None for rule in rules)
        if self._everything and not was:
            interrupt(self._threads - self._staying.keys())
        for thread, (rule, status) in [*self._staying.items()]:
            if rule not in rules:
                del self._staying[thread]
                if status:
                    self._look(thread, status)
                else:
                    self._make(thread)

    def attach(self, ancestor: int, *, begins: bool) -> None:
        """Trace what a process has started, until no new thread is found. Raises OSError.

        What `begins` is waited for: its engine may not have started it yet.
        """
        while begins and not any(threads(ancestor)):
            if not os.path.exists(f"/proc/{ancestor}"):
                break
            time.sleep(LOOK)
        while new := {*threads(ancestor)} - self._threads:
            # Before it is traced: then it becomes the command, and stops there.
            self._is_late = self._is_late and not any(map(is_gate, new))
            for thread in new:
                with contextlib.suppress(Gone):
                    try:
                        options = OPTIONS | (FILTERED if self._ends_task else 0)
                        ptrace(SEIZE, thread, 0, options)
                    except PermissionError:
                        # Else one that we trace has started it, or it waits to be waited for.
                        if tracer_of(thread) != os.getpid() and not has_ended(thread):
                            raise
            self._threads |= new

    def follow(self, asked: Sequence[Mapping[str, Any]], *, begins: bool) -> None:
        """Follow the first rules, from the beginning of the task if it `begins`."""
        _, come = self.add(asked)
        late = {"late": True} if self._is_late else {}
        say({"attached": len(self._threads), **late, **({"later": come} if come else {})})
        if begins:
            self._begins = True
            if not any(map(is_gate, self._threads)):
                interrupt(self._threads)
                self._begin(0, len(self._threads))

    def _begin(self, thread: int, count: int) -> None:
        """Hold all, since the task begins."""
        self._begins, self._held, self._caught = False, {None}, thread
        say({"begun": count, **({"filtered": True} if self._is_filtered else {})})

    def run(self, told: queue.SimpleQueue[Mapping[str, Any]]) -> None:
        """Follow the rules, and what is told, until none is left or all threads have ended.

        Raises OSError.
        """
        while True:
            while not told.empty():
                self.obey(told.get())
            needed = self._rules or self._begins or self._held or self._leaving
            if not (needed or self._ends_task):
                return
            try:
                thread, status = os.waitpid(-1, ALL | os.WNOHANG)
            except ChildProcessError:
                return
            wait = self._next_look() if self._late or self._coming else None
            if not thread:
                signal.sigwaitinfo(WAKING) if wait is None else signal.sigtimedwait(WAKING, wait)
            elif os.WIFSTOPPED(status):
                self._look(thread, status)
            else:
                self._forget(thread)

    def _next_look(self) -> float | None:
        """Do what its time has come for; return in how many seconds there is more of it."""
        waits = [self._go_on_late()]
        if not self._begins:
            waits += [rule.look(is_held=bool(self._held)) for rule in self._coming]
        return min((one for one in waits if one is not None), default=None)

    def _forget(self, thread: int) -> None:
        self._threads.discard(thread)
        self._leaving.pop(thread, None)
        self._staying.pop(thread, None)
        for rule in self._rules:
            rule.forget(thread)

    def _go_on_late(self) -> float | None:
        """Let those go on whose time has come, unless all are held.

        Returns in how many seconds that of the next one comes; None: there is none.
        """
        while self._late and not self._held:
            when, thread = self._late[0]
            if (wait := when - time.monotonic()) > 0:
                return wait
            heapq.heappop(self._late)
            self._make(thread)
        return None

    def _go_on(self) -> None:
        """Let all go on that were held."""
        if self._caught:
            self._make(self._caught)
        stopped, self._stopped = self._stopped, []
        for one, status in stopped:
            self._look(one, status)

    def _look(self, thread: int, status: int) -> None:
        """Look at what a thread has stopped for, unless all are held; let it run on, or hold it."""
        if self._held:
            self._stopped.append((thread, status))
            return
        for rule in self._coming:
            if rule.stays(thread):
                self._staying[thread] = rule, status
                return
        number, event = os.WSTOPSIG(status), status >> 16
        with contextlib.suppress(Gone):
            if number == signal.SIGTRAP | 0x80:
                if not self._called(thread, status):
                    self._let_run(thread)
            elif event == EVENT_FILTER:
                self._is_filtered = True
                if not self._called(thread, status):
                    self._let_run(thread)
            elif event == EVENT_STOP and number in (19, 20, 21, 22):
                ptrace(LISTEN, thread)  # it was stopped by a signal, and stays so
            elif event == EVENT_EXEC and self._begins and not is_gate(thread):
                self._begin(thread, 1)
            elif event or number == signal.SIGTRAP:
                self._threads.add(thread)  # it may have just been started
                self._let_run(thread)
            else:
                self._let_run(thread, number)  # the signal is its own

    def _let_run(self, thread: int, number: int = 0) -> None:
        """Let a thread run on, to its next call if one is to be looked at. Raises Gone."""
        looked_at = (
            (self._everything and not self._is_filtered)
            or thread in self._leaving
            or any(rule.only and thread in rule.only for rule in self._coming)
        )
        ptrace(SYSCALL if looked_at else CONT, thread, 0, number)

    def _make(self, thread: int) -> None:
        """Let a thread make a call that was looked at before, unless it stays there now."""
        with contextlib.suppress(Gone):
            kind, number, arguments = self._call_of(thread)
            partial = [rule for rule in self._wanted.get(number, ()) if rule.only is not None]
            if kind == ENTRY and partial:
                call = Call(self._numbers[number], arguments)
                for rule in partial:
                    if rule.entered(thread, call) == STAYS:
                        self._staying[thread] = rule, 0
                        return
            self._let_run(thread)

    def _call_of(self, thread: int) -> tuple[int, int, Sequence[int]]:
        """Return where a thread is in a call: the kind of stop, its number or result, arguments."""
        ptrace(GET_SYSCALL_INFO, thread, INFO.size, self._info_at)
        kind, _, _, _, number, *arguments = INFO.unpack(self._info.raw)
        return kind, number, arguments

    def _called(self, thread: int, status: int) -> bool:
        """Let the rules look at a call that is about to be made; return whether one holds it."""
        kind, number, arguments = self._call_of(thread)
        if kind == ENTRY and self._is_filtered:
            return False  # it stops again in the filter
        if kind == EXIT and self._leaving:
            for rule in self._leaving.pop(thread, ()):
                with contextlib.suppress(OSError):
                    rule.left(thread, ctypes.c_long(number).value)
        wanted = None if kind == EXIT else self._wanted.get(number)
        if not wanted or self._begins:  # what the gate does is not the task's
            return False
        late = 0.0
        for rule in wanted:
            with contextlib.suppress(OSError):
                held = rule.entered(thread, Call(self._numbers[number], arguments))
                if held == STAYS:
                    self._staying[thread] = rule, status
                    return True
                if held == LEAVING:
                    self._leaving.setdefault(thread, []).append(rule)
                elif isinstance(held, float):
                    late += held
                elif held:
                    self._held.add(rule.id)
                    self._caught = thread
                    if self._is_filtered:
                        interrupt(self._threads - {thread})  # else they stop at their next call
                    say({**held, "id": rule.id})
        if late:
            self._caught = 0  # it goes on when its time has come
            heapq.heappush(self._late, (time.monotonic() + late, thread))
        return bool(late or self._held)


def interrupt(traced: Collection[int]) -> None:
    """Have threads stop wherever they are, so that their next call can be looked at."""
    for thread in traced:
        with contextlib.suppress(Gone):
            ptrace(INTERRUPT, thread)


def tracer_of(thread: int) -> int:
    """Return the process that traces a thread; 0: none does, or it has ended."""
    return int(status_of(thread).get("TracerPid", 0))


def has_ended(thread: int) -> bool:
    """Return whether a thread has ended, also if nobody has waited for it."""
    return status_of(thread).get("State", "X")[0] in "ZX"


def group_of(thread: int) -> int:
    """Return the process of a thread; the thread itself if it has ended."""
    return int(status_of(thread).get("Tgid", thread))


def status_of(thread: int) -> dict[str, str]:
    """Return what the kernel says of a thread; nothing if it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{thread}/status", errors="replace") as file:
        pairs = (line.partition(":") for line in file)
        return {key: value.strip() for key, _, value in pairs}
    return {}


def is_gate(thread: int) -> bool:
    """Return whether a process is still the gate, or is about to become it."""
    try:
        with open(f"/proc/{thread}/cmdline", "rb") as file:
            return GATE.encode() in file.read()
    except OSError:
        return False


def wait_until_told(ancestor: int) -> None:
    """Return once a gate listens: it is about to be told that nobody will trace it."""
    while any(is_gate(one) and not catches_continue(one) for one in threads(ancestor)):
        time.sleep(LOOK)


def catches_continue(thread: int) -> bool:
    """Return whether a thread handles SIGCONT, or has ended."""
    caught = int(status_of(thread).get("SigCgt", "f" * 16), 16)
    return bool(caught >> (signal.SIGCONT - 1) & 1)


def size_of(call: Call) -> dict[str, int]:
    """Return how many bytes a call is to write, where its arguments say it."""
    return {"bytes": call.arguments[2]} if call.name in ("write", "pwrite64") else {}


def threads(ancestor: int) -> Iterator[int]:
    """Yield the threads of all that a process has started."""
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
        if not path:
            continue  # it is about the open file itself, as of fstat
        if not path.startswith("/"):
            at = AT_FDCWD if folder is None else ctypes.c_int(call.arguments[folder]).value
            where = f"/proc/{thread}/" + ("cwd" if at == AT_FDCWD else f"fd/{at}")
            path = os.path.normpath(os.path.join(os.readlink(where), path))
        yield path


REMOVES_FOLDER, FOLLOWS_LINK = 0x200, 0x400
NO_REPLACE, EXCHANGE = 1, 2
"""Flags of unlinkat, linkat and renameat2 (linux/fcntl.h, linux/fs.h)."""


FLAGS = {"open": 1, "openat": 2}
"""Which argument has the flags of an open."""


def flags_of(thread: int, call: Call) -> int:
    """Return the flags of an open. Raises OSError."""
    if call.name == "creat":
        return os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    if call.name != "openat2":
        return call.arguments[FLAGS[call.name]]
    return int.from_bytes(bytes_at(thread, call.arguments[2], 8), sys.byteorder)


def never_counts(thread: int, call: Call) -> bool:
    """Return whether it is an open that empties nothing, as most are. Raises OSError."""
    return call.name in OPENS and not flags_of(thread, call) & os.O_TRUNC


def prospect(thread: int, call: Call) -> bool | None:
    """Return whether a call is going to be made, as far as the names that it is about say it.

    None: it never counts, whether it is made or not.
    """
    try:
        if call.name in KINDS["unlink"]:
            return _removes(thread, call)
        if call.name in KINDS["rename"]:
            return _names(thread, call)
        if call.name in KINDS["truncate"]:
            return _cuts(thread, call)
    except OSError:  # what can't be looked at from here
        pass
    return True


def _removes(thread: int, call: Call) -> bool | None:
    if call.name == "unlinkat" and call.arguments[2] & REMOVES_FOLDER:
        return None
    found = status_at(thread, next(paths(thread, call)))
    if found is None:
        return False
    return True if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode) else None


def _cuts(thread: int, call: Call) -> bool | None:
    """Return whether a file loses some of what it has."""
    path = next(paths(thread, call), None)
    found = None if path is None else status_at(thread, path, follows=True)
    if found is None or not stat.S_ISREG(found.st_mode):
        return None
    left = 0 if call.name in OPENS else call.arguments[1]
    return True if left < found.st_size else None


def _names(thread: int, call: Call) -> bool:
    """Return whether a rename or a link is going to be made: rename(2), link(2)."""
    names = [*paths(thread, call)]
    if len(names) < 2:
        return True  # a link to an open file that has no name
    flags = call.arguments[4] if call.name in ("renameat2", "linkat") else 0
    follows = call.name == "linkat" and bool(flags & FOLLOWS_LINK)
    old, new = status_at(thread, names[0], follows=follows), status_at(thread, names[1])
    folders = [status_at(thread, os.path.dirname(one), follows=True) for one in names]
    if old is None or folders[1] is None:
        return False
    if not follows and folders[0] and folders[0].st_dev != folders[1].st_dev:
        return False  # on another file system; of a file, that may differ from its folder's
    if call.name in LINKS:
        return new is None and not stat.S_ISDIR(old.st_mode)
    if call.name == "renameat2" and flags & EXCHANGE:
        return new is not None
    if new is None:
        return True
    if call.name == "renameat2" and flags & NO_REPLACE:
        return False
    if stat.S_ISDIR(old.st_mode) and stat.S_ISDIR(new.st_mode):
        return names[0] == names[1] or not os.listdir(f"/proc/{thread}/root{names[1]}")
    return not stat.S_ISDIR(old.st_mode) and not stat.S_ISDIR(new.st_mode)


def status_at(thread: int, path: str, *, follows: bool = False) -> os.stat_result | None:
    """Return what a thread has at a path; None: nothing. Raises OSError.

    The links on the way lead where they lead in the file system of the thread; that at the end is
    followed only if asked for.
    """
    root, at, left = f"/proc/{thread}/root", "", 40
    for own in ("/proc/self/", "/proc/thread-self/"):
        if path.startswith(own):
            path = f"/proc/{thread}/{path[len(own) :]}"
    parts = path.split("/")[::-1]
    try:
        while parts:
            part = parts.pop()
            if part == "..":
                at = at.rpartition("/")[0]
            if part in ("", ".", ".."):
                continue
            there = f"{at}/{part}"
            on_the_way = (follows or any(parts)) and not there.startswith("/proc/")
            if on_the_way and os.path.islink(root + there):
                if not (left := left - 1):
                    return None
                target = os.readlink(root + there)
                at = "" if target.startswith("/") else at
                parts += target.split("/")[::-1]
            else:
                at = there
        return os.stat(root + at) if follows else os.lstat(root + at)
    except (FileNotFoundError, NotADirectoryError):
        return None


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


def written(thread: int, call: Call) -> str:
    """Return what a thread is about to write, as far as it is not too long. Raises OSError."""
    _, address, count = call.arguments[:3]
    parts = [(address, count)]
    if call.name == "writev":
        listed = bytes_at(thread, address, 16 * min(count, 64))
        parts = list(struct.iter_unpack("=QQ", listed[: len(listed) // 16 * 16]))
    found = b"".join(bytes_at(thread, at, min(n, LONGEST_LINE)) for at, n in parts if n)
    return found[:LONGEST_LINE].decode("utf-8", "replace")


def bytes_at(thread: int, address: int, size: int) -> bytes:
    """Return so many bytes of the memory of a thread. Raises OSError."""
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
    try:
        return os.pread(memory, size, address)
    finally:
        os.close(memory)


WAKING = {signal.SIGCHLD, signal.SIGUSR1}
"""A thread has stopped or ended; there is a line of input. Blocked, so that none is missed."""


def say(what: dict[str, Any]) -> None:
    """Print an answer."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _listen(told: queue.SimpleQueue[Mapping[str, Any]]) -> None:
    """Pass on what is told; end when who asks has ended, or wants that."""
    with contextlib.suppress(OSError, ValueError):
        for line in sys.stdin:
            told.put(json.loads(line))
            os.kill(os.getpid(), signal.SIGUSR1)
    os._exit(0)


def main(arguments: Sequence[str]) -> None:
    """Answer one request."""
    request = json.loads(arguments[0])
    if platform.machine() not in NUMBERS:
        return say({"error": f"calls on {platform.machine()} can't be told apart"})
    told: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKING)
    threading.Thread(target=_listen, args=(told,), daemon=True).start()
    below = request["below"]
    tracer = Tracer({key: value for key, value in request.items() if key != "rules"})
    begins = any(one["do"] == "begin" for one in request["rules"])
    try:
        tracer.attach(below, begins=begins)
    except OSError as error:
        if begins:
            wait_until_told(below)
        if any(tracer_of(one) not in (0, os.getpid()) for one in threads(below)):
            return say({"error": "another program, such as a debugger, traces its processes"})
        return say({"error": f"its processes can't be traced here ({error.strerror})"})
    try:
        tracer.follow([one for one in request["rules"] if one["do"] != "begin"], begins=begins)
        tracer.run(told)
    except OSError as error:
        return say({"error": f"its calls can't be told ({error.strerror})"})
    say({"ended": True})


if __name__ == "__main__":
    main(sys.argv[1:])
