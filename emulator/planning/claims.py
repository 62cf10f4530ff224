"""Claims on a machine's resources, and which of them can be granted (pure)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.errors import UsageError

if TYPE_CHECKING:
    from emulator.scenario.schema import Role, Scenario

ROUNDING = 1e-6
"""Cores; tolerates rounding, such as three claims of a third of a core."""


@dataclass(frozen=True)
class Need:
    """Resources that a claim asks for."""

    cpus: float = 0
    """Cores."""
    memory: int = 0
    """Bytes."""
    gpus: int = 0


@dataclass(frozen=True)
class Capacity:
    """Resources that a machine can grant."""

    cpus: float
    """Cores."""
    memory: int
    """Bytes."""
    gpus: tuple[str, ...] = ()
    """Device ids."""


@dataclass(frozen=True)
class Run:
    """A run started under a claim, with what is needed to remove it."""

    run_id: str
    engine: str
    folder: Path


@dataclass(frozen=True)
class Claim:
    """A request for resources of the machine, waiting or granted."""

    number: int
    """The order of arrival."""
    name: str
    """What it is for: a test's id."""
    pid: int
    """The owner."""
    need: Need
    capacity: Capacity
    """The machine's resources as the claim's engine sees them; an upper limit of all grants."""
    granted: bool = False
    gpus: tuple[str, ...] = ()
    """Ids of the granted devices."""
    runs: tuple[Run, ...] = ()


def need_of(scenario: Scenario) -> Need:
    """Return what a scenario needs: its `reserve`, else the sum of its limits (pure).

    Tasks that share GPUs need as many together as the largest of them asks for. Tasks before
    training have ended when the others start, so that the larger need of the two counts.
    """
    before, training = (
        _need_of_roles(roles.values()) for roles in (scenario.before_training, scenario.in_training)
    )
    helpers = scenario.helpers.values()
    cpus = max(before.cpus, training.cpus) + sum(helper.cpus or 0 for helper in helpers)
    memory = max(before.memory, training.memory) + sum(helper.memory or 0 for helper in helpers)
    reserve = scenario.reserve
    if reserve is not None and reserve.cpus is not None:
        cpus = reserve.cpus
    if reserve is not None and reserve.memory is not None:
        memory = reserve.memory
    return Need(cpus, memory, max(before.gpus, training.gpus))


def _need_of_roles(roles: Collection[Role]) -> Need:
    """Return what roles need whose tasks run at the same time."""
    exclusive = sum(role.replicas * role.gpus.count for role in roles if not role.gpus.shared)
    shared = max((role.gpus.count for role in roles if role.gpus.shared), default=0)
    return Need(
        sum(role.replicas * (role.cpus or 0) for role in roles),
        sum(role.replicas * (role.memory or 0) for role in roles),
        exclusive + shared,
    )


def grant(claims: Iterable[Claim]) -> list[Claim]:
    """Return all claims in order of arrival, with those granted that can be now (pure).

    No claim overtakes a waiting one, except a claim of nothing, which delays no other. A claim of
    more than the capacity gets all of it, alone.
    """
    ordered = sorted(claims, key=lambda claim: claim.number)
    result = {claim.number: claim for claim in ordered}
    one_waits = False
    for claim in ordered:
        if claim.granted:
            continue
        granted = [other for other in result.values() if other.granted]
        if claim.need == Need() or (not one_waits and _fits(claim, granted)):
            result[claim.number] = _with_devices(claim, granted)
        else:
            one_waits = True
    return list(result.values())


def at_once(claim: Claim, others: Iterable[Claim]) -> Claim:
    """Return a claim as granted, whatever is free, of a process that can't wait (pure).

    Raises UsageError if there are too few devices: those are never granted twice.
    """
    granted = [other for other in others if other.granted]
    needed, free = _clamped(claim).gpus, len(_free_devices(claim, granted))
    if free < needed:
        names = ", ".join(sorted({other.name for other in granted if other.gpus}))
        raise UsageError(
            f"{claim.name} asks for {needed} GPU(s), but {free} are free. It can't wait for those "
            f"of {names}, because this process has a lease itself.",
            "Release that lease first, or ask for fewer GPUs.",
        )
    return _with_devices(claim, granted)


def _fits(claim: Claim, granted: Sequence[Claim]) -> bool:
    need, used = _clamped(claim), [_clamped(other) for other in granted]
    return (
        need.cpus + sum(other.cpus for other in used) <= claim.capacity.cpus + ROUNDING
        and need.memory + sum(other.memory for other in used) <= claim.capacity.memory
        and need.gpus <= len(_free_devices(claim, granted))
    )


def _clamped(claim: Claim) -> Need:
    """Return what a claim needs, limited to the capacity (pure)."""
    need, most = claim.need, claim.capacity
    return Need(
        min(need.cpus, most.cpus), min(need.memory, most.memory), min(need.gpus, len(most.gpus))
    )


def _free_devices(claim: Claim, granted: Sequence[Claim]) -> list[str]:
    """Return the devices that no granted claim has (pure)."""
    taken = {device for other in granted for device in other.gpus}
    return [device for device in claim.capacity.gpus if device not in taken]


def _with_devices(claim: Claim, granted: Sequence[Claim]) -> Claim:
    """Return the claim as granted, with free devices (pure)."""
    devices = _free_devices(claim, granted)[: _clamped(claim).gpus]
    return replace(claim, granted=True, gpus=tuple(devices))


def text_of(claim: Claim) -> str:
    """Return a claim as JSON (pure)."""
    return json.dumps(asdict(claim), default=str)


def parsed(text: bytes) -> Claim | None:
    """Return the claim in a text; None if that is not one of this version (pure)."""
    try:
        raw = json.loads(text)
        need, capacity = Need(**raw.pop("need")), Capacity(**raw.pop("capacity"))
        runs = tuple(Run(**{**run, "folder": Path(run["folder"])}) for run in raw.pop("runs"))
        gpus = tuple(raw.pop("gpus"))
        capacity = replace(capacity, gpus=tuple(capacity.gpus))
        return Claim(**raw, need=need, capacity=capacity, gpus=gpus, runs=runs)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
