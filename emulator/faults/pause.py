"""A task that is frozen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from emulator.faults.spec import FaultContext, HeldFault
from emulator.validation.fields import Glob


@runtime_checkable
class Pausing(Protocol):
    """Capability `pause`."""

    def pause(self, task: str) -> None:
        """Freeze a task: it keeps everything and does nothing; one that is frozen stays so.

        It handles no signal before `resume`, except SIGKILL. A start ends the freeze. Raises
        NotRunning, EngineError.
        """

    def resume(self, task: str) -> None:
        """Let a frozen task run again, and take the signals that it got meanwhile.

        Nothing happens where it is not frozen, or no longer there. Raises EngineError.
        """


class Pause(HeldFault):
    """Frozen `for` a time: it answers nothing, and does not notice."""

    kind = "pause"
    capability, request = "pause", "pausing {}"
    protocols = {"pause": Pausing}
    blocks_job = True
    applied = "{} is frozen"
    state = colour = "paused"

    pause: Glob
    """The task, or a glob such as `worker-*`."""

    @classmethod
    def settle(cls, target: FaultContext, active: Sequence[Pause]) -> None:
        """Freeze the task as long as any of the faults lasts."""
        engine = target.engine_as(Pausing)
        if active:
            engine.pause(target.task)
        else:
            engine.resume(target.task)
