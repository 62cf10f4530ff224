"""What a scenario needs of an engine, which refuses it before anything starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from emulator import engines
from emulator.engines.base import Engine
from emulator.errors import WITHOUT_GPUS, Misfit, Unsupported
from emulator.scenario.container import Container, settings
from emulator.scenario.frameworks.registry import FRAMEWORKS
from emulator.validation.units import format_size

if TYPE_CHECKING:
    from emulator.planning.claims import Capacity
    from emulator.scenario.container import ContainerBase
    from emulator.scenario.document import KeyPath
    from emulator.scenario.schema import Helper, Role, Scenario


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
    if scenario.shared_size is not None:
        yield ("shared_size",), "a shared volume of a given size", "volume-size"
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
