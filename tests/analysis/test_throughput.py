"""How fast histories say that was trained; every expected number here was worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.steps_made import Life, Stretch, without
from emulator.analysis.throughput import (
    JOB,
    Curve,
    Rate,
    StepTimes,
    Throughput,
    Work,
    curve,
    follow,
    rates,
    scaling_efficiency,
    workers,
)
from tests.histories import (
    Told,
    a_plan,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    job,
    step,
    steps_of,
    timeline,
)


def measured(entries: Sequence[Told], extra: str = "") -> Throughput:
    whole = timeline(entries, extra=extra)
    return rates(whole.plan, follow(whole))


def binned(entries: Sequence[Told], duration: float, bins: int = 600) -> Curve:
    return curve(timeline(entries), duration, bins=bins)


def by_second(curve_: Sequence[float], width: float) -> list[float]:
    """Return the steps of each whole second."""
    steps = [rate * width for rate in curve_]
    each = round(1 / width)
    return [round(sum(steps[n : n + each]), 9) for n in range(0, len(steps), each)]


PLAIN = [
    happened(0, "run"),
    *began_again(0, "worker-0", "worker-1"),
    step(5, "worker-0", 10),
    step(5, "worker-1", 10),
    step(7, "worker-0", 20),  # 5 /s
    step(8, "worker-1", 20),
    step(8, "worker-0", 30),  # 10 /s
    step(10, "worker-1", 30),
    job(10),
]


def test_a_plain_run() -> None:
    result = measured(PLAIN)
    assert result.job == Rate(20 / 3, None, StepTimes(20, 0.15, 0.1, 0.2, 0.2, 0.2))
    assert result.tasks["worker-0"] == result.job
    assert result.tasks["worker-1"] == Rate(4, None, StepTimes(20, 0.25, 0.2, 0.3, 0.3, 0.3))


RESTARTED = [
    happened(0, "run"),
    *began_again(0, "worker-0"),
    step(2, "worker-0", 1),
    step(3, "worker-0", 3),
    ended(4, "worker-0", 137),
    *began_again(5, "worker-0"),
    step(8, "worker-0", 2),
    step(9, "worker-0", 3),
    step(10, "worker-0", 5),
]


def test_steps_that_are_done_again_are_work_of_the_task_and_of_the_job() -> None:
    result = measured(RESTARTED)
    assert result.job == Rate(
        (2 + 3) / 8,  # 1 to 3, 2 to 5, from 2 s to 10 s
        None,
        # 4 of half a second, one of a second: the time of the restart is no step time.
        StepTimes(5, 0.6, 0.5, 1, 1, 1),
    )
    drawn = binned(RESTARTED, 12)  # nor is anything spread over it
    assert by_second(drawn.job, drawn.width) == [0, 0, 2, 0, 0, 0, 0, 0, 1, 2, 0, 0]
    assert result.tasks["worker-0"] == result.job
    assert drawn.tasks["worker-0"] == drawn.job


def test_a_step_that_is_reported_again_took_no_time() -> None:
    entries = [step(1, "worker-0", 1), step(2, "worker-0", 2), step(5, "worker-0", 2)]
    times = measured([*entries, step(6, "worker-0", 3)]).tasks["worker-0"].step_times
    assert times == StepTimes(2, 2.5, 1, 4, 4, 4)
    assert measured(entries).tasks["worker-0"].steps_per_second == 1


def test_a_task_that_runs_again_has_a_new_life_also_if_its_end_was_not_seen() -> None:
    entries = [*began_again(0, "worker-0"), *steps_of("worker-0", {2: 1, 3: 2, 6: 3, 7: 4})]
    assert measured(entries).job.steps_per_second == 3 / 5
    again = happened(5, "running", "worker-0")
    assert measured(in_time([*entries, again])).job.steps_per_second == 2 / 5


def test_the_job_steps_at_the_rate_of_the_task_that_advances_it() -> None:
    """Two tasks print at different times: no step of the job took the milliseconds between."""
    entries = [step(0.99, "worker-1", 9), step(1, "worker-0", 10), step(1.99, "worker-1", 19)]
    entries += [step(2, "worker-0", 20), step(2.99, "worker-1", 29)]
    times = measured(entries).job.step_times
    assert times is not None
    assert (times.p50, times.max) == pytest.approx((0.1, 0.1))
    assert times.count == 20 - 1  # the first advance of worker 0 is measured by nothing


@pytest.mark.parametrize(("share", "seconds"), [("p50", 1), ("p90", 2), ("p99", 5)])
def test_percentiles_are_of_steps_and_not_of_lines(share: str, seconds: float) -> None:
    entries = [step(0, "worker-0", 0), step(88, "worker-0", 88), step(108, "worker-0", 98)]
    times = measured([*entries, step(118, "worker-0", 100)]).job.step_times
    assert getattr(times, share) == seconds


# --- Examples -----------------------------------------------------------------------------------


def test_examples_are_reported_or_follow_from_the_steps() -> None:
    entries = [step(1, "worker-0", 1, examples=64), step(3, "worker-0", 2, examples=192)]
    assert measured(entries).job.examples_per_second == 64
    assert measured(entries).tasks["worker-0"].examples_per_second == 64
    result = measured(PLAIN, "metrics: {examples_per_step: 3}")
    assert result.job.examples_per_second == 20
    assert result.tasks["worker-1"].examples_per_second == 12
    # What is reported takes precedence.
    entries += [step(4, "worker-1", 2), step(5, "worker-1", 3)]
    tasks = measured(entries, "metrics: {examples_per_step: 7}").tasks
    assert [tasks[f"worker-{n}"].examples_per_second for n in (0, 1)] == [64, 7]


def test_examples_go_on_over_a_restore_that_loses_nothing() -> None:
    entries = [step(t, "worker-0", 10 * t, examples=640 * t) for t in (1, 2, 3)]
    back = happened(2.5, "phase", "worker-0", phase="restore", state="end", step=20)
    assert measured(in_time([*entries, back])).job.examples_per_second == 640


def test_what_an_evaluator_may_have_done_is_nothing_of_the_job() -> None:
    entries = [step(t, task, int(t)) for task in ("worker-0", "evaluator-0") for t in (1.0, 2.0, 3)]
    work = follow(timeline(in_time([*entries, job(9)]), "{worker: 1, evaluator: 1}"))
    assert work[JOB].unknown == work["worker-0"].unknown == [(0, 1), (3, 4)]
    assert work["evaluator-0"].unknown == [(0, 1), (3, 4)]
    # Nor is what it tells of before, of a checkpoint that was there, and when it goes back.
    more = [step(0.5, "evaluator-0", 9), step(5, "evaluator-0", 2)]
    work = follow(timeline(in_time([*entries[:3], *more, job(9)]), "{worker: 1, evaluator: 1}"))
    assert (
        work[JOB].stretches
        == work["worker-0"].stretches
        == [Stretch(1, 2, 1, 1), Stretch(2, 3, 1, 1)]
    )
    assert (work[JOB].first, work[JOB].last) == (1, 3)


def test_who_is_paused_a_second_time_is_not_awake() -> None:
    pauses = [(1.0, 2.0), (3.0, math.inf)]
    assert [Life(freezes=pauses[:n]).is_awake for n in range(3)] == [True, True, False]


def test_what_is_left_of_a_time_without_others() -> None:
    assert without((1, 9), []) == [(1, 9)]
    assert without((1, 9), [(4, 6), (2, 5), (0, 1)]) == [(1, 2), (6, 9)]
    assert without((1, 9), [(5, 9), (1, 5)]) == [(9, 9)]


# --- By the second ------------------------------------------------------------------------------


def test_a_stretch_is_spread_over_its_time() -> None:
    result = binned(PLAIN, 10)
    assert (result.begin, result.width) == (0, 0.2)
    assert by_second(result.job, result.width) == [0, 0, 0, 0, 0, 5, 5, 10, 0, 0]
    assert result.tasks["worker-0"] == result.job
    seconds = by_second(result.tasks["worker-1"], result.width)
    assert seconds == pytest.approx([0, 0, 0, 0, 0, 10 / 3, 10 / 3, 10 / 3, 5, 5])


def test_steps_of_the_first_second_and_of_one_moment_are_in_their_bins() -> None:
    result = binned([step(0.25, "worker-0", 0), step(0.75, "worker-0", 5)], 2)
    assert result.job == pytest.approx([0, 7.5, 10, 7.5, 0, 0, 0, 0, 0, 0])
    for duration, steps in ((2, [0, 8]), (1, [8])):
        result = binned([step(1, "worker-0", 1), step(1, "worker-0", 9)], duration)
        assert by_second(result.job, result.width) == steps


def test_steps_of_one_moment_are_at_its_end() -> None:
    work = Work([Stretch(5, 5, 10, 0)], first=1, last=9)
    assert [work.rate_within(*span) for span in ((1, 5), (5, 9), (1, 1))] == [2.5, 0, None]


@pytest.mark.parametrize(
    ("before", "seconds"),
    [
        ({1: 0}, [0, 3, *[0] * 8, 3, 3]),
        # Of these, a line was read in the pause.
        ({1: 0, 3: 1}, [0, 1, *[0] * 8, 4, 4]),
        ({1: 5, 3: 0}, [*[0] * 10, 4.5, 4.5]),
    ],
)
def test_a_task_makes_no_step_while_it_is_paused_also_before_its_pace_is_known(
    before: Mapping[float, int], seconds: Sequence[float]
) -> None:
    paused = [fault(t, "worker-0", at, "pause") for t, at in ((2, "applied"), (10, "healed"))]
    told = in_time([*began_again(0, "worker-0"), *steps_of("worker-0", {**before, 12: 9}), *paused])
    result = curve(timeline(told, extra="faults: [{pause: worker-0, at: 1s, for: 8s}]"), 12)
    assert by_second(result.job, result.width) == seconds


@pytest.mark.parametrize(
    ("duration", "width", "number"),
    [(0, 0.2, 1), (5, 0.2, 25), (40, 0.5, 80), (60, 1, 60), (600, 1, 600), (86400, 144, 600)],
)
def test_bins_are_a_second_wide_or_as_wide_as_they_must_be(
    duration: float, width: float, number: int
) -> None:
    result = binned([happened(0, "run")], duration)
    assert (result.width, len(result.job)) == (width, number)
    assert curve(timeline([happened(0, "run")]), duration) == result  # 600 bins at most


TASKS = st.sampled_from(["worker-0", "worker-1"])
TIMES = st.floats(0, 900, allow_nan=False)
ENTRIES = st.one_of(
    st.builds(step, TIMES, TASKS, st.integers(0, 50), late=st.floats(-5, 5)),
    st.builds(happened, TIMES, st.sampled_from(["start", "running"]), TASKS),
    st.builds(ended, TIMES, TASKS, st.just(1)),
)


@given(entries=st.lists(ENTRIES, max_size=40), bins=st.integers(1, 700))
def test_a_curve_has_every_step_that_was_made_and_none_below_zero(
    entries: list[Told], bins: int
) -> None:
    entries = in_time(entries)
    result = binned(entries, 900, bins)
    for name, work in follow(timeline(entries)).items():
        one = result.tasks.get(name, result.job)
        assert sum(one) * result.width == pytest.approx(sum(s.steps for s in work.stretches))
        assert min(one) >= 0


def numbers(work: Work) -> list[float]:
    return [number for stretch in work.stretches for number in astuple(stretch)]


@given(entries=st.lists(ENTRIES, max_size=40))
def test_a_job_makes_no_more_steps_than_its_tasks_and_the_only_task_is_the_job(
    entries: list[Told],
) -> None:
    work = follow(timeline(in_time(entries)))
    made = {name: sum(one.steps for one in of.stretches) for name, of in work.items()}
    assert made.pop(JOB) <= sum(made.values()) + 1e-6
    alone = timeline(in_time(entry for entry in entries if entry.task == "worker-0"))
    if not any(one.late for one in alone.tasks["worker-0"].incarnations):
        work = follow(alone)
        of_job, of_task = work[JOB], work["worker-0"]
        assert numbers(of_job) == pytest.approx(numbers(of_task), abs=1e-9)
        assert replace(of_job, stretches=[]) == replace(of_task, stretches=[])


# --- Scaling ------------------------------------------------------------------------------------

BASELINE = Rate(10, 320)


@pytest.mark.parametrize(
    ("rate", "count", "baseline", "baseline_count", "efficiency"),
    [
        (Rate(8, 512), 2, BASELINE, 1, (0.8, "examples")),  # 640 would be twice as many
        (Rate(8, None), 2, BASELINE, 1, (0.4, "steps")),
        (Rate(10, 640), 2, BASELINE, 1, (1.0, "examples")),  # as many steps, twice the work
        (Rate(5, 320), 1, BASELINE, 1, (1.0, "examples")),
        (Rate(None, None), 2, BASELINE, 1, None),
        (Rate(8, 512), 0, BASELINE, 1, None),
        (Rate(8, 512), 2, Rate(), 1, None),  # it never trained
        (Rate(8, 512), 2, Rate(1, 1), 0, None),
    ],
)
def test_efficiency_is_the_share_of_a_perfect_speed_up(
    rate: Rate, count: int, baseline: Rate, baseline_count: int, efficiency: object
) -> None:
    assert scaling_efficiency(rate, count, baseline, baseline_count) == efficiency


def test_workers_are_the_tasks_that_train() -> None:
    assert workers(a_plan("{chief: 1, worker: 3, ps: 2, evaluator: 1}")) == 4
