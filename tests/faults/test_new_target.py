"""A fault of something that is no task is one class as well: here a volume that is full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import pytest
from pydantic import Field

from emulator.engines.memory import MemoryEngine, Script
from emulator.faults.kinds import FAULTS
from emulator.faults.schedule import build_schedule, from_json, to_json
from emulator.faults.spec import FaultContext, LastingFault
from emulator.record.reader import Record
from emulator.record.timeline import all_states
from emulator.report.event_text import describe
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.validation.fields import Text
from tests.scenario.mistakes import only_problem
from tests.supervisor.in_memory import Job, faults, run_on, stages, times
from tests.supervisor.test_takeover import Killed


@runtime_checkable
class Volumes(Protocol):
    """Capability `volumes`."""

    def fill(self, volume: str, *, full: bool) -> None: ...


class Disk(LastingFault):
    """A volume is full `for` a time."""

    kind = "disk"
    capability, request = "volumes", "filling the volume {}"
    protocols = {"volumes": Volumes}
    of_tasks = False
    applied, healed = "the volume {} is full", "the volume {} has room"

    disk: Literal["full"]
    volume: Text = Field(default="shared", description="The volume.")

    @property
    def target(self) -> str:
        return self.volume

    def apply(self, target: FaultContext) -> None:
        target.engine_as(Volumes).fill(target.task, full=True)

    def heal(self, target: FaultContext) -> None:
        target.engine_as(Volumes).fill(target.task, full=False)


class Filling(MemoryEngine):
    """Can fill volumes."""

    def __init__(self, scripts: Any = None) -> None:
        super().__init__(ManualClock(), scripts)
        self.filled: list[tuple[str, bool]] = []

    def fill(self, volume: str, *, full: bool) -> None:
        self.filled.append((volume, full))


TEXT = """
name: full
framework: none
image: none
program: {command: ['true']}
cluster: {worker: 2}
faults:
- {disk: full, volume: shared, at: 5s, for: 10s}
"""
TASKS = ["worker-0", "worker-1"]
SCRIPTS = {"*": Script(exits_at=30.0)}


def die() -> None:
    raise Killed


@pytest.fixture(autouse=True)
def new_kind() -> Iterator[None]:
    FAULTS["disk"] = Disk
    yield
    del FAULTS["disk"]


def test_it_is_one_fault_however_many_tasks_there_are() -> None:
    scenario = parse(TEXT)
    assert [fault.count(TASKS) for fault in scenario.faults] == [1]
    (planned,) = build_schedule(scenario.faults, 0, TASKS)
    assert (planned.id, planned.target, planned.tasks) == ("0", "shared", ())
    assert from_json(to_json(planned)) == planned
    assert "no task is called 'a'" in only_problem(TEXT.replace("at: 5s", "at: {step: 1, task: a}"))


def test_at_random_only_its_times_are_drawn() -> None:
    text = TEXT.replace(
        "- {disk: full, volume: shared, at: 5s, for: 10s}",
        "- {random: {disk: full, volume: shared, for: 12s}, every: 10s, max: 3}",
    )
    found = build_schedule(parse(text).faults, 0, TASKS)
    assert [(one.target, one.spec.target, one.trigger.time) for one in found] == [
        ("shared", "shared", when) for when in (10, 27, 44)
    ]


def test_it_is_injected_healed_and_in_the_summary(tmp_path: Path) -> None:
    engine = Filling(SCRIPTS)
    result = run_on(engine, tmp_path, TEXT, base="")
    assert engine.filled == [("shared", True), ("shared", False)]
    record = Record(result.folder)
    found = faults(record.history)
    assert {(one.task, one.target) for one in found} == {("", "shared")}
    assert [(one.stage, one.t, describe(one)) for one in found] == [
        ("triggered", 5, "fault 0: disk shared"),
        ("applied", 5, "fault 0: the volume shared is full"),
        ("healed", 15, "fault 0: the volume shared has room"),
    ]
    assert {one.name for one in record.timeline.states()} <= {*all_states()} - {Disk.state}
    (fault,) = result.summary["faults"]
    assert (fault["kind"], fault["target"], fault["status"]) == ("disk", "shared", "applied")
    assert (fault["triggered"], fault["restored_after"]) == (5, 10)


def test_no_task_has_to_run_for_it_and_times_count_from_the_training_on(tmp_path: Path) -> None:
    fails_once = {"worker-0": lambda run: Script(exits_at=4.0 * run, exit_code=int(run < 2))}
    engine = Filling({"data-0": Script(exits_at=8.0), **fails_once})
    text = TEXT.replace("{worker: 2}", "{data: {replicas: 1, before: training}, worker: 1}")
    text += "restart: {policy: on-failure, backoff: 10s}\n"
    result = run_on(engine, tmp_path, text, base="")
    history = Record(result.folder).history
    assert (times(history, "exit"), times(history, "start")) == ([8, 12, 30], [0, 8, 22])
    assert stages(history) == [("triggered", 13), ("applied", 13), ("healed", 23)]


def test_by_hand_and_healed_by_the_next_supervisor(tmp_path: Path) -> None:
    engine = Filling(SCRIPTS)
    job = Job(tmp_path, parse(TEXT), engine)
    manual = Disk.model_validate({"disk": "full", "volume": "data", "for": 6})
    injected = job.asks(3.0, lambda control: control.inject(manual))
    job.clock.call_at(ManualClock.BEGAN + 7.0, die)
    with pytest.raises(Killed):
        job.begin()
    assert injected.result() == ["manual-1"]
    assert job.take_over() == "succeeded"
    assert [volume for volume, full in engine.filled if full] == ["data", "shared"]
    assert [volume for volume, full in engine.filled if not full] == ["data", "shared"]
    assert stages(job.history, "manual-1")[1:] == [("triggered", 3), ("applied", 3), ("healed", 9)]
