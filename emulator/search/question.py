"""What a sweep is to find out, and the scenario of each of its runs (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from emulator.analysis.uninterrupted import TOLERANCE
from emulator.errors import UsageError
from emulator.faults.kinds import FAULTS
from emulator.planning.requested import RequestedScenario
from emulator.scenario.matrix import to_overrides
from emulator.search.moments import ALL, EACH_CALL, Moment

MAX_MOMENTS = 100
"""Moments of a sweep, unless more are asked for."""
FIRST = "first"
"""The name of the fault after which all other tasks are killed."""


@dataclass(frozen=True)
class Question:
    """What a sweep is to find out."""

    requested: RequestedScenario
    """Its own faults are left out."""
    fault: Mapping[str, Any] | None = None
    """As a scenario has it, without `at`; None: a kill of each task that saves, and of all."""
    at: str = EACH_CALL
    max_moments: int = MAX_MOMENTS
    tolerance: float = TOLERANCE
    result: str = ""
    """The glob of the files that are compared; empty: all that tasks have left."""

    def as_data(self) -> dict[str, Any]:
        """Return it for the state of a sweep: what must be the same when that goes on."""
        return {
            "scenario": self.requested.scenario.to_yaml(),
            "fault": None if self.fault is None else dict(self.fault),
            "at": self.at,
            "max_moments": self.max_moments,
            "tolerance": self.tolerance,
            "result": self.result,
        }

    def variant(self, faults: Sequence[Mapping[str, Any]]) -> RequestedScenario:
        """Return the scenario with these faults alone, which restarts. Raises UsageError."""
        own = self.requested
        chosen: dict[str, Any] = {"faults": list(faults)}
        if self.restarts_by_itself:
            chosen["restart.policy"] = "on-failure"
        return replace(own, last=(*own.last, *to_overrides(chosen)))

    @cached_property
    def restarts_by_itself(self) -> bool:
        """Whether the sweep restarts the tasks, since the scenario does not."""
        scenario = self.requested.scenario
        return scenario.rules is None and scenario.restart.policy == "never"

    @cached_property
    def kind(self) -> str:
        """The kind of the fault. Raises UsageError."""
        if self.fault is None:
            return "kill"
        kinds = [key for key in self.fault if key in FAULTS]
        if len(kinds) != 1:
            raise UsageError(
                f"--fault {json.dumps(dict(self.fault))} is no fault.",
                "For example: --fault '{preempt: worker-1, grace: 5s}'.",
            )
        return kinds[0]

    def at_moment(self, moment: Moment) -> RequestedScenario:
        """Return the scenario with the fault at a moment. Raises UsageError."""
        if self.fault is not None:
            return self.variant([{**self.fault, "at": moment.at}])
        if moment.target != ALL:
            return self.variant([{"kill": moment.target, "at": moment.at}])
        by = str(moment.at.get("task", self.tasks[0]))
        others = [name for name in self.tasks if name != by]
        at = {key: value for key, value in moment.at.items() if key != "task"}
        return self.variant(
            [
                {"name": FIRST, "kill": by, "at": at},
                *({"kill": name, "at": {"after": FIRST}} for name in others),
            ]
        )

    @cached_property
    def tasks(self) -> Sequence[str]:
        """The tasks that train together."""
        scenario = self.requested.scenario
        return [
            f"{role}-{index}"
            for role, spec in scenario.in_training.items()
            for index in range(spec.replicas)
        ]
