"""A task that runs out of memory."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from emulator.faults.spec import EndingFault, Target
from emulator.validation.fields import Glob


@runtime_checkable
class OomKilling(Protocol):
    """Capability `oom`."""

    def oom_kill(self, task: str) -> None:
        """Make the kernel kill a task for lack of memory.

        Returns once it is dead and has its limit again; raises EngineError where it survives.
        """


class Oom(EndingFault):
    """Its memory limit is lowered until the kernel kills it; the restart policy decides."""

    kind = "oom"
    capability, request = "oom", "running {} out of memory"

    oom: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return True

    def apply(self, target: Target) -> None:
        """Lower its memory limit."""
        target.engine_as(OomKilling).oom_kill(target.task)

    def other_cause(self, exit_code: int, *, oom_killed: bool) -> str:
        """Describe what else ended the target; empty if it was this fault."""
        return "" if oom_killed else f"ended otherwise, with {exit_code}"
