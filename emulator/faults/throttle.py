"""A task with less CPU: a straggler."""

from __future__ import annotations

from emulator.faults.spec import LastingFault, Target, needed
from emulator.validation.fields import Cores, Glob

__all__ = ["Throttle"]


class Throttle(LastingFault):
    """Limited to `cpus` cores `for` a time."""

    kind = "throttle"
    capability, request = "throttle", "throttling {}"
    applied = "{} is throttled"
    state = colour = "throttled"

    throttle: Glob
    cpus: Cores = needed("how many cores are left, such as 0.2")
    """Cores."""

    def apply(self, target: Target) -> None:
        """Lower its limit."""
        target.engine.throttle(target.task, self.cpus)

    def heal(self, target: Target) -> None:
        """Restore its own limit, or none."""
        target.engine.throttle(target.task, target.cpus)
