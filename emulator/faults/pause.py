"""A task that is frozen."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from emulator.faults.spec import LastingFault, Target
from emulator.validation.fields import Glob


@runtime_checkable
class Pausing(Protocol):
    """Capability `pause`."""

    def pause(self, task: str) -> None:
        """Freeze a task: it keeps everything and does nothing.

        Raises EngineError where it does not run.
        """

    def resume(self, task: str) -> None:
        """Let a frozen task run again; nothing happens where it is not frozen."""


class Pause(LastingFault):
    """Frozen `for` a time: it answers nothing, and does not notice."""

    kind = "pause"
    capability, request = "pause", "pausing {}"
    blocks_job = True
    applied = "{} is frozen"
    state = colour = "paused"

    pause: Glob
    """The task, or a glob such as `worker-*`."""

    def apply(self, target: Target) -> None:
        """Freeze the task."""
        target.engine_as(Pausing).pause(target.task)

    def heal(self, target: Target) -> None:
        """Let the task continue."""
        target.engine_as(Pausing).resume(target.task)
