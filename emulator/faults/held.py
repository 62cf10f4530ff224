"""Faults that are a state of their target's processes: one is frozen, or a straggler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pydantic import Field

from emulator.faults.spec import FaultContext, HeldFault
from emulator.validation.fields import Cores, Glob


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


@runtime_checkable
class Throttling(Protocol):
    """Capability `throttle`."""

    def throttle(self, task: str, cpus: float | None) -> None:
        """Limit a task to so many cores until it is replaced; None: no limit.

        Raises NotRunning where there is no such task, EngineError.
        """


class Throttle(HeldFault):
    """Limited to `cpus` cores `for` a time."""

    kind = "throttle"
    capability, request = "throttle", "throttling {}"
    protocols = {"throttle": Throttling}
    applied = "{} is throttled"
    state = colour = "throttled"

    throttle: Glob
    """The task, or a glob such as `worker-*`."""
    cpus: Cores = Field(description="The cores that are left to it.")

    @classmethod
    def settle(cls, target: FaultContext, active: Sequence[Throttle]) -> None:
        """Leave it the least that a fault or the scenario leaves to it."""
        limits = [one.cpus for one in active]
        if target.cpus is not None:
            limits.append(target.cpus)
        target.engine_as(Throttling).throttle(target.task, min(limits, default=None))
