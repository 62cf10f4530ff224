"""Promises on checkpoints: kept, violated, and nothing to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from emulator.analysis.observed import Observed
from emulator.analysis.promises import (
    PROMISES,
    loads_what_was_saved,
    never_from_scratch,
    ranks_agree,
    restores_only_complete,
)
from emulator.record.timeline import Timeline
from emulator.scenario.schema import Expectations
from tests.histories import Told, began_again, ended, happened, in_time, phase, step, timeline

Promise = Callable[[Timeline], Observed]


def test_each_is_asked_for_by_a_key_of_its_name() -> None:
    assert PROMISES.keys() <= Expectations.model_fields.keys()
    assert all(name == function.__name__ for name, function in PROMISES.items())


@pytest.mark.parametrize("promise", PROMISES.values())
def test_a_history_that_says_nothing_keeps_no_promise(promise: Promise) -> None:
    for run in (timeline([]), timeline([happened(0, "run")])):
        assert promise(run).count == 0


# --- By what tasks report -------------------------------------------------------------------------


def save(t: float, task: str, number: int) -> list[Told]:
    return phase(t, t + 0.5, task, "checkpoint", step=number)


def restore(t: float, task: str, number: int) -> list[Told]:
    return phase(t, t + 0.5, task, "restore", step=number)


def test_without_the_step_of_any_save_nothing_is_said_of_a_restore() -> None:
    result = restores_only_complete(
        timeline([*phase(1, 2, "a-0", "checkpoint"), *restore(4, "a-0", 20)])
    )
    assert (result.count, result.violations, len(result.undecided)) == (1, [], 1)


BREAKING = "faults: [{checkpoint: torn, at: 5s}]\n"
CHECKPOINTS = save(1, "a-0", 10) + save(2, "a-0", 20)
BEGUN = [happened(3, "phase", "a-0", phase="checkpoint", state="begin", step=30)]


def broken(t: float, how: str, number: int = -1, fault: str = "0") -> Told:
    changed = {"how": how, "number": number}
    return happened(t, "fault", "", id=fault, kind="checkpoint", stage="applied", changed=changed)


@pytest.mark.parametrize(
    ("events", "count", "violated", "undecided"),
    [
        (restore(4, "a-0", 20) + restore(5, "b-0", 10), 2, [], []),
        (restore(4, "a-0", 0), 0, [], []),
        (restore(4, "a-0", 15), 1, ["a-0 restored step 15, which was never saved"], []),
        (
            BEGUN + restore(4, "a-0", 30),
            1,
            [],
            ["a-0 restored step 30, and a-0 did not report the end of its save"],
        ),
        (
            [broken(3, "torn"), *restore(4, "a-0", 20), *restore(5, "b-0", 10)],
            2,
            ["a-0 restored step 20, which fault 0 had broken (torn)"],
            [],
        ),
        (
            [broken(3, "bitflip", 10), *restore(4, "a-0", 10)],
            1,
            ["a-0 restored step 10, which fault 0 had broken (bitflip)"],
            [],
        ),
        ([broken(3, "bitflip", 10), *restore(4, "a-0", 20)], 1, [], []),
        ([broken(3, "torn"), *save(4, "b-0", 20), *restore(5, "a-0", 20)], 1, [], []),
        (
            [*BEGUN, *phase(3.5, 3.6, "b-0", "checkpoint", step=30), *restore(4, "a-0", 30)],
            1,
            [],
            ["a-0 restored step 30, and a-0 did not report the end of its save"],
        ),
        ([broken(3, "empty-newer"), *restore(4, "a-0", 20)], 1, [], []),
        ([broken(0.5, "torn"), *restore(4, "a-0", 20)], 1, [], []),
    ],
)
def test_what_is_restored_was_saved_whole(
    events: Sequence[Told], count: int, violated: Sequence[str], undecided: Sequence[str]
) -> None:
    result = restores_only_complete(timeline(in_time([*CHECKPOINTS, *events]), extra=BREAKING))
    assert (result.count, result.violations, result.undecided) == (count, violated, undecided)


def lives(*firsts: int) -> list[Told]:
    """Return the starts of a task at 0, 10, 20 s, each with two steps from this one on."""
    events: list[Told] = []
    for number, first in enumerate(firsts):
        begin = 10.0 * number
        events += began_again(begin, "worker-0")
        events += [step(begin + 2 + n, "worker-0", first + n) for n in range(2)]
        events.append(ended(begin + 9, "worker-0", 1))
    return events


@pytest.mark.parametrize(
    ("events", "count", "again"),
    [
        (lives(1, 1), 0, []),  # nothing was saved
        (lives(1, 3) + save(5, "worker-0", 2), 1, []),
        (lives(1, 1) + save(5, "worker-0", 2), 1, [1]),
        (lives(1, 2, 1) + save(5, "worker-0", 2), 2, [1]),
        (lives(1, 1, 3) + save(15, "worker-0", 2), 1, []),  # not yet, then
        (lives(1, 0) + save(5, "worker-0", 2) + restore(11, "worker-0", 0), 1, [0]),
        (lives(1, 1) + save(5, "worker-0", 1) + restore(11, "worker-0", 1), 1, []),
        (lives(100, 100) + phase(5, 6, "worker-1", "checkpoint"), 1, [100]),
        # It may have resumed from step 50, and report every 100th step.
        (lives(100, 100) + save(5, "worker-0", 50), 1, []),
        (lives(100, 100) + phase(1, 1.5, "worker-0", "checkpoint"), 1, []),
    ],
)
def test_no_start_from_scratch_once_there_is_a_checkpoint(
    events: Sequence[Told], count: int, again: Sequence[int]
) -> None:
    result = never_from_scratch(timeline(in_time(events)))
    assert result.count == count
    assert [int(one.split()[4]) for one in result.violations] == list(again)


@pytest.mark.parametrize(
    ("events", "count", "different"),
    [
        (restore(1, "a-0", 10) + restore(2, "b-0", 10) + restore(3, "c-0", 10), 3, []),
        (
            restore(1, "a-0", 10) + restore(2, "b-0", 20),
            1,
            ["b-0 resumed from step 20, and a-0 from 10"],
        ),
        (restore(1, "a-0", 10), 0, []),
        ([*restore(1, "a-0", 10), step(2, "a-0", 11), *restore(3, "b-0", 20)], 0, []),
        ([*restore(1, "a-0", 10), ended(2, "a-0", 1), *restore(3, "b-0", 20)], 0, []),
        (restore(1, "a-0", 10) + restore(2, "a-0", 20) + restore(3, "b-0", 20), 1, []),
        (
            restore(1, "a-0", 0) + restore(2, "b-0", 10),
            1,
            ["b-0 resumed from step 10, and a-0 from 0"],
        ),
    ],
)
def test_tasks_that_resume_together_resume_from_the_same_step(
    events: Sequence[Told], count: int, different: Sequence[str]
) -> None:
    result = ranks_agree(timeline(events))
    assert (result.count, result.violations) == (count, different)


def digested(t: float, what: str, digest: str | None, **data: Any) -> list[Told]:
    return phase(t, t + 0.5, "a-0", what, digest=digest, **data)


@pytest.mark.parametrize(
    ("restored", "count", "wrong"),
    [
        (digested(3, "restore", "d2", step=20), 1, []),
        (digested(3, "restore", "d1", step=20), 1,
         ["a-0 restored d1, which no save of step 20 had"]),
        (digested(3, "restore", "d1", step=30), 0, []),
        (digested(3, "restore", None, step=20), 0, []),
        (digested(2.5, "checkpoint", "d1", step=20) + digested(3, "restore", "d1", step=20), 1, []),
        (digested(2.5, "checkpoint", "x") + digested(3, "restore", "y"), 1,
         ["a-0 restored y, which no save had"]),
    ],
)  # fmt: skip
def test_the_digest_of_what_is_loaded_is_that_of_a_save(
    restored: Sequence[Told], count: int, wrong: Sequence[str]
) -> None:
    saved = digested(1, "checkpoint", "d1", step=10) + digested(2, "checkpoint", "d2", step=20)
    result = loads_what_was_saved(timeline([*saved, *restored]))
    assert (result.count, result.violations) == (count, wrong)


# --- Who reads checkpoints, and does not train ----------------------------------------------------


def test_an_evaluator_may_read_any_checkpoint_again() -> None:
    beside = "{worker: 1, evaluator: 1}"
    entries = [*began_again(0, "worker-0", "evaluator-0"), step(2, "evaluator-0", 9)]
    entries += [step(3, "worker-0", 1), *save(4, "worker-0", 1), step(5, "worker-0", 2)]
    entries += [ended(6, "evaluator-0", 1), *began_again(6, "evaluator-0")]
    entries += [step(8, "evaluator-0", 1), step(9, "worker-0", 3)]
    run = timeline(entries, beside)
    assert never_from_scratch(run).count == 0
    run = timeline([*restore(1, "worker-0", 20), *restore(2, "evaluator-0", 10)], beside)
    assert ranks_agree(run).violations == []
