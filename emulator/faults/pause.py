"""A task that is frozen."""

from __future__ import annotations

from emulator.faults.spec import LastingFault, Target
from emulator.validation.fields import Glob

__all__ = ["Pause"]


class Pause(LastingFault):
    """Frozen `for` a time: it answers nothing, and does not notice."""

    kind = "pause"
    capability, request = "pause", "pausing {}"
    blocks_job = True
    applied = "{} is frozen"
    state = colour = "paused"

    pause: Glob

    def apply(self, target: Target) -> None:
        """Freeze the task."""
        target.engine.pause(target.task)

    def heal(self, target: Target) -> None:
        """Let the task continue."""
        target.engine.resume(target.task)
