"""Faults of a scenario -> a timeline of what will be done to whom, and when (pure).

A timeline is fixed before anything starts: random faults get their times and victims from a seed,
so the same scenario and seed give the same timeline. `emulator/injector.py` performs it.
"""

from __future__ import annotations

import fnmatch
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from emulator.errors import UsageError
from emulator.scenario import Scenario
from emulator.strikes import Fault, Strike, Trigger
from emulator.values import Downtime

__all__ = ["LASTING", "PlannedFault", "fires", "needs", "timeline"]

GRACE, DOWN = 30.0, 10.0
"""Seconds, where the scenario says nothing: a cloud's notice, and a quick replacement."""

LASTING = ("pause", "throttle")
"""Kinds that last for a time and then let the same process go on."""
SETTLED = 5.0
"""Seconds in which a task that was started again is surely running, before it is struck anew."""


@dataclass(frozen=True)
class PlannedFault:
    """One strike against one task."""

    id: str
    """`0`, `0.2` (the third of a random series), `1:worker-0` (one of several that a glob hits)."""
    kind: str
    target: str
    trigger: Trigger
    grace: float = GRACE
    """Seconds between SIGTERM and SIGKILL."""
    down: Downtime = DOWN
    """Seconds until it is back; infinite: never."""
    duration: float = 0.0
    """Seconds of a pause or a throttle."""
    cpus: float | None = None
    """Cores that a throttle leaves."""

    @property
    def away(self) -> float:
        """Seconds after which the target is surely back at work."""
        if self.kind in LASTING:
            return self.duration + SETTLED
        return (self.grace + self.down if self.kind == "preempt" else 0.0) + SETTLED


def timeline(scenario: Scenario, tasks: Sequence[str]) -> tuple[PlannedFault, ...]:
    """Return every strike of a scenario, in the order in which it was written.

    Raises UsageError where a fault or its trigger names a task that the cluster does not have.
    """
    planned: list[PlannedFault] = []
    for number, fault in enumerate(scenario.faults):
        if fault.random is not None:
            seed = scenario.seed if fault.seed is None else fault.seed
            planned += _series(number, fault, fault.random, tasks, seed)
        else:
            assert fault.at is not None, "the scenario's own validation"
            if fault.at.task is not None:
                _matching(fault.at.task, tasks, f"faults.{number}.at.task")
            planned += _each(str(number), fault, fault.at, tasks)
    return tuple(planned)


def needs(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield what the faults ask of an engine, with the capability that it takes."""
    for fault in scenario.faults:
        strike = fault.random or fault
        if strike.kind == "preempt":
            yield f"preempting {strike.target}", "replace"
        if strike.kind == "pause":
            yield f"pausing {strike.target}", "pause"
        if strike.kind == "throttle":
            yield f"throttling {strike.target}", "throttle"


def fires(
    trigger: Trigger, task: str, *, event: str, data: Mapping[str, object], line: str
) -> bool:
    """Say whether a line of `task`, and the step or phase that was read from it, is the trigger."""
    if trigger.task is not None and not fnmatch.fnmatchcase(task, trigger.task):
        return False
    if trigger.log is not None:
        return re.search(trigger.log, line) is not None
    if trigger.step is not None:
        step = data.get("step")
        return event == "step" and isinstance(step, int) and step >= trigger.step
    if trigger.phase is not None:
        begins = data.get("phase") == trigger.phase and data.get("state") == "begin"
        return event == "phase" and begins
    return False


def _each(
    number: str, strike: Strike, trigger: Trigger, tasks: Sequence[str]
) -> Iterator[PlannedFault]:
    """Yield the strike against each task that its target matches."""
    targets = _matching(strike.target, tasks, f"faults.{number}.{strike.kind}")
    for target in targets:
        name = number if len(targets) == 1 else f"{number}:{target}"
        yield _planned(name, strike, target, trigger)


def _series(
    number: int, fault: Fault, strike: Strike, tasks: Sequence[str], seed: int
) -> Iterator[PlannedFault]:
    """Yield random strikes: every so often, give or take the jitter, against one of the targets.

    Who is still away from an earlier strike is not struck again; if all are, the strike waits.
    """
    targets = _matching(strike.target, tasks, f"faults.{number}.random.{strike.kind}")
    chance = random.Random(f"{seed}/{number}")
    back = dict.fromkeys(targets, 0.0)
    for index in range(fault.max):
        due = (fault.every or 0.0) * (index + 1) + chance.uniform(-fault.jitter, fault.jitter)
        when = max(due, min(back.values()))
        if when == math.inf:
            return  # nobody is left
        target = chance.choice([task for task in targets if back[task] <= when])
        trigger = Trigger.model_construct(time=max(0.0, round(when, 3)))
        planned = _planned(f"{number}.{index}", strike, target, trigger)
        back[target] = when + planned.away
        yield planned


def _planned(name: str, strike: Strike, target: str, trigger: Trigger) -> PlannedFault:
    return PlannedFault(
        id=name,
        kind=strike.kind,
        target=target,
        trigger=trigger,
        grace=GRACE if strike.grace is None else strike.grace,
        down=DOWN if strike.down is None else strike.down,
        duration=strike.for_ or 0.0,
        cpus=strike.cpus,
    )


def _matching(pattern: str, tasks: Sequence[str], where: str) -> list[str]:
    found = [task for task in tasks if fnmatch.fnmatchcase(task, pattern)]
    if not found:
        raise UsageError(
            f"{where}: no task is called {pattern!r}.", f"There are {', '.join(tasks)}."
        )
    return found
