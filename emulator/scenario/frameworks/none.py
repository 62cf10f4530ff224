"""No framework: programs that find each other by themselves (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from emulator.scenario.frameworks.spec import Framework, Job, Member


def _environment(member: Member, members: Sequence[Member], job: Job) -> Mapping[str, str]:
    """Return all addresses by role, for programs with a rendezvous of their own."""
    cluster: dict[str, list[str]] = {}
    for other in members:
        cluster.setdefault(other.role, []).append(other.address)
    return {"EMULATOR_CLUSTER": json.dumps(cluster)}


NONE = Framework("none", _environment)
