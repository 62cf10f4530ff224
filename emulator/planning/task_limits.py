"""Default limits of a task, if its scenario sets none (pure).

They protect the machine from a runaway task. Ordinary training does not reach them, and they
reserve nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

PROCESSES = 32_768
"""Processes and threads of one task at most; a TensorFlow chief was measured with 21,000."""
LEAST_PROCESSES = 512
"""The same at least: with more than that, a program of many threads starts."""
PIDS_PER_CORE = 1024
"""What Linux gives a machine with many cores, unless it is told otherwise (`pid_max`)."""
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


def of_machine(memory: int, pid_max: int, containers: int) -> Limits:
    """Return the limits of each of so many containers that run at the same time.

    The machine has so many bytes of memory, and `pid_max` processes and threads at most: half of
    these are divided among the containers.
    """
    whole = (memory - reserved(memory)) // MIB * MIB  # the kernel rounds down to pages
    share = pid_max // 2 // max(containers, 1)
    return Limits(memory=whole, processes=max(LEAST_PROCESSES, min(PROCESSES, share)))


def usual_pid_max(cores: int) -> int:
    """Return the `pid_max` of a machine that was not told another one."""
    return max(32_768, PIDS_PER_CORE * cores)


def reserved(memory: int) -> int:
    """Return the bytes of a machine's memory that are left to the system.

    The larger of 1 GiB and 10 %, at most half.
    """
    return min(max(LEAST_RESERVE, int(memory * RESERVED_SHARE)), memory // 2)
