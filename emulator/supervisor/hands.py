"""What faults need of the supervisor: the seam between `injector.py` and `loop.py`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Protocol

from emulator.record.events import Entry
from emulator.scenario.faults import PlannedFault

__all__ = ["Hands"]


class Hands(Protocol):
    """What the injector needs the supervisor to do; each call returns at once."""

    def is_running(self, task: str) -> bool:
        """Say whether the task runs now."""

    def send(self, task: str, number: signal.Signals) -> None:
        """Signal a task."""

    def impair(self, fault: PlannedFault, *, on: bool) -> None:
        """Pause, throttle, cut off or shape, or let go on as before; squeeze."""

    def can_shape(self) -> bool:
        """Say whether the engine has what faults of the network take."""

    def equip(self) -> None:
        """Have the engine make that, in the background; `Injector.prepared` is told."""

    def bring_back(self, fault: PlannedFault) -> None:
        """Start the fault's target again: on a fresh disk after a preemption, else on its own."""

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Do something later."""

    def now(self) -> float:
        """Return monotonic seconds."""

    def note(self, entry: Entry) -> None:
        """Write to the history."""
