"""A task that runs out of memory."""

from __future__ import annotations

from emulator.faults.spec import EndingFault, Target
from emulator.validation.fields import Glob

__all__ = ["Oom"]


class Oom(EndingFault):
    """Its memory limit is lowered until the kernel kills it; the restart policy decides."""

    kind = "oom"
    capability, request = "oom", "running {} out of memory"
    kills = True

    oom: Glob

    def apply(self, target: Target) -> None:
        """Take its memory away."""
        target.engine.oom_kill(target.task)

    def other_cause(self, exit_code: int, *, oom_killed: bool) -> str:
        """Say what else ended the target; empty where it was this fault."""
        return "" if oom_killed else f"ended otherwise, with {exit_code}"
