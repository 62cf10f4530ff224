"""A rolling restart."""

from __future__ import annotations

from emulator.faults.spec import GracefulFault
from emulator.validation.fields import Glob


class Restart(GracefulFault):
    """One by one: SIGTERM, `grace`, SIGKILL, restarted; the next one after the job's next step."""

    kind = "restart"
    one_by_one = True

    restart: Glob
    """The task, or a glob such as `worker-*`."""
