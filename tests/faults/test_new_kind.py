"""A kind of fault is one class: what a new one is known to, without any other change.

Here a disk that is full; a volume that is full, which is no task; and a preemption with a notice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import jsonschema
import pytest
from pydantic import Field, TypeAdapter
from typer.testing import CliRunner

from emulator.api.client import Cluster
from emulator.engines.memory import MemoryEngine, Script
from emulator.engines.requirements import require
from emulator.errors import EngineError, NotRunning, Unsupported
from emulator.faults.kinds import FAULTS, OneFault
from emulator.faults.preempt import GracefulFault
from emulator.faults.schedule import PlannedFault, build_schedule, from_json, to_json
from emulator.faults.spec import FaultContext, LastingFault
from emulator.record.reader import Record
from emulator.record.timeline import all_states
from emulator.report.tables import STYLES
from emulator.report.timeline_chart import colour
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.scenario.schema import json_schema
from emulator.validation.fields import Duration, Glob, Size, Text
from tests.scenario.mistakes import only_problem
from tests.supervisor.in_memory import BASE, Job, faults, in_words, run_on, stages, times
from tests.supervisor.test_fault_stages import assert_follows
from tests.supervisor.test_takeover import Killed


@runtime_checkable
class Filling(Protocol):
    """Capability `fill`."""

    def fill(self, what: str, left: int | None) -> None: ...


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


class BrokenVolume(LastingFault):
    """A volume is full `for` a time."""

    kind = "broken_volume"
    capability, request = "fill", "filling the volume {}"
    protocols = {"fill": Filling}
    of_tasks = False
    applied, healed = "the volume {} is full", "the volume {} has room"

    broken_volume: Literal["full"]
    volume: Text = Field(default="shared", description="The volume.")

    @property
    def target(self) -> str:
        return self.volume

    def apply(self, target: FaultContext) -> None:
        target.engine_as(Filling).fill(target.task, 0)

    def heal(self, target: FaultContext) -> None:
        target.engine_as(Filling).fill(target.task, None)


@runtime_checkable
class Announcing(Protocol):
    """Capability `notices`."""

    def tell(self, task: str) -> None: ...


class Reclaim(GracefulFault):
    """SIGTERM, of which its target is told `notice` seconds before, and a restart."""

    kind = "reclaim"
    protocols = {**GracefulFault.protocols, "notices": Announcing}

    reclaim: Glob
    notice: Duration = 0.0
    down: Duration = 4.0

    @property
    def announced_before(self) -> float:
        return self.notice

    @property
    def heals_after(self) -> float:
        return self.down

    def announce(self, target: FaultContext) -> None:
        target.engine_as(Announcing).tell(target.task)


class Able(MemoryEngine):
    """Can fill disks and volumes, and gives notices."""

    refusal: EngineError | None = None

    def __init__(self, scripts: Any) -> None:
        super().__init__(ManualClock(), scripts)
        self.filled: list[tuple[str, int | None]] = []
        self.told: list[tuple[str, float]] = []

    def fill(self, what: str, left: int | None) -> None:
        self.filled.append((what, left))

    def tell(self, task: str) -> None:
        if self.refusal:
            raise self.refusal
        self.told.append((task, self._clock.now() - ManualClock.BEGAN))


TASKS = ["worker-0", "worker-1"]
SCRIPTS = {"worker-0": Script(exits_at=60.0), "*": Script(exits_at=None, on_sigterm=2.0)}


@pytest.fixture(autouse=True)
def new_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (FillDisk, BrokenVolume, Reclaim):
        monkeypatch.setitem(FAULTS, kind.kind, kind)


def with_fault(fault: str) -> str:
    return f"{BASE}cluster: {{worker: 2}}\nfaults: [{{{fault}}}]\n"


def planned(fault: str) -> tuple[PlannedFault, ...]:
    return build_schedule(parse(with_fault(fault)).faults, 0, TASKS)


def run(
    tmp_path: Path, text: str, scripts: Any = SCRIPTS, refusal: EngineError | None = None
) -> tuple[Result, Record, Able]:
    engine = Able(scripts)
    engine.refusal = refusal
    result = run_on(engine, tmp_path, text, base="")
    return result, Record(result.folder), engine


def begin_and_die(job: Job, when: float) -> None:
    """Begin the run; its supervisor is killed at a time of it."""

    def die() -> None:
        raise Killed

    job.clock.call_at(ManualClock.BEGAN + when, die)
    with pytest.raises(Killed):
        job.begin()


# --- A disk of a task ---------------------------------------------------------------------------

FILLED = with_fault("fill_disk: worker-1, left: 1k, at: 5s, for: 10s")


def test_yaml_and_python_have_it_and_the_schema_finds_mistakes_in_it() -> None:
    (fault,) = parse(FILLED).faults
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
        found = only_problem(FILLED.replace(given, wrong))
        assert found.startswith(f"s.yaml:6: faults.0{problem}")


@pytest.mark.slow
def test_it_is_in_the_json_schema() -> None:
    fault = {"fill_disk": "worker-1", "left": "1k", "at": "5s", "for": "10s"}
    document = {"name": "t", "program": {"command": ["a"]}, "cluster": {"worker": 2}}
    jsonschema.validate({**document, "faults": [fault]}, json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "faults": [{**fault, "lefd": 1}]}, json_schema())


def test_it_is_in_the_schedule_alone_and_at_random() -> None:
    (alone,) = build_schedule(parse(FILLED).faults, 0, TASKS)
    assert (alone.id, alone.kind, alone.target) == ("0", "fill_disk", "worker-1")
    found = planned("random: {fill_disk: 'worker-*', for: 1s}, every: 10s, max: 3")
    assert [fault.kind for fault in found] == ["fill_disk"] * 3


def test_an_engine_without_its_capability_refuses_it() -> None:
    with pytest.raises(Unsupported, match="filling the disk of worker-1"):
        require(parse(FILLED), MemoryEngine(ManualClock()))


def test_it_is_injected_healed_reported_and_drawn(tmp_path: Path) -> None:
    result, record, engine = run(tmp_path, FILLED)
    assert engine.filled == [("worker-1", 1024), ("worker-1", None)]
    assert in_words(record.history) == [
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


# --- A volume, which is no task -----------------------------------------------------------------

VOLUME = with_fault("broken_volume: full, volume: shared, at: 5s, for: 10s")


def test_it_is_one_fault_however_many_tasks_there_are() -> None:
    scenario = parse(VOLUME)
    (one,) = build_schedule(scenario.faults, 0, TASKS)
    assert (one.id, one.target, one.tasks) == ("0", "shared", ())
    assert from_json(to_json(one)) == one
    of_a_task = VOLUME.replace("at: 5s", "at: {step: 1, task: a}")
    assert "no task is called 'a'" in only_problem(of_a_task)


def test_at_random_only_its_times_are_drawn() -> None:
    found = planned("random: {broken_volume: full, volume: shared, for: 12s}, every: 10s, max: 3")
    assert [(one.target, one.spec.target, one.trigger.time) for one in found] == [
        ("shared", "shared", when) for when in (10, 27, 44)
    ]


def test_a_full_volume_is_injected_healed_and_in_the_summary(tmp_path: Path) -> None:
    result, record, engine = run(tmp_path, VOLUME)
    assert engine.filled == [("shared", 0), ("shared", None)]
    assert {(one.task, one.target) for one in faults(record.history)} == {("", "shared")}
    assert in_words(record.history) == [
        ("triggered", 5, "fault 0: broken_volume shared"),
        ("applied", 5, "fault 0: the volume shared is full"),
        ("healed", 15, "fault 0: the volume shared has room"),
    ]
    assert {one.name for one in record.timeline.states()} <= {*all_states()} - {BrokenVolume.state}
    (fault,) = result.summary["faults"]
    assert (fault["kind"], fault["target"], fault["status"]) == (
        "broken_volume",
        "shared",
        "applied",
    )
    assert (fault["triggered"], fault["restored_after"]) == (5, 10)


def test_no_task_has_to_run_for_it_and_times_count_from_the_training_on(tmp_path: Path) -> None:
    fails_once = {"worker-0": lambda run: Script(exits_at=4.0 * run, exit_code=int(run < 2))}
    text = VOLUME.replace("{worker: 2}", "{data: {replicas: 1, before: training}, worker: 1}")
    text += "restart: {policy: on-failure, backoff: 10s}\n"
    _, record, _ = run(tmp_path, text, {"data-0": Script(exits_at=8.0), **fails_once})
    history = record.history
    assert (times(history, "exit"), times(history, "start")) == ([8, 12, 30], [0, 8, 22])
    assert stages(history) == [("triggered", 13), ("applied", 13), ("healed", 23)]


def test_by_hand_and_healed_by_the_next_supervisor(tmp_path: Path) -> None:
    engine = Able(SCRIPTS)
    job = Job(tmp_path, VOLUME, engine)
    manual = BrokenVolume.model_validate({"broken_volume": "full", "volume": "data", "for": 6})
    injected = job.asks(3.0, lambda control: control.inject(manual))
    begin_and_die(job, 7.0)
    assert injected.result() == ["manual-1"]
    assert job.take_over() == "succeeded"
    full, room = ([("data", left), ("shared", left)] for left in (0, None))
    assert [one for one in engine.filled if one[1] is not None] == full
    assert [one for one in engine.filled if one[1] is None] == room
    assert stages(job.history, "manual-1")[1:] == [("triggered", 3), ("applied", 3), ("healed", 9)]


# --- A notice before it happens -----------------------------------------------------------------

RECLAIM = "reclaim: worker-1, notice: 30s, grace: 5s, down: 4s, at: 10s"
RECLAIMED = with_fault(RECLAIM)


def test_it_is_announced_then_triggered_and_in_the_summary(tmp_path: Path) -> None:
    result, record, engine = run(tmp_path, RECLAIMED)
    assert engine.told == [("worker-1", 10)]
    assert in_words(record.history)[:3] == [
        ("announced", 10, "fault 0: reclaim worker-1 is announced"),
        ("triggered", 40, "fault 0: reclaim worker-1"),
        ("applied", 42, "fault 0: worker-1 has exited (by itself, exit code 143)"),
    ]
    assert stages(record.history)[3:] == [("healed", 46)]
    (fault,) = result.summary["faults"]
    assert (fault["status"], fault["triggered"], fault["applied_after"]) == ("applied", 40, 2)
    assert "announced" in STYLES


def test_a_kind_without_an_announcement_has_no_such_stage(tmp_path: Path) -> None:
    _, record, engine = run(tmp_path, RECLAIMED.replace("notice: 30s, ", ""))
    assert stages(record.history)[0] == ("triggered", 10)
    assert engine.told == []
    assert Reclaim(reclaim="a", notice=30).downtime == Reclaim(reclaim="a").downtime + 30


@pytest.mark.parametrize(
    ("refusal", "stage", "reason"),
    [
        (EngineError("No."), "failed", "No."),
        (NotRunning("Gone."), "skipped", "worker-1 was not running any more"),
    ],
)
def test_what_could_not_be_announced_does_not_happen(
    refusal: EngineError, stage: str, reason: str, tmp_path: Path
) -> None:
    _, record, _ = run(tmp_path, RECLAIMED, refusal=refusal)
    found = [(one.stage, one.reason) for one in faults(record.history)]
    assert found == [("announced", None), (stage, reason)]


def test_a_target_that_restarts_meanwhile_is_hit_all_the_same(tmp_path: Path) -> None:
    fails_once = {"worker-1": lambda run: Script(exits_at=39.0 if run < 2 else None, exit_code=1)}
    text = f"{RECLAIMED}restart: {{policy: on-failure, backoff: 0s}}\n"
    _, record, engine = run(tmp_path, text, {**fails_once, **SCRIPTS})
    assert times(record.history, "exit", "worker-1")[0] == 39
    assert stages(record.history)[:2] == [("announced", 10), ("triggered", 40)]
    assert len(engine.told) == 1


def test_the_next_supervisor_tells_again_and_triggers_in_time(tmp_path: Path) -> None:
    engine = Able(SCRIPTS)
    job = Job(tmp_path, RECLAIMED, engine)
    begin_and_die(job, 25.0)
    assert job.take_over() == "succeeded"
    assert engine.told == [("worker-1", 10), ("worker-1", 25)]
    assert stages(job.history)[:3] == [("announced", 10), ("triggered", 40), ("applied", 42)]


def test_healed_by_hand_it_does_not_happen(tmp_path: Path) -> None:
    job = Job(tmp_path, RECLAIMED, Able(SCRIPTS))
    healed = job.asks(20.0, lambda control: control.heal(""))
    job.begin()
    assert healed.result() == ["0"]
    assert stages(job.history) == [("announced", 10), ("skipped", 20)]


CASES = """
reclaim waiting, due -> announced: announced; announce; due at 50
reclaim waiting, due, target='starting' -> waiting:
reclaim waiting, due, target='gone' -> over: triggered; skipped worker-1 was not running
reclaim waiting, due, announced_at=12 -> terminating: triggered; inject; grace over at 25
reclaim announced, due, announced_at=12 -> terminating: triggered; inject; grace over at 25
reclaim announced, due, announced_at=12, target='starting' -> waiting:
reclaim announced, told -> announced:
reclaim announced, resumed, announced_at=12 -> announced: announce; due at 42
reclaim announced, job over -> over: skipped the job ended before what was announced
reclaim over, due -> over:
"""


@pytest.mark.parametrize("case", [line for line in CASES.splitlines() if line])
def test_what_an_event_makes_of_it(case: str) -> None:
    (fault,) = planned(RECLAIM)
    assert_follows(case, {"reclaim": fault})
