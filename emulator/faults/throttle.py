"""A task with less CPU: a straggler."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pydantic import Field

from emulator.faults.spec import LastingFault, Target
from emulator.validation.fields import Cores, Glob


@runtime_checkable
class Throttling(Protocol):
    """Capability `throttle`."""

    def throttle(self, task: str, cpus: float | None) -> None:
        """Limit a running task to so many cores; None: no limit."""


class Throttle(LastingFault):
    """Limited to `cpus` cores `for` a time."""

    kind = "throttle"
    capability, request = "throttle", "throttling {}"
    applied = "{} is throttled"
    state = colour = "throttled"

    throttle: Glob
    """The task, or a glob such as `worker-*`."""
    cpus: Cores = Field(description="The cores that are left to it.")

    def apply(self, target: Target) -> None:
        """Lower its limit."""
        target.engine_as(Throttling).throttle(target.task, self.cpus)

    def heal(self, target: Target) -> None:
        """Restore its own limit, or none."""
        target.engine_as(Throttling).throttle(target.task, target.cpus)
