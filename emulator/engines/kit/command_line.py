"""The command line that runs a command in a task."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from emulator.errors import EngineError, UsageError


class CommandLine(NamedTuple):
    """A program of this machine, with what it is run with."""

    arguments: Sequence[str]
    """The first one is the program: its name, which is looked for on the PATH of `environment`."""
    environment: Mapping[str, str] | None = None
    """None: that of this process."""
    folder: Path | None = None
    """None: the working folder of this process."""


def not_running(task: str, run_id: str) -> UsageError:
    """Return the error for a task in which nothing can be run."""
    return UsageError(f"{task} of {run_id} is not running.", f"`emulate ps {run_id}` shows tasks.")


def check_command(name: str, packages: str) -> None:
    """Raise EngineError if this machine lacks a command that `emulate exec` is made of.

    `packages` says where it comes from.
    """
    if shutil.which(name) is None:
        raise EngineError(
            f"`emulate exec` needs the command {name}, which is not on the PATH.",
            f"It comes with {packages}.",
        )
