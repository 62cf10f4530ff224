"""`emulate up -d`: a supervisor in the background, and the wait until it is up.

The background one inherits a pipe: it tells of its progress line by line, says READY once all tasks
run and its API answers, and closes it. If the pipe ends before that, it has failed, or was over in
no time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from emulator import signals
from emulator.errors import RecordError
from emulator.files import os_errors
from emulator.record.lock import in_use
from emulator.record.remains import LOG, header
from emulator.results import Listener
from emulator.signals import Interruption
from emulator.waiting import each, result_of

__all__ = ["said", "start", "telling"]

VARIABLE = "EMULATOR_READY_FD"
READY = "ready"
CLEANS_WITHIN = 5.0
"""Seconds for an `emulate clean` that looks at the same folder: it needs milliseconds."""


def start(arguments: Sequence[str], folder: Path, say: Callable[[str], None]) -> int | None:
    """Start `emulate` with these arguments; return None once all tasks run, else its exit code.

    A signal that comes before is passed on, so that the run stops as one in the foreground does;
    once it has, Interruption is raised. Raises RecordError.
    """
    passed_on: list[signal.Signals] = []
    up = False
    with signals.held() as held:
        process, reading = _start(arguments, folder)

        def pass_on(number: signal.Signals) -> None:
            passed_on.append(number)
            process.send_signal(signal.SIGTERM)
            say("stopping the run in the background")

        held.hand_to(pass_on)
        with os.fdopen(reading, encoding="utf-8", errors="replace") as told:
            for line in each(told):
                if line.rstrip("\n") == READY:
                    held.settle(say, "the run is up and stays in the background")
                    up = True
                else:
                    say(line.rstrip("\n"))
        if up and not passed_on:
            return None
        code = result_of(process.wait)
        held.settle(say, "the run in the background has ended")
    if passed_on:
        raise Interruption(passed_on[0], "the run in the background was stopped")
    return code


def _start(arguments: Sequence[str], folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start it in a session of its own; return it, and the pipe on which it tells its progress."""
    with os_errors(RecordError, f"Can't write the run folder {folder}"):
        log = _log_in(folder)
    reading, writing = os.pipe()
    with log:
        process = subprocess.Popen(
            [sys.executable, "-m", "emulator", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[writing],
            env={**os.environ, VARIABLE: str(writing)},
            start_new_session=True,
        )
    os.close(writing)
    return process, reading


def said(folder: Path) -> str:
    """Return what the emulator in the background has printed."""
    text = (folder / LOG).read_text(encoding="utf-8", errors="replace")
    return text.removeprefix(header(folder.name))


def _log_in(folder: Path) -> BinaryIO:
    """Open the log in a run folder, which may have to be made, and lock it.

    The emulator in the background inherits the lock with its stdout, and the kernel drops it with
    its last holder: until then nobody takes this for a run that never began. Raises InUse, OSError.
    """
    until = time.monotonic() + CLEANS_WITHIN
    while True:
        try:
            folder.mkdir(parents=True)
            made = True
        except FileExistsError:
            made = False
        with contextlib.suppress(FileNotFoundError):  # `emulate clean` removes it meanwhile
            log = (folder / LOG).open("ab", buffering=0)
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(log.fileno()), os.stat(folder / LOG)):
                    break
            except BlockingIOError:
                pass
            except BaseException:
                log.close()
                raise
            log.close()
        if time.monotonic() > until:
            raise in_use(folder)
        time.sleep(0.001)
    if made:
        log.write(header(folder.name).encode())
    return log


def telling(listener: Listener) -> Listener:
    """Return a listener that also tells whoever started us in the background, if somebody did."""
    number = os.environ.pop(VARIABLE, None)
    if number is None:
        return listener
    pipe = os.fdopen(int(number), "w", encoding="utf-8", buffering=1)

    def tell(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody waits any more
            pipe.write(text + "\n")

    def say(text: str) -> None:
        listener.say(text)
        tell(text)

    def reachable() -> None:
        listener.reachable()
        tell(READY)
        with contextlib.suppress(OSError):
            pipe.close()

    return replace(listener, say=say, reachable=reachable)
