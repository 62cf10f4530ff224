"""The fake engine does what a real one does, at the times of its clock."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Exited, Line, Resource, ResumePoint
from emulator.engines.memory import MemoryEngine, Script
from emulator.errors import EngineError, NotRunning
from emulator.faults.spec import Cordoned
from emulator.metrics.catalog import Usage
from emulator.planning.planner import make_plan
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from tests.engines.inbox import EachLine

TEXT = """\
name: a
framework: none
image: none
program: {command: [a]}
cluster: {worker: {replicas: 3}, chief: {replicas: 1, ports: [8, {port: 9, host_port: 10}]}}
"""
PLAN = make_plan(
    parse(TEXT), "run-1", MemoryEngine(ManualClock()).plan_context("run-1", Path("/r"))
)
SERVES = Script([(1, "one"), (3, "three"), (5, "five")], exits_at=None)


class Stage:
    """A run on the engine; `until` returns what it reports up to then, with the seconds."""

    def __init__(self, script: Script = SERVES, **engine: Any) -> None:
        self.clock = ManualClock(1000.0)
        self.engine = MemoryEngine(self.clock, {"*": script}, **engine)
        self.inbox = EachLine()
        self.engine.prepare(PLAN, Path("/runs/run-1"), self.inbox)

    def start(self, *tasks: str) -> list[str]:
        return [self.engine.start(PLAN.task(task)) for task in tasks]

    def until(self, seconds: float) -> list[str]:
        said = []
        until = ManualClock.BEGAN + seconds
        while (event := self.clock.next_event(self.inbox, until)) is not None:
            at = f"{event.wall - 1000:g} {event.task}"
            if isinstance(event, Line):
                said.append(f"{at} {event.text}{'' if event.is_finished else ' (drawn)'}")
            elif isinstance(event, Exited):
                said.append(f"{at} exits {event.exit_code}{' oom' if event.oom_killed else ''}")
            assert self.clock.wall() - event.wall in (0, 7)
        return said


W0, W1, W2 = "worker-0", "worker-1", "worker-2"


SIGNALS = [
    (SERVES, 15, ["2 {} exits 143"]),
    (SERVES, 9, ["2 {} exits 137"]),
    (SERVES, 10, ["2 {} exits 138"]),
    (Script(exits_at=None, on_sigterm=1.5, sigterm_code=0), 15, ["3.5 {} exits 0"]),
    (Script(exits_at=None, on_sigterm=1.5, sigterm_code=0), 10, ["3.5 {} exits 138"]),
    (Script(exits_at=None, on_sigterm=None), 15, []),
    (Script(exits_at=None, on_sigterm=None), 9, ["2 {} exits 137"]),
    (Script(exits_at=1), 9, []),
]


@pytest.mark.parametrize(("script", "number", "said"), SIGNALS)
def test_a_signal_ends_a_task_as_its_script_says(
    script: Script, number: int, said: list[str]
) -> None:
    stage = Stage(script)
    stage.start(W0)
    stage.until(2)
    stage.engine.signal(W0, number)
    assert stage.until(4.9) == [one.format(W0) for one in said]
    assert stage.engine.signals == [(W0, number)]


def test_an_exit_that_is_reported_late_has_the_time_at_which_it_was() -> None:
    stage = Stage(Script(exits_at=1, reported_after=7))
    stage.start(W0)
    assert stage.until(7.9) == []
    assert stage.engine.find()[0].state == "exited"
    assert stage.until(8) == ["1 worker-0 exits 0"]


def test_what_is_paused_goes_on_where_it_was_and_can_be_killed() -> None:
    stage = Stage(Script([(1, "one"), (3, "three")], [(2, "drawn")], exits_at=4))
    stage.start(W0)
    stage.until(1)
    stage.engine.pause(W0)
    assert stage.until(6) == []
    stage.engine.resume(W0)
    assert stage.until(6) == ["6 worker-0 three", "6 worker-0 exits 0"]
    stage.engine.resume(W0)
    stage.engine.resume(W1)
    for task in (W0, W1):
        with pytest.raises(NotRunning, match=f"Can't pause {task}"):
            stage.engine.pause(task)
    stage.start(W0)
    stage.engine.pause(W0)
    stage.engine.signal(W0, 15)
    assert stage.until(7) == []
    stage.engine.signal(W0, 9)
    assert stage.until(8) == ["7 worker-0 exits 137"]
    assert stage.start(W0) == ["memory-worker-0-3"]
    said = ["9 {} one", "10 {} drawn (drawn)", "11 {} three", "12 {} exits 0"]
    assert stage.until(20) == [one.format(W0) for one in said]


def test_a_start_on_the_same_disk_is_another_and_what_was_planned_for_the_first_is_over() -> None:
    starts: list[int] = []

    def script(number: int) -> Script:
        starts.append(number)
        return SERVES if number == 1 else Script([(1, "again")], exits_at=2)

    stage = Stage()
    stage.engine._scripts = {W0: script, "worker-[12]": SERVES}
    stage.start(W0)
    stage.until(2)
    stage.engine.oom_kill(W0)
    stage.engine.oom_kill(W0)
    assert stage.until(2) == ["2 worker-0 exits 137 oom"]
    assert stage.start(W0) == ["memory-worker-0-2"]
    assert stage.until(9) == ["3 worker-0 again", "4 worker-0 exits 0"]
    assert set(starts) == {1, 2}
    stage.engine.remove(W0)  # a new disk
    assert stage.until(9) == []
    assert stage.start(W0, W1, "chief-0") == [
        f"memory-{W0}-3",
        f"memory-{W1}-4",
        "memory-chief-0-5",
    ]
    assert stage.until(10) == ["9 chief-0 exits 0"] + [f"10 {one} one" for one in (W0, W1)]
    stage.engine.cut_power(W1)
    stage.engine.cut_power(W2)
    stage.engine.remove(W0)
    assert stage.until(20) == ["10 worker-1 exits 137", "10 worker-0 exits 137"]


def test_a_preemption_is_sigterm_and_then_the_end_of_the_grace_period() -> None:
    stage = Stage(Script(exits_at=None, on_sigterm=None), nodes=["a"], budget=[W1])
    stage.start(W0, W1)
    assert stage.engine.preempt(W2, 3, None) == ""
    with pytest.raises(EngineError, match="A disruption budget forbids to evict worker-1"):
        stage.engine.preempt(W1, 3, "eviction")
    assert stage.engine.preempt(W0, 3, "eviction") == "worker-0 was evicted with 3 s"
    assert stage.engine.preempt(W0, 1, "eviction") == ""  # it is leaving
    assert stage.engine.preempt(W1, 2.5, "delete") == "worker-1 was deleted with 2.5 s"
    assert stage.engine.signals == [(W0, 15), (W1, 15)]
    assert stage.until(5) == ["2.5 worker-1 exits 137", "3 worker-0 exits 137"]


def test_tasks_are_on_the_node_with_the_fewest_that_takes_any() -> None:
    engine = (stage := Stage(nodes=["a", "b"])).engine
    stage.start(W0, W1, W2)
    with pytest.raises(EngineError, match="cordon the node of chief-0: it does not run"):
        engine.cordon("chief-0")
    assert engine.cordon(W0) == engine.cordon(W0) == Cordoned("a", (W0, W2))
    with pytest.raises(EngineError, match="The node a is cordoned already"):
        engine.cordon(W2)
    assert tuple(engine.cordoned) == ("a",)
    engine.signal(W2, 9)
    stage.until(0)
    assert engine.cordon(W0) == Cordoned("a", (W0,))
    stage.start(W2)
    assert engine.cordon(W1) == Cordoned("b", (W1, W2))
    with pytest.raises(EngineError, match="No node takes chief-0: all are cordoned"):
        stage.start("chief-0")
    engine.uncordon(W0)
    assert tuple(engine.cordoned) == ("b",)
    assert {"own-grace", "eviction", "nodes"} <= engine.capabilities
    assert {"own-grace", "eviction", "nodes", "usage"}.isdisjoint(Stage().engine.capabilities)
    assert {"warm", "pods", "exec"}.isdisjoint(engine.capabilities)
    engine.tear_down("run-1")
    assert not engine.cordoned


def test_usage_and_ports_are_of_tasks_that_run() -> None:
    stage = Stage(Script(exits_at=4, cpus=1.5, memory=7), measured=True)
    assert "usage" in stage.engine.capabilities
    stage.start(W0, "chief-0")
    stage.until(2)
    used = Usage(cpu=3.0, memory=7, processes=1)
    assert stage.engine.usage() == {W0: used, "chief-0": used}
    assert stage.engine.published("chief-0") == {8: "127.0.0.1:8", 9: "127.0.0.1:10"}
    assert stage.engine.published(W0) == stage.engine.published(W1) == {}
    stage.until(4)
    assert stage.engine.usage() == {}
    assert stage.engine.published("chief-0") == {}


def test_another_supervisor_gets_what_was_not_read() -> None:
    stage = Stage(Script([(1, "one"), (2, "one"), (3, "two")], exits_at=4))
    stage.start(W0)
    stage.until(1)
    stage.start(W1)
    stage.until(2)
    stage.engine._inbox = EachLine()  # of one that is killed before it reads on
    assert stage.until(7) == []
    stage.start(W2)
    known = {
        W0: ResumePoint(["one", "one"], 1000.0),
        W1: ResumePoint([], 1001.5),
        W2: ResumePoint([], 1007.0),
    }
    ids = stage.engine.reattach(PLAN, Path(), stage.inbox, known)
    assert ids == {W0: "memory-worker-0-1", W2: "memory-worker-2-3"}
    assert stage.inbox.get(timeout=0).text == "two"
    assert stage.inbox.get(timeout=0) == Exited(W0, 1004.0, 0)
    assert stage.inbox.empty()
    stage.start(W1)  # on the same disk, with what nobody has read
    assert stage.until(7) == [f"7 {W1} {text}" for text in ("one", "one", "two")]


def test_a_run_is_found_until_it_is_torn_down() -> None:
    stage = Stage()
    assert stage.engine.tear_down("run-2") == 0
    stage.start(W0, W1)
    stage.engine.signal(W1, 9)
    assert stage.until(0) == ["0 worker-1 exits 137"]
    there = [
        Resource("run-1", "task", W0, "running", "/runs/run-1", "memory"),
        Resource("run-1", "task", W1, "exited", "/runs/run-1", "memory"),
    ]
    assert stage.engine.find() == stage.engine.find("run-1") == there
    assert stage.engine.find("run-2") == []
    other = make_plan(parse(TEXT), "run-2", stage.engine.plan_context("run-2", Path("/r")))
    stage.engine.prepare(other, Path("/r"), stage.inbox)
    assert stage.engine.tear_down("run-1") == 2
    assert stage.until(math.ulp(0)) == []  # it is not the run of this inbox
    stage.start(W2)
    assert [one.name for one in stage.engine.find()] == [W2]
    assert stage.engine.tear_down("run-2") == 1
    assert stage.until(9) == ["0 worker-2 exits 137"]
    assert stage.engine.find() == []
