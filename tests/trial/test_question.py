"""The scenario of a trial: it is valid, and says where its values are from."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.faults.preempt import Preempt
from emulator.scenario.given import Given
from emulator.trial.command import Program
from emulator.trial.question import NAME, Question


def asked(**given: object) -> Question:
    program = Program(
        ("python", "a b.py", "--lr=1e-3", "3"), Path("a b.py"), "pytorch", "import torch", 2, "why"
    )
    return Question(**{"program": program, **given})  # type: ignore[arg-type]


def test_it_is_a_scenario_with_all_that_was_given(tmp_path: Path) -> None:
    (tmp_path / "a b.py").touch()
    question = asked(
        exclude=["data/", "#not", "!keep"], shared="ckpt", image="me:1", steps=r"it (?P<step>\d+):"
    )
    fault = question.fault_at("worker-1", {"step": 21})
    text = question.text([fault], "just after the first save")
    scenario = Given(tmp_path / NAME, text).parse()
    assert scenario.name == "try-a-b"
    assert scenario.program.command == ["python", "a b.py", "--lr=1e-3", "3"]
    assert (scenario.program.exclude, scenario.program.shared) == (
        ["data/", "#not", "!keep"],
        "ckpt",
    )
    assert scenario.metrics.steps == [r"it (?P<step>\d+):"]
    assert scenario.cluster["worker"].replicas == 2
    assert (scenario.restart.scope, scenario.timeout) == ("job", 180)
    (one,) = scenario.faults
    assert one.at is not None
    assert one.at.step == 21
    assert scenario.expect.never_from_scratch
    assert "# just after the first save" in text
    assert "# from import torch" in text


def test_without_a_fault_it_expects_nothing(tmp_path: Path) -> None:
    scenario = Given(tmp_path / NAME, asked().text()).parse()
    assert scenario.faults == []
    assert not scenario.expect.never_from_scratch


@pytest.mark.parametrize(
    ("given", "targets"),
    [({}, ["worker-1", "worker-0"]), ({"fault": {"kill": "worker-0", "at": "1s"}}, [""])],
)
def test_each_worker_is_preempted_worker_0_last(
    given: dict[str, object], targets: list[str]
) -> None:
    assert asked(**given).targets == targets


def test_a_fault_of_the_user_is_taken_as_it_is() -> None:
    fault = {"kill": "worker-0", "at": {"step": 50}}
    assert asked(fault=fault).fault_at("", "9s") == fault


@pytest.mark.parametrize(
    ("given", "rest", "speed"),
    [
        ({"like": "ec2-spot"}, {}, 12),  # two minutes in ten seconds
        ({"like": "ec2-spot", "silent": False}, {"loss": "closed"}, 12),
        ({"like": "slurm-preempt", "silent": False, "lead": 4.0}, {}, 15),  # GraceTime and KillWait
        ({"like": "power-loss"}, {}, 1),
    ],
)
def test_a_platform_takes_ten_seconds_at_most(
    tmp_path: Path, given: dict[str, object], rest: dict[str, str], speed: int
) -> None:
    question = asked(**given)
    fault = question.fault_at("worker-0", {"step": 21})
    assert fault == {
        **{"preempt": "worker-0", "like": given["like"], "at": {"step": 21}},
        **{"down": "2s", "keep_away": "0s", **rest},
    }
    assert question.speed == speed
    scenario = Given(tmp_path / NAME, question.text([fault])).parse()
    (one,) = scenario.faults
    assert isinstance(one, Preempt)
    assert (scenario.speed, one.like) == (speed, given["like"])
    assert ("closed" in question.different, f"by {speed}" in question.different) == (
        bool(rest),
        speed > 1,
    )
