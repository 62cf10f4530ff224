"""Faults that end their target; what follows, the restart policy decides, or a rolling restart."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from emulator.faults.spec import Effect, EndingFault, FaultContext, GracefulFault, Terminating
from emulator.validation.fields import Glob


class Kill(EndingFault):
    """SIGKILL now; the disk is kept."""

    kind = "kill"

    kill: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return True


class Terminate(EndingFault):
    """SIGTERM and nothing else; the disk is kept."""

    kind = "terminate"

    terminate: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def gives_notice(self) -> bool:
        """Whether the target gets time to save a checkpoint."""
        return True

    def apply(self, target: FaultContext) -> Effect | None:
        """Send SIGTERM, which must not remove the task."""
        if not isinstance(target.engine, Terminating):
            return super().apply(target)
        target.engine.terminate(target.task)
        return None


class Restart(GracefulFault):
    """One by one: SIGTERM, `grace`, SIGKILL, restarted; the next one after the job's next step."""

    kind = "restart"
    one_by_one = True

    restart: Glob
    """The task, or a glob such as `worker-*`."""


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
    protocols = {"oom": OomKilling}

    oom: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return True

    def apply(self, target: FaultContext) -> None:
        """Lower its memory limit."""
        target.engine_as(OomKilling).oom_kill(target.task)

    def other_cause(self, exit_code: int, *, oom_killed: bool) -> str:
        """Describe what else ended the target; empty if it was this fault."""
        return "" if oom_killed else f"ended otherwise, with {exit_code}"
