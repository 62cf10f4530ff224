"""What a scenario needs of an engine, which refuses it before anything starts; else its plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from emulator import engines
from emulator.broker import Capacity
from emulator.engines.base import Engine
from emulator.errors import Misfit, Unsupported, UsageError
from emulator.files import disk
from emulator.planning.baseline import ThroughputReference
from emulator.planning.plan import Plan, make_plan, new_run_id
from emulator.scenario.schema import Scenario
from emulator.validation.run_id import check_run_id
from emulator.validation.units import format_size


def make_ready(
    scenario: Scenario,
    engine: Engine,
    *,
    out: Path,
    run_id: str | None = None,
    variant: str = "",
    gpus: Sequence[str] | None = None,
    reference: ThroughputReference | None = None,
) -> tuple[Plan, Path]:
    """Check that the engine can run the scenario; return the plan and the run folder.

    `gpus` are the only devices that it gets; None: all of the engine's. Raises Unsupported, and
    UsageError if `run_id` is not valid or the folder's path is not text.
    """
    require(scenario, engine)
    run_id = new_run_id(scenario.name) if run_id is None else check_run_id(run_id)
    folder = _as_text(out.resolve() / run_id)
    context = engine.plan_context(run_id, folder)
    if gpus is not None:
        context = replace(context, gpus=lambda: gpus)
    disks = [*disk("the run folder", folder), *context.disks(scenario)]
    plan = make_plan(scenario, run_id, context, variant=variant, reference=reference, disks=disks)
    return plan, folder


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
    require_of(engine, needs(scenario))
    if any(spec.memory is not None for spec in scenario.cluster.values()):
        fits(scenario, engine.capacity())


def fits(scenario: Scenario, capacity: Capacity) -> None:
    """Refuse memory limits above the machine's memory: they would have no effect (pure).

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
