"""The table of capabilities: what only some engines can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from emulator.engines.base import (
    Addressing,
    Engine,
    Executing,
    Measuring,
    Publishing,
    Reattaching,
    Shaping,
    Warming,
    Witnessing,
)
from emulator.errors import Unsupported
from emulator.faults.kinds import FAULTS
from emulator.faults.platforms.notices import Announcing
from emulator.faults.spec import Cordoning, Holding

_APART_FROM_FAULTS: Mapping[str, type | None] = {
    "limits": None,
    "process-limits": None,
    "gpus": None,
    "isolation": None,
    "replace": None,
    "same-disk": None,
    "drawings": None,
    "new-address": Addressing,
    "same-address": Addressing,
    "network": Shaping,
    "usage": Measuring,
    "reattach": Reattaching,
    "warm": Warming,
    "mounts": None,
    "scratch": None,
    "volume-size": None,
    "pods": None,
    "ports": Publishing,
    "port-mapping": None,
    "eviction": None,
    "nodes": Cordoning,
    "exec": Executing,
    "calls": Holding,
    "notices": Announcing,
    "signals": None,
    "processes": Witnessing,
}
_Capability = TypeVar("_Capability")


def capabilities() -> Mapping[str, type | None]:
    """Return every capability, with the protocol of its methods if there are any."""
    of_faults = {name: one for kind in FAULTS.values() for name, one in kind.protocols.items()}
    return {**_APART_FROM_FAULTS, **of_faults}


def capable(engine: Engine, protocol: type[_Capability]) -> _Capability:
    """Return the engine with the methods of a capability.

    Raises Unsupported where it lacks the capability.
    """
    names = [name for name, methods in capabilities().items() if methods is protocol]
    if isinstance(engine, protocol) and not engine.capabilities.isdisjoint(names):
        return engine
    raise Unsupported(f"The {engine.name} engine lacks the capability {' or '.join(names)}.")
