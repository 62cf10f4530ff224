"""A kind of fault may be announced some time before it happens: here a preemption with a notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pytest

from emulator.api.prometheus import STAGES as COUNTED
from emulator.engines.memory import MemoryEngine, Script
from emulator.errors import EngineError, NotRunning
from emulator.faults.kinds import FAULTS
from emulator.faults.spec import FaultContext, GracefulFault
from emulator.record.reader import Record
from emulator.report.event_text import describe
from emulator.report.tables import STYLES
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.validation.fields import Duration, Glob
from tests.histories import a_plan
from tests.supervisor.in_memory import BASE, Job, faults, run_on, stages, times
from tests.supervisor.test_fault_stages import assert_follows
from tests.supervisor.test_takeover import Killed


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


class Cloud(MemoryEngine):
    """Gives notices."""

    def __init__(self, scripts: Any, refusal: EngineError | None = None) -> None:
        super().__init__(ManualClock(), scripts)
        self.refusal = refusal
        self.told: list[tuple[str, float]] = []

    def tell(self, task: str) -> None:
        if self.refusal:
            raise self.refusal
        self.told.append((task, self._clock.now() - ManualClock.BEGAN))


FAULT = "faults: [{reclaim: worker-1, notice: 30s, grace: 5s, down: 4s, at: 10s}]\n"
TEXT = f"cluster: {{worker: 2}}\n{FAULT}"
SCRIPTS = {"worker-0": Script(exits_at=60.0), "*": Script(exits_at=None, on_sigterm=2.0)}


@pytest.fixture(autouse=True)
def new_kind() -> Iterator[None]:
    FAULTS["reclaim"] = Reclaim
    yield
    del FAULTS["reclaim"]


def test_it_is_announced_then_triggered_and_in_the_summary(tmp_path: Path) -> None:
    engine = Cloud(SCRIPTS)
    result = run_on(engine, tmp_path, TEXT)
    assert engine.told == [("worker-1", 10)]
    history = Record(result.folder).history
    assert [(one.stage, one.t, describe(one)) for one in faults(history)][:3] == [
        ("announced", 10, "fault 0: reclaim worker-1 is announced"),
        ("triggered", 40, "fault 0: reclaim worker-1"),
        ("applied", 42, "fault 0: worker-1 has exited (by itself, exit code 143)"),
    ]
    assert stages(history)[3:] == [("healed", 46)]
    (fault,) = result.summary["faults"]
    assert (fault["status"], fault["triggered"], fault["applied_after"]) == ("applied", 40, 2)
    assert "announced" in COUNTED
    assert "announced" in STYLES


def test_a_kind_without_an_announcement_has_no_such_stage(tmp_path: Path) -> None:
    engine = Cloud(SCRIPTS)
    result = run_on(engine, tmp_path, TEXT.replace("notice: 30s, ", ""))
    assert stages(Record(result.folder).history)[0] == ("triggered", 10)
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
    result = run_on(Cloud(SCRIPTS, refusal), tmp_path, TEXT)
    found = faults(Record(result.folder).history)
    assert [one.stage for one in found] == ["announced", stage]
    assert found[-1].reason == reason


def test_a_target_that_restarts_meanwhile_is_hit_all_the_same(
    tmp_path: Path,
) -> None:
    fails_once = {"worker-1": lambda run: Script(exits_at=39.0 if run < 2 else None, exit_code=1)}
    engine = Cloud({**fails_once, **SCRIPTS})
    text = f"{TEXT}restart: {{policy: on-failure, backoff: 0s}}\n"
    history = Record(run_on(engine, tmp_path, text).folder).history
    assert times(history, "exit", "worker-1")[0] == 39
    assert stages(history)[:2] == [("announced", 10), ("triggered", 40)]
    assert len(engine.told) == 1


def test_the_next_supervisor_tells_again_and_triggers_in_time(tmp_path: Path) -> None:
    engine = Cloud(SCRIPTS)
    job = Job(tmp_path, parse(BASE + TEXT), engine)

    def die() -> None:
        raise Killed

    job.clock.call_at(ManualClock.BEGAN + 25.0, die)
    with pytest.raises(Killed):
        job.begin()
    assert job.take_over() == "succeeded"
    assert engine.told == [("worker-1", 10), ("worker-1", 25)]
    assert stages(job.history)[:3] == [("announced", 10), ("triggered", 40), ("applied", 42)]


def test_healed_by_hand_it_does_not_happen(tmp_path: Path) -> None:
    job = Job(tmp_path, parse(BASE + TEXT), Cloud(SCRIPTS))
    healed = job.asks(20.0, lambda control: control.heal(""))
    job.begin()
    assert healed.result() == ["0"]
    assert stages(job.history) == [("announced", 10), ("skipped", 20)]


CASES = """
reclaim waiting, due -> announced: announced; announce; due at 50
reclaim waiting, due, target='starting' -> waiting:
reclaim waiting, due, target='gone' -> over: triggered; skipped worker-1 was not running
reclaim waiting, due, announced_at=12 -> terminating: triggered; inject
reclaim announced, due, announced_at=12 -> terminating: triggered; inject
reclaim announced, due, announced_at=12, target='starting' -> waiting:
reclaim announced, told -> announced:
reclaim announced, resumed, announced_at=12 -> announced: announce; due at 42
reclaim announced, job over -> over: skipped the job ended before what was announced
reclaim over, due -> over:
"""


@pytest.mark.parametrize("case", [line for line in CASES.splitlines() if line])
def test_what_an_event_makes_of_it(case: str) -> None:
    (fault,) = a_plan("{worker: 2}", FAULT).faults
    assert_follows(case, {"reclaim": fault})
