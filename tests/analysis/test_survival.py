"""What became of a training whose tasks were ended, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emulator.analysis.analyse import analyse
from emulator.analysis.survival import survival
from emulator.faults.kinds import FAULTS
from tests.histories import (
    Told,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    job,
    preempted,
    restored,
    steps_of,
    timeline,
)

ONE = "faults: [{preempt: worker-1, at: {step: 150}}]"
TWO = "faults: [{preempt: worker-1, at: {step: 150}}, {kill: worker-0, at: {step: 300}}]"
BEGUN = [
    happened(0, "run"),
    *began_again(0, "worker-0", "worker-1"),
    *steps_of("worker-0", {2: 100, 4: 150}),
]
LOST = [*BEGUN, *preempted(5, "worker-1", back=6), ended(5.1, "worker-0", 1)]
AGAIN = began_again(5.5, "worker-0")


def said(told: Sequence[Told], faults: str = ONE) -> str:
    replay = timeline(in_time(told), extra=f"{faults}\nrestart: {{policy: on-failure}}\n")
    return survival(replay, analyse(replay))


@pytest.mark.parametrize(
    ("then", "sentence"),
    [
        (
            [restored(7, "worker-0", 100), *steps_of("worker-0", {7.5: 110}), job(9)],
            "worker-1 was preempted at step 150; training lost 50 steps and was back after 2.50s.",
        ),
        (
            [restored(7, "worker-0", 149), *steps_of("worker-0", {7.5: 150}), job(9)],
            "worker-1 was preempted at step 150; training lost 1 step and was back after 2.50s.",
        ),
        (
            [restored(7, "worker-0", 150), *steps_of("worker-0", {7.5: 160}), job(9)],
            "worker-1 was preempted at step 150; training lost no step and was back after 2.50s.",
        ),
        (
            [job(9, "failed")],
            "worker-1 was preempted at step 150; no step of the training followed.",
        ),
    ],
    ids=["lost", "one", "none", "never back"],
)
def test_a_fault_that_ended_its_target(then: list[Told], sentence: str) -> None:
    assert said([*LOST, *AGAIN, *then]) == sentence


def test_before_the_first_step_and_without_any() -> None:
    told = [happened(0, "run"), *began_again(0, "worker-1"), *preempted(5, "worker-1", back=6)]
    assert said([*told, job(9)]) == (
        "worker-1 was preempted before the first step; no step of the training followed."
    )


def test_several_faults_have_one_sum_of_lost_steps() -> None:
    told = [
        *LOST,
        *AGAIN,
        restored(7, "worker-0", 100),
        *steps_of("worker-0", {7.5: 110, 9: 300}),
        fault(10, "worker-0", "triggered", "kill", id="1"),
        ended(10.1, "worker-0", 137),
        fault(10.1, "worker-0", "applied", "kill", id="1", exit_code=137),
        *began_again(11, "worker-0"),
        restored(13, "worker-0", 280),
        *steps_of("worker-0", {14: 290}),
        job(15),
    ]
    assert said(told, TWO) == (
        "worker-1 was preempted at step 150; it was back after 2.50s. "
        "worker-0 was killed at step 300; it was back after 4.00s. Training lost 70 steps in all."
    )


def test_one_that_did_not_take_effect_is_not_survived() -> None:
    told = [*BEGUN, fault(5, "worker-1", "skipped", reason="worker-1 had finished"), job(9)]
    assert said(told) == "Fault 0 (preempt worker-1) did not take effect: worker-1 had finished."
    assert said([*BEGUN, job(9)]) == "Fault 0 (preempt worker-1) did not take effect."


def test_a_fault_that_leaves_its_target_has_no_sentence() -> None:
    assert said([*BEGUN, job(9)], "faults: [{pause: worker-1, at: 5s, for: 1s}]") == ""


def test_each_kind_that_ends_its_target_says_how() -> None:
    said = {name: kind.ended for name, kind in FAULTS.items() if kind.ends_target}
    assert len({*said.values()}) == len(said)
    assert all(words.startswith("{} ") for words in said.values())
