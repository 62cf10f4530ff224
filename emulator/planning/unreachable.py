"""Triggers of faults that won't fire, as far as a scenario shows it (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from emulator.faults.spec import Entry, matches
from emulator.scenario.frameworks.spec import role_of
from emulator.scenario.schema import Scenario
from emulator.validation.units import format_duration

_STEPS = re.compile(r"--?(?:(?:max|num|total|train|training|num[-_]train)[-_])?steps(?:=(\d+))?")
"""Options that commonly are the number of steps of a whole training: `--steps`, `--max_steps`."""
_EPOCHS = re.compile(r"--?\w*epochs?(?:=.*)?")
"""With one of these the number of steps may be that of an epoch."""


def unreachable(scenario: Scenario, tasks: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each fault whose trigger won't fire, also because of another fault."""
    faults = scenario.faults
    why = {number: _reason(scenario, fault, tasks) for number, fault in enumerate(faults)}
    numbers = {str(number): number for number in range(len(faults))}
    numbers |= {fault.name: number for number, fault in enumerate(faults) if fault.name}
    for number, fault in enumerate(faults):
        first, seen = number, set[int]()
        while first not in seen and (reference := _awaited(faults[first])) in numbers:
            seen.add(first)
            first = numbers[reference]
        if first != number and why[first]:
            yield f"{_called(number, fault)} won't happen: {_called(first, faults[first])} won't"
        elif why[number]:
            yield f"{_called(number, fault)} {why[number]}"


def _called(number: int, fault: Entry) -> str:
    return f"fault {number} ({fault.name or fault.kind})"


def _awaited(fault: Entry) -> str:
    """Return the name or number of the fault that this one waits for; empty if there is none."""
    return (fault.at and (fault.at.after or fault.at.recovery)) or ""


def _reason(scenario: Scenario, fault: Entry, tasks: Sequence[str]) -> str:
    """Return why the trigger won't fire by itself; empty if it may."""
    at, timeout = fault.at, scenario.timeout
    if at is None:
        return ""
    if at.time is not None and timeout is not None and at.time >= timeout:
        due, end = format_duration(at.time), format_duration(timeout)
        return f"won't happen: it is due after {due}, and the timeout is {end}"
    if at.step is None:
        return ""
    if scenario.expect.steps == "none":
        return f"won't happen: it waits for step {at.step}, and `expect.steps` is none"
    last = _last_step(scenario, matches(at.task or "*", tasks))
    final = scenario.expect.final_step
    if last is not None:
        beyond = f"the program ends at step {last}, by its command"
        return f"won't happen: it waits for step {at.step}, and {beyond}" * (at.step > last)
    if final is not None and at.step > final:
        return f"may not happen: it waits for step {at.step}, and expect.final_step is {final}"
    return ""


def _last_step(scenario: Scenario, tasks: Sequence[str]) -> int | None:
    """Return the last step of these tasks, by their commands; None if one does not say it."""
    roles = {role_of(task) for task in tasks} & scenario.in_training.keys()
    commands = (scenario.cluster[role].command for role in roles)
    known = [
        steps_of(scenario.program.command if command is None else command) for command in commands
    ]
    found = [steps for steps in known if steps is not None]
    return max(found) if found and len(found) == len(known) else None


def steps_of(command: Sequence[str]) -> int | None:
    """Return the number of steps that a command gives its program; None if it is not clear."""
    words = [word for text in command for word in text.split()]
    found: list[str] = []
    for number, word in enumerate(words):
        if _EPOCHS.fullmatch(word):
            return None
        if option := _STEPS.fullmatch(word):
            values = [option[1]] if option[1] else words[number + 1 : number + 3]
            if len(values) == 2 and values[1].isdecimal():
                return None  # a number for each of several parts
            found += values[:1]
    one = found[0] if len(found) == 1 else ""
    return int(one) if one.isdecimal() else None
