"""What a plan needs to know of the engine, and the limits of tasks that set none (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.runtime.files import Disk
    from emulator.scenario.schema import AnyImage, Scenario

TASK_PORT = 2222
"""The port of every task if each has its own address (Kubeflow's default)."""


@dataclass(frozen=True)
class PlanContext:
    """What the plan needs from its engine."""

    engine: str
    address: Callable[[str], tuple[str, int]]
    """Task name -> host, port."""
    image: Callable[[AnyImage], str]
    """An image in the scenario -> the engine's reference."""
    gpus: Callable[[], Sequence[str]]
    """Ids of its devices; called only if a task asks for GPUs."""
    shared: str
    """The path of the shared volume inside a task."""
    limits: Callable[[int], Limits] = lambda containers: Limits()
    """Default limits of each container, if so many run at the same time."""
    named: bool = False
    """Whether its tasks have the names on the network that a scenario sets."""
    python: str = ""
    """The path of the Python that tasks run in; empty: that of their image."""
    python_of: Callable[[str], str] | None = None
    """What a user names as that Python -> its path; None: tasks run in images."""
    has_module: Callable[[str, str], bool] = lambda python, module: True
    """Whether such a Python can import a module; True where that depends on an image."""
    disks: Callable[[Scenario], Sequence[Disk]] = lambda scenario: ()
    """Disks of this machine that a run writes to, other than the disk of its folder."""
    out: Path | None = None
    """The folder of run folders, which is not copied with a program that it is in."""


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
    """Limits of one task; None: unlimited.

    By default they protect the machine from a runaway task: ordinary training does not reach them,
    and they reserve nothing.
    """

    memory: int | None = None
    """Bytes."""
    processes: int | None = None
    """Processes and threads."""


def machine_limits(memory: int, pid_max: int, containers: int) -> Limits:
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
