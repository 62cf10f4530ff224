"""`emulate up -d`: start a supervisor in the background and wait until it is up.

The background process inherits a pipe. It writes its progress line by line, then READY once all
tasks run and its API answers, and closes the pipe. If the pipe ends before READY, the run has
failed or finished already.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, BinaryIO

from emulator.errors import RecordError
from emulator.record.lock import in_use
from emulator.record.remains import LOG, header
from emulator.results import RunCallbacks
from emulator.runtime import signals
from emulator.runtime.files import FOR_OWNER, appending, os_errors
from emulator.runtime.signals import Interruption
from emulator.runtime.waiting import each, result_of

VARIABLE = "EMULATOR_READY_FD"
READY = "ready"
CLEANS_WITHIN = 5.0
"""Seconds to wait for an `emulate clean` in the same folder; it needs milliseconds."""


def start(
    arguments: Sequence[str], folder: Path, say: Callable[[str], None], *, piped: str | None = None
) -> int | None:
    """Start `emulate` with these arguments; return None once all tasks run, else its exit code.

    `piped` is what it gets on standard input.
    A signal before that is forwarded, so that the run stops as in the foreground; then raises
    Interruption. Raises RecordError.
    """
    passed_on: list[signal.Signals] = []
    up = False
    with signals.deferred() as deferral:
        process, reading = _start(arguments, folder, piped)

        def pass_on(number: signal.Signals) -> None:
            passed_on.append(number)
            process.send_signal(signal.SIGTERM)
            say("stopping the run in the background")

        deferral.hand_to(pass_on)
        with os.fdopen(reading, encoding="utf-8", errors="replace") as progress:
            for line in each(progress):
                if line.rstrip("\n") == READY:
                    deferral.settle(say, "the run is up and continues in the background")
                    up = True
                else:
                    say(line.rstrip("\n"))
        if up and not passed_on:
            return None
        code = result_of(process.wait)
        deferral.settle(say, "the run in the background has ended")
    if passed_on:
        raise Interruption(passed_on[0], "the run in the background was stopped")
    return code


def _start(
    arguments: Sequence[str], folder: Path, piped: str | None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start it in a new session; return it, and the descriptor of its progress pipe."""
    with os_errors(RecordError, f"Can't write the run folder {folder}"):
        log = _log_in(folder)
    reading, writing = os.pipe()
    with log, _source(piped) as stdin:
        process = subprocess.Popen(
            [sys.executable, "-m", "emulator", *arguments],
            stdin=stdin,
            stdout=log,
            stderr=log,
            pass_fds=[writing],
            env={**os.environ, VARIABLE: str(writing)},
            start_new_session=True,
        )
    os.close(writing)
    return process, reading


def _source(text: str | None) -> IO[bytes]:
    """Return an open file with a text, which no pipe may have room for; None: nothing."""
    if text is None:
        return open(os.devnull, "rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115  its caller closes it
    file.write(text.encode())
    file.seek(0)
    return file


def output(folder: Path) -> str:
    """Return the output of the emulator in the background."""
    text = (folder / LOG).read_text(encoding="utf-8", errors="replace")
    return text.removeprefix(header(folder.name))


def _log_in(folder: Path) -> BinaryIO:
    """Open and lock the log in a run folder; make the folder if it does not exist.

    The background process inherits the lock with its stdout, and the kernel releases it when that
    ends: until then `emulate clean` leaves the folder alone. Raises InUse, OSError.
    """
    until = time.monotonic() + CLEANS_WITHIN
    while True:
        try:
            folder.mkdir(FOR_OWNER, parents=True)
            made = True
        except FileExistsError:
            made = False
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile by `emulate clean`
            log = appending(folder / LOG)
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
        try:
            log.write(header(folder.name).encode())
        except OSError:
            log.close()
            forget(folder)
            raise
    return log


def forget(folder: Path) -> None:
    """Remove the log and the folder of a run that never started."""
    if not (folder / "plan.json").exists():
        (folder / LOG).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it has other files
            folder.rmdir()


def reporting_to_parent(callbacks: RunCallbacks) -> RunCallbacks:
    """Return a callbacks that also reports to the process that started this one, if any."""
    number = os.environ.pop(VARIABLE, None)
    if number is None:
        return callbacks
    pipe = os.fdopen(int(number), "w", encoding="utf-8", buffering=1)

    def tell(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the reader is gone
            pipe.write(text + "\n")

    def say(text: str) -> None:
        callbacks.say(text)
        tell(text)

    def reachable() -> None:
        callbacks.reachable()
        tell(READY)
        with contextlib.suppress(OSError):
            pipe.close()

    return replace(callbacks, say=say, reachable=reachable)
