"""The name of this machine in what its runs make: whose leftovers `emulate clean` may remove."""

from __future__ import annotations

import os
import socket

HOST = "EMULATOR_HOST"
"""The variable that gives another name, where the machine's own is not the same tomorrow, or where
several share an engine under one.
"""


def this_host() -> str:
    """Return the name under which the runs of this machine are found again."""
    return os.environ.get(HOST) or socket.gethostname()
