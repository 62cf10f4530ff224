"""Tasks and plans of scenarios, on an engine that gives them the names of the scenario."""

from __future__ import annotations

from dataclasses import replace

from emulator.scenario.frameworks.spec import Member
from tests.histories import SITE

NAMED = replace(SITE, named=True)


def members(**counts: int) -> list[Member]:
    """Return so many tasks of each role."""
    return [
        Member(role, index, f"{role}-{index}", 2222)
        for role, count in counts.items()
        for index in range(count)
    ]
