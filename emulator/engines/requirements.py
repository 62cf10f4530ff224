"""What a scenario needs of an engine, which refuses it before anything starts; else its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from emulator import engines
from emulator.engines.base import Configuring, Engine
from emulator.errors import WITHOUT_GPUS, Misfit, Unsupported, UsageError
from emulator.planning.planner import make_plan
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.runtime.files import disk, shortages
from emulator.scenario.container import Container, settings
from emulator.scenario.frameworks.registry import FRAMEWORKS
from emulator.validation.units import format_size

if TYPE_CHECKING:
    from emulator.planning.claims import Capacity
    from emulator.planning.context import PlanContext
    from emulator.planning.plan import Plan
    from emulator.scenario.container import ContainerBase
    from emulator.scenario.document import KeyPath
    from emulator.scenario.schema import Helper, Role, Scenario


STARTS_COLD = "all tasks start cold: they begin held, since their calls to the kernel count"


def make_ready(
    requested: RequestedScenario,
    engine: Engine,
    options: RunOptions = RunOptions(),
    refused: list[Unsupported | Misfit] | None = None,
) -> tuple[Plan, Path]:
    """Check that the engine can run the scenario; return the plan and the run folder.

    With `refused`, what the engine can't do or does not have is put there instead of raised, and
    the plan is made as if it could.

    Raises Unsupported, EngineMissing if the scenario's settings lead to no engine, and UsageError
    if the run id is not valid or the folder's path is not text.
    """
    scenario = requested.scenario
    cold: tuple[str, ...] = ()
    if options.warm and options.begins_held(scenario):
        options, cold = replace(options, warm=False), (STARTS_COLD,)
    if isinstance(engine, Configuring):
        engine.configure(scenario)
    try:
        require(scenario, engine)
    except (Unsupported, Misfit) as error:
        if refused is None:
            raise
        refused.append(error)
    if options.calls_of:
        require_of(engine, [("recording the calls of a save", "calls")])
    run_id = options.named(scenario)
    folder = _as_text(options.out.resolve() / run_id)
    context = engine.plan_context(run_id, folder)
    if (gpus := options.gpus) is not None:
        context = replace(context, gpus=lambda: gpus)
    if options.python is not None:
        context = replace(context, python=_python(options.python, context))
    full = shortages([*disk("the run folder", folder), *context.disks(scenario)])
    planned = partial(
        make_plan,
        scenario,
        run_id,
        variant=options.variant,
        reference=options.reference,
        notes=(*requested.given.warnings, *full, *cold),
        calls_of=options.calls_of,
    )
    try:
        return planned(context), folder
    except Unsupported as error:
        if refused is None or "gpu" not in error.lacks:
            raise
        refused += [error] if "gpus" in engine.capabilities else []  # else it is there already
        return planned(replace(context, gpus=lambda: _as_many_gpus(scenario))), folder


def _python(path: str, context: PlanContext) -> str:
    """Return the Python that a run was asked to use. Raises UsageError."""
    if context.python_of is None:
        raise UsageError(
            f"--python is for tasks that are processes here; with the {context.engine} engine "
            "their image has the Python.",
            "Leave it out, or use --engine process.",
        )
    return context.python_of(path)


def _as_many_gpus(scenario: Scenario) -> list[str]:
    """Return devices of a machine that has as many as a scenario asks for, of which none is."""
    count = sum(spec.gpus.count * spec.replicas for spec in scenario.cluster.values())
    return [str(number) for number in range(count)]


def _as_text(folder: Path) -> Path:
    """Return the folder. Raises UsageError if its path is not text, which JSON requires."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"The path of the run folder {folder} has bytes that are not text.",
            "Choose another one with --out.",
        ) from None
    return folder


def require(scenario: Scenario, engine: Engine) -> None:
    """Refuse a scenario that needs what `engine` can't do, or more than its machine has.

    Raises Unsupported with everything that is missing, and an engine that has it; Misfit for a
    memory limit above the machine's memory, which is only requested where there is such a limit.
    """
    asked = list(needs_of_keys(scenario))
    try:
        require_of(engine, [(what, name) for _, what, name in asked])
    except Unsupported as error:
        if {name for _, _, name in asked} - engine.capabilities == {"gpus"}:
            error.hint = WITHOUT_GPUS
        keys = [
            (path, f"the {engine.name} engine can't do this: {what}")
            for path, what, name in asked
            if name not in engine.capabilities
        ]
        raise Unsupported(error.message, error.hint, lacks=error.lacks, keys=keys) from None
    if any(spec.memory is not None for _, spec, _ in scenario.containers):
        fits(scenario, engine.capacity())


def fits(scenario: Scenario, capacity: Capacity) -> None:
    """Refuse memory limits above the machine's memory: they would have no effect (pure).

    Raises Misfit.
    """
    for path, spec, _ in scenario.containers:
        if (spec.memory or 0) > capacity.memory:
            raise Misfit(
                (*path, "memory"),
                f"{format_size(spec.memory or 0)} is more than the "
                f"{format_size(capacity.memory)} that the engine's machine has",
                "write less, or leave it out",
            )


def require_of(engine: Engine, needs: Iterable[tuple[str, str]]) -> None:
    """Refuse what `engine` has no capability for; `needs` pairs descriptions with capabilities.

    Raises Unsupported; `lacks` names the first engine that can do all of it.
    """
    missing = [(what, name) for what, name in needs if name not in engine.capabilities]
    if not missing:
        return
    names = {name for _, name in missing}
    others = [one for one in engines.engine_classes() if names <= one.capabilities]
    raise Unsupported(
        f"The {engine.name} engine can't do this: {'; '.join(what for what, _ in missing)}.",
        f"Use --engine {others[0].name}, or leave these out." if others else "Leave these out.",
        lacks=machine_needs(others[0], names) if others else (),
    )


def machine_needs(engine: type[Engine], capabilities: Iterable[str]) -> frozenset[str]:
    """Return what a machine must have for these capabilities: the engine, and `gpu`, `network`."""
    needed = (engine.machine_needs.get(name) for name in capabilities)
    return frozenset({engine.name, *filter(None, needed)})


def needs(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield what a scenario needs besides the mandatory methods, with its capability (pure)."""
    return ((what, capability) for _, what, capability in needs_of_keys(scenario))


def needs_of_keys(scenario: Scenario) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield the same, each after the path of the key that asks for it (pure)."""
    yield from _at((), _mount_needs("every task", scenario))
    for what, capability in FRAMEWORKS[scenario.framework].needs:
        yield ("framework",), what, capability
    for role, spec in scenario.cluster.items():
        yield from _at(("cluster", role), _role_needs(role, spec, scenario))
    for name, helper in scenario.helpers.items():
        yield from _at(("helpers", name), _helper_needs(name, helper))
    yield from _at((), _port_needs(scenario))
    yield from _at(("network",), _network_needs(scenario))
    if scenario.volumes.shared.size is not None:
        yield ("volumes", "shared", "size"), "a shared volume of a given size", "volume-size"
    for number, fault in enumerate(scenario.faults):
        for what, capability in fault.needs():
            yield ("faults", number), what, capability


Asked = tuple[str, str, str]
"""A key, what it asks for, and the capability."""


def _at(path: KeyPath, asked: Iterable[Asked]) -> Iterator[tuple[KeyPath, str, str]]:
    return (((*path, key), what, capability) for key, what, capability in asked)


def _role_needs(role: str, spec: Role, scenario: Scenario) -> Iterator[Asked]:
    yield from _container_needs(role, spec)
    if spec.gpus.count:
        yield "gpus", f"GPUs for {role}", "gpus"
    yield from _pod_needs(role, spec, scenario)


def _helper_needs(name: str, helper: Helper) -> Iterator[Asked]:
    yield from _container_needs(name, helper)
    if not helper.command:
        yield "command", f"the image's own command for {name}", "pods"


def _port_needs(scenario: Scenario) -> Iterator[Asked]:
    listeners = Counter[int]()
    for _, spec, count in scenario.containers:
        if isinstance(spec, Container):
            listeners.update({port.port: count for port in spec.ports})
    for port, count in listeners.items():
        if count > 1:
            yield "cluster", f"port {port} for {count} tasks", "port-mapping"


def _network_needs(scenario: Scenario) -> Iterator[Asked]:
    if not scenario.network.internet:
        yield "internet", "a network without internet", "isolation"
    if scenario.network.metadata == "closed":
        yield "metadata", "a closed metadata address", "isolation"
    if scenario.network.delay:
        yield "delay", "network delay", "network"
    if scenario.network.bandwidth is not None:
        yield "bandwidth", "limited bandwidth", "network"


def _container_needs(who: str, spec: Container) -> Iterator[Asked]:
    """Yield what a role or a helper needs of its containers (pure)."""
    yield from _mount_needs(who, spec)
    asked = {
        "working_dir": (f"the working directory {spec.working_dir} for {who}", "pods"),
        "files": (f"files for {who}", "pods"),
        "cpus": (f"a CPU limit for {who}", "limits"),
        "memory": (f"a memory limit for {who}", "limits"),
        "processes": (f"a limit of processes for {who}", "process-limits"),
        "ports": (f"published ports of {who}", "ports"),
    }
    yield from ((key, *need) for key, need in asked.items() if getattr(spec, key))
    for port in spec.ports:
        if port.host_port not in (None, port.port):
            yield (
                "ports",
                f"port {port.port} of {who} at another port, {port.host_port}",
                "port-mapping",
            )


def _pod_needs(role: str, spec: Role, scenario: Scenario) -> Iterator[Asked]:
    program = scenario.program
    if not (program.command if spec.command is None else spec.command):
        yield "command", f"the image's own command for {role}", "pods"
    if program.working_dir and not spec.working_dir:
        yield "working_dir", f"the working directory {program.working_dir} for {role}", "pods"
    if program.files and not spec.files:
        yield "files", f"files for {role}", "pods"
    if spec.init:
        yield "init", f"init steps for {role}", "pods"
    for part in spec.init:
        who = f"{part.name} of {role}"
        yield from _mount_needs(who, part)
        if part.processes is not None:
            yield "processes", f"a limit of processes for {who}", "process-limits"


def _mount_needs(who: str, spec: ContainerBase | Scenario) -> Iterator[Asked]:
    """Yield what the keys need that a scenario also has for every task (pure)."""
    for target, mount in spec.mounts.items():
        # Without containers a folder is where it is, and a task can write what its user can.
        if str(mount.path) != target or not mount.is_writable:
            own = mount.scratch is not None or mount.tmpfs is not None
            yield "mounts", f"a mount at {target} for {who}", "scratch" if own else "mounts"
    for key, setting, _ in settings(spec):
        yield key, setting.need.format(who), setting.capability
