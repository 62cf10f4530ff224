"""A kind of fault that a platform announces: its target ends at SIGTERM, `notice` after that."""

from __future__ import annotations

from typing import Literal

from emulator.faults.platforms.notices import Announcing, Notice
from emulator.faults.preempt import GracefulFault
from emulator.faults.spec import FaultContext
from emulator.validation.fields import Duration, Glob


class Taken(GracefulFault):
    """Taken away, and back as another machine."""

    kind = "taken"
    replaces_target = True

    taken: Glob
    metadata: Literal["gce", "ec2", "azure"] = "gce"
    action: str = "preempt"
    notice: Duration = 30.0

    @property
    def platforms(self) -> frozenset[str]:
        return frozenset({self.metadata})

    @property
    def announced_before(self) -> float:
        return self.notice

    def announce(self, target: FaultContext) -> None:
        notice = Notice(self.metadata, self.action, target.task, 1000.0, 1000.0 + self.notice)
        target.engine_as(Announcing).announce(notice)
