"""Manual faults and other requests to a running job."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from emulator.engines.base import Line
from emulator.engines.memory import MemoryEngine, Script, Scripts
from emulator.errors import EmulatorError, ImageError, Unsupported, UsageError
from emulator.faults.kinds import OneFault
from emulator.faults.spec import FaultSpec
from emulator.record.events import Entry, FaultEvent
from emulator.record.reader import Record
from emulator.report.event_text import describe
from emulator.results import judge
from emulator.runtime.clock import ManualClock
from emulator.supervisor.control import Asked
from tests.supervisor import in_memory
from tests.supervisor.in_memory import BASE, DEAF, SERVES, Late, faults, stages, step, times

SCRIPTS: Scripts = {
    "worker-0": Script([(float(n), step(n)) for n in range(1, 41)], exits_at=40.5),
    "*": SERVES,
}


def fault(**options: Any) -> FaultSpec:
    return TypeAdapter[FaultSpec](OneFault).validate_python(options)


class Job(in_memory.Job):
    """A run of forty seconds."""

    outcome = ""

    def __init__(self, out: Path, extra: str = "", kind: type[MemoryEngine] = MemoryEngine) -> None:
        text = f"{BASE}cluster: {{worker: 3}}\n{extra}"
        super().__init__(out, text, kind(ManualClock(), SCRIPTS))

    def injects(self, when: float, **options: Any) -> Future[Any]:
        spec = fault(**options)
        return self.asks(when, lambda control: control.inject(spec))

    def run(self, takes: float = 0) -> list[Entry]:
        """Run it to its end; what the engine has to make first takes so many seconds."""
        self.outcome = self.begin(workers=Late(self.clock, "aside", takes))
        return self.history


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_fault_for_ever_lasts_until_it_is_healed_manually(job: Job) -> None:
    job.injects(5.0, partition=[["worker-0"], ["worker-1"]], **{"for": "forever"})
    job.injects(6.0, preempt="worker-2", grace="0s", down="forever", address="same")
    job.injects(7.0, pause="worker-1", **{"for": "forever"})
    one = job.asks(12.0, lambda control: control.heal("manual-1"))
    rest = job.asks(15.0, lambda control: control.heal(""))
    again = job.asks(16.0, lambda control: control.heal(""))
    unknown = job.asks(17.0, lambda control: control.heal("manual-9"))
    history = job.run()
    assert one.result(0) == ["manual-1"]
    assert rest.result(0) == ["manual-2", "manual-3"]
    assert again.result(0) == unknown.result(0) == []
    assert stages(history, "manual-1")[-1] == ("healed", 12)
    assert stages(history, "manual-2")[-1] == ("healed", 15)
    assert stages(history, "manual-3")[-1] == ("healed", 15)
    assert [len(links) for links in job.engine.links] == [2, 0]


@pytest.mark.parametrize(
    ("strike", "error", "why"),
    [
        ({"kill": "worker-9"}, UsageError, "no task is called 'worker-9'"),
        (
            {"shape": "worker-0", "to": "boss", "delay": "1s", "for": "1s"},
            UsageError,
            "called 'boss'",
        ),
        (
            {"partition": [["worker-0"], ["worker-*"]], "for": "1s"},
            UsageError,
            "worker-0 is in two groups",
        ),
        ({"oom": "worker-1"}, Unsupported, "running worker-1 out of memory"),
        (
            {"preempt": "worker-1", "down": "1s", "address": "same"},
            UsageError,
            "The address that worker-1 comes back to can't be chosen in this run",
        ),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_and_the_run_continues(
    job: Job, strike: dict[str, Any], error: type[EmulatorError], why: str
) -> None:
    """Or one that the engine can't do."""
    job.engine.capabilities -= {"oom"}
    job.engine.keeps_addresses = False
    refused, right = job.injects(5.0, **strike), job.injects(6.0, kill="worker-2")
    history = job.run()
    with pytest.raises(error, match=why):
        refused.result(0)
    assert right.result(0) == ["manual-1"]
    assert {e.id for e in history if isinstance(e, FaultEvent)} == {"manual-1"}


def test_a_strike_before_all_tasks_run_goes_its_own_way(tmp_path: Path) -> None:
    """The clock of the scenario's faults starts later, and changes nothing about it."""
    job = Job(tmp_path, "faults: [{kill: worker-2, at: 30s}]\nrestart: on-failure")
    paused = fault(**{"pause": "worker-0", "for": "4s"})
    start = job.engine.start

    def first(task: Any, **kwargs: Any) -> str:
        if task.name == "worker-1":
            reply: Future[Any] = Future()
            asked = Asked(lambda: job.supervisor.control.inject(paused), reply)
            job.supervisor.inbox.put(asked)
        return start(task, **kwargs)

    job.engine.start = first  # type: ignore[method-assign]
    history = job.run()
    order = [e.event for e in history]
    assert order.index("fault") < order.index("all-running")
    at_once = [(stage, 0) for stage in ("planned", "triggered", "applied")]
    assert stages(history, "manual-1") == [*at_once, ("healed", 4)]
    assert stages(history, "0")[0] == ("triggered", 30)


def test_the_status_says_where_tasks_and_faults_are(tmp_path: Path) -> None:
    job = Job(tmp_path, "faults: [{preempt: worker-1, at: 5s, grace: 0, down: 5s}]")
    before = job.asks(3.5, lambda control: control.status())
    during = job.asks(7.5, lambda control: control.status())
    job.run()
    status = before.result(0)
    assert (status["run_id"], status["scenario"], status["engine"]) == ("run", "test", "memory")
    assert status["state"] == "running"
    assert status["tasks"][0] == {
        "name": "worker-0",
        "state": "running",
        "step": 3,
        "restarts": 0,
        "exit_code": None,
    }
    assert status["faults"] == [
        {"id": "0", "kind": "preempt", "target": "worker-1", "stage": "waiting"}
    ]
    assert during.result(0)["tasks"][1]["state"] == "down"
    assert during.result(0)["tasks"][1]["exit_code"] == 143
    assert during.result(0)["faults"][0]["stage"] == "down"
    assert job.supervisor.control.status()["state"] == "ending"


def test_a_stop_by_hand_is_an_interrupt_and_a_second_one_is_final(job: Job) -> None:
    job.engine._scripts["*"] = DEAF
    job.asks(5.0, lambda control: control.stop())
    job.asks(6.0, lambda control: control.stop())
    history = job.run()
    assert job.outcome == "interrupted"
    assert times(history, "exit") == [5, 6, 6]


def test_a_request_overtakes_output_and_is_refused_after_the_end_of_the_run(job: Job) -> None:
    job.run()
    job.supervisor.inbox.put(Line("worker-0", 0, "printed"))
    reply = job.supervisor.control.ask(lambda: None)
    asked = job.supervisor.inbox.get()
    assert isinstance(asked, Asked)
    job.supervisor.inbox.put(asked)
    job.supervisor.control.refuse_all()
    with pytest.raises(UsageError, match="The run is over"):
        reply.result(0)


def test_a_target_that_was_brought_back_is_not_once_more_when_its_time_is_over(job: Job) -> None:
    job.injects(5.0, preempt="worker-2", grace="0s", down="10s")
    job.asks(7.0, lambda control: control.heal("manual-1"))
    job.injects(8.0, preempt="worker-2", grace="0s", down="forever")
    assert times(job.run(), "start", "worker-2") == [0, 7]


# --- What the engine has to make first ----------------------------------------------------------


class Bare(MemoryEngine):
    """Has to make something before it can change the network."""

    why_not = ""
    made = 0
    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    @property
    def can_shape(self) -> bool:
        return bool(self.made)

    def equip(self, say: Callable[[str], None]) -> None:
        say("the image is built")
        self.meanwhile()
        if self.why_not:
            raise ImageError(self.why_not)
        self.made += 1


class Hopeless(Bare):
    why_not = "the image does not build"


CUT = {"partition": [["worker-0"], ["worker-1"]], "for": "5s"}


def test_a_strike_waits_for_what_the_engine_has_to_make_and_says_so(tmp_path: Path) -> None:
    """Meanwhile it can be healed, and never strikes."""
    job = Job(tmp_path, kind=Bare)
    job.injects(10.0, **CUT)
    job.injects(11.0, **{**CUT, "for": "2s"})
    job.injects(11.0, **CUT)
    status = job.asks(12.0, lambda control: control.status())
    healed = job.asks(13.0, lambda control: control.heal("manual-3"))
    late = job.injects(30.0, **CUT)
    history = job.run(takes=7)
    waiting = {f["id"]: f["stage"] for f in status.result(0)["faults"]}
    assert waiting == dict.fromkeys(("manual-1", "manual-2", "manual-3"), "preparing")
    after = [("preparing", 17), ("triggered", 17), ("applied", 17)]
    assert stages(history, "manual-1") == [("planned", 10), *after, ("healed", 22)]
    assert stages(history, "manual-2") == [("planned", 11), *after, ("healed", 19)]
    assert healed.result(0) == ["manual-3"]
    assert stages(history, "manual-3") == [("planned", 11), ("skipped", 13)]
    assert late.result(0) == ["manual-4"]
    assert stages(history, "manual-4")[:3] == [("planned", 30), ("triggered", 30), ("applied", 30)]
    assert isinstance(job.engine, Bare)
    assert job.engine.made == 1
    assert describe(faults(history, "manual-1")[1]) == "fault manual-1: waiting: the image is built"
    assert {11.0, 12.0, 13.0, 14.0, 15.0, 16.0} <= {*times(history, "step")}  # no other task waits
    assert job.outcome == "succeeded"
    found = {one.id: one for one in judge(Record(job.folder))[0].faults}
    assert (found["manual-1"].status, found["manual-1"].triggered) == ("applied", 17)


def test_a_strike_fails_where_the_engine_can_not_make_it(tmp_path: Path) -> None:
    job = Job(tmp_path, kind=Hopeless)
    job.injects(10.0, **CUT)
    another = Asked(lambda: job.supervisor.control.inject(fault(**CUT)), Future())
    assert isinstance(job.engine, Bare)
    job.engine.meanwhile = lambda: job.supervisor.inbox.put(another)
    history = job.run(takes=7)
    for number, planned in {"manual-1": 10, "manual-2": 17}.items():
        expected = [("planned", planned), ("preparing", 17), ("failed", 17)]
        assert stages(history, number) == expected
    for found in judge(Record(job.folder))[0].faults:
        assert (found.status, found.reason) == ("failed", "the image does not build")
    assert job.outcome == "succeeded"


def test_a_manual_rolling_restart_continues_by_itself(job: Job) -> None:
    reply = job.injects(5.0, restart="worker-[12]", grace="1s")
    history = job.run()
    assert reply.result(0) == ["manual-1:worker-1", "manual-1:worker-2"]
    assert stages(history, "manual-1:worker-1")[-1] == ("healed", 5)
    second = stages(history, "manual-1:worker-2")[1:]
    assert second == [("triggered", 6), ("applied", 6), ("healed", 6)]  # the job has stepped
