"""A fault that a platform announces, from the scenario to an engine in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.engines.memory import MemoryEngine, Script
from emulator.engines.requirements import needs
from emulator.errors import NotRunning
from emulator.faults.kinds import FAULTS
from emulator.faults.platforms.notices import Notice
from emulator.planning.planner import make_plan
from emulator.record.reader import Record
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from tests.faults.platforms.told import Taken
from tests.supervisor.in_memory import BASE, run_on, stages

SCRIPTS = {"worker-0": Script(exits_at=60.0), "*": Script(exits_at=None)}


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAULTS, Taken.kind, Taken)


def with_faults(*faults: str) -> str:
    return f"{BASE}cluster: {{worker: 2}}\nfaults: [{', '.join(faults)}]\n"


def test_it_is_announced_once_and_withdrawn_when_its_target_is_back(tmp_path: Path) -> None:
    engine = MemoryEngine(ManualClock(), SCRIPTS)
    text = with_faults("{taken: worker-1, metadata: ec2, action: terminate, at: 10s, grace: 5s}")
    result = run_on(engine, tmp_path, text, base="")
    assert engine.notices == [Notice("ec2", "terminate", "worker-1", 1000.0, 1030.0)]
    assert engine.withdrawn == ["worker-1"]
    found = stages(Record(result.folder).history)
    assert [stage for stage, _ in found] == ["announced", "triggered", "applied", "healed"]


def test_the_plan_has_the_platforms_of_all_faults() -> None:
    def served(*faults: str) -> tuple[str, ...]:
        scenario, engine = parse(with_faults(*faults)), MemoryEngine(ManualClock())
        return make_plan(scenario, "r-1", engine.plan_context("r-1", Path())).metadata

    assert served("{kill: worker-1, at: 1s}") == ()
    at_random = "{random: {taken: worker-1, metadata: gce}, every: 10s, max: 2}"
    assert served(at_random, "{taken: worker-0, metadata: ec2, at: 1s}") == ("ec2", "gce")


def test_what_it_needs_of_an_engine() -> None:
    scenario = parse(with_faults("{taken: worker-1, metadata: azure, at: 1s}"))
    found = dict(needs(scenario))
    assert found["a notice of azure for worker-1"] == "notices"
    assert found["the fixed address of Azure's scheduled events"] == "isolation"


def test_who_does_not_run_can_not_be_told() -> None:
    engine = MemoryEngine(ManualClock())
    with pytest.raises(NotRunning):
        engine.announce(Notice("gce", "preempt", "worker-0", 0.0, 30.0))
