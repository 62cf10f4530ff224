"""The faults of a run and how far each has come: as they happen, or from a history (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from emulator.faults.schedule import PlannedFault, from_json
from emulator.faults.spec import EndingFault
from emulator.record.events import Entry, FaultEvent, Step, TaskExit, TaskRunning

__all__ = ["ActiveFault", "ActiveFaults", "recover_faults"]

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
            if one.restored and one.recovered_at == math.inf and self._shows(one, task):
                one.recovered_at = when

    def _shows(self, one: ActiveFault, task: str) -> bool:
        """Say whether a step of `task` shows that the job has recovered.

        In a rolling restart the restarted task has to step itself, if it is one that does.
        """
        target = one.fault.target
        return not one.fault.spec.one_by_one or target not in self.stepping or task == target


def recover_faults(
    schedule: Sequence[PlannedFault], history: Sequence[Entry], began: float
) -> ActiveFaults:
    """Return the faults as a supervisor that was killed knew them; the run began at `began`."""
    found = ActiveFaults.of(schedule)
    for entry in history:
        when = began + entry.t
        if isinstance(entry, Step):
            found.on_step(entry.task, when)
        elif isinstance(entry, FaultEvent):
            _follow(found, entry, when)
        for one in found:
            if one.fault.target == entry.task and one.applied_at < math.inf:
                one.restored = one.restored or isinstance(entry, TaskRunning)
                caused = isinstance(entry, TaskExit) and entry.fault == one.fault.id
                one.exited = one.exited or caused
    return found


def _follow(found: ActiveFaults, entry: FaultEvent, when: float) -> None:
    """Bring one fault as far as an event of it says."""
    if entry.plan is not None:
        found.faults.append(ActiveFault(from_json(entry.plan), stage="waiting"))
    one = found.find(entry.id)
    if one is None:
        return
    spec = one.fault.spec
    match entry.stage:
        case "planned" | "preparing":
            pass  # it waits; what the engine was making has to be made again
        case "triggered":
            one.stage = "terminating" if spec.ends_target else "active"
            one.triggered_at = when
        case "applied":
            one.applied_at = when
            if spec.ends_target:
                one.stage = "down" if spec.restarts_target else "over"
        case "healed":
            one.stage, one.restored = "over", True
        case "skipped" | "failed":
            one.stage = "over"
