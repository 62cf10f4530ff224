"""Default limits of a task, if its scenario sets none (pure).

They protect the machine from a runaway task. Ordinary training does not reach them, and they
reserve nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

PROCESSES = 32_768
"""Processes and threads of one task; a TensorFlow chief was measured with 21,000."""
MIB = 2**20
LEAST_RESERVE = 2**30
RESERVED_SHARE = 0.1


@dataclass(frozen=True)
class Limits:
    """Limits of one task; None: unlimited."""

    memory: int | None = None
    """Bytes."""
    processes: int | None = None
    """Processes and threads."""


def of_machine(memory: int) -> Limits:
    """Return the limits of each task on a machine with so many bytes of memory."""
    whole = (memory - reserved(memory)) // MIB * MIB  # the kernel rounds down to pages
    return Limits(memory=whole, processes=PROCESSES)


def reserved(memory: int) -> int:
    """Return the bytes of a machine's memory that are left to the system.

    The larger of 1 GiB and 10 %, at most half.
    """
    return min(max(LEAST_RESERVE, int(memory * RESERVED_SHARE)), memory // 2)
