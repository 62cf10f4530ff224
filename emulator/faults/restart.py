"""A rolling restart."""

from __future__ import annotations

from emulator.faults.spec import SETTLED, EndingFault
from emulator.fields import Duration, Glob

__all__ = ["Restart"]


class Restart(EndingFault):
    """One by one: SIGTERM, `grace`, SIGKILL, started again; the next once the job steps."""

    kind = "restart"
    restarts_target = one_by_one = True

    restart: Glob
    grace: Duration = 30.0
    """Seconds between SIGTERM and SIGKILL."""

    @property
    def away(self) -> float:
        """Seconds after which the target surely works again."""
        return self.grace + SETTLED

    @property
    def kills_after(self) -> float:
        """Seconds until a target that still runs gets SIGKILL."""
        return self.grace
