"""The faults of a run and the stage that each has reached (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from emulator.faults.schedule import PlannedFault
from emulator.faults.spec import EndingFault

__all__ = ["ActiveFault", "ActiveFaults"]

Stage = Literal["planned", "waiting", "preparing", "terminating", "active", "down", "over"]


@dataclass
class ActiveFault:
    """One fault, with its stage; times are monotonic seconds.

    planned -> waiting for its trigger -> (preparing what the engine needs) -> over, by way of:
    active, where it lasts; terminating, where it ends its target; then down, where it also starts
    the target again.
    """

    fault: PlannedFault
    stage: Stage = "planned"
    triggered_at: float = 0.0
    killed: bool = False
    """Its target got SIGKILL."""
    applied_at: float = math.inf
    exited: bool = False
    """The exit that it caused is in the history (of a supervisor that was killed)."""
    restored: bool = False
    """Its target has run again."""
    recovered_at: float = math.inf
    """When the job has stepped since."""
    healing: bool = False

    @property
    def ending(self) -> EndingFault | None:
        """The kind of a fault that ends its target; None for others."""
        return self.fault.spec if isinstance(self.fault.spec, EndingFault) else None

    def is_recovered_by(self, task: str, *, target_steps: bool) -> bool:
        """Return whether a step of `task` shows that the job has recovered.

        In a rolling restart the restarted task has to step itself, if it has ever done so.
        """
        return not self.fault.spec.one_by_one or not target_steps or task == self.fault.target


@dataclass
class ActiveFaults:
    """All faults of one run, in the order of the plan; manual ones after them."""

    faults: list[ActiveFault] = field(default_factory=list)
    stepping: set[str] = field(default_factory=set)
    """The tasks that have reported steps."""

    @classmethod
    def of(cls, schedule: Sequence[PlannedFault]) -> ActiveFaults:
        """Return the faults of a run that has not begun."""
        return cls([ActiveFault(fault) for fault in schedule])

    def __iter__(self) -> Iterator[ActiveFault]:
        return iter(self.faults)

    def find(self, fault: str) -> ActiveFault | None:
        """Return the fault with this id."""
        return next((one for one in self.faults if one.fault.id == fault), None)

    def on_step(self, task: str, when: float) -> None:
        """Note the faults from which the job has recovered, as a step of `task` shows."""
        self.stepping.add(task)
        for one in self.faults:
            if (
                one.restored
                and one.recovered_at == math.inf
                and one.is_recovered_by(task, target_steps=one.fault.target in self.stepping)
            ):
                one.recovered_at = when
