"""Tasks and plans of scenarios, on an engine that gives them the names of the scenario."""

from __future__ import annotations

from dataclasses import replace

from emulator.planning.context import PlanContext
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.scenario.frameworks.spec import Member
from emulator.scenario.loader import parse
from tests.histories import SITE
from tests.scenario.mistakes import HEAD

NAMED = replace(SITE, named=True)


def plan(text: str, site: PlanContext = NAMED) -> Plan:
    """Return the plan of a scenario that goes on after HEAD."""
    return make_plan(parse(HEAD + text), "x-1", site)


def members(**counts: int) -> list[Member]:
    """Return so many tasks of each role."""
    return [
        Member(role, index, f"{role}-{index}", 2222)
        for role, count in counts.items()
        for index in range(count)
    ]
