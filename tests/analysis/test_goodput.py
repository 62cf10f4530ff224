"""Where the time of a run went; every expected number here was worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.goodput import CAUSES, micros, split
from tests.histories import (
    Told,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    job,
    phase,
    restart,
    step,
    steps_of,
    timeline,
)


def spent(*events: Told, until: float = 20) -> dict[str, float]:
    """Return the causes that took any time of a run, with their seconds."""
    return {cause: t for cause, t in split(timeline(in_time(events)), until).items() if t}


RUN = [happened(0, "run"), *began_again(0, "worker-0", "worker-1")]


def test_a_plain_run() -> None:
    events = [*RUN, step(5, "worker-0", 10), step(7, "worker-1", 10), step(15, "worker-0", 20)]
    assert spent(*events, job(20)) == {"startup": 5, "productive": 10, "other": 5}


def test_a_reported_phase_is_the_cause_of_its_time() -> None:
    events = [
        *RUN,
        *phase(1, 3, "worker-0", "startup"),  # is startup anyway
        *phase(3, 3.5, "worker-0", "data"),
        *phase(3.5, 4.5, "worker-0", "compile"),
        *phase(4.5, 4.75, "worker-0", "restore", step=0),
        step(5, "worker-0", 10),
        *phase(6, 8, "worker-0", "checkpoint"),
        step(15, "worker-0", 20),
        *phase(16, 17, "worker-0", "eval"),
        *phase(17, 18, "worker-0", "siesta"),
        job(20),
    ]
    took = {"startup": 3.25, "data": 0.5, "compile": 1, "restore": 0.25, "productive": 8}
    assert spent(*events) == {**took, "checkpoint": 2, "eval": 1, "other": 4}


@pytest.mark.parametrize(
    ("phases", "took"),
    [
        # One after the other, one inside the other, one that reaches into the next.
        ([("eval", 6, 8), ("data", 8, 9)], {"eval": 2, "data": 1}),
        ([("eval", 6, 10), ("data", 7, 8)], {"eval": 3, "data": 1}),
        (
            [("eval", 6, 10), ("data", 7, 8), ("compile", 8.5, 9)],
            {"eval": 2.5, "data": 1, "compile": 0.5},
        ),
        (
            [("eval", 6, 10), ("data", 7, 9), ("compile", 7.5, 8)],
            {"eval": 2, "data": 1.5, "compile": 0.5},
        ),
        ([("eval", 6, 8), ("data", 7, 10)], {"eval": 2, "data": 2}),
        ([("eval", 6, 8), ("data", 6, 8)], {"eval": 2}),
        ([("eval", 8, 8)], {}),
    ],
)
def test_phases_of_one_task_share_its_time(
    phases: Sequence[tuple[str, float, float]], took: dict[str, float]
) -> None:
    spans = [entry for name, begin, end in phases for entry in phase(begin, end, "worker-0", name)]
    result = spent(*RUN, step(5, "worker-0", 1), *spans, step(15, "worker-0", 2), job(20))
    assert result == {"startup": 5, "productive": 10 - sum(took.values()), "other": 5, **took}


def test_a_save_beside_training_takes_nothing_from_it() -> None:
    events = [*RUN, step(5, "worker-0", 10), *phase(6, 8, "worker-1", "checkpoint")]
    events += [step(9, "worker-0", 20), *phase(10, 11, "evaluator-0", "eval")]
    events += [step(15, "worker-0", 30), job(20)]
    assert spent(*events) == {"startup": 5, "productive": 10, "other": 5}


def test_the_task_with_the_next_step_decides_which_phases_count() -> None:
    """Both save at 400; the save of the task that advances the job counts."""
    events = [*RUN, step(5, "worker-0", 390), happened(7, "start", "ps-0")]
    events += [*phase(6, 9, "worker-0", "checkpoint"), *phase(6, 11, "worker-1", "checkpoint")]
    events += [step(12, "worker-1", 400), step(13, "worker-0", 400), job(20)]
    assert spent(*events) == {"startup": 5, "productive": 2, "checkpoint": 5, "other": 8}


# --- Failures -----------------------------------------------------------------------------------


def test_a_restart_of_the_job_from_a_checkpoint() -> None:
    events = [*RUN, *steps_of("worker-0", {3: 10, 4: 20, 5: 30}), ended(5.5, "worker-1", 1)]
    events += [restart(5.5, "worker-1", "job"), ended(6, "worker-0", 143, told=True)]
    events += [*began_again(7, "worker-0", "worker-1"), *phase(8, 9, "worker-0", "startup")]
    events += phase(9, 9.5, "worker-0", "restore", step=20)
    events += steps_of("worker-0", {11: 25, 12: 30, 13: 35, 15: 45})
    events += [ended(16, "worker-0", 0), job(16)]
    assert spent(*events, until=16) == {
        "startup": 3,
        "productive": 2 + 2,  # 10 to 30 and 35 to 45
        "wasted": 0.5 + 2,  # what was begun after 30, and from 25 until 35
        "restore": 0.5,
        "recovery": 0.5 + 3 + 1.5,
        "other": 1,
    }


@pytest.mark.parametrize("code", [0, 1, 143])
def test_tasks_that_are_stopped_with_a_failed_one_fail_too(code: int) -> None:
    """The chief makes one more step before it is stopped; that brings the job nowhere."""
    events = [*RUN, step(4, "chief-0", 10), ended(5, "ps-0", 137), restart(5, "ps-0", "job")]
    events += [step(6, "chief-0", 20), ended(7, "chief-0", code, told=True)]
    events += [*began_again(8, "chief-0", "ps-0"), step(12, "chief-0", 30), job(20)]
    assert spent(*events) == {"startup": 4, "wasted": 1 + 1, "recovery": 1 + 5, "other": 8}


def test_the_first_step_after_a_start_ends_the_recovery_also_of_one_that_was_behind() -> None:
    events = [*RUN, step(3, "worker-0", 10), step(4, "worker-1", 20), ended(4, "worker-1", 1)]
    events += [ended(4, "worker-0", 143, told=True), *began_again(5, "worker-0", "worker-1")]
    events += [step(8, "worker-0", 15), step(10, "worker-0", 25), job(10)]
    assert spent(*events, until=10) == {"startup": 3, "productive": 1, "recovery": 4, "wasted": 2}


@pytest.mark.parametrize("kind", ["kill", "preempt", "terminate"])
def test_a_recovery_begins_with_the_signal(kind: str) -> None:
    events = [
        *[*RUN, step(4, "worker-0", 10), step(5, "worker-0", 20)],
        fault(6, "worker-1", "triggered", kind),
        fault(8, "worker-1", "applied", kind),
        ended(8, "worker-1", 137),
        *[*began_again(9, "worker-1"), step(12, "worker-0", 30), job(20)],
    ]
    assert spent(*events) == {"startup": 4, "productive": 1, "wasted": 1, "recovery": 6, "other": 8}


def test_steps_within_the_grace_period_are_productive() -> None:
    events = [
        *[*RUN, step(4, "worker-0", 10), fault(5, "worker-1", "triggered")],
        *[step(6, "worker-0", 20), step(7, "worker-0", 30), ended(8, "worker-1", 137)],
        *[step(12, "worker-0", 40), job(20)],
    ]
    assert spent(*events) == {"startup": 4, "productive": 3, "recovery": 5, "other": 8}


def test_a_preempted_task_that_exits_with_0_has_not_ended_by_itself() -> None:
    events = [*RUN, step(5, "worker-0", 10), fault(6, "worker-0", "triggered")]
    events += [
        ended(7, "worker-0", 0, fault="0"),
        *began_again(8, "worker-0"),
        step(12, "worker-0", 20),
        job(20),
    ]
    assert spent(*events) == {"startup": 5, "wasted": 1, "recovery": 6, "other": 8}


def test_a_worker_that_finishes_as_it_is_stopped_has_not_failed() -> None:
    """As beside parameter servers, where the others are stopped at once when the chief is done."""
    events = [*RUN, step(5, "worker-0", 10), step(14, "worker-1", 10), step(15, "worker-0", 20)]
    events += [job(20), happened(20, "stop", "worker-1")]
    events.append(ended(20.1, "worker-1", 0, told=True, late=-4.1))
    assert spent(*events) == {"startup": 5, "productive": 10, "other": 5}
    assert timeline(events).tasks["worker-1"].state == "succeeded"


BEGUN, ENDED = phase(6, 12, "worker-0", "checkpoint")


@pytest.mark.parametrize(
    "harmless",
    [
        [fault(6, "worker-1", "triggered", "pause")],
        [fault(6, "worker-1", "skipped")],
        [ended(6, "worker-1", 0)],
        [restart(6, "worker-1")],
        # A phase without its begin or its end.
        [BEGUN],
        [ENDED],
        [BEGUN, happened(10, "start", "worker-0"), ENDED],
    ],
)
def test_what_is_no_failure_and_no_phase_costs_nothing(harmless: Sequence[Told]) -> None:
    events = [*RUN, step(5, "worker-0", 10), *harmless, step(15, "worker-0", 20), job(20)]
    assert spent(*events) == {"startup": 5, "productive": 10, "other": 5}


def test_a_paused_task_has_not_failed_before_it_ends() -> None:
    events = [*RUN, step(5, "worker-0", 10), fault(6, "worker-0", "triggered", "pause")]
    events += [ended(9, "worker-0", 1), job(20)]
    assert spent(*events) == {"startup": 5, "wasted": 4, "recovery": 11}


@pytest.mark.parametrize("end", ["skipped", "failed"])
def test_a_strike_that_missed_is_forgotten(end: str) -> None:
    events = [*RUN, step(5, "worker-0", 10), fault(6, "worker-0", "triggered")]
    events += [fault(7, "worker-0", end), ended(10, "worker-0", 1), job(20)]
    assert spent(*events) == {"startup": 5, "wasted": 5, "recovery": 10}


def test_a_failure_before_the_first_step() -> None:
    events = [*RUN, *phase(1, 2, "worker-0", "data"), ended(3, "worker-0", 1)]
    events += [*began_again(4, "worker-0"), *phase(5, 6, "worker-0", "data")]
    events += [step(8, "worker-0", 1), step(9, "worker-0", 2), job(20)]
    took = {"startup": 2, "data": 2, "recovery": 4, "productive": 1, "other": 11}
    assert spent(*events) == took


def test_a_job_that_never_recovers() -> None:
    events = [*RUN, step(5, "worker-0", 1), step(6, "worker-0", 2), ended(6, "worker-0", 1)]
    events += [*began_again(7, "worker-0"), job(20)]
    assert spent(*events) == {"startup": 5, "productive": 1, "recovery": 14}


def test_a_job_that_ends_before_it_has_caught_up() -> None:
    events = [*RUN, step(5, "worker-0", 10), ended(5, "worker-0", 1), *began_again(6, "worker-0")]
    events += [step(8, "worker-0", 1), step(9, "worker-0", 9), job(20)]
    assert spent(*events) == {"startup": 5, "recovery": 3, "wasted": 12}


@pytest.mark.parametrize(
    ("survivor", "after"),
    [
        # It repeats the step of worker 1, then hangs in the next step until it fails.
        (20, {"recovery": 8}),
        # It was a step further, and trains on.
        (30, {"recovery": 1, "productive": 7}),
        # It went back by itself, to what had been saved.
        (10, {"recovery": 1, "wasted": 7}),
    ],
)
def test_which_step_of_a_survivor_ends_a_recovery(survivor: int, after: dict[str, float]) -> None:
    events = [*RUN, step(2, "worker-0", 15), step(3, "worker-1", 20), ended(3, "worker-1", 137)]
    events += [step(4, "worker-0", survivor), step(11, "worker-0", 40), job(11)]
    expected = {"startup": 2, "productive": 1 + after.pop("productive", 0), **after}
    assert spent(*events, until=11) == expected


def test_a_stall_is_the_time_in_which_no_task_stepped() -> None:
    events = [*RUN, step(3, "worker-0", 10), step(4, "worker-0", 20)]
    events += [*phase(4, 5, "worker-0", "checkpoint"), happened(12, "stall", "worker-0", seconds=8)]
    events += [ended(12.5, "worker-0", 137), *began_again(13, "worker-0"), step(16, "worker-0", 30)]
    took = {"startup": 3, "productive": 1, "checkpoint": 1, "stall": 7, "recovery": 4, "other": 4}
    assert spent(*events, job(20)) == took


def test_a_gap_far_longer_than_usual_is_a_stall_beyond_the_usual() -> None:
    events = [*RUN, *(step(3 + n, "worker-0", n) for n in range(5)), step(19, "worker-0", 5)]
    assert spent(*events, job(20)) == {"startup": 3, "productive": 5, "stall": 11, "other": 1}


def test_a_gap_of_less_than_ten_usual_ones_or_a_second_is_none() -> None:
    slow = [*RUN, *(step(3 + n, "worker-0", n) for n in range(5)), step(17, "worker-0", 5)]
    assert spent(*slow, job(20)) == {"startup": 3, "productive": 14, "other": 3}
    quick = [*RUN, *(step(3 + n / 1000, "worker-0", n) for n in range(9)), step(4, "worker-0", 9)]
    assert spent(*quick, job(4), until=4) == {"startup": 3, "productive": 1}


def test_a_stall_after_a_start_counts_from_there() -> None:
    """A ps was restored at 8 s, and its chief did not notice."""
    events = [*RUN, step(4, "chief-0", 1), ended(5, "ps-0", 137), *began_again(7, "ps-0")]
    events += [happened(14, "stall", "chief-0", seconds=6), ended(14, "chief-0", 137), job(20)]
    assert spent(*events) == {"startup": 4, "wasted": 1, "recovery": 3 + 6, "stall": 6}


@pytest.mark.parametrize(
    ("again", "merged", "wasted"),
    [
        # The first of these steps, or that is further than 10, was made after so many seconds.
        (5, (6, 15, 10), 6),
        (10, (20, 110, 10), 1),
        (10, (101, 110, 10), 1),
        (5, (6, 11, 2), 10),
        (5, (11, 11, 1), 10),
    ],
)
def test_merged_steps_count_as_evenly_spaced(
    again: int, merged: tuple[int, int, int], wasted: float
) -> None:
    first, last, count = merged
    events = [*RUN, step(4, "worker-0", 10), ended(5, "worker-0", 1), *began_again(6, "worker-0")]
    events += [step(8, "worker-0", again)]
    events += [step(18, "worker-0", last, coalesced={"first": first, "count": count}), job(20)]
    took = {"startup": 4, "wasted": 1 + wasted, "recovery": 3, "productive": 10 - wasted}
    assert spent(*events) == {cause: t for cause, t in took.items() if t} | {"other": 2}


# --- What may be missing, or off ----------------------------------------------------------------


def test_without_steps_the_time_is_startup_and_other() -> None:
    events = [*RUN, happened(3, "all-running"), *phase(4, 5, "worker-0", "data")]
    assert spent(*events, ended(9, "worker-0", 1), job(20)) == {"startup": 3, "other": 17}
    assert spent(*RUN, job(20)) == {"startup": 20}


def test_no_history_took_no_time() -> None:
    assert split(timeline([]), 0) == dict.fromkeys(CAUSES, 0)


def test_times_are_within_the_run() -> None:
    assert [micros(t, 2.5) for t in (-1, 0.0000014, 2, 3)] == [0, 1, 2_000_000, 2_500_000]


PREPARED = "{ingest: {before: training, command: [b]}, worker: 1}"
INGEST = [happened(0, "run"), *began_again(1, "ingest-0"), ended(2, "ingest-0", 1)]


@pytest.mark.parametrize(
    ("events", "took"),
    [
        # With its failures; what follows is a startup.
        (
            [*began_again(3, "ingest-0"), ended(6, "ingest-0", 0), happened(6.5, "training"),
             *began_again(7, "worker-0"), step(10, "worker-0", 1), step(12, "worker-0", 2)],
            {"startup": 1 + 3.5, "data": 5.5, "productive": 2, "other": 8},
        ),
        ([*began_again(3, "ingest-0")], {"startup": 1, "data": 19}),
    ],
)  # fmt: skip
def test_preparation_before_training_is_data(
    events: Sequence[Told], took: dict[str, float]
) -> None:
    whole = timeline([*INGEST, *events, job(20)], PREPARED)
    assert {cause: t for cause, t in split(whole, 20).items() if t} == took


def test_what_follows_the_end_of_the_job_is_not_counted() -> None:
    events = [*RUN, step(5, "worker-0", 1), step(15, "worker-0", 2), job(20)]
    events += [ended(20, "worker-1", 143, told=True), step(21, "worker-1", 9)]
    assert spent(*events) == {"startup": 5, "productive": 10, "other": 5}


TASKS = st.sampled_from(["chief-0", "worker-0", "worker-1"])
TIMES = st.floats(0, 30, allow_nan=False)
PHASES = st.sampled_from(["startup", "data", "compile", "checkpoint", "restore", "eval", "lunch"])
STAGES = st.sampled_from(["triggered", "applied", "healed", "skipped", "failed"])
KINDS = st.sampled_from(["preempt", "kill", "terminate", "pause", "throttle"])
STATES = st.sampled_from(["begin", "end"])
SKEW = st.floats(-5, 5)
ENTRIES = st.one_of(
    st.builds(step, TIMES, TASKS, st.integers(-1, 50), late=SKEW),
    st.builds(happened, TIMES, st.sampled_from(["start", "running", "all-running"]), TASKS),
    st.builds(ended, TIMES, TASKS, st.sampled_from([0, 1, 137]), told=st.booleans(), late=SKEW),
    st.builds(fault, TIMES, TASKS, STAGES, KINDS),
    st.builds(happened, TIMES, st.just("stall"), TASKS, seconds=st.floats(0, 40)),
    st.builds(happened, TIMES, st.just("phase"), TASKS, phase=PHASES, state=STATES, late=SKEW),
)


@given(events=st.lists(ENTRIES, max_size=40), duration=TIMES)
def test_the_causes_add_up_to_the_duration_exactly(events: list[Told], duration: float) -> None:
    duration = round(duration, 6)
    result = split(timeline(in_time(events)), duration)
    assert tuple(result) == CAUSES
    assert min(result.values()) >= 0
    assert sum(round(t * 1_000_000) for t in result.values()) == round(duration * 1_000_000)
