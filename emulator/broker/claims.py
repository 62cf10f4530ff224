"""What is claimed of a machine, and what can be granted (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.scenario.model import Scenario

__all__ = [
    "Capacity",
    "Claim",
    "Need",
    "Run",
    "clamped",
    "free_devices",
    "grant",
    "need_of",
    "with_devices",
]

ROUNDING = 1e-6
"""Cores; that three times a third is one shall not fail for the last digit."""


@dataclass(frozen=True)
class Need:
    """What something that is run takes of a machine."""

    cpus: float = 0
    """Cores."""
    memory: int = 0
    """Bytes."""
    gpus: int = 0


@dataclass(frozen=True)
class Capacity:
    """What there is to hand out."""

    cpus: float
    """Cores."""
    memory: int
    """Bytes."""
    gpus: tuple[str, ...] = ()
    """Device ids."""


@dataclass(frozen=True)
class Run:
    """A run that was begun under a claim, and what it takes to remove it."""

    run_id: str
    engine: str
    folder: Path


@dataclass(frozen=True)
class Claim:
    """What somebody wants of the machine, or holds."""

    number: int
    """The order of arrival."""
    name: str
    """What for: a test's id."""
    pid: int
    """Whose it is; who recovers what a killed one has left becomes its owner."""
    need: Need
    of: Capacity
    """What there is, as the one who claims sees it; never more than all of it is handed out."""
    granted: bool = False
    gpus: tuple[str, ...] = ()
    """The devices that were handed out."""
    runs: tuple[Run, ...] = ()


def need_of(scenario: Scenario) -> Need:
    """Return what a scenario takes: what it reserves, else the limits of its tasks (pure).

    Tasks that share GPUs share what the one asks for that wants most.
    """
    roles = scenario.cluster.values()
    cpus = sum(role.replicas * (role.cpus or 0) for role in roles)
    memory = sum(role.replicas * (role.memory or 0) for role in roles)
    own = sum(role.replicas * role.gpus.count for role in roles if not role.gpus.shared)
    common = max((role.gpus.count for role in roles if role.gpus.shared), default=0)
    reserve = scenario.reserve
    if reserve is not None and reserve.cpus is not None:
        cpus = reserve.cpus
    if reserve is not None and reserve.memory is not None:
        memory = reserve.memory
    return Need(cpus, memory, own + common)


def grant(claims: Iterable[Claim]) -> list[Claim]:
    """Return all claims in order of arrival, with those granted that can be by now (pure).

    Nobody overtakes one that waits, but who takes nothing: that delays nobody. Who wants more than
    there is gets all of it, alone.
    """
    ordered = sorted(claims, key=lambda claim: claim.number)
    settled = {claim.number: claim for claim in ordered}
    one_waits = False
    for claim in ordered:
        if claim.granted:
            continue
        held = [other for other in settled.values() if other.granted]
        if claim.need == Need() or (not one_waits and _fits(claim, held)):
            settled[claim.number] = with_devices(claim, held)
        else:
            one_waits = True
    return list(settled.values())


def _fits(claim: Claim, held: Sequence[Claim]) -> bool:
    need, used = clamped(claim), [clamped(other) for other in held]
    return (
        need.cpus + sum(other.cpus for other in used) <= claim.of.cpus + ROUNDING
        and need.memory + sum(other.memory for other in used) <= claim.of.memory
        and need.gpus <= len(free_devices(claim, held))
    )


def clamped(claim: Claim) -> Need:
    """Return what a claim takes: not more than there is (pure)."""
    need, of = claim.need, claim.of
    return Need(min(need.cpus, of.cpus), min(need.memory, of.memory), min(need.gpus, len(of.gpus)))


def free_devices(claim: Claim, held: Sequence[Claim]) -> list[str]:
    """Return the devices that a claim could be given beside those that are held (pure)."""
    taken = {device for other in held for device in other.gpus}
    return [device for device in claim.of.gpus if device not in taken]


def with_devices(claim: Claim, held: Sequence[Claim]) -> Claim:
    """Return a claim granted, with devices that are free (pure)."""
    devices = free_devices(claim, held)[: clamped(claim).gpus]
    return replace(claim, granted=True, gpus=tuple(devices))
