"""Faults of disks during a run: a volume is full until the last one is over, and so is a tracer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.memory import MemoryEngine
from emulator.errors import EngineError, NotRunning
from emulator.record.events import FaultEvent
from emulator.record.reader import Record
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from tests.supervisor.in_memory import run_on, trains

SIZE = "shared_size: 64m\n"


class Disks(MemoryEngine):
    """Notes the rules of each tracer, and when a volume is filled and has room again."""

    breaks = False
    refuses = ""

    def __init__(self) -> None:
        super().__init__(ManualClock(), {"chief-0": trains(80), "*": trains(200)})
        self.rules: list[tuple[float, str, list[Any]]] = []
        self.volume: list[tuple[float, str]] = []

    def _now(self) -> float:
        return round(self._clock.now() - ManualClock.BEGAN, 3)

    def hold(self, task: str, program: str, request: Any, told: Callable[[str], None]) -> None:
        if self._running(task) is None:
            raise NotRunning(f"{task} does not run.")
        compile(program, "tracer", "exec")
        rules = [
            rule["seconds"] if "seconds" in rule else rule["errno"] for rule in request["rules"]
        ]
        self.rules.append((self._now(), task, rules))
        told(json.dumps({"error": self.refuses} if self.refuses else {"attached": 2}))
        if self.breaks:
            raise EngineError("What traced it was killed.")

    def tell(self, task: str, line: str) -> None:
        raise AssertionError("on a manual clock it has always ended")

    def let_go(self, task: str) -> None:
        raise AssertionError("it ends with its last rule")

    def fill(self, volume: str) -> int:
        self.volume.append((self._now(), volume))
        return 1

    def give_room(self, volume: str) -> None:
        self.volume.append((self._now(), f"{volume} has room"))


def run(
    folder: Path, faults: str, engine: Disks, more: str = ""
) -> tuple[Result, list[FaultEvent]]:
    extra = f"cluster: {{chief: 1, worker: 2}}\nrestart: on-failure\n{more}faults: [{faults}]\n"
    result = run_on(engine, folder, extra)
    history = Record(result.folder).in_time_order
    found = [one for one in history if isinstance(one, FaultEvent)]
    return result, [one for one in found if one.stage not in ("planned", "triggered")]


def stages(events: list[FaultEvent]) -> list[tuple[float, str, str]]:
    return [(round(one.t, 3), one.id, one.stage) for one in events]


def test_the_tracer_of_a_task_follows_all_that_holds_on_its_disk(tmp_path: Path) -> None:
    engine = Disks()
    _, events = run(
        tmp_path,
        "{disk: slow, by: 200ms, task: worker-1, at: 5s, for: 60s},"
        "{disk: error, errno: EIO, on: worker-1, at: 10s, for: 10s},"
        "{kill: worker-1, at: 30s}",
        engine,
    )
    (again,) = [one for one in events if one.stage == "reapplied"]
    assert engine.rules == [
        (5, "worker-1", [0.2]),
        (10, "worker-1", [0.2, 5]),
        (20, "worker-1", [0.2]),
        (again.t, "worker-1", [0.2]),
    ]
    assert (again.id, again.t > 30) == ("0", True)
    assert [one for one in stages(events) if one[1] == "1"] == [
        (10, "1", "applied"),
        (20, "1", "healed"),
    ]
    assert "slow by 0.2s" in str(events[0].effect)


def test_a_volume_is_full_until_the_last_fault_is_over(tmp_path: Path) -> None:
    engine = Disks()
    faults = "{disk: full, at: 5s, for: 20s}, {disk: full, at: 10s, for: 5s}"
    result, events = run(tmp_path, faults, engine, SIZE)
    assert engine.volume == [(5, "shared"), (10, "shared"), (15, "shared"), (25, "shared has room")]
    assert stages(events) == [
        (5, "0", "applied"),
        (10, "1", "applied"),
        (15, "1", "healed"),
        (25, "0", "healed"),
    ]
    assert (events[0].target, events[0].task) == ("shared", "")
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"refuses": "its processes can't be traced here"},
         "worker-1: its processes can't be traced here."),
        ({"breaks": True}, "What traced it was killed."),
    ],
)  # fmt: skip
def test_a_task_that_can_t_be_traced_is_unharmed_and_the_fault_has_failed(
    tmp_path: Path, attributes: dict[str, Any], why: str
) -> None:
    engine = Disks()
    vars(engine).update(attributes)
    result, events = run(tmp_path, "{disk: readonly, task: worker-1, at: 5s, for: 9s}", engine)
    assert [(one.stage, one.reason) for one in events if one.stage != "applied"] == [
        ("failed", why)
    ]
    assert (result.outcome, result.exit_code) == ("succeeded", 3)


def test_a_run_that_ends_gives_its_volume_room(tmp_path: Path) -> None:
    engine = Disks()
    run(tmp_path, "{disk: full, at: 75s, for: forever}", engine, SIZE)
    assert [what for _, what in engine.volume] == ["shared", "shared has room"]
