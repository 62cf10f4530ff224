"""A signal to a task; the restart policy decides what follows."""

from __future__ import annotations

from emulator.faults.spec import EndingFault
from emulator.validation.fields import Glob


class Kill(EndingFault):
    """SIGKILL now; the disk is kept."""

    kind = "kill"
    kills = True

    kill: Glob


class Terminate(EndingFault):
    """SIGTERM and nothing else; the disk is kept."""

    kind = "terminate"
    gives_notice = True

    terminate: Glob
