"""What a record says of a training after a fault, and of a whole sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from emulator.analysis.uninterrupted import Comparison
from emulator.record.events import Entry
from emulator.search.moments import Whole
from emulator.search.outcomes import Outcome, Word, classify, exit_code, figure, wilson, worst
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
ALIKE = Comparison(("loss of 5 steps of worker-0",))
OTHER = Comparison(differs=("loss of step 4 of worker-0 is 2, and without a fault 1", "a", "b"))


def found_of(
    history: Sequence[Entry],
    comparison: Comparison = ALIKE,
    outcome: str = "succeeded",
    whole: Whole | None = None,
    cluster: str = "{worker: 1}",
    during: int | None = None,
) -> Outcome:
    seen = timeline(history, cluster, FAULT)
    return classify(seen, outcome, "worker-0: EOFError", 2, comparison, whole, during)


@pytest.mark.parametrize(
    ("before", "after", "what", "resumed"),
    [
        (save(2, 3), restored(3), "passed", 3),
        (save(2, 3) + CUT, restored(3), "passed", 3),
        # Killed before it could say that the save was whole: it was, as its end is the same.
        (save(2, 3) + CUT, restored(5), "passed", 5),
        (save(1, 2) + save(2, 3), restored(2), "lost work", 2),
        (save(2, 3), AGAIN, "lost work", 0),
        (save(2, 3), [step(8, "worker-0", 4)], "passed", 3),  # by its steps alone
        ([], AGAIN, "passed", 0),
        (save(2, 3), [], "undecided", None),
    ],
)
def test_a_training_that_ended_as_without_a_fault(
    before: Sequence[Entry], after: Sequence[Entry], what: str, resumed: int | None
) -> None:
    found = found_of([*BEGIN, *STEPS, *before, *KILLED, *after, job(9)])
    assert (found.what, found.resumed) == (what, resumed), found.why
    assert (found.lost, bool(found.why)) == (2, True)


def test_who_said_no_step_before_may_have_gone_on_from_anywhere() -> None:
    """As where a bar is printed at the end alone."""
    found = found_of([*BEGIN, *KILLED, step(8, "worker-0", 60), job(9)])
    assert (found.what, found.resumed) == ("undecided", None)
    assert found_of([*BEGIN, *KILLED, *AGAIN, job(9)]).resumed == 0


def test_a_training_that_ended_otherwise_is_silently_different_whatever_it_loaded() -> None:
    for after in (restored(3), AGAIN):
        found = found_of([*BEGIN, *STEPS, *save(2, 3), *KILLED, *after, job(9)], OTHER)
        assert found.what == "silently different"
        assert found.why == f"{OTHER.differs[0]}, and 2 other differences"


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (save(2, 3), restored(3), "undecided"),
        (save(2, 3, digest="a"), restored(3, digest="a"), "undecided"),
        (save(2, 3, digest="a") + CUT_DIGEST, restored(5, digest="c"), "silently different"),
        (save(2, 3), restored(4), "silently different"),  # never saved
        (save(1, 2) + save(2, 3), restored(2), "lost work"),
    ],
)
def test_where_nothing_can_be_compared_what_was_loaded_decides(
    before: Sequence[Entry], after: Sequence[Entry], what: str
) -> None:
    missing = Comparison(missing=("/shared/a.pt: there is no module torch",))
    found = found_of([*BEGIN, *STEPS, *before, *KILLED, *after, job(9)], missing)
    assert found.what == what
    assert ("there is no module torch" in found.why) == (what == "undecided")


def test_a_file_that_is_not_there_leaves_it_undecided() -> None:
    gone = Comparison(ALIKE.compared, missing=("/shared/a.pt is not there",))
    found = found_of([*BEGIN, *STEPS, *save(2, 3), *KILLED, *restored(3), job(9)], gone)
    assert found.what == "undecided"
    assert found.why.endswith("how it ended can't be compared: /shared/a.pt is not there")


def test_the_save_of_the_moment_is_known_from_the_run_without_a_fault() -> None:
    history = [*BEGIN, *STEPS, *KILLED, *restored(3), job(9)]
    assert found_of(history, whole=Whole(3)).what == "passed"
    found = found_of(history, whole=Whole(4, is_exact=True))
    assert (found.what, found.saved) == ("lost work", 4)
    assert found.why == "it went on from step 3, although step 4 was saved whole: 1 step"
    found = found_of(history, whole=Whole(9, 1, is_exact=False))
    assert found.why.endswith("although step 9 was saved whole: about 6 steps")


def test_a_fault_that_hit_another_place_proves_nothing_of_this_one() -> None:
    """Threads may make their calls in another order, and more of them before the save."""
    history = [*BEGIN, *STEPS, *KILLED, *AGAIN, job(9)]
    assert found_of(history, whole=Whole(3), during=5).what == "lost work"
    found = found_of(history, whole=Whole(3), during=6)
    assert (found.what, "calls differ from run to run" in found.why) == ("undecided", True)


def test_what_an_evaluator_reads_is_nothing_that_a_training_goes_on_from() -> None:
    read = replace(phase(7.5, "restore", "end", 1), task="evaluator-0")
    history = [*BEGIN, *STEPS, *save(2, 3), *KILLED, *restored(3), read, job(9)]
    history.sort(key=lambda entry: entry.t)
    assert found_of(history, cluster="{worker: 1, evaluator: 1}").resumed == 3


def test_what_was_printed_before_the_fault_took_effect_does_not_count() -> None:
    """A line may be read after the trigger; what was restored then is not what came of it."""
    late = [KILLED[0], phase(4.9, "restore", "end", 0), *KILLED[1:]]
    history = [*BEGIN, *STEPS, *save(2, 3), *late, *restored(3), job(9)]
    assert found_of(history).what == "passed"


@pytest.mark.parametrize(
    ("outcome", "after", "what", "why"),
    [
        ("failed", [], "failed", "it did not train again: worker-0: EOFError"),
        ("failed", AGAIN, "failed", "it went on from step 0, and then worker-0: EOFError"),
        ("timeout", [], "failed", "it did not train again: its time was over"),
        ("interrupted", [], "undecided", "the run was interrupted: worker-0: EOFError"),
    ],
)
def test_a_training_that_did_not_come_back(
    outcome: str, after: Sequence[Entry], what: str, why: str
) -> None:
    history = [*BEGIN, *STEPS, *save(2, 3), *KILLED, *after, job(9, outcome)]
    found = found_of(history, outcome=outcome)
    assert (found.what, found.why, found.saved) == (what, why, 3)


def test_a_fault_that_did_not_happen_proves_nothing() -> None:
    failed = fault(9, "worker-0", "failed", "kill", reason="the job ended, and no write came")
    found = found_of([*BEGIN, *STEPS, failed])
    assert found.what == "undecided"
    assert found.why == "the fault did not happen: the job ended, and no write came"


# --- All moments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [(17, 20, 0.640, 0.948), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (0, 0, 0.0, 1.0)],
)
def test_the_interval_is_wilson_s(right: int, of: int, low: float, high: float) -> None:
    assert wilson(right, of) == pytest.approx((low, high), abs=0.0005)


def test_all_outcomes_are_a_line_and_an_exit_code() -> None:
    found: list[Word] = ["passed"] * 17
    found += ["lost work", "silently different", "lost work", "undecided"]
    assert figure(found) == (
        "passed 17 of 20 (95 %: 64 to 95 %), lost work 2, silently different 1, undecided 1"
    )
    assert figure(["undecided"]) == "passed 0 of 0, undecided 1"
    assert exit_code([("passed", "ok")] * 3) == 0
    assert exit_code([("passed", "ok"), ("undecided", "unknown")]) == 3
    assert exit_code([("passed", "ok"), ("passed", "unknown")]) == 3
    assert exit_code([("undecided", "unknown"), ("lost work", "ok")]) == 1
    assert exit_code([("passed", "failed")]) == 1


def test_the_worst_of_each_word_is_kept_first_what_nobody_notices() -> None:
    def outcome(what: Word, lost: int = 0) -> Outcome:
        return Outcome(what, "", lost=lost)

    passed, few, many = outcome("passed"), outcome("lost work", 10), outcome("lost work", 20)
    assert worst([passed, few, many]) == {"lost work": 2}
    found = worst([outcome("failed"), outcome("silently different"), many])
    assert [*found.items()] == [("silently different", 1), ("failed", 0), ("lost work", 2)]
    assert worst([passed, outcome("undecided")]) == {"undecided": 1}
    assert worst([passed]) == worst([]) == {}
