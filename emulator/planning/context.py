"""What a plan needs to know of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.planning.task_limits import Limits

if TYPE_CHECKING:
    from emulator.files import Disk
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
    has_module: Callable[[str], bool] = lambda module: True
    """Whether tasks can import a Python module; True where that depends on their image."""
    disks: Callable[[Scenario], Sequence[Disk]] = lambda scenario: ()
    """Disks of this machine that a run writes to, other than the disk of its folder."""
