"""What a scenario asks of an engine, and how it is refused before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from emulator import engines
from emulator.broker import Capacity
from emulator.engines.base import Engine
from emulator.errors import Misfit, Unsupported
from emulator.scenario.schema import Scenario
from emulator.validation.units import format_size

__all__ = ["fits", "machine_needs", "needs", "require", "require_of"]


def require(scenario: Scenario, engine: Engine) -> None:
    """Refuse a scenario that asks for what `engine` can't do, or for more than its machine has.

    Raises Unsupported with every such thing, and an engine that can do it; Misfit for a task that
    may take more memory than there is. The engine is asked for its memory only where a limit is
    set.
    """
    require_of(engine, needs(scenario))
    if any(spec.memory is not None for spec in scenario.cluster.values()):
        fits(scenario, engine.capacity())


def fits(scenario: Scenario, capacity: Capacity) -> None:
    """Refuse memory limits beyond what the machine has: they would limit nothing (pure).

    Raises Misfit.
    """
    for role, spec in scenario.cluster.items():
        if (spec.memory or 0) > capacity.memory:
            raise Misfit(
                ("cluster", role, "memory"),
                f"{format_size(spec.memory or 0)} is more than the "
                f"{format_size(capacity.memory)} that the engine's machine has",
                "write less, or leave it out",
            )


def require_of(engine: Engine, asked: Iterable[tuple[str, str]]) -> None:
    """Refuse what `engine` has no capability for; `asked` pairs things with capabilities.

    Raises Unsupported; `lacks` names the first engine that can do all of it.
    """
    lacking = [(what, needed) for what, needed in asked if needed not in engine.capabilities]
    if not lacking:
        return
    missing = {needed for _, needed in lacking}
    others = [one for one in engines.engine_classes() if missing <= one.capabilities]
    raise Unsupported(
        f"The {engine.name} engine can't do this: {'; '.join(what for what, _ in lacking)}.",
        f"Use --engine {others[0].name}, or leave these out." if others else "Leave these out.",
        lacks=machine_needs(others[0], missing) if others else (),
    )


def machine_needs(engine: type[Engine], capabilities: Iterable[str]) -> frozenset[str]:
    """Return what a machine must have for these capabilities: the engine, and `gpu`, `network`."""
    needed = (engine.machine_needs.get(name) for name in capabilities)
    return frozenset({engine.name, *filter(None, needed)})


def needs(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield what a scenario asks for beyond the mandatory, with its capability (pure)."""
    for role, spec in scenario.cluster.items():
        if spec.cpus is not None:
            yield f"a CPU limit for {role}", "limits"
        if spec.memory is not None:
            yield f"a memory limit for {role}", "limits"
        if spec.processes is not None:
            yield f"a limit of processes for {role}", "limits"
        if spec.gpus.count:
            yield f"GPUs for {role}", "gpus"
    if not scenario.network.internet:
        yield "a network without internet", "isolation"
    if scenario.network.metadata == "closed":
        yield "a closed metadata address", "isolation"
    if scenario.network.delay:
        yield "network delay", "network"
    if scenario.network.bandwidth is not None:
        yield "limited bandwidth", "network"
    for fault in scenario.faults:
        yield from fault.needs()
