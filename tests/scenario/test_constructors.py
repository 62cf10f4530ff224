"""Faults in Python are the same as in YAML, for each kind that there is."""

from __future__ import annotations

import json
from typing import Any

import pytest

import emulator
from emulator.errors import UsageError
from emulator.faults.table import entries
from emulator.scenario.constructors import names
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario
from scripts.write_constructors import STUB, stub

HEAD: dict[str, Any] = {
    "name": "x",
    "framework": "none",
    "program": {"command": ["a"]},
    "cluster": {"worker": 3},
}

PAIRS = [
    (
        emulator.Preempt("worker-1", at=emulator.Step(300), grace=5, down="1m"),
        {"preempt": "worker-1", "at": {"step": 300}, "grace": "5s", "down": "1m"},
    ),
    (
        emulator.Preempt("worker-*", at=40.5, down=float("inf"), name="last"),
        {"preempt": "worker-*", "at": "40.5s", "down": "forever", "name": "last"},
    ),
    (
        emulator.Kill("worker-0", at=emulator.Log("Saving", task="worker-0")),
        {"kill": "worker-0", "at": {"log": "Saving", "task": "worker-0"}},
    ),
    (
        emulator.Pause("worker-0", at=emulator.Phase("checkpoint"), for_=2),
        {"pause": "worker-0", "at": {"phase": "checkpoint"}, "for": "2s"},
    ),
    (
        emulator.Partition(["worker-0"], ["worker-1", "worker-2"], at="1s", for_="8s"),
        {"partition": [["worker-0"], ["worker-1", "worker-2"]], "at": "1s", "for": "8s"},
    ),
    (
        emulator.Shape("worker-2", at=emulator.After("0", delay=3), for_=1, delay=0.05, loss="5%"),
        {
            "shape": "worker-2",
            "at": {"after": "0", "delay": "3s"},
            "for": "1s",
            "delay": "50ms",
            "loss": "5%",
        },
    ),
    (
        emulator.Throttle("worker-0", at=emulator.Recovery("0"), for_=3, cpus=0.5),
        {"throttle": "worker-0", "at": {"recovery": "0"}, "for": "3s", "cpus": 0.5},
    ),
    (
        emulator.Random(emulator.Preempt("worker-*", grace=2), every=30, max=4, seed=7),
        {"random": {"preempt": "worker-*", "grace": "2s"}, "every": "30s", "max": 4, "seed": 7},
    ),
]


@pytest.mark.parametrize(("made", "written"), PAIRS, ids=lambda one: type(one).__name__)
def test_a_constructor_makes_what_yaml_does(made: Any, written: dict[str, Any]) -> None:
    first = {"kill": "worker-0", "at": "1s"}
    given = parse(json.dumps({**HEAD, "faults": [first, written]})).faults[1]
    assert made == given
    assert made.model_fields_set == given.model_fields_set


def test_a_trace_is_read_where_the_program_is(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace.csv").write_text("time,target,down\n1,worker-0,2\n")
    monkeypatch.chdir(tmp_path)
    (row,) = emulator.Trace("trace.csv", speed=2.0, down=3).trace  # type: ignore[attr-defined]
    assert (row.time, row.target, row.down) == (1, "worker-0", 2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: emulator.Pause("worker-0", for_="5"), "Pause: for: '5' is not a duration"),
        (lambda: emulator.Preempt("w", loss="silent", grace=3), "comes without notice"),
        (lambda: emulator.Partition(["a"], for_=1), "Partition: partition: "),
        (lambda: emulator.Step(-1), "-1"),
        (lambda: emulator.Log("("), "'\\('|not a regular expression|\\("),
    ],
    ids=["time", "together", "groups", "step", "expression"],
)
def test_what_is_wrong_is_said_at_once(make: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        make()
    assert "\n" not in str(error.value)


def test_an_option_that_does_not_exist_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="gracee"):
        emulator.Preempt("worker-0", gracee=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="for_"):
        emulator.Pause("worker-0")  # type: ignore[call-arg]


def test_every_kind_has_one() -> None:
    assert len(entries()) + 5 == len(names()) == len({*names()} & {*dir(emulator)})
    for name in names():
        assert getattr(emulator, name).__doc__
    with pytest.raises(AttributeError, match="Preemptt"):
        emulator.Preemptt  # noqa: B018


def test_the_types_for_editors_are_up_to_date() -> None:
    assert STUB.read_text() == stub(), "run scripts/write_constructors.py"


def test_a_scenario_in_python_has_them_among_its_keys() -> None:
    scenario = Scenario.model_validate(
        {**HEAD, "faults": [emulator.Kill("worker-1", at=emulator.Step(3))]}
    )
    assert parse(scenario.to_yaml()) == scenario


def test_a_fault_is_shown_as_it_was_given() -> None:
    fault = emulator.Preempt("worker-1", at=emulator.Step(300), grace=5)
    assert repr(fault) == "Preempt(at=Trigger(step=300), grace=5.0, preempt='worker-1')"
