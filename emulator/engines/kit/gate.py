"""The gate before the command of a task: it waits until the task is traced, then becomes it (pure).

Otherwise the calls are missed that a task makes before its tracer has found it, and their numbers
would be another's on a busy machine. What a task needs for that it has already: the tracer, too, is
a program for its python3 (`faults/held_call.py`).

It also asks the kernel for the filter of a task that has one (`faults/call_filter.py`), and then
makes a call that the filter has: its tracer sees by that that the filter is there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from emulator.faults.call_filter import MACHINES, call_filter

PATIENCE = 120
"""Seconds after which the command runs without a tracer: one that was refused, or was killed, must
not leave a task behind that waits for ever. SIGCONT ends the wait at once."""

NO_NEW_PRIVILEGES, SET_FILTER, FILTER = 38, 22, 2
"""Of prctl (linux/prctl.h, linux/seccomp.h). Who is not root may ask for a filter only then."""

PROGRAM = f"""
import json, os, signal, sys, time

told = []
signal.signal(signal.SIGCONT, lambda *_: told.append(1))


def is_traced():
    with open("/proc/self/status") as file:
        return any(line.split() != ["TracerPid:", "0"] for line in file if "TracerPid" in line)


until = time.monotonic() + {PATIENCE}
while not told and time.monotonic() < until and not is_traced():
    time.sleep(0.005)



def ask_for(code):
    import ctypes

    class Filter(ctypes.Structure):
        _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    asked = Filter(len(code) // 8, code)
    prctl = ctypes.CDLL(None).prctl
    prctl({NO_NEW_PRIVILEGES}, 1, 0, 0, 0)
    prctl({SET_FILTER}, {FILTER}, ctypes.byref(asked), 0, 0)
    try:
        os.truncate("", 0)
    except OSError:
        pass


found = json.loads(sys.argv[2]).get(os.uname().machine)
if found and is_traced():
    ask_for(bytes.fromhex(found))

# As it was given to us: Python adds to its own, and ignores two signals.
with open("/proc/self/environ", "rb") as file:
    given = [one.partition(b"=") for one in file.read().split(b"\\0") if b"=" in one]
for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
    signal.signal(number, signal.SIG_DFL)
command = sys.argv[3:]
try:
    os.execvpe(command[0], command, {{name: value for name, _, value in given}})
except OSError as error:
    print(f"can't run {{command[0]!r}}: {{error.strerror}}", file=sys.stderr)
    sys.exit(126 if isinstance(error, PermissionError) else 127)
"""

_MARK = "emulator-gate"
"""By this word `held_call.py` knows it."""


_SHELL = 'command -v python3 > /dev/null && exec python3 -I -S -c "$0" "$@"; shift 2; exec "$@"'


def gate(python: str | None = None, *, filtered: bool = False) -> list[str]:
    """Return the words that come before a command, with the filter of its calls or without.

    Without a path of `python`, it is looked for where the command runs; where there is none, the
    command runs at once, and its tracer, which needs it too, says so.
    """
    filters = {name: call_filter(name).hex() for name in MACHINES} if filtered else {}
    words = [PROGRAM, _MARK, json.dumps(filters)]
    if python is not None:
        return [python, "-I", "-S", "-c", *words]
    return ["sh", "-c", _SHELL, *words]


def gated(command: Sequence[str], python: str, *, filtered: bool = False) -> list[str]:
    """Return a command behind the gate."""
    return [*gate(python, filtered=filtered), *command]
