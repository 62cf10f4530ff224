"""A scenario as YAML is the same scenario when it is read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as for_all
from hypothesis import strategies as st

from emulator.errors import UsageError
from emulator.manifests.convert import load
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario
from tests.manifests.out.test_exports import SCENARIOS

BUNDLED = sorted((Path(__file__).parents[2] / "scenarios").rglob("*.yaml"))


def same(scenario: Scenario) -> None:
    again = parse(scenario.to_yaml(), folder=Path("/"))
    assert again == scenario
    # Some rules depend on what was written and what is a default.
    written = scenario.model_dump(mode="json", exclude_unset=True)
    assert again.model_dump(mode="json", exclude_unset=True) == written


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_of_the_bundled_ones(path: Path) -> None:
    same(load(path))


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@for_all(data=st.one_of(*SCENARIOS.values()))
def test_of_any(data: dict[str, Any]) -> None:
    try:
        scenario = parse(json.dumps(data))
    except UsageError:
        assume(False)
    same(scenario)


def test_it_is_written_for_people() -> None:
    text = parse("name: x\nprogram: {command: [a]}\ncluster: {worker: 2}\ntimeout: 5m\n").to_yaml()
    assert text == (
        "name: x\nprogram:\n  command:\n    - a\ncluster:\n  worker:\n    replicas: 2\n"
        "timeout: 300s\n"
    )


def test_of_faults_as_they_were_written() -> None:
    silent = {"preempt": "worker-0", "at": "3s", "loss": "silent"}
    lasting = {"pause": "worker-*", "for": "forever", "at": {"phase": "checkpoint"}}
    random = {"random": {"kill": "worker-0"}, "every": "5s"}
    data = {"name": "x", "program": {"command": ["a"]}, "cluster": {"worker": 2}}
    scenario = parse(json.dumps({**data, "faults": [silent, lasting, random]}))
    same(scenario)
    assert "grace" not in scenario.to_yaml()
