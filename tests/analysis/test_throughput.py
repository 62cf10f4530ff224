"""How fast histories say that was trained; every expected number here was worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.analysis.analyse import FaultResult, analyse
from emulator.analysis.figures import FAULT_STAGES
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
from emulator.record.events import line_of
from emulator.record.timeline import Timeline
from tests.histories import (
    Told,
    a_plan,
    began_again,
    ended,
    fault,
    happened,
    history,
    in_time,
    job,
    preempted,
    restart,
    step,
    steps_of,
    timeline,
    written,
)
from tests.recount import made


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


def test_steps_that_were_read_at_once_have_no_rate() -> None:
    """Ten lines in one read: their stamps are 0.3 ms apart."""
    at_once = {1 + n / 30_000: n for n in range(1, 11)}
    assert measured(steps_of("worker-0", at_once)).job == Rate()
    later = measured(steps_of("worker-0", {**at_once, 2: 11})).job
    assert later.steps_per_second == pytest.approx(10 / 1, rel=0.01)


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


# --- Around faults: steps count when they were made, and only then -------------------------------


@dataclass(frozen=True)
class Program:
    """How a program of others printed its steps: recorded before and after a preemption."""

    name: str
    tasks: int
    printing: int
    """How many of the tasks print steps."""
    every: int
    """Steps from one line to the next."""
    before: float
    after: float
    """Steps made per second."""
    resumes: int
    """The step from which it goes on."""
    away: float
    """Seconds until its tasks ran again, and as many until the first line."""


PROGRAMS = [
    Program("JobSet CNN MNIST", 2, 1, 32, 78, 85, 0, 9),
    Program("Azure MWMS", 2, 2, 1, 7.4, 7.9, 1, 12),
    Program("TRL sft", 2, 1, 5, 2.0, 2.3, 15, 10),
    Program("Trainer v2 FashionMNIST", 2, 1, 640, 2407, 2515, 0, 8),
    Program("XGBoost", 3, 3, 1, 0.926, 3.3, 0, 7),
]
STRUCK = 40.0


def lines(task: str, begin: float, end: float, first: int, every: int, rate: float) -> list[Told]:
    """Return the lines of a task that makes steps from `first` on."""
    number = int((end - begin) * rate / every) + 1
    return [step(begin + n * every / rate, task, first + n * every) for n in range(number)]


def history_of(program: Program, extra: str = "") -> Timeline:
    """Return a run in which worker 1 is preempted, and all are restarted for it."""
    names = [f"worker-{n}" for n in range(program.tasks)]
    back = STRUCK + program.away
    entries: list[Told] = [*began_again(0, *names)]
    for number, name in enumerate(names[: program.printing]):
        late = number * 0.01  # of one step, one tells of it a little later
        entries += lines(name, 5 + late, STRUCK, program.every, program.every, program.before)
        again = back + program.away + late
        entries += lines(name, again, 90, program.resumes + program.every, program.every,
                         program.after)  # fmt: skip
    others = [name for name in names if name != "worker-1"]
    entries += preempted(STRUCK, "worker-1", back=back)
    entries += [ended(STRUCK + 0.3, name, 1) for name in others]
    entries += [restart(STRUCK + 0.3, "worker-0", "job"), *began_again(back - 1, *others), job(91)]
    text = f"faults: [{{preempt: worker-1, at: {STRUCK:g}s}}]\n{extra}"
    return timeline(in_time(entries), f"{{worker: {program.tasks}}}", text)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_rates_of_programs_are_those_at_which_they_made_steps(program: Program) -> None:
    whole = history_of(program)
    (result,) = analyse(whole).faults
    assert result.rate_before == pytest.approx(program.before, rel=0.02)
    assert result.rate_during == 0
    assert result.rate_after == pytest.approx(program.after, rel=0.02)
    if program.printing > 1:
        assert result.target_rate_before == pytest.approx(program.before, rel=0.02)
        assert result.target_rate_during == 0
        assert result.target_rate_after == pytest.approx(program.after, rel=0.02)
    drawn = curve(whole, 91).job  # 0 while none of the tasks runs
    assert set(drawn[int(STRUCK) + 1 : int(STRUCK + 2 * program.away)]) == {0.0}
    assert max(drawn) == pytest.approx(max(program.before, program.after), rel=0.05)


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_job_that_ends_without_another_step_made_none_during_the_fault(outcome: str) -> None:
    entries = [*began_again(0, "worker-0"), *steps_of("worker-0", {n: n for n in range(1, 10)})]
    entries += [*paused(9.5, 20, "worker-0")[:2], ended(12, "worker-0", 1), job(12, outcome)]
    assert of_job(struck(entries, "{pause: worker-0, for: 10s, at: 9.5s}"))[1:] == (0, None)


# --- Pauses, and tasks that wait ----------------------------------------------------------------

Rates = tuple[float | None, float | None, float | None]


def struck(entries: Sequence[Told], faults: str, cluster: str = "{worker: 2}") -> FaultResult:
    """Return the first fault of a run, which succeeds after a minute unless it ends otherwise."""
    end = [] if any(entry.event == "job" for entry in entries) else [job(60)]
    whole = timeline(in_time([*entries, *end]), cluster, f"faults: [{faults}]")
    return analyse(whole).faults[0]


def paused(begin: float, end: float, task: str, fault_id: str = "0") -> list[Told]:
    stages = (("triggered", begin), ("applied", begin), ("healed", end))
    return [fault(t, task, stage, "pause", id=fault_id) for stage, t in stages]


def of_job(result: FaultResult) -> Rates:
    """Return the rates of the job before, during and after a fault."""
    return result.rate_before, result.rate_during, result.rate_after


def of_target(result: FaultResult) -> Rates:
    return result.target_rate_before, result.target_rate_during, result.target_rate_after


UP = [happened(0, "run"), *began_again(0, "worker-0", "worker-1")]
PAUSE = "{pause: worker-1, at: 20s, for: 10s}"


@pytest.mark.parametrize(
    ("prints", "more", "goes_on"),
    [
        ("worker-1", [], 160),
        ("worker-0", [], 160),
        # A task that is paused twice is frozen until both are over.
        ("worker-1", paused(22, 25, "worker-1", "1"), 160),
        # A line that is read meanwhile ends no pause, also if the task has gone back.
        ("worker-1", [step(21, "worker-1", 155)], 160),
        ("worker-1", [step(21, "worker-1", 140)], 145),
    ],
)
def test_no_step_is_made_by_a_paused_task_nor_by_one_that_waits_for_it(
    prints: str, more: Sequence[Told], goes_on: int
) -> None:
    """Ten steps a second, a line for each ten; the pause is within a gap.

    In synchronous training the other worker, which alone prints steps, prints nothing for as long.
    """
    entries = [*UP, *lines(prints, 5.5, 19.5, 10, 10, 10), *paused(20, 30, "worker-1"), *more]
    entries += lines(prints, 30.5, 50, goes_on, 10, 10)
    result = struck(entries, f"{PAUSE}, {{pause: worker-1, at: 22s, for: 3s}}")
    assert of_job(result) == (10, 0, 10)
    assert of_target(result) == ((10, 0, 10) if prints == "worker-1" else (None, None, None))


def test_it_is_unknown_what_was_done_in_a_time_shorter_than_that_from_line_to_line() -> None:
    """Worker 0 fails before its next line; worker 1 was away for half of that time."""
    entries = [*UP, *lines("worker-0", 5, 20, 10, 20, 10)]
    entries += [*preempted(20, "worker-1", back=21), ended(21.5, "worker-0", 1)]
    entries += [*began_again(30, "worker-0"), *lines("worker-0", 35, 50, 180, 20, 10)]
    result = struck(entries, "{preempt: worker-1, at: 20s}")
    assert of_job(result) == (10, None, 10)


def test_a_checkpoint_of_an_evaluator_is_no_step_of_the_job() -> None:
    entries = [happened(0, "run"), *began_again(0, "worker-0", "evaluator-0")]
    entries += [*lines("worker-0", 5, 20, 10, 10, 10), *lines("evaluator-0", 6, 28, 10, 50, 10)]
    entries += [*preempted(20, "worker-0", back=30), *lines("worker-0", 35, 50, 180, 10, 10)]
    result = struck(entries, "{preempt: worker-0, at: 20s}", "{worker: 1, evaluator: 1}")
    assert of_job(result) == (10, 0, 10)


def test_rates_are_of_ten_seconds_on_each_side_of_a_fault() -> None:
    at = {5: 0, 10: 90, 11: 94, 20: 103, 25: 105, 34: 114, 35: 118, 45: 908}
    entries = [*UP, *(step(t, "worker-0", n) for t, n in at.items()), *paused(20, 24, "worker-1")]
    assert of_job(struck(entries, "{pause: worker-1, at: 20s, for: 4s}"))[::2] == (1.3, 1.3)


@pytest.mark.parametrize(
    ("faults", "events"),
    [
        # The step that it was at took half a second beside the ten.
        (PAUSE, paused(20, 30, "worker-1")),
        ("{preempt: worker-1, at: 20s}", preempted(20, "worker-1", back=30)),
    ],
)
def test_the_target_has_its_own_rates_around_a_fault(faults: str, events: Sequence[Told]) -> None:
    entries = [*UP, *lines("worker-0", 5, 45, 105, 1, 1), *events]
    entries += [*lines("worker-1", 5, 20, 10, 1, 2), *lines("worker-1", 30.5, 45, 41, 1, 2)]
    result = struck(entries, faults)
    assert of_target(result) == (2, 0, 2)
    assert of_job(result) == (1, 1, 1)
    assert (result.first_step_after, result.caught_up_after) == (10.5, 11)


def test_a_job_has_caught_up_when_it_is_further_than_before_the_fault() -> None:
    """Worker 0 went on for a while, and failed too: where it had been then does not count."""
    entries = [*UP, step(5, "worker-0", 20), step(9, "worker-0", 30), step(12, "worker-0", 40)]
    entries += [*preempted(10, "worker-1", back=16), ended(13, "worker-0", 1)]
    entries += [*began_again(15, "worker-0"), step(17, "worker-0", 30), step(18, "worker-0", 35)]
    result = struck(entries, "{preempt: worker-1, at: 10s}")
    assert (result.first_step_after, result.caught_up_after) == (7, 8)
    assert "further than before the fault" in FAULT_STAGES["caught_up_after"][1]


@pytest.mark.parametrize(("outcome", "rate"), [("succeeded", 0.5), ("failed", None)])
def test_a_fault_that_outlasts_the_job_has_a_rate_only_if_the_job_was_done(
    outcome: str, rate: float | None
) -> None:
    """A job that failed may have hung for any part of the time after its last step."""
    entries = [*lines("worker-0", 0, 20, 0, 1, 1), *lines("worker-0", 22, 30, 21, 1, 0.5)]
    entries += [*paused(20, 36, "worker-1"), job(35, outcome)]
    result = struck(entries, "{pause: worker-1, at: 20s, for: forever}")
    assert of_job(result) == (1, rate, None)


def test_what_is_made_after_the_outcome_is_not_of_the_job() -> None:
    entries = [*UP, *lines("worker-0", 5, 20, 10, 10, 10), *lines("worker-1", 5, 40, 10, 10, 5)]
    entries += [ended(20.1, "worker-0", 0), job(20.1)]
    result = analyse(timeline(in_time(entries)))
    assert result.steps_per_second == pytest.approx(10)


# --- Any history, counted again; see tests/recount.py ---------------------------------------------


def near(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, abs=2e-4, rel=1e-3)


def lived(seed: int) -> Iterator[Told]:
    """Yield events of tasks that step, repeat steps, hang, end, return and are paused."""
    rng = Random(seed)
    yield happened(0, "run")
    lines = rng.choice([1, 1, 5])
    for task in ("worker-0", "worker-1", "worker-2"):
        t, number, frozen_until = rng.uniform(0, 2), 0, 0.0
        lasting: list[tuple[dict[str, str], float]] = []
        yield happened(t, "start", task)
        yield happened(t, "running", task)
        while t < 40:
            t = round(t + rng.choice([0.25, 0.25, 0.5, 1, rng.uniform(0, 9)]), 3)
            kinds = ["exit", "step", "back", "restore", "pause"]
            if t < frozen_until and rng.random() < 0.7:
                t = frozen_until + 0.1
            match rng.choices(kinds, [3, 60, 1, 2, 3] if t >= frozen_until else [1, 0, 0, 0, 0])[0]:
                case "step":
                    number += lines
                    yield step(t, task, number, examples=8 * number)
                case "back":
                    number = rng.randint(0, number)
                    yield step(t, task, number, examples=8 * number)
                case "restore":
                    number = rng.randint(0, number)
                    yield happened(t, "phase", task, phase="restore", state="end", step=number)
                case "exit":
                    yield ended(t, task, 1)
                    t, number = t + rng.uniform(0, 8), rng.randint(0, number)
                    yield happened(t, "start", task)
                    t += rng.uniform(0, 3)
                    yield happened(t, "running", task)
                    for about, end in lasting:
                        if t + 0.1 < end:
                            yield fault(t + 0.1, task, "reapplied", **about)
                case _:
                    for number_of in range(rng.choice([1, 1, 2])):  # a second one may outlast it
                        begin, end = t + number_of, t + number_of + rng.uniform(1, 9)
                        about = {"id": f"{task} {begin}", "kind": "pause"}
                        yield fault(begin, task, "applied", **about)
                        yield fault(end, task, "healed", **about)
                        lasting.append((about, end))
                        frozen_until = max(frozen_until, end)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1_000_000))
def test_what_was_made_is_the_same_counted_again(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    events = in_time(lived(seed))
    plan = a_plan("{worker: 3}")
    folder = tmp_path_factory.mktemp("made")
    lines = (line_of(one) for one in written(events))
    (folder / "history.jsonl").write_text("\n".join(lines))
    found, again = follow(Timeline(plan, history(events))), made(folder)
    for name, of in again.items():
        work = found[name]
        assert work.rate(None).steps_per_second == near(of.rate())
        for begin in range(0, 40, 7):
            rate = of.rate_between(begin, begin + 10)
            assert work.rate_within(begin, begin + 10) == near(rate), (name, begin)
    examples = made(folder, "examples")
    for name, work in found.items():
        if work.examples is not None:
            assert work.rate(None).examples_per_second == near(examples[name].rate())
