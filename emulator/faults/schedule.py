"""The schedule of a scenario's faults: which fault hits which task, and when (pure).

The schedule is fixed before anything starts: random faults get their times and targets from a
seed, so the same faults and seed give the same schedule. `emulator/supervisor/injector.py`
performs it.
"""

from __future__ import annotations

import fnmatch
import functools
import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from emulator.errors import UsageError, shown
from emulator.faults.kinds import OneFault, RandomFaults, TraceFaults
from emulator.faults.netem import Link
from emulator.faults.spec import Entry, FaultSpec, Trigger, matches
from emulator.validation.fields import LONGEST
from emulator.validation.patterns import compiled
from emulator.validation.units import format_duration

MANUAL = "manual-"
"""The prefix of the ids of faults that were injected by hand."""
AT_ONCE = Trigger.model_construct(time=0.0)


@dataclass(frozen=True)
class PlannedFault:
    """One fault of one task, of the network between several, or of what is no task."""

    id: str
    """`0`, `0.2` (the third of a random series), `1:worker-0` (one of several that a glob hits)."""
    target: str
    """A task, or what the fault names instead: the groups of a partition as written."""
    trigger: Trigger
    spec: OneFault
    """The kind of fault, with its options."""
    name: str = ""
    """Its name in the scenario."""
    links: tuple[Link, ...] = ()
    """The effect of a network fault."""
    in_turn: bool = False
    """It is one of a series: it waits while another fault keeps its target down."""

    @property
    def kind(self) -> str:
        """The key of its kind in `kinds.FAULTS`."""
        return self.spec.kind

    @property
    def watched(self) -> str:
        """The task before whose call to the kernel it happens; empty: it has another trigger."""
        return (self.trigger.task or self.target) if self.trigger.call else ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that it affects; none if its target is no task."""
        alone = (self.target,) if self.spec.hits_tasks else ()
        return tuple(dict.fromkeys(link.source for link in self.links)) or alone


@functools.cache
def _adapter() -> TypeAdapter[PlannedFault]:
    return TypeAdapter(PlannedFault)


def to_json(fault: PlannedFault) -> dict[str, Any]:
    """Return a fault for the history."""
    return dict(_adapter().dump_python(fault, mode="json"))


def from_json(data: object) -> PlannedFault:
    """Return the fault that `to_json` wrote."""
    return _adapter().validate_python(data, context={"stored": True})


def build_schedule(
    faults: Sequence[Entry], seed: int, tasks: Sequence[str]
) -> tuple[PlannedFault, ...]:
    """Return all single faults, in the order of the entries.

    Raises UsageError if a fault or its trigger names a task or a fault that does not exist.
    """
    planned: list[PlannedFault] = []
    for number, fault in enumerate(faults):
        match fault:
            case TraceFaults():
                planned += _trace_schedule(number, fault, tasks)
            case RandomFaults():
                planned += _random_schedule(number, fault, tasks, seed)
            case FaultSpec(at=Trigger() as trigger):
                planned += expand_targets(str(number), fault, tasks, trigger)
            case _:
                raise TypeError(f"{fault!r} is not a validated entry")
    for number, key, message, hint in cross_errors(faults, tasks):
        raise UsageError(f"faults.{number}.{key}: {message}.", hint)
    return tuple(planned)


def cross_errors(
    faults: Sequence[Entry], tasks: Sequence[str]
) -> Iterator[tuple[int, str, str, str]]:
    """Yield errors between faults: the number of the fault, key, message, hint."""
    for number, fault in enumerate(faults):
        if isinstance(fault, FaultSpec) and (conflict := fault.conflict(tasks)):
            yield number, fault.kind, conflict, ""
        at_random = fault.random if isinstance(fault, RandomFaults) else None
        if at_random and at_random.at_once > 1 and (conflict := at_random.conflict(tasks)):
            yield number, fault.kind, conflict, ""
        if (
            fault.at
            and fault.at.call
            and not fault.at.task
            and not getattr(fault, "hits_tasks", True)
        ):
            yield number, "at", f"whose {fault.at.call}? Name the task in `task`", ""
        if fault.name and any(other.name == fault.name for other in faults[:number]):
            yield number, "name", f"another fault is called {fault.name!r} already", ""
    yield from _cyclic_references(faults)


def expand_targets(
    number: str, spec: FaultSpec, tasks: Sequence[str], trigger: Trigger = AT_ONCE
) -> list[PlannedFault]:
    """Return the fault for each task that its target matches.

    If the kind works one by one, only the first fault has the trigger; each later one happens after
    the recovery from the one before. Raises UsageError if the target matches no task.
    """
    for path, pattern in spec.named():
        _matching(pattern, tasks, f"faults.{number}.{'.'.join(map(str, path))}")
    if conflict := spec.conflict(tasks):
        raise UsageError(f"{conflict} of the {spec.kind}.")
    name, spec = spec.name or "", spec.model_copy(update={"at": None, "name": None})
    links = spec.links(tasks)
    if links or not spec.hits_tasks:
        return [PlannedFault(number, spec.target, trigger, spec, name, links)]
    targets = spec.hits(matches(spec.target, tasks))
    if len(targets) == 1:
        return [PlannedFault(number, targets[0], trigger, spec, name)]
    planned: list[PlannedFault] = []
    for target in targets:
        if spec.one_by_one and planned:
            trigger = Trigger(recovery=planned[-1].id)
        planned.append(PlannedFault(f"{number}:{target}", target, trigger, spec, name))
    return planned


def trigger_matches(
    trigger: Trigger,
    task: str,
    *,
    event: str,
    data: Mapping[str, object],
    line: str | None,
    evaluators: Collection[str] = (),
) -> bool:
    """Return whether a line of `task`, or the step or phase event read from it, is the trigger.

    `line` is None for a step that was read from an unfinished line. A step of one of the
    `evaluators` is only where the trigger names that task: it is of a checkpoint, maybe an old one.
    Raises TooSlow where the pattern of a trigger takes too long for the line.
    """
    if trigger.task is not None and not fnmatch.fnmatchcase(task, trigger.task):
        return False
    if trigger.log is not None:
        return line is not None and compiled(trigger.log).search(line) is not None
    if trigger.step is not None:
        step = data.get("step")
        counts = trigger.task is not None or task not in evaluators
        return event == "step" and counts and isinstance(step, int) and step >= trigger.step
    if trigger.phase is not None:
        begins = data.get("phase") == trigger.phase and data.get("state") == "begin"
        return event == "phase" and begins
    return False


def why_unfired(
    trigger: Trigger, steps: Mapping[str, int | None], evaluators: Collection[str] = ()
) -> str:
    """Return what a trigger still waited for at the job's end; `steps`: the last of each task."""
    who = "no task" if trigger.task is None else f"no task {trigger.task}"
    if trigger.step is not None:
        known = {task: step for task, step in steps.items() if step is not None}
        watched = matches(trigger.task or "*", list(known))
        others = [] if trigger.task else [task for task in watched if task in evaluators]
        counted = [known[task] for task in watched if task not in others]
        last = f"the last step was {max(counted)}" if counted else "no step was reported"
        left_out = [task for task in others if known[task] >= trigger.step]
        why = f"; that of {left_out[0]} counts only if `task:` names it" if left_out else ""
        return f"{who} reached step {trigger.step}, {last}{why}"
    if trigger.phase is not None:
        return f"{who} reported the beginning of a phase {trigger.phase}"
    if trigger.log is not None:
        return f"{who} printed a line that matches {shown(trigger.log, 80)!r}"
    if trigger.time is not None:
        return f"it was due {format_duration(trigger.time)} after all tasks ran"
    if trigger.call:
        of = f" of {trigger.of}" if trigger.of else ""
        who = trigger.task or "its target"
        return f"{who} made no {trigger.call}{of} number {trigger.call_number}"
    followed = trigger.after or trigger.recovery
    what = "took effect" if trigger.after else "was followed by a step"
    since = f"{format_duration(trigger.delay)} after" if trigger.delay else "when"
    return f"it was due {since} fault {followed} {what}"


def part_of(whole: PlannedFault, spec: FaultSpec) -> PlannedFault:
    """Return a fault that happens at once, as a part of another."""
    return PlannedFault(f"{whole.id}:{spec.target}", spec.target, AT_ONCE, spec, whole.name)


def is_part_of(fault: PlannedFault, reference: str) -> bool:
    """Return whether a fault is (part of) the one that a trigger refers to."""
    if reference in (fault.name, fault.id):
        return True
    return fault.id.startswith((f"{reference}:", f"{reference}."))


def _trace_schedule(
    number: int, fault: TraceFaults, tasks: Sequence[str]
) -> Iterator[PlannedFault]:
    """Yield the preemptions of a trace, `speed` times faster than they were recorded.

    A task that is still down is preempted again as soon as it is surely back; if that takes longer
    than planned, once it is.
    """
    begin = (fault.at.time if fault.at else None) or 0.0
    back_at = dict.fromkeys(tasks, 0.0)
    planned: list[tuple[float, PlannedFault]] = []
    for index, row in enumerate(fault.trace):
        targets = _matching(row.target, tasks, f"faults.{number}.trace, row {index + 1}")
        for target in targets:
            when = max(begin + row.time / fault.speed, back_at[target])
            if when == math.inf:
                continue  # it never comes back
            spec = fault.preemption(row, target)
            id_ = f"{number}.{index}" + (f":{target}" if len(targets) > 1 else "")
            planned.append(
                (when, PlannedFault(id_, target, _at(when), spec, fault.name or "", in_turn=True))
            )
            if not fault.after_recovery or spec.down == math.inf:
                back_at[target] = when + spec.downtime
    yield from _chained(fault.at, planned, after_recovery=fault.after_recovery)


def _chained(
    at: Trigger | None,
    planned: Sequence[tuple[float, PlannedFault]],
    *,
    after_recovery: bool = False,
) -> Iterator[PlannedFault]:
    """Yield the faults of a series with their triggers: times, unless the series begins otherwise.

    Then the first ones have the trigger `at`, and the others follow as long after it as planned:
    when the first one has taken effect or, with `after_recovery`, when the job has recovered from
    the one before.
    """
    timed = at is None or at.time is not None
    if timed and not after_recovery:
        yield from (one for _, one in planned)
        return
    leaders: dict[float, str] = {}
    for when, one in planned:
        leaders.setdefault(when, one.id)
    times = sorted(leaders)
    places = {when: place for place, when in enumerate(times)}
    for when, one in planned:
        if (place := places[when]) == 0:
            trigger = one.trigger if timed else at
        elif after_recovery:
            before = times[place - 1]
            trigger = _follows(when - before, recovery=leaders[before])
        else:
            trigger = _follows(when - times[0], after=leaders[times[0]])
        assert trigger is not None
        yield replace(one, trigger=trigger)


def _random_schedule(
    number: int, fault: RandomFaults, tasks: Sequence[str], seed: int
) -> Iterator[PlannedFault]:
    """Yield the faults of a random series, each against one of the targets.

    A task that is still down from an earlier fault is not chosen; if all are down, the fault waits.
    """
    spec = fault.random
    key = f"faults.{number}.random.{spec.target_key or spec.kind}"
    targets = _matching(spec.target, tasks, key) if spec.hits_tasks else [spec.target]
    if spec.at_once > len(targets):
        return  # `cross_errors` says so
    generator = random.Random(f"{seed if fault.seed is None else fault.seed}/{number}")
    begin = (fault.at.time if fault.at else None) or 0.0
    back_at = dict.fromkeys(targets, 0.0)
    planned: list[tuple[float, PlannedFault]] = []
    at_once, name = spec.at_once, fault.name or ""
    for index in range(fault.max):
        due = fault.every * (index + 1) + generator.uniform(-fault.jitter, fault.jitter)
        when = max(begin + due, sorted(back_at.values())[at_once - 1])
        if when == math.inf:
            break  # too few targets ever come back
        free = [task for task in targets if back_at[task] <= when]
        # `sample` draws otherwise than `choice`: the schedules of seeds must stay as they are.
        drawn = [generator.choice(free)] if at_once == 1 else generator.sample(free, at_once)
        for target in drawn:
            one = spec.aimed_at(target)
            id_ = f"{number}.{index}" + (f":{target}" if at_once > 1 else "")
            trigger = _at(max(0.0, when))
            due_then = PlannedFault(id_, target, trigger, one, name, one.links(tasks), in_turn=True)
            planned.append((when, due_then))
            back_at[target] = when + spec.downtime
    yield from _chained(fault.at, planned)


def _at(when: float) -> Trigger:
    """Return a trigger at a time, or at the maximum of all timers."""
    return Trigger.model_construct(time=round(min(when, LONGEST), 3))


def _follows(delay: float, *, after: str | None = None, recovery: str | None = None) -> Trigger:
    """Return a trigger some seconds after what another fault has brought about."""
    delay = round(min(delay, LONGEST), 3)
    return Trigger.model_construct(after=after, recovery=recovery, delay=delay)


def _cyclic_references(faults: Sequence[Entry]) -> Iterator[tuple[int, str, str, str]]:
    """Yield triggers that refer to a fault that does not exist, or that wait for themselves."""
    numbers = {str(n): n for n in range(len(faults))}
    numbers |= {fault.name: n for n, fault in enumerate(faults) if fault.name}
    awaited: dict[int, int] = {}
    for number, fault in enumerate(faults):
        reference = fault.at and (fault.at.after or fault.at.recovery)
        if not reference:
            continue
        if reference in numbers:
            awaited[number] = numbers[reference]
        else:
            hint = f"faults are called {', '.join(numbers)}; give one a `name:` to refer to it"
            yield number, "at", f"there is no fault {reference!r}", hint
    for start in awaited:
        seen, number = {start}, awaited[start]
        while number in awaited and number not in seen:
            seen.add(number)
            number = awaited[number]
        if number == start:
            yield start, "at", "it waits for itself, directly or through other faults", ""


def _matching(pattern: str, tasks: Sequence[str], path: str) -> list[str]:
    """Return the tasks that a pattern matches. Raises UsageError if there are none."""
    if targets := matches(pattern, tasks):
        return targets
    place = "" if path.startswith(f"faults.{MANUAL}") else f"{path}: "
    raise UsageError(f"{place}no task is called {pattern!r}.", f"There are {', '.join(tasks)}.")
