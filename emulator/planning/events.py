"""The helper that reads event files, where a scenario has `metrics: {events: ...}` (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from emulator.metrics import event_files
from emulator.scenario.frameworks.spec import role_of
from emulator.scenario.frameworks.table import roles_of
from emulator.scenario.schema import EVENTS, Helper, Scenario


def helpers(scenario: Scenario, tasks: Sequence[str]) -> Mapping[str, Helper]:
    """Return the helper by name, if there is one.

    It runs where the shared volume is, which may be on another machine, and in the image of the
    leading task, because that is there. It is told the names of the tasks, and which of them leads.
    """
    folder = scenario.metrics.events
    if folder is None:
        return {}
    leader = roles_of(scenario).leader(tasks) or tasks[0]
    source = Path(event_files.__file__)
    command = ["python3", source.name, folder, leader, *tasks]
    image = scenario.cluster[role_of(leader)].image
    return {EVENTS: Helper(command=command, source=source, image=image)}
