"""What `emulate plan` prints."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from emulator.faults.platform import scale_in_words
from emulator.faults.preempt import Preempt
from emulator.planning.claims import Capacity, need_of
from emulator.report.tables import Table, print_table, range_label
from emulator.scenario.container import settings
from emulator.validation.units import format_count, format_duration, format_size

if TYPE_CHECKING:
    from emulator.faults.spec import FaultSpec
    from emulator.planning.plan import Plan, Task
    from emulator.scenario.container import Mount


def print_plan(
    plan: Plan,
    requests: Sequence[Mapping[str, Any]],
    console: Console,
    capacity: Capacity | None = None,
) -> None:
    """Print a plan: tasks, mounts, rules, warnings, the environment of each role's first task."""
    console.print(f"[bold]{plan.scenario.name}[/bold] on the {plan.engine} engine", highlight=False)
    if plan.scenario.description:
        console.print(plan.scenario.description, highlight=False, markup=False)
    numbers: dict[str, int] = {}
    """Of commands with their images."""
    rows = []
    for task in plan.everything:
        command = _command(task)
        number = numbers.setdefault(command, len(numbers) + 1)
        name = f"{task.name} (helper)" if task in plan.helpers else task.name
        name += f" (before {task.before})" if task.before else ""
        rows.append((name, f"{task.host}:{task.port}", _limits(task), f"[{number}]"))
    print_table(console, Table(("task", "address", "limits", "runs"), rows))
    commands = (f"[{number}] {command}" for command, number in numbers.items())
    settings = [*_settings(plan), ""] if any(_settings(plan)) else []
    pods = [*_pods(plan), ""] if any(_pods(plan)) else []
    limits = [_about_limits(plan), *([] if capacity is None else [_about_need(plan, capacity)])]
    python = [f"Python of the tasks: {plan.python}"] if plan.python else []
    for line in (*limits, "", *commands, *python, "", *pods, *settings, *_rules(plan)):
        console.out(line, highlight=False)
    for task in plan.tasks:
        if task.index == 0:
            console.print(f"\nenvironment of [bold]{task.name}[/bold]:", highlight=False)
            for key, value in task.env.items():
                console.out(f"  {key}={value}", highlight=False)
    if requests:
        count = f"{format_count(len(requests), 'request')} to the {plan.engine} engine"
        console.print(f"\n{count}; --json shows each as it is sent.", highlight=False)
    for warning in plan.warnings:
        console.print(Text.assemble(("note:", "yellow"), f" {warning}"))


def _command(task: Task) -> str:
    """Return a task's image and command; in brackets what the image adds, or does not."""
    notes = [] if task.command else ["(the image's own command)"]
    notes += ["(without the image's entry point)"] if task.entrypoint == "none" else []
    return " ".join([*filter(None, [task.image]), *notes, *map(shlex.quote, task.command)])


def _pods(plan: Plan) -> Iterator[str]:
    """Yield the init steps of each role, as its first task has them."""
    for task in plan.tasks:
        if task.index == 0:
            yield from (f"{task.role}: init step {one.part}: {_command(one)}" for one in task.init)


def _rules(plan: Plan) -> Iterator[str]:
    scenario, restart = plan.scenario, plan.scenario.restart
    rule = str(restart.policy)
    if rule != "never":
        backoff = format_duration(restart.first_backoff)
        rule += f" ({restart.scope}), at most {restart.limit}, backoff from {backoff}"
    if scenario.rules is not None:
        yield from scenario.rules.rules([*scenario.cluster])
    else:
        yield f"restart: {rule}"
        yield f"success: {_success(plan)}"
    timeout = "none" if scenario.timeout is None else format_duration(scenario.timeout)
    yield f"timeout: {timeout}"
    shown = list[Sequence[str]]()
    for fault in plan.faults:
        yield f"fault {fault.id}: {fault.kind} {fault.target} at {fault.trigger.in_words()}"
        if (lines := list(_timeline(fault.spec, scenario.speed))) not in shown:
            yield from lines
            shown.append(lines)


def _timeline(fault: FaultSpec, scale: float) -> Iterator[str]:
    """Yield what a fault does as its platform does it, and when."""
    events = list(fault.timeline())
    if events:
        like = fault.like if isinstance(fault, Preempt) else None
        scaled = f", its times {scale_in_words(scale)}" if like and scale != 1 else ""
        yield f"  like {like}{scaled}:" if like else "  as follows:"
    yield from (f"    {format_duration(when):>7}  {what}" for when, what in events)


def _success(plan: Plan) -> str:
    """Return the rule by which the job succeeds, and which tasks decide."""
    tasks = [task.name for task in plan.in_training]
    who = plan.roles.deciding(plan.scenario.success, tasks)
    names = range_label(who)
    finish = "finishes" if len(who) == 1 else "finish"
    return f"{plan.scenario.success}: when {names} {finish}"


def _settings(plan: Plan) -> Iterator[str]:
    """Yield mounts, files, ports and further limits of each role and helper."""
    named = [
        (" ".join(filter(None, (one.role, one.part))), one)
        for task in plan.tasks
        if task.index == 0
        for one in (task, *task.init)
    ]
    for name, task in (*named, *((helper.name, helper) for helper in plan.helpers)):
        parts = [f"in {task.working_dir}"] if task.working_dir else []
        parts += [_mount(target, mount) for target, mount in task.mounts.items()]
        parts += [
            f"file {path} ({len(file.content)} bytes)" for path, file in plan.files(task).items()
        ]
        parts += [setting.shown(value) for _, setting, value in settings(task)]
        parts += [f"port {p.port} at 127.0.0.1:{p.host_port or '(any)'}" for p in task.ports]
        if parts:
            yield f"{name}: {', '.join(parts)}"


def _mount(target: str, mount: Mount) -> str:
    if mount.tmpfs is not None:
        return f"{target} in memory ({format_size(mount.tmpfs)})"
    source = f"volume {mount.volume}" if mount.volume else str(mount.path)
    if mount.scratch:
        source = f"the scratch volume {mount.scratch}"
    return f"{target} from {source}" + ("" if mount.is_writable else " (read-only)")


def _limits(task: Task) -> str:
    """Return the limits of a task; a star marks a default."""
    parts = [f"{task.cpus:g} cpu"] if task.cpus is not None else []
    if task.memory_limit is not None:
        parts += [format_size(task.memory_limit) + "*" * (task.memory is None)]
    if task.process_limit is not None:
        parts += [f"{task.process_limit} processes" + "*" * (task.processes is None)]
    parts += [f"{len(task.gpus)} gpu"] if task.gpus else []
    return ", ".join(parts) or "none"


def _about_need(plan: Plan, capacity: Capacity) -> str:
    """Return what the run reserves, by its limits or `reserve`, and what the engine has."""
    need = need_of(plan.scenario)
    amounts = [
        f"{wanted} of {there}"
        for wanted, there, is_wanted in (
            (f"{need.cpus:g}", f"{capacity.cpus:g} cores", need.cpus),
            (
                format_size(need.memory, 1),
                f"{format_size(capacity.memory, 1)} of memory",
                need.memory,
            ),
            (need.gpus, f"{len(capacity.gpus)} GPUs", need.gpus),
        )
        if is_wanted
    ]
    return f"reserves: {', '.join(amounts) or 'nothing'}"


def _about_limits(plan: Plan) -> str:
    if all(task.memory_limit is None and task.process_limit is None for task in plan.tasks):
        return f"limits: the {plan.engine} engine limits neither memory nor processes"
    return (
        "limits: * marks a default, which reserves nothing; `memory` and `processes` of the role "
        "change it"
    )
