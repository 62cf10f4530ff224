"""A signal to a task; the restart policy decides what follows."""

from __future__ import annotations

from emulator.faults.spec import EndingFault
from emulator.validation.fields import Glob


class Kill(EndingFault):
    """SIGKILL now; the disk is kept."""

    kind = "kill"

    kill: Glob

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return True


class Terminate(EndingFault):
    """SIGTERM and nothing else; the disk is kept."""

    kind = "terminate"

    terminate: Glob

    @property
    def gives_notice(self) -> bool:
        """Whether the target gets time to save a checkpoint."""
        return True
