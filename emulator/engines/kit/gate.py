"""The gate before the command of a task: it waits until the task is traced, then becomes it (pure).

Otherwise the calls are missed that a task makes before its tracer has found it, and their numbers
would be another's on a busy machine. What a task needs for that it has already: the tracer, too, is
a program for its python3 (`faults/held_call.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

PATIENCE = 120
"""Seconds after which the command runs without a tracer: one that was refused, or was killed, must
not leave a task behind that waits for ever. SIGCONT ends the wait at once."""

PROGRAM = f"""
import os, signal, sys, time

told = []
signal.signal(signal.SIGCONT, lambda *_: told.append(1))


def is_traced():
    with open("/proc/self/status") as file:
        return any(line.split() != ["TracerPid:", "0"] for line in file if "TracerPid" in line)


until = time.monotonic() + {PATIENCE}
while not told and time.monotonic() < until and not is_traced():
    time.sleep(0.005)

# As it was given to us: Python adds to its own, and ignores two signals.
with open("/proc/self/environ", "rb") as file:
    given = [one.partition(b"=") for one in file.read().split(b"\\0") if b"=" in one]
for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
    signal.signal(number, signal.SIG_DFL)
command = sys.argv[2:]
try:
    os.execvpe(command[0], command, {{name: value for name, _, value in given}})
except OSError as error:
    print(f"can't run {{command[0]!r}}: {{error.strerror}}", file=sys.stderr)
    sys.exit(126 if isinstance(error, PermissionError) else 127)
"""

_MARK = "emulator-gate"
"""By this word `held_call.py` knows it."""


_SHELL = 'command -v python3 > /dev/null && exec python3 -I -S -c "$0" "$@"; shift; exec "$@"'


def gate(python: str | None = None) -> list[str]:
    """Return the words that come before a command.

    Without a path of `python`, it is looked for where the command runs; where there is none, the
    command runs at once, and its tracer, which needs it too, says so.
    """
    if python is not None:
        return [python, "-I", "-S", "-c", PROGRAM, _MARK]
    return ["sh", "-c", _SHELL, PROGRAM, _MARK]


def gated(command: Sequence[str], python: str) -> list[str]:
    """Return a command behind the gate."""
    return [*gate(python), *command]
