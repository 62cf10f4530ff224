"""A task whose training processes hang: a rule of its tracer.

It runs behind `held_call.py`, as one program with it (`tracer.py`). The rule:

    {"do": "hang"}                      the main thread of each process stops where it waits in the
                                        kernel, as in a collective that never returns; one that does
                                        not get there in 5 s is stopped where it is
    {"added": ["0"], "hung": 2, "elsewhere": 1, "go_on": 1}     all of them hang; so many of these
                                        elsewhere, and so many processes go on

The processes are those that there are when the rule begins. Two kinds go on: those that only look
after others (`launchers`), and those that wait for the end of another, as an entry script does. A
task has one `hang` at a time.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from emulator.faults import held_call
from emulator.faults.held_call import STAYS, Call, Rule, group_of, interrupt, parents, say

PATIENCE = 5.0
"""Seconds for main threads to get to a call in which they wait."""
FUTEX_WAITS = (0, 9, 6, 11, 13)
"""The operations of futex that wait; the others must not be stopped in: they let others go on."""

# Numbers of calls (asm/unistd.h).
NUMBERS = {
    "x86_64": {
        **{0: "read", 7: "poll", 23: "select", 34: "pause", 35: "nanosleep", 44: "sendto"},
        **{45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 128: "rt_sigtimedwait"},
        **{130: "rt_sigsuspend", 202: "futex", 219: "restart_syscall", 230: "clock_nanosleep"},
        **{232: "epoll_wait", 247: "waitid", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait"},
        **{441: "epoll_pwait2"},
    },
    "aarch64": {
        **{22: "epoll_pwait", 63: "read", 72: "pselect6", 73: "ppoll", 95: "waitid", 98: "futex"},
        **{101: "nanosleep", 115: "clock_nanosleep", 128: "restart_syscall"},
        **{133: "rt_sigsuspend", 137: "rt_sigtimedwait", 206: "sendto", 207: "recvfrom"},
        **{211: "sendmsg", 212: "recvmsg", 260: "wait4", 441: "epoll_pwait2"},
    },
}
WAITS = ("write", *dict.fromkeys(name for known in NUMBERS.values() for name in known.values()))
"""Calls for which an interpreter gives up its lock, so that its other threads go on."""
_WAITS_FOR_PROCESS = {"wait4": 2, "waitid": 3}
"""Calls that wait for the end of a process, each with which argument has its options."""
_WNOHANG = 1
FIRST_RANK = b"LOCAL_RANK=0"
"""What torchrun, accelerate and DeepSpeed set for the first process that they start on a machine.
Lightning does not for its own, which trains."""


class Process(NamedTuple):
    """What is seen of a process."""

    parent: int
    is_python: bool
    is_first_rank: bool


def launchers(processes: Mapping[int, Process]) -> set[int]:
    """Return those that only look after others, such as torchrun's agent, mpirun, an init (pure).

    They have started Python and are no Python, or have started the first rank and have no rank.
    """
    found = set()
    for one in processes.values():
        above = one.parent
        while (upper := processes.get(above)) is not None:
            looks_after = one.is_python and not upper.is_python
            if looks_after or (one.is_first_rank and not upper.is_first_rank):
                found.add(above)
            above = upper.parent
    return found


def _seen(processes: Collection[int]) -> Iterator[tuple[int, Process]]:
    """Yield what is seen of these processes, without those that have ended."""
    parent_of = parents()
    for one in processes:
        with contextlib.suppress(OSError, KeyError):
            program = os.path.basename(os.readlink(f"/proc/{one}/exe"))
            with open(f"/proc/{one}/environ", "rb") as file:
                is_first = FIRST_RANK in file.read().split(b"\0")
            yield one, Process(parent_of[one], program.startswith("python"), is_first)


class Hang(Rule):
    """The main threads of training processes stay where they wait."""

    calls = WAITS
    is_in_force = False

    def __init__(self, asked: Mapping[str, Any]) -> None:
        super().__init__(asked)
        self.only: set[int] = set()
        """Those that have yet to hang."""
        self._hung: set[int] = set()
        self._elsewhere, self._go_on, self._is_said, self._until = 0, 0, False, math.inf

    def begin(self, threads: Collection[int]) -> None:
        """Have the main threads come to a call, or come to it again."""
        processes = {one for one in threads if group_of(one) == one}
        others = launchers(dict(_seen(processes)))
        self._go_on = len(others)
        self.only |= processes - others
        self._until = time.monotonic() + PATIENCE
        interrupt(self.only)

    def entered(self, thread: int, call: Call) -> float | None:
        """Let a main thread stay where it waits."""
        waits = call.name != "futex" or call.arguments[1] & 127 in FUTEX_WAITS
        if not waits or thread not in self.only:
            return None
        options = _WAITS_FOR_PROCESS.get(call.name)
        if options is not None:
            if not call.arguments[options] & _WNOHANG:
                self.only.discard(thread)
                self._go_on += 1
            return None
        self._stay(thread)
        return STAYS

    def stays(self, thread: int) -> bool:
        """Return whether a main thread had the time to come to wait, and did not."""
        is_late = thread in self.only and self._until == -math.inf
        if is_late:
            self._stay(thread)
        return is_late

    def _stay(self, thread: int) -> None:
        self.only.discard(thread)
        self._hung.add(thread)

    def look(self, *, is_held: bool) -> float | None:
        """Lose patience with those that don't come to wait; say once that all hang.

        What is held does not get further than to its next call, so it hangs already; and those that
        are interrupted go no further than that, even where they don't run now.
        """
        now = time.monotonic()
        if is_held:
            self._until = now + PATIENCE  # it begins when they go on
        elif self.only and self._until <= now and self._until != -math.inf:
            self._until, self._elsewhere = -math.inf, len(self.only)
            interrupt(self.only)
        is_over = not self.only or self._until == -math.inf
        if not self._is_said and (is_held or is_over):
            self._is_said, hung = True, len(self.only | self._hung)
            said = {"hung": hung, "elsewhere": self._elsewhere, "go_on": self._go_on}
            say({"added": [self.id], **said})
        return None if is_over else max(self._until - now, 0.001)

    def forget(self, thread: int) -> None:
        """A thread has ended."""
        self.only.discard(thread)
        self._hung.discard(thread)


held_call.extend(NUMBERS, {}, {"hang": Hang})
