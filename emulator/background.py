"""`emulate up -d`: a supervisor in the background, and the wait until it is up.

The background one inherits a pipe: it tells of its progress line by line, says READY once all tasks
run and its API answers, and closes it. If the pipe ends before that, it has failed, or was over in
no time.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from emulator.errors import RecordError
from emulator.results import Listener

__all__ = ["LOG", "start", "telling"]

LOG = "emulate.log"
"""What the emulator in the background prints, in the run folder."""
VARIABLE = "EMULATOR_READY_FD"
READY = "ready"


def start(arguments: Sequence[str], folder: Path, say: Callable[[str], None]) -> int | None:
    """Start `emulate` with these arguments; return None once all tasks run, else its exit code."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = (folder / LOG).open("ab")
    except OSError as error:
        raise RecordError(f"Can't write the run folder {folder}: {error.strerror}.") from None
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
    with os.fdopen(reading, encoding="utf-8", errors="replace") as told:
        for line in told:
            if line.rstrip("\n") == READY:
                return None
            say(line.rstrip("\n"))
    return process.wait()


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
