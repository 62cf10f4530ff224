"""A task with less CPU: a straggler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pydantic import Field

from emulator.faults.spec import FaultContext, HeldFault
from emulator.validation.fields import Cores, Glob


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
