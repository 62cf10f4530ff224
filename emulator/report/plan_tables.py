"""What `emulate plan` prints."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from emulator.planning.plan import Plan, Task
from emulator.report.tables import print_table
from emulator.validation.units import format_duration, format_size


def print_plan(plan: Plan, requests: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print a plan: tasks, rules, warnings, and the environment of each role's first task."""
    console.print(f"[bold]{plan.scenario.name}[/bold] on the {plan.engine} engine", highlight=False)
    if plan.scenario.description:
        console.print(plan.scenario.description, highlight=False, markup=False)
    numbers: dict[str, int] = {}
    """Of commands with their images."""
    rows = []
    for task in plan.tasks:
        command = shlex.join([*filter(None, [task.image]), *task.command])
        number = numbers.setdefault(command, len(numbers) + 1)
        rows.append((task.name, f"{task.host}:{task.port}", _limits(task), number))
    print_table(console, ("task", "address", "limits", "runs"), rows)
    commands = (f"{number}: {command}" for command, number in numbers.items())
    for line in (_about_limits(plan), "", *commands, "", *_rules(plan)):
        console.out(line, highlight=False)
    for task in plan.tasks:
        if task.index == 0:
            console.print(f"\nenvironment of [bold]{task.name}[/bold]:", highlight=False)
            for key, value in task.env.items():
                console.out(f"  {key}={value}", highlight=False)
    console.print(f"\n{len(requests)} engine requests; --json shows each as it is sent.")
    for warning in plan.warnings:
        console.print(Text.assemble(("note:", "yellow"), f" {warning}"))


def _rules(plan: Plan) -> Iterator[str]:
    scenario, restart = plan.scenario, plan.scenario.restart
    rule = str(restart.policy)
    if rule != "never":
        backoff = format_duration(restart.backoff)
        rule += f" ({restart.scope}), at most {restart.limit}, backoff from {backoff}"
    yield f"restart: {rule}"
    yield f"success: {scenario.success}"
    timeout = "none" if scenario.timeout is None else format_duration(scenario.timeout)
    yield f"timeout: {timeout}"
    for fault in plan.faults:
        yield f"fault {fault.id}: {fault.kind} {fault.target} at {fault.trigger.in_words()}"


def _limits(task: Task) -> str:
    """Return the limits of a task; a star marks a default."""
    parts = [f"{task.cpus:g} cpu"] if task.cpus is not None else []
    if task.memory_limit is not None:
        parts += [format_size(task.memory_limit) + "*" * (task.memory is None)]
    if task.process_limit is not None:
        parts += [f"{task.process_limit} processes" + "*" * (task.processes is None)]
    parts += [f"{len(task.gpus)} gpu"] if task.gpus else []
    return ", ".join(parts) or "none"


def _about_limits(plan: Plan) -> str:
    """Return a note on the default limits."""
    if all(task.memory_limit is None and task.process_limit is None for task in plan.tasks):
        return f"limits: the {plan.engine} engine limits neither memory nor processes"
    return (
        "limits: * marks a default, which reserves nothing; `memory` and `processes` of the role "
        "change it"
    )
