"""How the process engine starts a task: its environment, its keeper."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from emulator.engines import keeper
from emulator.engines.process_table import KEEPER, labelled
from emulator.errors import EngineError
from emulator.plan import Task

__all__ = ["Started", "spawn"]

SECRET = "EMULATOR_API_TOKEN"
"""The token of every run's API, if the user has set one: nothing that a task should have."""


@dataclass(frozen=True)
class Started:
    """A task that was started."""

    keeper: subprocess.Popen[bytes]
    """Its parent; the exit code is the task's."""
    pid: int
    """The task: the leader of its process group and session."""


def spawn(task: Task, run_id: str, folder: Path, home: Path, output: int) -> Started:
    """Start a task in its working directory; what it prints goes to the descriptor `output`.

    Returns once its program runs. Raises EngineError where it can't be run, OSError.
    """
    labels = labelled(run_id, task.name, folder)
    shared = {"EMULATOR_SHARED": str(folder / "shared")}
    ours = {name: value for name, value in os.environ.items() if name != SECRET}
    path = os.pathsep.join([str(Path(sys.executable).parent), ours.get("PATH", os.defpath)])
    # Ours come last: by what a scenario sets in them, nothing would be found again.
    environment = {**ours, "PATH": path, **task.env, **shared, **labels}
    order = keeper.order(_resolve(task, environment["PATH"]), environment)
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, str(writing), run_id, task.name],
            cwd=home,
            env={**ours, **labels, KEEPER: "1"},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[writing],
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as report:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as orders:
            orders.write(order)
        pid, error = keeper.pid_or_error(report.read())
    if pid is None or error is not None:
        code = process.wait()
        why = f"its keeper ended with exit code {code}" if error is None else os.strerror(error)
        raise EngineError(
            f"{task.name} can't run {task.command[0]!r}: {why}.",
            "The process engine runs what is installed on this machine.",
        )
    return Started(process, pid)


def _resolve(task: Task, path: str) -> list[str]:
    program = task.command[0]
    if "/" not in program:
        program = shutil.which(program, path=path) or program
    return [program, *task.command[1:]]
