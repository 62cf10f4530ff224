"""Faults of a scenario -> a timeline of what will be done to whom, and when (pure).

A timeline is fixed before anything starts: random faults get their times and victims from a seed,
so the same scenario and seed give the same timeline. `emulator/supervisor/injector.py` performs it.
"""

from __future__ import annotations

import fnmatch
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from pydantic import TypeAdapter

from emulator.errors import UsageError
from emulator.limits import LINKS
from emulator.netem import Link
from emulator.patterns import compiled
from emulator.scenario.model import Scenario
from emulator.scenario.strikes import LASTING, Fault, Strike, Trigger
from emulator.scenario.targets import link_count, matches
from emulator.scenario.values import LONGEST, DurationOrForever

__all__ = [
    "LASTING",
    "PlannedFault",
    "belongs",
    "by_hand",
    "fires",
    "from_json",
    "misfits",
    "needs",
    "network_parts",
    "strike_needs",
    "timeline",
    "to_json",
]

GRACE, DOWN = 30.0, 10.0
"""Seconds, where the scenario says nothing: a cloud's notice, and a quick replacement."""

SETTLED = 5.0
"""Seconds in which a task that was started again is surely running, before it is struck anew."""


@dataclass(frozen=True)
class PlannedFault:
    """One strike against one task, or against the network between several."""

    id: str
    """`0`, `0.2` (the third of a random series), `1:worker-0` (one of several that a glob hits)."""
    kind: str
    target: str
    """A task; the groups of a partition, as they were written."""
    trigger: Trigger
    name: str = ""
    """What the scenario calls it."""
    grace: float = GRACE
    """Seconds between SIGTERM and SIGKILL."""
    down: DurationOrForever = DOWN
    """Seconds until it is back; infinite: never."""
    address: str = ""
    """`new` or `same` when it is back; empty: new where the engine can."""
    duration: DurationOrForever = 0.0
    """Seconds of what lasts; infinite: until it is healed by hand, or the run ends."""
    cpus: float | None = None
    """Cores that a throttle leaves."""
    links: tuple[Link, ...] = ()
    """What a network fault does between tasks."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Whom it strikes."""
        return tuple(dict.fromkeys(link.source for link in self.links)) or (self.target,)

    @property
    def away(self) -> float:
        """Seconds after which the target is surely back at work."""
        if self.kind in LASTING:
            return self.duration + SETTLED
        times = {"preempt": self.grace + self.down, "restart": self.grace}
        return times.get(self.kind, 0.0) + SETTLED


_ADAPTER = TypeAdapter(PlannedFault)


def to_json(fault: PlannedFault) -> dict[str, Any]:
    """Return a fault for the history."""
    return dict(_ADAPTER.dump_python(fault, mode="json"))


def from_json(data: object) -> PlannedFault:
    """Return the fault that `to_json` wrote."""
    return _ADAPTER.validate_python(data)


def timeline(scenario: Scenario, tasks: Sequence[str]) -> tuple[PlannedFault, ...]:
    """Return every strike of a scenario, in the order in which it was written.

    Raises UsageError where a fault or its trigger names a task or a fault that is not there.
    """
    planned: list[PlannedFault] = []
    for number, fault in enumerate(scenario.faults):
        if fault.trace is not None:
            planned += _replay(number, fault, tasks)
        elif fault.random is not None:
            seed = scenario.seed if fault.seed is None else fault.seed
            planned += _series(number, fault, fault.random, tasks, seed)
        else:
            assert fault.at is not None, "the scenario's own validation"
            if fault.at.task is not None:
                _matching(fault.at.task, tasks, f"faults.{number}.at.task")
            planned += by_hand(str(number), fault, tasks, fault.at)
    for number, key, message, hint in misfits(scenario.faults, tasks):
        raise UsageError(f"faults.{number}.{key}: {message}.", hint)
    return tuple(planned)


def misfits(faults: Sequence[Fault], tasks: Sequence[str]) -> Iterator[tuple[int, str, str, str]]:
    """Yield what is wrong between faults: number of the fault, key, message, hint."""
    for number, fault in enumerate(faults):
        if both := _in_two_groups(fault, tasks):
            yield number, "partition", f"{both} is in two groups", ""
        if fault.name and any(other.name == fault.name for other in faults[:number]):
            yield number, "name", f"another fault is called {fault.name!r} already", ""
    yield from _disorder(faults)


def by_hand(
    number: str, strike: Strike, tasks: Sequence[str], trigger: Trigger
) -> list[PlannedFault]:
    """Return the strike against each task that its target matches.

    A rolling restart strikes the first; each other once the one before has recovered. Raises
    UsageError where it matches none.
    """
    name = getattr(strike, "name", None) or ""
    if link_count(strike, tasks) > LINKS:
        raise UsageError(f"That changes the network between more than {LINKS:,} pairs of tasks.")
    if strike.kind in ("partition", "shape"):
        links = _links(number, strike, tasks)
        return [_planned(number, strike, strike.target, trigger, name, links)]
    targets = _matching(strike.target, tasks, f"faults.{number}.{strike.kind}")
    if len(targets) == 1:
        return [_planned(number, strike, targets[0], trigger, name)]
    planned: list[PlannedFault] = []
    for target in targets:
        if strike.kind == "restart" and planned:
            trigger = Trigger(recovery=planned[-1].id)
        planned.append(_planned(f"{number}:{target}", strike, target, trigger, name))
    return planned


def needs(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield what the faults ask of an engine, with the capability that it takes."""
    for fault in scenario.faults:
        if fault.trace is not None:
            yield "preempting by a trace", "replace"
        else:
            yield from strike_needs(fault.random or fault)


def strike_needs(strike: Strike) -> Iterator[tuple[str, str]]:
    """Yield what one strike asks of an engine."""
    target = strike.target
    match strike.kind:
        case "preempt":
            yield f"preempting {target}", "replace"
            if strike.address:
                what = "a new" if strike.address == "new" else "the same"
                yield f"{what} address for {target}", f"{strike.address}-address"
        case "pause":
            yield f"pausing {target}", "pause"
        case "throttle":
            yield f"throttling {target}", "throttle"
        case "oom":
            yield f"running {target} out of memory", "oom"
        case "partition":
            yield f"a partition of {target}", "network"
        case "shape":
            yield f"shaping the network of {target}", "network"


def network_parts(scenario: Scenario) -> frozenset[str]:
    """Return what of `netem.PROBES` the engine's kernel needs for a scenario."""
    network = scenario.network
    found = Link("", "", delay=network.delay, bandwidth=network.bandwidth).parts
    for fault in scenario.faults:
        strike = fault.random or fault
        if strike.partition is not None:
            found |= Link("", "", loss=1.0).parts
        elif strike.shape is not None:
            found |= _link("", "", strike).parts
    return found


def fires(
    trigger: Trigger, task: str, *, event: str, data: Mapping[str, object], line: str
) -> bool:
    """Say whether a line of `task`, and the step or phase that was read from it, is the trigger."""
    if trigger.task is not None and not fnmatch.fnmatchcase(task, trigger.task):
        return False
    if trigger.log is not None:
        return compiled(trigger.log).found(line)
    if trigger.step is not None:
        step = data.get("step")
        return event == "step" and isinstance(step, int) and step >= trigger.step
    if trigger.phase is not None:
        begins = data.get("phase") == trigger.phase and data.get("state") == "begin"
        return event == "phase" and begins
    return False


def _links(number: str, strike: Strike, tasks: Sequence[str]) -> tuple[Link, ...]:
    """Return each ordered pair of tasks whose packets meet something, with what they meet."""
    if strike.partition is not None:
        groups = []
        for index, names in enumerate(strike.partition):
            where = f"faults.{number}.partition.{index}"
            groups.append([task for name in names for task in _matching(name, tasks, where)])
        if both := _in_two_groups(strike, tasks):
            raise UsageError(f"{both} is in two groups of the partition.")
        pairs = [
            (source, target)
            for one, other in permutations(range(len(groups)), 2)
            if one == 0 or not strike.oneway
            for source in groups[one]
            for target in groups[other]
        ]
        return tuple(Link(source, target, loss=1.0) for source, target in pairs)
    shaped = _matching(strike.target, tasks, f"faults.{number}.shape")
    towards = _matching(strike.to, tasks, f"faults.{number}.to") if strike.to else list(tasks)
    pairs = [(one, other) for one in shaped for other in towards if one != other]
    if not strike.oneway:
        pairs += [(other, one) for one, other in pairs]
    return tuple(_link(source, target, strike) for source, target in dict.fromkeys(pairs))


def _in_two_groups(strike: Strike, tasks: Sequence[str]) -> str | None:
    groups: dict[str, int] = {}
    for number, names in enumerate(strike.partition or ()):
        for task in (task for name in names for task in matches(name, tasks)):
            if groups.setdefault(task, number) != number:
                return task
    return None


def _link(source: str, target: str, strike: Strike) -> Link:
    return Link(source, target, strike.delay, strike.jitter, strike.loss, strike.bandwidth)


def _replay(number: int, fault: Fault, tasks: Sequence[str]) -> Iterator[PlannedFault]:
    """Yield the preemptions of a trace, `speed` times faster than they were recorded.

    It begins `at` the fault's time. Who is still away is struck again as soon as it is surely back.
    `down` of the fault, where it is given, takes the place of the rows'.
    """
    begin = (fault.at.time if fault.at else None) or 0.0
    back = dict.fromkeys(tasks, 0.0)
    for index, row in enumerate(fault.trace or ()):
        targets = _matching(row.target, tasks, f"faults.{number}.trace, row {index + 1}")
        for target in targets:
            when = max(begin + row.time / fault.speed, back[target])
            if when == math.inf:
                continue  # it never comes back
            down = row.down / fault.speed if fault.down is None else fault.down
            planned = PlannedFault(
                id=f"{number}.{index}" + (f":{target}" if len(targets) > 1 else ""),
                kind="preempt",
                target=target,
                trigger=_at(when),
                name=fault.name or "",
                grace=GRACE if fault.grace is None else fault.grace,
                down=down if down == math.inf else round(min(down, LONGEST), 3),
            )
            back[target] = when + planned.away
            yield planned


def _at(when: float) -> Trigger:
    """Return a trigger at a time; one that lies beyond all timers is as late as they go."""
    return Trigger.model_construct(time=round(min(when, LONGEST), 3))


def belongs(fault: PlannedFault, reference: str) -> bool:
    """Say whether a strike is (part of) the fault that a trigger refers to (pure)."""
    if reference in (fault.name, fault.id):
        return True
    return fault.id.startswith((f"{reference}:", f"{reference}."))


def _disorder(faults: Sequence[Fault]) -> Iterator[tuple[int, str, str, str]]:
    """Yield triggers that wait for a fault which is not there, or in the end for themselves."""
    numbers = {str(n): n for n in range(len(faults))}
    numbers |= {fault.name: n for n, fault in enumerate(faults) if fault.name}
    waits: dict[int, int] = {}
    for number, fault in enumerate(faults):
        reference = fault.at and (fault.at.after or fault.at.recovery)
        if not reference:
            continue
        if reference not in numbers:
            called = f"faults are called {', '.join(numbers)}; give one a `name:` to refer to it"
            yield number, "at", f"there is no fault {reference!r}", called
        else:
            waits[number] = numbers[reference]
    for start in waits:
        seen, here = {start}, waits[start]
        while here in waits and here not in seen:
            seen.add(here)
            here = waits[here]
        if here == start:
            yield start, "at", "it waits in the end for itself", ""


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
        trigger = _at(max(0.0, when))
        planned = _planned(f"{number}.{index}", strike, target, trigger, fault.name or "")
        back[target] = when + planned.away
        yield planned


def _planned(
    number: str,
    strike: Strike,
    target: str,
    trigger: Trigger,
    name: str = "",
    links: tuple[Link, ...] = (),
) -> PlannedFault:
    return PlannedFault(
        id=number,
        kind=strike.kind,
        target=target,
        trigger=trigger,
        name=name,
        grace=GRACE if strike.grace is None else strike.grace,
        down=DOWN if strike.down is None else strike.down,
        address=strike.address or "",
        duration=strike.for_ or 0.0,
        cpus=strike.cpus,
        links=links,
    )


def _matching(pattern: str, tasks: Sequence[str], where: str) -> list[str]:
    found = matches(pattern, tasks)
    if not found:
        place = "" if where.startswith("faults.hand-") else f"{where}: "
        raise UsageError(f"{place}no task is called {pattern!r}.", f"There are {', '.join(tasks)}.")
    return found
