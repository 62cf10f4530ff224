"""Invariants: kept, violated, and nothing to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from emulator.analysis.invariants import (
    INVARIANTS,
    monotone_checkpoints,
    no_step_while_paused,
    single_chief,
    steps_exactly_once,
)
from emulator.analysis.observed import Observed
from emulator.record.timeline import Timeline
from emulator.scenario.schema import Expectations
from tests.histories import (
    Told,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    job,
    phase,
    step,
    timeline,
)


def test_each_is_asked_for_by_a_key_of_its_name() -> None:
    assert INVARIANTS.keys() <= Expectations.model_fields.keys()
    assert all(name == function.__name__ for name, function in INVARIANTS.items())


@pytest.mark.parametrize("look", INVARIANTS.values())
def test_a_history_that_says_nothing_keeps_no_promise(
    look: Callable[[Timeline], Observed],
) -> None:
    assert look(timeline([])).count == look(timeline([happened(0, "run")])).count == 0


# --- Checkpoints --------------------------------------------------------------------------------


def save(t: float, task: str, number: int) -> list[Told]:
    return phase(t, t + 0.5, task, "checkpoint", step=number)


def restore(t: float, task: str, number: int) -> list[Told]:
    return phase(t, t + 0.5, task, "restore", step=number)


def saving(state: str, late: float = 0.0) -> Told:
    return happened(3, "phase", "a-0", phase="checkpoint", state=state, step=20, late=late)


@pytest.mark.parametrize(
    ("events", "count", "broken"),
    [
        (save(1, "a-0", 10) + save(2, "a-0", 10) + save(3, "a-0", 20), 3, []),
        (save(1, "a-0", 20) + save(2, "a-0", 10), 2, ["a-0 saved step 10 after 20"]),
        (save(1, "a-0", 20) + save(2, "b-0", 10), 2, []),
        (save(1, "a-0", 20) + save(2, "b-0", 9) + restore(3, "a-0", 9) + save(4, "a-0", 15), 3, []),
        (save(1, "a-0", 20) + restore(3, "a-0", 20) + save(4, "a-0", 15), 2,
         ["a-0 saved step 15 after 20"]),
        (save(1, "a-0", 10) + restore(3, "b-0", 10) + save(4, "b-0", 20), 2, []),
        (save(1, "a-0", 10) + restore(3, "a-0", 0) + save(4, "a-0", 5), 2, []),
        (save(1, "a-0", 10) + restore(3, "a-0", 9), 1,
         ["a-0 restored step 9, which was never saved"]),
        (restore(1, "a-0", 10) + save(3, "a-0", 10), 1,
         ["a-0 restored step 10, which was never saved"]),
        (restore(1, "a-0", 0), 0, []),
        (phase(1, 2, "a-0", "checkpoint") + phase(3, 4, "a-0", "eval", step=5), 0, []),
        (phase(1, 2, "a-0", "checkpoint", step="five"), 0, []),
        # A save that was begun may have completed without a report.
        ([*save(1, "a-0", 10), saving("begin"), *restore(5, "a-0", 20)], 1, []),
        # The restore was read before the save that it restored; the engine's stamps decide.
        ([*restore(1, "b-0", 20), saving("end", late=-2.5)], 1, []),
    ],
)  # fmt: skip
def test_saved_steps(events: Sequence[Told], count: int, broken: Sequence[str]) -> None:
    result = monotone_checkpoints(timeline(events))
    assert (result.count, result.violations) == (count, broken)


# --- The chief ----------------------------------------------------------------------------------

TWO_LIVES = [
    *began_again(0, "chief-0", "worker-0"),
    step(3, "chief-0", 1),
    ended(4, "chief-0", 137),
    *began_again(5, "chief-0"),
    step(7, "chief-0", 1),
    ended(8, "chief-0", 0),
]


def test_a_chief_that_is_started_again_is_one_at_a_time() -> None:
    assert single_chief(timeline(TWO_LIVES)) == Observed(
        "one chief at a time", count=2, of="incarnations of chief-0", violations=[]
    )


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        (
            [entry for entry in TWO_LIVES if entry.t != 4],
            "was started at 5.0 s while it was running",
        ),
        (
            [*(happened(t, "running", "chief-0") for t in (1, 2)), ended(3, "chief-0", 0)],
            "was started at 2.0 s while it was running",
        ),
        ([*TWO_LIVES, step(9, "chief-0", 2)], "reported step 2 after its exit"),
        (
            [*TWO_LIVES[:-1], step(7.5, "chief-0", 2, late=-4)],
            "reported step 2 before its previous exit",
        ),
        ([*TWO_LIVES, step(9, "worker-0", 2), happened(10, "running", "worker-0")], ""),
    ],
)
def test_two_chiefs_at_once(events: Sequence[Told], broken: str) -> None:
    violations = [f"chief-0 {broken}"] if broken else []
    assert single_chief(timeline(events)).violations == violations


def test_without_a_chief_there_is_nothing_to_look_at() -> None:
    result = single_chief(timeline(began_again(0, "ps-0", "boss-0"), extra="framework: none\n"))
    assert (result.of, result.count) == ("incarnations of a chief", 0)


# --- Steps --------------------------------------------------------------------------------------

TENS = [step(n, "worker-0", 10 * n) for n in (1, 2, 3)]
NO_STEP = "worker-0 reported no step between"


def incarnations(*steps: Sequence[int]) -> Timeline:
    """Return the history of a worker that was started for each of `steps`."""
    events: list[Told] = []
    for incarnation in steps:
        events += [happened(len(events), "start", "worker-0"), happened(len(events), "run")]
        t = len(events)
        events += [step(t + n, "worker-0", number) for n, number in enumerate(incarnation)]
    return timeline(events)


def merged(count: int) -> Told:
    return step(8, "worker-0", 100, coalesced={"first": 40, "count": count})


@pytest.mark.parametrize(
    ("entries", "count", "broken"),
    [
        (incarnations([10, 20, 30]), 3, []),
        (incarnations([0, 100, 200, 250]), 4, []),  # the last gap may be shorter
        (incarnations([1, 101, 201]), 3, []),
        (incarnations([10, 20, 30, 30]), 3, []),  # again, with the accuracy
        (incarnations([10, 20], [30, 40]), 4, []),
        (incarnations([10, 20], [20, 30]), 4, ["worker-0 reported step 20 after step 20"]),
        (incarnations([10, 20, 10, 20, 30]), 5, [
            "worker-0 reported step 10 after step 20",
            "worker-0 reported step 20 after step 20",
        ]),
        (incarnations([10, 20], [40, 50, 60]), 5, [f"{NO_STEP} 20 and 40"]),
        (incarnations([30, 40, 50]), 3, ["worker-0 began with step 30"]),
        (incarnations([5], [5]), 2, ["worker-0 reported step 5 after step 5"]),
        (incarnations([0], [0]), 2, ["worker-0 reported step 0 after step 0"]),
        (incarnations([10]), 0, []),
        (incarnations([10, 10]), 0, []),
        (timeline([*TENS, merged(7)]), 10, []),
        (timeline([*TENS, merged(4)]), 7, ["worker-0 omitted 3 steps between 40 and 100"]),
        # Merged ones alone show how far apart steps usually are.
        (timeline([merged(7), step(9, "worker-0", 120)]), 8,
         ["worker-0 began with step 40", f"{NO_STEP} 100 and 120"]),
    ],
)  # fmt: skip
def test_each_step_once(entries: Timeline, count: int, broken: Sequence[str]) -> None:
    result = steps_exactly_once(entries)
    assert (result.count, result.violations) == (count, broken)


def test_the_steps_are_those_of_the_task_that_leads() -> None:
    def of(*tasks: str) -> str:
        events = [step(n + 2, task, number) for n, task in enumerate(tasks) for number in (2, 1)]
        (sentence,) = steps_exactly_once(timeline([*began_again(0, "chief-0"), *events])).violations
        return sentence.split()[0]

    assert of("worker-1", "worker-0", "chief-0") == "chief-0"
    assert of("worker-1", "worker-0") == "worker-0"
    assert of("ps-0", "worker-1") == "ps-0"


# --- Pauses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("healed", "more", "at", "made"),
    [
        # Within two seconds of an end of the pause, a line may be late.
        (15, [], [4, 7, 7.5, 12.5, 13], "2 steps between 7.5 and 12.5 s"),
        (15, [], [7, 13, 16], ""),
        # One that is never over is in force until the end.
        (None, [], [7.5, 17.5, 18], "2 steps between 7.5 and 17.5 s"),
        # What has just started may not be paused again yet.
        (15, began_again(8, "worker-1"), [11, 11.5], "1 step between 11.5 and 11.5 s"),
        (15, [happened(8, "start", "worker-1")], [10, 10.5], "1 step between 10.5 and 10.5 s"),
    ],
)
def test_which_steps_a_paused_task_surely_made(
    healed: float | None, more: Sequence[Told], at: Sequence[float], made: str
) -> None:
    paused = [fault(5, "worker-1", stage, "pause") for stage in ("triggered", "applied")]
    paused += [] if healed is None else [fault(healed, "worker-1", "healed", "pause")]
    steps = [step(t, task, int(t)) for t in at for task in ("worker-0", "worker-1")]
    told = in_time([*began_again(0, "worker-0", "worker-1"), *paused, *more, *steps, job(20)])
    result = no_step_while_paused(
        timeline(told, extra="faults: [{pause: worker-1, at: 5s, for: 10s}]\n")
    )
    broken = [f"worker-1 made {made}, while fault 0 had paused it"] if made else []
    assert (result.count, result.violations) == (1, broken)


@pytest.mark.parametrize(
    ("healed", "more", "count"),
    [
        (8, [], 0),  # with two seconds at each end, nothing of it can be judged
        (10, [], 1),
        (10, [ended(6, "worker-1", 137), *began_again(7, "worker-1")], 0),
        (13, [ended(6, "worker-1", 137), *began_again(7, "worker-1")], 1),
        (None, [ended(6, "worker-1", 137)], 0),  # nothing of it was left that could step
    ],
)
def test_a_pause_counts_if_a_step_in_it_would_have_been_seen(
    healed: float | None, more: Sequence[Told], count: int
) -> None:
    paused = [fault(5, "worker-1", stage, "pause") for stage in ("triggered", "applied")]
    paused += [] if healed is None else [fault(healed, "worker-1", "healed", "pause")]
    began = began_again(0, "worker-0", "worker-1")

    def observed(*steps: Told) -> tuple[int, str]:
        told = in_time([*began, *paused, *more, *steps, job(20)])
        found = no_step_while_paused(
            timeline(told, extra="faults: [{pause: worker-1, at: 5s, for: 10s}]\n")
        )
        assert found.violations == []
        return found.count, found.of

    few = "pauses in which a step would have been seen"
    assert observed(step(1, "worker-1", 1)) == (count, "pauses" if count else few)
    assert observed(step(1, "worker-0", 1)) == (0, few)  # it never steps
