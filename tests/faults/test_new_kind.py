"""A kind of fault is one class: what a new one is known to, without any other change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jsonschema
import pytest
from pydantic import Field, TypeAdapter
from typer.testing import CliRunner

from emulator.api.client import Cluster
from emulator.engines.memory import MemoryEngine, Script
from emulator.engines.requirements import require
from emulator.errors import Unsupported
from emulator.faults.kinds import FAULTS, OneFault
from emulator.faults.schedule import build_schedule
from emulator.faults.spec import FaultContext, LastingFault
from emulator.record.reader import Record
from emulator.record.timeline import all_states
from emulator.report.event_text import describe
from emulator.report.timeline_chart import colour
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.scenario.schema import json_schema
from emulator.validation.fields import Glob, Size
from tests.scenario.mistakes import only_problem
from tests.supervisor.in_memory import faults, run_on


@runtime_checkable
class Filling(Protocol):
    """Capability `fill`."""

    def fill(self, task: str, left: int | None) -> None: ...


class FillDisk(LastingFault):
    """Its disk has no more than `left` bytes `for` a time."""

    kind = "fill_disk"
    capability, request = "fill", "filling the disk of {}"
    protocols = {"fill": Filling}
    applied, healed = "the disk of {} is full", "the disk of {} has room"
    state, colour = "disk full", "cut-off"

    fill_disk: Glob
    left: Size = Field(default=0, description="Bytes that are left.")

    def apply(self, target: FaultContext) -> None:
        target.engine_as(Filling).fill(target.task, self.left)

    def heal(self, target: FaultContext) -> None:
        target.engine_as(Filling).fill(target.task, None)


class Disks(MemoryEngine):
    """Can fill disks."""

    def __init__(self, clock: ManualClock, scripts: Any) -> None:
        super().__init__(clock, scripts)
        self.filled: list[tuple[str, int | None]] = []

    def fill(self, task: str, left: int | None) -> None:
        self.filled.append((task, left))


TEXT = """
name: full
framework: none
image: none
program: {command: ['true']}
cluster: {worker: 2}
faults: [{fill_disk: worker-1, left: 1k, at: 5s, for: 10s}]
"""
SCRIPTS = {"worker-0": Script(exits_at=30.0), "*": Script(exits_at=None)}


@pytest.fixture(autouse=True)
def new_kind() -> Iterator[None]:
    FAULTS["fill_disk"] = FillDisk
    yield
    del FAULTS["fill_disk"]


def test_yaml_and_python_have_it_and_the_schema_finds_mistakes_in_it() -> None:
    (fault,) = parse(TEXT).faults
    assert isinstance(fault, FillDisk)
    assert (fault.left, fault.for_, fault.name) == (1024, 10, None)
    assert FillDisk(fill_disk="worker-1", at=5, for_=10, left="1k") == fault
    assert TypeAdapter(OneFault).validate_python(fault) is fault
    for given, wrong, problem in [
        ("left: 1k", "left: 1x", ".left: "),
        ("left: 1k", "cpus: 1", ": `cpus` is an option of throttle"),
        ("left: 1k", "lefd: 1k", ".lefd: unknown key (did you mean 'left'?)"),
        ("fill_disk:", "pause:", ": `left` is an option of fill_disk"),
    ]:
        found = only_problem(TEXT.replace(given, wrong))
        assert found.startswith(f"s.yaml:7: faults.0{problem}")


@pytest.mark.slow
def test_it_is_in_the_json_schema() -> None:
    fault = {"fill_disk": "worker-1", "left": "1k", "at": "5s", "for": "10s"}
    document = {"name": "t", "program": {"command": ["a"]}, "cluster": {"worker": 2}}
    jsonschema.validate({**document, "faults": [fault]}, json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "faults": [{**fault, "lefd": 1}]}, json_schema())


def test_it_is_in_the_schedule_alone_and_at_random() -> None:
    (planned,) = build_schedule(parse(TEXT).faults, 0, ["worker-0", "worker-1"])
    assert (planned.id, planned.kind, planned.target) == ("0", "fill_disk", "worker-1")
    text = TEXT.replace("fill_disk: worker-1, left: 1k, at: 5s, for: 10s", "{}").replace(
        "[{{}}]", "[{random: {fill_disk: 'worker-*', for: 1s}, every: 10s, max: 3}]"
    )
    found = build_schedule(parse(text).faults, 0, ["worker-0", "worker-1"])
    assert [fault.kind for fault in found] == ["fill_disk"] * 3


def test_an_engine_without_its_capability_refuses_it() -> None:
    with pytest.raises(Unsupported, match="filling the disk of worker-1"):
        require(parse(TEXT), MemoryEngine(ManualClock()))


def test_it_is_injected_healed_reported_and_drawn(tmp_path: Path) -> None:
    engine = Disks(ManualClock(), SCRIPTS)
    result = run_on(engine, tmp_path, TEXT, base="")
    assert engine.filled == [("worker-1", 1024), ("worker-1", None)]
    record = Record(result.folder)
    assert [(entry.stage, entry.t, describe(entry)) for entry in faults(record.history)] == [
        ("triggered", 5, "fault 0: fill_disk worker-1"),
        ("applied", 5, "fault 0: the disk of worker-1 is full"),
        ("healed", 15, "fault 0: the disk of worker-1 has room"),
    ]
    drawn = [one for one in record.timeline.states() if one.name == "disk full"]
    assert [(one.task, one.begin, one.end) for one in drawn] == [("worker-1", 5, 15)]
    assert "disk full" in all_states()
    assert colour("disk full") == "--cut-off"
    (fault,) = result.analysis.faults
    assert (fault.kind, fault.status, fault.restored_after) == ("fill_disk", "applied", 10)


def test_the_client_has_a_method_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    cluster = Cluster(Record(tmp_path), over=True)

    def ask(method: str, path: str, *, json: object) -> dict[str, list[str]]:
        asked.append(json)
        return {"faults": ["manual-1"]}

    monkeypatch.setattr(cluster, "_ask", ask)
    assert cluster.fill_disk("worker-1", left="1k", for_=5) == ["manual-1"]
    assert cluster.fill_disk("worker-1") == ["manual-1"]
    assert asked == [
        {"fill_disk": "worker-1", "for": 5, "left": "1k"},
        {"fill_disk": "worker-1", "for": "forever"},
    ]
    with pytest.raises(AttributeError, match="no attribute 'explode'"):
        cluster.explode("worker-1")


def test_the_command_has_its_options() -> None:
    from emulator.cli import app

    shown = CliRunner().invoke(app, ["fault", "--help"], terminal_width=200).output
    assert "--left" in shown
    assert "Bytes that are left (fill_disk)." in shown
