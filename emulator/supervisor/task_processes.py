"""Which processes a preempted task has: what the history says of them (pure)."""

from __future__ import annotations

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
    """Return the event that lists the processes of a preempted task at a moment."""
    more = max(0, len(found) - LISTED)
    return TaskProcesses(
        task=task, fault=fault, moment=moment, processes=list(found[:LISTED]), more=more
    )


def reaches(spec: FaultSpec, process: TaskProcess) -> bool:
    """Say whether a preemption's signal is for a process of its target.

    Where the fault does not say whom it `reaches`, that is whom a signal of the engine does.
    """
    if not spec.gives_notice or getattr(spec, "signal", None) == "none":
        return False
    match getattr(spec, "reaches", None):
        case "main":
            return process.main
        case "all":
            return True
        case _:
            return process.signalled


def described(process: TaskProcess, moment: Literal["signal", "kill"]) -> dict[str, Any]:
    """Return a process as the history has it."""
    found = {"pid": process.pid, "name": process.name[:LONGEST_NAME], "main": process.main}
    return {**found, "reached": process.signalled} if moment == "signal" else found
