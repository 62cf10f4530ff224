"""One strike of a fault, and how far it has come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from emulator.scenario.faults import PlannedFault

__all__ = ["Strike"]

Stage = Literal["planned", "waiting", "preparing", "noticed", "impaired", "down", "over"]


@dataclass
class Strike:
    """What the injector knows of it; times are monotonic seconds."""

    fault: PlannedFault
    stage: Stage = "planned"
    since: float = 0.0
    """When the notice was sent."""
    killed: bool = False
    struck: float = math.inf
    """When it took effect."""
    exited: bool = False
    """The exit that it brought about is in the history (of a supervisor that was killed)."""
    back: bool = False
    """Its target has run again."""
    recovered: float = math.inf
    """When the job has stepped since."""
    healing: bool = False
