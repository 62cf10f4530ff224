"""What the nodes of a cluster have (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from emulator.broker import Capacity
from emulator.manifests.quantities import parse_quantity


def capacity_of(nodes: Iterable[Mapping[str, Any]], gpu_resource: str) -> Capacity:
    """Return what Pods can get of these nodes together, used or not; GPUs have numbers as ids."""
    there = [(node.get("status") or {}).get("allocatable") or {} for node in nodes]

    def total(resource: str) -> float:
        return float(sum(parse_quantity(str(one.get(resource, "0"))) for one in there))

    gpus = tuple(str(number) for number in range(int(total(gpu_resource))))
    return Capacity(total("cpu"), int(total("memory")), gpus)
