"""To whom the signal of a fault goes, and which one it is: what users write, and what is asked."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.memory import MemoryEngine, Scripts
from emulator.engines.process import ProcessEngine
from emulator.engines.requirements import require
from emulator.errors import Unsupported
from emulator.faults.kinds import FAULTS
from emulator.faults.preempt import AskingFault, Preempt
from emulator.faults.schedule import build_schedule, from_json, to_json
from emulator.faults.spec import Effect, FaultContext
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario
from tests.scenario.mistakes import only_problem
from tests.supervisor.in_memory import BASE
from tests.supervisor.test_control import Job

WORKERS = f"{BASE}cluster: {{worker: 2}}\n"
TASKS = ["worker-0", "worker-1"]
TRACE = "trace: [{time: 1, target: worker-1, down: 5}]"
TERM, USR1, CONT = signal.SIGTERM, signal.SIGUSR1, signal.SIGCONT


def scenario(entry: str, more: str = "") -> Scenario:
    return parse(f"{WORKERS}{more}faults: [{{{entry}}}]\n")


def whom(given: Scenario) -> str | None:
    """Return whom the signal of its only entry is for, as it is planned."""
    (planned, *_) = build_schedule(given.faults, 0, TASKS)
    assert isinstance(planned.spec, AskingFault)
    return planned.spec.signals


ENTRIES = [
    "preempt: worker-1, at: 4s",
    "terminate: worker-1, at: 4s",
    "restart: worker-1, at: 4s",
    TRACE,
]


@pytest.mark.parametrize("entry", [*ENTRIES, "random: {preempt: worker-1}, every: 10s"])
def test_an_entry_says_it_and_else_the_scenario(entry: str) -> None:
    assert whom(scenario(entry)) is None  # as `main`
    assert whom(scenario(entry, "signals: all\n")) == "all"
    assert "signals" not in scenario(entry).model_dump()
    inside = "random" in entry
    told = entry.replace("}", ", signals: all}") if inside else f"{entry}, signals: all"
    assert whom(scenario(told)) == "all"
    told = told.replace("signals: all", "signals: main")
    assert whom(scenario(told, "signals: all\n")) == "main"


def test_a_preset_says_it_before_the_scenario() -> None:
    like = "preempt: worker-1, at: 4s, like"
    assert whom(scenario(f"{like}: slurm-preempt")) == "all"
    assert whom(scenario(f"{like}: kubernetes", "signals: all\n")) == "main"
    assert whom(scenario(f"{like}: plain", "signals: all\n")) == "all"
    assert whom(scenario(f"{like}: slurm-preempt, signals: main", "signals: all\n")) == "main"


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_the_scenario_says_is_stored_with_the_fault_and_not_written(entry: str) -> None:
    given = scenario(entry, "signals: all\n")
    assert given.to_yaml().count("signals") == 1
    assert parse(given.to_yaml()) == given
    stored = [to_json(one) for one in build_schedule(given.faults, 0, TASKS)]
    assert [from_json(one).spec.to_all for one in stored] == [True]
    again = Scenario.model_validate(given.model_dump(mode="json"))
    assert again.faults == given.faults


# --- Which signal ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["preempt", "terminate", "restart"])
def test_a_signal_has_a_long_name_and_a_short_one(kind: str) -> None:
    for written, name in (("USR1", "SIGUSR1"), ("SIGUSR1", "SIGUSR1"), ("TERM", "SIGTERM")):
        (fault,) = scenario(f"{kind}: worker-1, at: 4s, signal: {written}").faults
        assert isinstance(fault, AskingFault)
        assert fault.sends == name
    (fault,) = scenario(f"{kind}: worker-1, at: 4s").faults
    assert isinstance(fault, AskingFault)
    assert (fault.sends, fault.to_all) == ("SIGTERM", False)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("preempt: worker-1, signal: all", ".signal: it says which signal; whom it is for is "
         "`signals: all`"),
        ("restart: worker-1, signal: main", ".signal: it says which signal; whom it is for is "
         "`signals: main`"),
        ("terminate: worker-1, signal: KILL", ".signal: 'KILL' is not allowed"),
        ("terminate: worker-1, signal: none", ".signal: 'none' is not allowed"),
        ("terminate: worker-1, signals: TERM", ".signals: 'TERM' is not allowed"),
        ("kill: worker-1, signals: all", ": `signals` is an option of preempt"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_with_the_right_key(entry: str, problem: str) -> None:
    found = only_problem(f"{WORKERS}faults: [{{{entry}, at: 4s}}]\n")
    assert f"faults.0{problem}" in found


# --- What an engine is asked ----------------------------------------------------------------------


class Asked(MemoryEngine):
    """Notes what was for all processes."""

    def __init__(self, clock: ManualClock, scripts: Scripts) -> None:
        super().__init__(clock, scripts)
        self.to_all: list[tuple[str, list[int]]] = []

    def signal_all(self, task: str, numbers: Any) -> int | None:
        self.to_all.append((task, [*numbers]))
        super().signal_all(task, numbers)
        return 2


@pytest.mark.parametrize(
    ("keys", "signals", "to_all", "words"),
    [
        ({}, [TERM], [], ""),
        ({"signals": "main"}, [TERM], [], ""),
        ({"signal": "SIGUSR1"}, [USR1], [], ""),
        ({"signals": "all"}, [TERM], [[TERM]], "SIGTERM to 2 processes of a-0"),
        ({"signals": "all", "signal": "USR1"}, [USR1], [[USR1]], "SIGUSR1 to 2 processes of a-0"),
    ],
)
@pytest.mark.parametrize("kind", ["preempt", "terminate", "restart"])
def test_an_engine_is_asked_for_the_command_or_for_all(
    kind: str, keys: dict[str, Any], signals: list[int], to_all: list[list[int]], words: str
) -> None:
    engine = Asked(ManualClock(), {})
    fault = FAULTS[kind].model_validate({kind: "a-0", **keys})
    effect = fault.apply(FaultContext(engine, "a-0", None, lambda: None)) or Effect()
    assert [number for _, number in engine.signals] == signals
    assert engine.to_all == [("a-0", numbers) for numbers in to_all]
    assert effect.words == words
    needed = {capability for _, capability in fault.needs()}
    assert ("signal-all" in needed, "signals" in needed) == (bool(to_all), "signal" in keys)


def test_one_that_wakes_its_target_first_sends_sigcont_to_the_same() -> None:
    for signals, to_all in (("main", []), ("all", [("a-0", [CONT, TERM])])):
        engine = Asked(ManualClock(), {})
        fault = Preempt.model_validate({"preempt": "a-0", "wakes": True, "signals": signals})
        fault.apply(FaultContext(engine, "a-0", None, lambda: None))
        assert engine.signals == [("a-0", CONT), ("a-0", TERM)]
        assert engine.to_all == to_all


def test_all_is_refused_before_anything_starts_with_an_engine_that_can() -> None:
    engine = MemoryEngine(ManualClock())
    engine.capabilities -= {"signal-all"}
    given = scenario(ENTRIES[0], "signals: all\n")
    with pytest.raises(Unsupported, match="SIGTERM to all processes of worker-1") as refused:
        require(given, engine)
    assert "--engine" in str(refused.value.hint)
    require(given, ProcessEngine())


def test_by_hand_the_scenario_says_it_too_and_an_end_of_ours_is_for_the_command_alone(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, "signals: all\n", Asked)
    asked = job.injects(4, preempt="worker-1", down=1.0)
    job.run()
    assert asked.result() == ["manual-1"]
    assert isinstance(job.engine, Asked)
    assert job.engine.to_all == [("worker-1", [TERM])]
    ends = [task for task, number in job.engine.signals if number == TERM]
    assert ends[0] == "worker-1"
    assert sorted(ends[1:]) == ["worker-1", "worker-2"]
