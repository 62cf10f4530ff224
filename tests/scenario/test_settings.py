"""A setting of a container is one field and one row: what follows, without any other change."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import emulator
from emulator.engines.docker.container_request import container_request
from emulator.engines.requirements import needs
from emulator.planning.plan import Task
from emulator.planning.planner import make_plan
from emulator.report.plan_tables import print_plan
from emulator.scenario.container import SETTINGS, Setting
from emulator.scenario.schema import Role, Scenario
from tests.histories import SITE

ROW = Setting(
    need="an OOM score for {}",
    capability="limits",
    shown=lambda score: f"OOM score {score}",
    docker=lambda score: {"OomScoreAdj": score},
    pod=lambda score: {"oomScore": score},
)


class Scored(Role):
    oom_score: int | None = None


class Scores(Scenario):
    cluster: dict[str, Scored]  # type: ignore[assignment]
    oom_score: int | None = None


class ScoredTask(Task):
    oom_score: int | None = None


def test_a_new_one_is_merged_refused_requested_and_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SETTINGS, "oom_score", ROW)
    program = {"command": ["a"]}
    roles = {"worker": {"oom_score": 5}, "ps": {}}
    given = {"name": "t", "program": program, "cluster": roles, "oom_score": 7, "image": "i"}
    scenario = Scores.model_validate(given)
    assert list(needs(scenario)) == [
        ("an OOM score for every task", "limits"),
        ("an OOM score for worker", "limits"),
    ]
    plan = make_plan(scenario, "run-1", SITE)
    task = ScoredTask(**dict(plan.task("worker-0")), oom_score=5)
    assert container_request(plan, task, {})["HostConfig"]["OomScoreAdj"] == 5
    print_plan(plan.model_copy(update={"tasks": (task,)}), [], Console(file=(out := StringIO())))
    assert "worker: OOM score 5\n" in out.getvalue()


def test_an_old_one_is_named_where_it_is_declared_and_in_the_advice_of_an_error() -> None:
    package = Path(emulator.__file__).parent
    naming = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\bulimits\b", path.read_text())
    }
    assert naming == {"scenario/container.py", "scenario/schema.py", "engines/docker/connection.py"}
