"""A signal to a task; the restart policy decides what follows."""

from __future__ import annotations

import signal

from emulator.faults.spec import EndingFault
from emulator.fields import Glob

__all__ = ["Kill", "Terminate"]


class Kill(EndingFault):
    """SIGKILL now; the disk is kept."""

    kind = "kill"
    first_signal = signal.SIGKILL

    kill: Glob


class Terminate(EndingFault):
    """SIGTERM and nothing else; the disk is kept."""

    kind = "terminate"
    gives_notice = True

    terminate: Glob
