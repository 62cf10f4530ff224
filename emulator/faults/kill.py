"""A signal to a task; the restart policy decides what follows."""

from __future__ import annotations

from emulator.faults.spec import Effect, EndingFault, Target, Terminating
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

    def apply(self, target: Target) -> Effect | None:
        """Send SIGTERM, which must not remove the task."""
        if not isinstance(target.engine, Terminating):
            return super().apply(target)
        target.engine.terminate(target.task)
        return None
