"""Where the time of a run went; every expected number here was worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.goodput import CAUSES, by_cause, micros, pieces
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


def parts(*events: Told, until: float = 20) -> list[tuple[str, float, float]]:
    """Return the pieces of a run, with their times in seconds."""
    found = pieces(timeline(in_time(events)), until)
    return [(one.cause, one.begin / 1e6, one.end / 1e6) for one in found]


def spent(*events: Told, until: float = 20) -> dict[str, float]:
    """Return the causes that took any time of a run, with their seconds."""
    found = by_cause(pieces(timeline(in_time(events)), until))
    return {cause: t for cause, t in found.items() if t}


RUN = [happened(0, "run"), *began_again(0, "worker-0", "worker-1")]


@pytest.mark.parametrize(
    "more",
    [
        [],
        [step(7, "worker-1", 10)],  # brings the job nowhere
        # What follows the end of the job is not counted.
        [ended(20, "worker-1", 143, told=True), step(21, "worker-1", 29)],
    ],
)
def test_a_plain_run(more: Sequence[Told]) -> None:
    events = [*RUN, step(5, "worker-0", 10), step(15, "worker-0", 20), job(20), *more]
    assert spent(*events) == {"startup": 5, "productive": 10, "other": 5}


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
    ("phases", "times"),
    [
        # One after the other, one inside the other, one that reaches into the next.
        ([("eval", 6, 8), ("data", 8, 9)], "productive 5, eval 6, data 8, productive 9"),
        ([("eval", 6, 10), ("data", 7, 8)], "productive 5, eval 6, data 7, eval 8, productive 10"),
        (
            [("eval", 6, 10), ("data", 7, 8), ("compile", 8.5, 9)],
            "productive 5, eval 6, data 7, eval 8, compile 8.5, eval 9, productive 10",
        ),
        (
            [("eval", 6, 10), ("data", 7, 9), ("compile", 7.5, 8)],
            "productive 5, eval 6, data 7, compile 7.5, data 8, eval 9, productive 10",
        ),
        ([("eval", 6, 8), ("data", 7, 10)], "productive 5, eval 6, data 8, productive 10"),
        ([("eval", 6, 8), ("data", 6, 8)], "productive 5, eval 6, productive 8"),
        ([("eval", 8, 8)], "productive 5"),
    ],
)
def test_phases_of_one_task_share_its_time(
    phases: Sequence[tuple[str, float, float]], times: str
) -> None:
    spans = [entry for name, begin, end in phases for entry in phase(begin, end, "worker-0", name)]
    found = parts(*RUN, step(5, "worker-0", 1), *spans, step(15, "worker-0", 2), job(20))
    assert ", ".join(f"{cause} {begin:g}" for cause, begin, *_ in found[1:-1]) == times
    assert (found[0], found[-1]) == (("startup", 0, 5), ("other", 15, 20))
    assert [one[2] for one in found[:-1]] == [one[1] for one in found[1:]]  # without a gap


def test_the_task_with_the_next_step_decides_which_phases_count() -> None:
    """Both save at 400; the save of the task that advances the job counts."""
    events = [*RUN, step(5, "worker-0", 390), happened(7, "start", "ps-0")]
    events += [*phase(6, 9, "worker-0", "checkpoint"), *phase(6, 11, "worker-1", "checkpoint")]
    events += [step(12, "worker-1", 400), step(13, "worker-0", 400), job(20)]
    assert spent(*events) == {"startup": 5, "productive": 2, "checkpoint": 5, "other": 8}


# --- Failures -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("kind", "code"), [("kill", 137), ("preempt", 137), ("terminate", 137), ("preempt", 0)]
)
@pytest.mark.parametrize("task", ["worker-0", "worker-1"])
def test_a_recovery_begins_with_the_signal(task: str, kind: str, code: int) -> None:
    """A preempted task that exits with 0 has not ended by itself."""
    events = [*RUN, step(4, "worker-0", 10), step(5, "worker-0", 20)]
    events += [fault(6, task, "triggered", kind), fault(8, task, "applied", kind)]
    events += [ended(8, task, code, fault=None if code else "0")]
    events += [*began_again(9, task), step(12, "worker-0", 30), job(20)]
    assert spent(*events) == {"startup": 4, "productive": 1, "wasted": 1, "recovery": 6, "other": 8}


def test_a_worker_that_finishes_as_it_is_stopped_has_not_failed() -> None:
    """As beside parameter servers, where the others are stopped at once when the chief is done."""
    events = [*RUN, step(5, "worker-0", 10), step(14, "worker-1", 10), step(15, "worker-0", 20)]
    events += [job(20), happened(20, "stop", "worker-1")]
    events.append(ended(20.1, "worker-1", 0, told=True, late=-4.1))
    assert spent(*events) == {"startup": 5, "productive": 10, "other": 5}
    assert timeline(events).tasks["worker-1"].state == "succeeded"


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


def test_a_job_that_ends_before_it_has_caught_up() -> None:
    events = [*RUN, step(5, "worker-0", 10), ended(5, "worker-0", 1), *began_again(6, "worker-0")]
    events += [step(8, "worker-0", 1), step(9, "worker-0", 9), job(20)]
    assert parts(*events) == [("startup", 0, 5), ("recovery", 5, 8), ("wasted", 8, 20)]


def test_a_stall_is_the_time_in_which_no_task_stepped() -> None:
    events = [*RUN, step(3, "worker-0", 10), step(4, "worker-0", 20)]
    events += [*phase(4, 5, "worker-0", "checkpoint"), happened(12, "stall", "worker-0", seconds=8)]
    events += [ended(12.5, "worker-0", 137), *began_again(13, "worker-0"), step(16, "worker-0", 30)]
    took = {"startup": 3, "productive": 1, "checkpoint": 1, "stall": 7, "recovery": 4, "other": 4}
    assert spent(*events, job(20)) == took


def test_a_gap_far_longer_than_usual_is_a_stall_beyond_the_usual() -> None:
    """The usual one is the median: here it is between those of 1.5 and of 2 s."""
    at_once = [step(3, "worker-0", n) for n in range(5)]  # there are no gaps between these
    later = steps_of("worker-0", {4: 5, 5.5: 6, 7.5: 7, 27.5: 8})
    took = {"startup": 3, "productive": 4.5 + 1.75, "stall": 20 - 1.75, "other": 2.5}
    assert spent(*RUN, *at_once, *later, job(30), until=30) == took


def test_a_gap_of_less_than_ten_usual_ones_or_a_second_is_none() -> None:
    slow = [*RUN, *(step(3 + n, "worker-0", n) for n in range(5)), step(17, "worker-0", 5)]
    assert spent(*slow, job(20)) == {"startup": 3, "productive": 14, "other": 3}
    quick = [*RUN, *(step(3 + n / 1000, "worker-0", n) for n in range(9)), step(4, "worker-0", 9)]
    assert spent(*quick, job(4), until=4) == {"startup": 3, "productive": 1}


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
    assert by_cause(pieces(timeline([]), 0)) == dict.fromkeys(CAUSES, 0)


def test_times_are_within_the_run() -> None:
    assert [micros(t, 2.5) for t in (-1, 0.0000014, 2, 3)] == [0, 1, 2_000_000, 2_500_000]


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
    result = by_cause(pieces(timeline(in_time(events)), duration))
    assert tuple(result) == CAUSES
    assert min(result.values()) >= 0
    assert sum(round(t * 1_000_000) for t in result.values()) == round(duration * 1_000_000)
