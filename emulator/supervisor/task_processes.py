"""Which processes a task has that a fault signals: what the history says of them (pure)."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from emulator.engines.base import TaskProcess
from emulator.faults.spec import FaultSpec
from emulator.record.events import TaskProcesses

LISTED = 50
"""Processes of a task that are listed; of more it is said how many."""
LONGEST_NAME = 100
"""Characters of a process's name that are kept."""


def listed(
    task: str,
    fault: str,
    moment: Literal["signal", "kill", "end"],
    found: Sequence[Mapping[str, Any]],
) -> TaskProcesses:
    """Return the event that lists the processes of a task at a moment."""
    more = max(0, len(found) - LISTED)
    return TaskProcesses(
        task=task, fault=fault, moment=moment, processes=list(found[:LISTED]), more=more
    )


def reaches(spec: FaultSpec, process: TaskProcess) -> bool:
    """Say whether a fault's signal is for a process of its target."""
    return spec.sends != "none" and (spec.to_all or process.main)


def described(
    process: TaskProcess, spec: FaultSpec, moment: Literal["signal", "kill"]
) -> dict[str, Any]:
    """Return a process as the history has it."""
    found = {"pid": process.pid, "name": process.name[:LONGEST_NAME], "main": process.main}
    if moment == "kill":
        return found
    found["reached"] = reaches(spec, process)
    if process.main and process.handled is not None and spec.sends != "none":
        found["handles"] = signal.Signals[spec.sends] in process.handled
    return found
