"""The program that traces a task, with all its rules, as one text."""

from __future__ import annotations

from emulator.runtime.programs import program_of

PARTS = ("held_call", "disk_calls", "hang_calls", "late_calls")
"""Modules beside this one that need only Python, and each only those before it."""


def program() -> str:
    """Return it: what an engine runs beside the processes of a task, see `spec.Holding`."""
    return program_of(*(f"faults.{name}" for name in PARTS), main="faults.held_call")
