"""Ray: a head, and workers that join it (pure).

`ray.init()` without arguments reads RAY_ADDRESS, with which KubeRay starts its containers as well.
Source: python/ray/_private/services.py, canonicalize_bootstrap_address (Ray 2.60).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from emulator.scenario.frameworks.spec import WORKER, Framework, Job, Member, Roles

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

HEAD = "head"


def _environment(member: Member, members: Sequence[Member], job: Job) -> Mapping[str, str]:
    """Return the address of the head, where `ray start --head` must listen."""
    head = next((other for other in members if other.role == HEAD), None)
    return {"RAY_ADDRESS": head.address} if head else {}


def _warnings(scenario: Scenario) -> Iterator[str]:
    if HEAD not in scenario.cluster:
        yield "no head: ray.init() would start a cluster of its own in each task"


RAY = Framework(
    "ray",
    _environment,
    roles=Roles(names=(HEAD, WORKER), leaders=(HEAD,), endless_beside=(HEAD,)),
    needs=(("a host for each task, which framework: ray needs", "isolation"),),
    warnings=_warnings,
)
