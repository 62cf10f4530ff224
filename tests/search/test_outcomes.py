"""What a record says of a training after a fault, and of a whole sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from emulator.record.events import Entry
from emulator.search.outcomes import Class, Outcome, classify, exit_code, figure, wilson, worst
from tests.histories import ended, fault, happened, job, step, timeline

FAULT = "faults: [{kill: worker-0, at: 5s}]\n"


def phase(t: float, name: str, state: str, number: int, **more: Any) -> Entry:
    return happened(t, "phase", "worker-0", phase=name, state=state, step=number, **more)


def save(t: float, number: int, **more: Any) -> list[Entry]:
    return [
        phase(t, "checkpoint", "begin", number, **more),
        phase(t + 0.1, "checkpoint", "end", number, **more),
    ]


BEGIN = [happened(0, "start", "worker-0"), happened(0.5, "running", "worker-0")]
STEPS = [step(1 + number / 10, "worker-0", number) for number in (1, 2, 3, 4, 5)]
KILLED = [
    fault(5, "worker-0", "triggered", "kill"),
    fault(5.1, "worker-0", "applied", "kill", exit_code=137, seconds=0.1),
    ended(5.1, "worker-0", 137),
    happened(6, "start", "worker-0"),
    happened(6.5, "running", "worker-0"),
]


def restored(number: int, **more: Any) -> list[Entry]:
    return [phase(7, "restore", "end", number, **more), step(8, "worker-0", number + 1)]


CUT = [phase(4, "checkpoint", "begin", 5)]
CUT_DIGEST = [phase(4, "checkpoint", "begin", 5, digest="b")]
AGAIN = [step(8, "worker-0", 1)]


@pytest.mark.parametrize(
    ("before", "after", "what", "resumed"),
    [
        (save(2, 3), restored(3), "right", 3),
        (save(2, 3) + CUT, restored(3), "right", 3),
        # Killed before it could say that the save was whole: only a digest can tell.
        (save(2, 3) + CUT, restored(5), "unknown", 5),
        (save(2, 3, digest="a") + CUT_DIGEST, restored(5, digest="b"), "right", 5),
        (save(2, 3, digest="a") + CUT_DIGEST, restored(5, digest="c"), "wrong", 5),
        (save(2, 3, digest="a"), restored(3, digest="b"), "wrong", 3),
        (save(2, 3), restored(4), "wrong", 4),  # never saved
        (save(1, 2) + save(2, 3), restored(2), "lost", 2),
        (save(2, 3), AGAIN, "lost", 0),
        (save(2, 3), [step(8, "worker-0", 4)], "right", 3),  # by its steps alone
        ([], AGAIN, "right", 0),
        (save(2, 3), [], "unknown", None),
    ],
)
def test_a_training_that_came_back(
    before: Sequence[Entry], after: Sequence[Entry], what: str, resumed: int | None
) -> None:
    history = [*BEGIN, *STEPS, *before, *KILLED, *after, job(9)]
    found = classify(timeline(history, "{worker: 1}", FAULT), "succeeded", "", 2)
    assert (found.what, found.resumed) == (what, resumed), found.why
    assert (found.lost, bool(found.why)) == (2, True)


def test_what_an_evaluator_reads_is_nothing_that_a_training_goes_on_from() -> None:
    read = replace(phase(7.5, "restore", "end", 1), task="evaluator-0")
    history = [*BEGIN, *STEPS, *save(2, 3), *KILLED, *restored(3), read, job(9)]
    history.sort(key=lambda entry: entry.t)
    found = classify(timeline(history, "{worker: 1, evaluator: 1}", FAULT), "succeeded", "", 2)
    assert found.resumed == 3


def test_what_was_printed_before_the_fault_took_effect_does_not_count() -> None:
    """A line may be read after the trigger; what was restored then is not what came of it."""
    late = [KILLED[0], phase(4.9, "restore", "end", 0), *KILLED[1:]]
    history = [*BEGIN, *STEPS, *save(2, 3), *late, *restored(3), job(9)]
    assert classify(timeline(history, "{worker: 1}", FAULT), "succeeded", "", 0).what == "right"


@pytest.mark.parametrize(
    ("outcome", "what"), [("failed", "never"), ("timeout", "never"), ("interrupted", "unknown")]
)
def test_a_training_that_did_not_come_back(outcome: str, what: str) -> None:
    history = [*BEGIN, *STEPS, *save(2, 3), *KILLED, job(9, outcome)]
    found = classify(timeline(history, "{worker: 1}", FAULT), outcome, "worker-0 failed", None)
    assert (found.what, found.saved) == (what, 3)
    assert "worker-0 failed" in found.why


def test_a_fault_that_did_not_happen_proves_nothing() -> None:
    failed = fault(9, "worker-0", "failed", "kill", reason="the job ended, and no write came")
    found = classify(timeline([*BEGIN, *STEPS, failed], "{worker: 1}", FAULT), "succeeded", "", 0)
    assert found.what == "unknown"
    assert found.why == "the fault did not happen: the job ended, and no write came"


# --- All moments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [(17, 20, 0.640, 0.948), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (0, 0, 0.0, 1.0)],
)
def test_the_interval_is_wilson_s(right: int, of: int, low: float, high: float) -> None:
    assert wilson(right, of) == pytest.approx((low, high), abs=0.0005)


def test_all_outcomes_are_a_line_and_an_exit_code() -> None:
    found: list[Class] = ["right"] * 17 + ["lost", "wrong", "lost", "unknown"]  # type: ignore[assignment]
    assert figure(found) == (
        "resumed right 17 of 20 (95 %: 64 to 95 %), lost more than one save 2, silently wrong 1, "
        "could not be judged 1"
    )
    assert figure(["unknown"]) == "resumed right 0 of 0, could not be judged 1"
    assert exit_code([("right", "ok")] * 3) == 0
    assert exit_code([("right", "ok"), ("unknown", "unknown")]) == 3
    assert exit_code([("right", "ok"), ("right", "unknown")]) == 3
    assert exit_code([("unknown", "unknown"), ("lost", "ok")]) == 1
    assert exit_code([("right", "failed")]) == 1


def test_the_worst_is_what_nobody_notices() -> None:
    def outcome(what: Class, lost: int = 0) -> Outcome:
        return Outcome(what, "", lost=lost)

    right, few, many = outcome("right"), outcome("lost", 10), outcome("lost", 20)
    assert worst([right, few, many]) == 2
    assert worst([outcome("never"), outcome("wrong"), many]) == 1
    assert worst([right, outcome("unknown")]) == 1
    assert worst([right]) is worst([]) is None
