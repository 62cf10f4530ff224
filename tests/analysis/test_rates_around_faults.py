"""Rates before, during and after faults: steps count when they were made, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from emulator.analysis.analyse import FaultResult, analyse
from emulator.analysis.throughput import curve
from emulator.record.timeline import Timeline
from tests.histories import (
    Told,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    job,
    preempted,
    restart,
    step,
    timeline,
)


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


# --- Pauses, and tasks that wait ------------------------------------------------------------------

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
    """Worker 0 went on for a while, and failed too."""
    entries = [*UP, step(5, "worker-0", 20), step(9, "worker-0", 30), step(12, "worker-0", 40)]
    entries += [*preempted(10, "worker-1", back=16), ended(13, "worker-0", 1)]
    entries += [*began_again(15, "worker-0"), step(17, "worker-0", 30), step(18, "worker-0", 45)]
    result = struck(entries, "{preempt: worker-1, at: 10s}")
    assert (result.first_step_after, result.caught_up_after) == (7, 8)


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
