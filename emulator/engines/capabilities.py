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
)
from emulator.errors import Unsupported
from emulator.faults.nodes import Cordoning
from emulator.faults.oom import OomKilling
from emulator.faults.pause import Pausing
from emulator.faults.preempt import PowerCutting
from emulator.faults.spec import EndingGrace
from emulator.faults.throttle import Throttling

CAPABILITIES: Mapping[str, type | None] = {
    "limits": None,
    "process-limits": None,
    "gpus": None,
    "isolation": None,
    "replace": None,
    "same-disk": None,
    "drawings": None,
    "silent-loss": PowerCutting,
    "new-address": Addressing,
    "same-address": Addressing,
    "pause": Pausing,
    "throttle": Throttling,
    "oom": OomKilling,
    "network": Shaping,
    "usage": Measuring,
    "reattach": Reattaching,
    "warm": Warming,
    "mounts": None,
    "scratch": None,
    "pods": None,
    "ports": Publishing,
    "port-mapping": None,
    "own-grace": EndingGrace,
    "eviction": None,
    "nodes": Cordoning,
    "exec": Executing,
}
"""Every capability, with the protocol of its methods if there are any."""

_Capability = TypeVar("_Capability")


def capable(engine: Engine, protocol: type[_Capability]) -> _Capability:
    """Return the engine with the methods of a capability.

    Raises Unsupported where it lacks the capability.
    """
    names = [name for name, methods in CAPABILITIES.items() if methods is protocol]
    if isinstance(engine, protocol) and not engine.capabilities.isdisjoint(names):
        return engine
    raise Unsupported(f"The {engine.name} engine lacks the capability {' or '.join(names)}.")
