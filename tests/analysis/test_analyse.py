"""What histories say in numbers; every expected number here was worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emulator.analysis.analyse import Analysis, FaultResult, HelperResult, TaskResult, analyse
from emulator.analysis.expectations import judge
from emulator.analysis.goodput import CAUSES
from emulator.analysis.throughput import Rate, StepTimes, Throughput
from emulator.analysis.values import StepSources, step_sources
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
    restored,
    step,
    steps_of,
    timeline,
)

NO_TIME = dict.fromkeys(CAUSES, 0.0)


def analysed(entries: Sequence[Told], cluster: str = "{worker: 2}", extra: str = "") -> Analysis:
    return analyse(timeline(entries, cluster, extra))


PLAIN = [
    happened(0, "run"),
    happened(0.5, "prepared"),
    *began_again(1, "worker-0", "worker-1"),
    happened(3, "all-running"),
    step(5, "worker-0", 10),
    step(5.1, "worker-1", 10),
    step(7, "worker-0", 30, accuracy=0.5),
    step(9, "worker-0", 50, accuracy=0.9),
    ended(10, "worker-0", 0),
    job(10),
    happened(10, "stop", "worker-1"),
    ended(11, "worker-1", 143, told=True),
    happened(12, "removed"),
]


def test_a_plain_run() -> None:
    rate = Rate(10, 320, StepTimes(40, 0.1, 0.1, 0.1, 0.1, 0.1))
    assert analysed(PLAIN, extra="metrics: {examples_per_step: 32}") == Analysis(
        outcome="succeeded",
        reason="worker-0 finished",
        duration=10,
        tasks={
            "worker-0": TaskResult("succeeded", exit_code=0, first_step=10, last_step=50),
            "worker-1": TaskResult("stopped", exit_code=143, first_step=10, last_step=10),
        },
        final_step=50,
        network=0.5,
        all_running=3,
        first_step=5,
        steps_per_second=10,  # 40 steps in 4 s
        examples_per_second=320,  # 32 a step
        throughput=Throughput(rate, {"worker-0": rate, "worker-1": Rate()}),
        accuracy=0.9,
        values={"accuracy": {"worker-0": 0.9}},
        restarts=0,
        lost_steps=0,
        lost_at_least=0,
        recoveries=[],
        faults=[],
        unrecovered=0,
        time={**NO_TIME, "productive": 4, "startup": 5, "other": 1},
        goodput=0.4,  # 4 s of 10
    )


def test_a_restart_of_the_job() -> None:
    """Worker 1 is killed at 8 s, all start again from a checkpoint of step 20."""
    events = [happened(0, "run"), *began_again(1, "worker-0", "worker-1")]
    events += [*steps_of("worker-0", {5: 10, 6: 20, 7: 30}), step(7.5, "worker-1", 30)]
    events += [ended(8, "worker-1", 137), restart(8, "worker-1", "job")]
    events += [ended(8.5, "worker-0", 143, told=True), *began_again(10, "worker-0", "worker-1")]
    events += [restored(11.5, "worker-0", 20), *steps_of("worker-0", {13: 25, 14: 35, 15: 45})]
    events += [step(15.5, "worker-1", 25), ended(16, "worker-0", 0), job(16)]
    result = analysed(events)
    assert (result.restarts, result.unrecovered) == (1, 0)
    assert [task.restarts for task in result.tasks.values()] == [1, 1]
    assert result.recoveries == [5]  # from the exit at 8 s to the step at 13 s
    assert [task.lost_steps for task in result.tasks.values()] == [10, 6]  # 21 and 25 to 30
    assert result.lost_steps == 10  # those of the task that lost most
    assert result.steps_per_second == 4  # 10 to 30 and 25 to 45 between 5 s and 15 s
    assert result.goodput == 3 / 16  # 5 to 7 s and 14 to 15 s; step 25 was done before


def test_restarts_of_a_task_while_the_others_continue() -> None:
    events = [happened(0, "run"), *began_again(0, "chief-0", "ps-0", "worker-0")]
    events += [*steps_of("chief-0", {2: 2, 3: 3}), ended(4, "worker-0", 1), restart(4, "worker-0")]
    events += [step(5, "chief-0", 4), *began_again(6, "worker-0")]
    events += [*steps_of("chief-0", {8: 6, 10: 8}), ended(11, "worker-0", 137, oom=True)]
    events += [restart(11, "worker-0", number=2), happened(12, "start", "worker-0")]
    events += [job(20, "timeout", "too late"), ended(21, "chief-0", 1), ended(21, "worker-0", 0)]
    result = analysed(events, "{chief: 1, ps: 1, worker: 1}")
    assert (result.outcome, result.duration) == ("timeout", 20)
    # At 8 s: the step at 5 s was reported while the worker was down.
    assert (result.recoveries, result.unrecovered) == ([4], 1)
    assert result.restarts == result.tasks["worker-0"].restarts == 2
    assert result.tasks["chief-0"] == TaskResult("failed", 1, first_step=2, last_step=8)
    assert result.tasks["ps-0"].state == "running"
    assert result.tasks["worker-0"].oom_killed  # a later good end does not undo it
    assert result.lost_steps == 0
    assert result.goodput == 6 / 20  # 2 to 3 s, 5 to 8 s, 8 to 10 s; not around the exit at 4 s


@pytest.mark.parametrize(
    ("reported", "lost"),
    [
        ([step(9, "worker-0", 21)], 10),  # 21 to 30
        ([step(9, "worker-0", 30)], 1),
        ([step(9, "worker-0", 31)], 0),
        ([step(9, "worker-0", 90)], 0),
        ([step(9, "worker-0", 1), step(10, "worker-0", 2)], 30),
        ([step(9, "worker-0", 31), step(10, "worker-0", 31)], 0),  # with an accuracy
        ([restored(8, "worker-0", 20), restored(8.5, "worker-0", 0)], 10),
        ([happened(9, "phase", "worker-0", phase="restore", state="begin")], 0),
        ([happened(9, "phase", "worker-0", phase="data", state="begin", step=2)], 0),
        ([], 0),
    ],
)
def test_lost_steps_are_those_told_of_again(reported: Sequence[Told], lost: int) -> None:
    events = [*began_again(0, "worker-0"), step(5, "worker-0", 30), ended(6, "worker-0", 1)]
    events += [restart(6, "worker-0"), *began_again(7, "worker-0"), *reported]
    result = analysed(events)
    assert result.tasks["worker-0"].lost_steps == lost


def test_steps_lost_in_several_restarts_add_up() -> None:
    entries = [*began_again(0, "worker-0"), step(2, "worker-0", 10)]
    for t in (10, 20):
        entries += [ended(t, "worker-0", 1), restart(t, "worker-0")]
        entries += [*began_again(t + 1, "worker-0"), *steps_of("worker-0", {t + 5: 6, t + 6: 10})]
    result = analysed(entries)
    assert (result.lost_steps, result.final_step) == (5 + 5, 10)
    assert result.recoveries == [5, 5]
    assert result.goodput is not None


# --- What may be missing ------------------------------------------------------------------------


def test_an_empty_history_says_nothing() -> None:
    assert analysed([]) == Analysis(
        outcome="running",
        reason="the record ends before the job does",
        duration=0,
        tasks={"worker-0": TaskResult(), "worker-1": TaskResult()},
        throughput=Throughput(tasks={"worker-0": Rate(), "worker-1": Rate()}),
        recoveries=[],
        faults=[],
        time=NO_TIME,
    )
    at_once = analysed([step(0, "worker-0", 1), step(0, "worker-0", 2)])  # it has no time
    assert (at_once.outcome, at_once.final_step, at_once.goodput) == ("running", 2, None)
    early = analysed([step(1, "worker-0", 1), step(2, "worker-0", 2)])  # as far as it goes
    assert (early.outcome, early.final_step, early.steps_per_second) == ("running", 2, 1.0)


# --- Rates --------------------------------------------------------------------------------------


def test_only_what_brings_the_job_on_counts_for_its_rate() -> None:
    entries = [step(1, "worker-0", 10), step(2, "worker-1", 10), step(3, "worker-0", 20)]
    entries += [step(9, "worker-1", 20), step(10, "worker-1", 15)]
    assert analysed([happened(0, "run"), *entries]).steps_per_second == 5  # 10 in 2 s


# --- What a grace period was used for -----------------------------------------------------------


def saves(begin: float, end: float, task: str = "worker-1", name: str = "checkpoint") -> list[Told]:
    return phase(begin, end, task, name)


@pytest.mark.parametrize(
    ("kind", "saved", "after"),
    [
        ("preempt", saves(21, 23), 3),
        ("terminate", saves(21, 23), 3),
        ("kill", saves(21, 23), None),  # it had no notice
        ("preempt", saves(19, 21), 1),  # it had begun before the notice
        ("preempt", saves(18, 19), None),
        ("preempt", saves(24, 26), None),  # killed while at it
        ("preempt", saves(21, 22, name="eval"), None),
        ("preempt", saves(21, 22, "worker-0"), 2),
        ("preempt", saves(26, 27, "worker-0"), None),
        ("preempt", saves(21, 22, "worker-0") + saves(22, 24), 4),  # the target's own first
        ("preempt", saves(21, 22) + saves(23, 24), 2),
        ("preempt", [], None),
    ],
)
def test_what_was_saved_before_a_task_was_gone(
    kind: str, saved: Sequence[Told], after: float | None
) -> None:
    entries = [*began_again(0, "worker-0", "worker-1"), step(10, "worker-0", 10)]
    entries += [fault(20, "worker-1", "triggered", kind), *saved]
    entries += [fault(25, "worker-1", "applied", kind, exit_code=137, seconds=5, killed=True)]
    entries += [ended(25, "worker-1", 137), job(40)]
    result = analysed(in_time(entries), extra=f"faults: [{{{kind}: worker-1, at: {{step: 10}}}}]")
    assert [(one.saved_after, one.applied_after) for one in result.faults] == [(after, 5)]


# --- Around a fault -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stages", "status", "reason"),
    [
        ([], "pending", ""),
        ([fault(10, "worker-1", "triggered")], "pending", ""),
        ([fault(10, "worker-1", "skipped", reason="no step")], "skipped", "no step"),
        ([fault(10, "worker-1", "failed")], "failed", ""),
        ([fault(10, "worker-1", "applied", exit_code=1)], "applied", ""),  # a torn record
    ],
)
def test_a_fault_that_did_not_happen_has_no_numbers(
    stages: Sequence[Told], status: str, reason: str
) -> None:
    entries = [*began_again(0, "worker-0", "worker-1"), step(5, "worker-0", 1), *stages, job(20)]
    result = analysed(entries, extra="faults: [{preempt: worker-1, at: {step: 1}}]")
    assert result.faults == [FaultResult("0", "preempt", "worker-1", status, reason)]
    assert result.unrecovered == (status == "applied")


def test_where_no_step_is_read_nobody_knows_whether_it_went_on() -> None:
    result = analysed(
        [
            *began_again(0, "worker-0", "worker-1"),
            ended(4, "worker-1", 1),
            restart(6, "worker-1"),
            *began_again(7, "worker-1"),
            job(20),
        ]
    )
    assert (result.unrecovered, result.worst_recovery) == (None, None)


def test_recoveries_are_in_the_order_of_the_restarts() -> None:
    entries = [*began_again(0, "worker-0", "worker-1"), step(3, "worker-0", 1)]
    entries += [ended(4, "worker-0", 1), ended(5, "worker-1", 1), restart(6, "worker-1")]
    entries += [restart(7, "worker-0"), *began_again(7, "worker-1"), step(9, "worker-1", 1)]
    result = analysed([*entries, *began_again(9, "worker-0"), step(11, "worker-0", 2), job(12)])
    assert result.recoveries == [9 - 5, 11 - 4]


def test_helpers_are_told_of_with_what_they_said() -> None:
    told = [happened(1, "helper", "tunnel", stage="running")]
    told += [happened(3, "helper", "tunnel", stage="ended", exit_code=2, last_words=["broken"])]
    told += [happened(4, "helper", "board", stage="failed", reason="no image")]
    assert analysed(told).helpers == {
        "tunnel": HelperResult("failed", 2, "", ("broken",)),
        "board": HelperResult("failed", None, "no image"),
    }


@pytest.mark.parametrize(
    ("others", "noticed"),
    [
        ([], None),
        ([ended(13, "worker-0", 1)], 3),
        ([happened(14, "stall", "worker-0", seconds=3)], 4),
        ([happened(14, "stall", "worker-0", seconds=3), ended(14.5, "worker-0", 137)], 4),
        ([ended(13, "worker-0", 0)], None),  # it had finished
        ([ended(13, "worker-0", 143, told=True)], None),  # with the job, it did not fail
        ([ended(9, "worker-0", 1)], None),  # before the fault
        ([ended(21, "worker-0", 1)], 11),  # when the target was back, and made no step
        ([ended(26, "worker-0", 1)], None),  # when the job went on
        ([happened(12, "complaint", "worker-0", line="timed out")], 2),
        ([happened(12, "complaint", "worker-1", line="timed out")], None),  # by its own end
        ([happened(12, "restart", "worker-1", scope="job", number=1, delay=0)], 2),
        ([happened(12, "restart", "worker-1", scope="task", number=1, delay=0)], None),
    ],
)
def test_a_fault_is_noticed_where_another_task_shows_it_before_the_job_goes_on(
    others: Sequence[Told], noticed: float | None
) -> None:
    entries = [*began_again(0, "worker-0", "worker-1"), fault(10, "worker-1", "triggered")]
    entries += [ended(11, "worker-1", 137), fault(11, "worker-1", "applied", exit_code=137)]
    entries += [fault(20, "worker-1", "healed"), step(25, "worker-1", 3), *others]
    extra = "faults: [{preempt: worker-1, at: {step: 1}}]"
    (result,) = analysed(in_time(entries), extra=extra).faults
    assert result.detected_after == noticed


@pytest.mark.parametrize(
    ("met", "unmet"),
    [
        ([], "no call of worker-0 or worker-1 met it, while it lasted"),
        ([happened(15, "disk-met", "worker-1", call="openat", path="/shared/a")], ""),
        (
            [happened(25, "disk-met", "worker-1", call="openat", path="/shared/a")],
            "no call of worker-0 or worker-1 met it, while it lasted",
        ),
    ],
)
def test_a_disk_fault_that_no_call_has_met_has_shown_nothing(met: list[Told], unmet: str) -> None:
    entries = [*began_again(0, "worker-0", "worker-1"), *met]
    for number in (0, 1):
        id_, task = f"0:worker-{number}", f"worker-{number}"
        for at, stage in ((10, "triggered"), (11, "applied"), (20, "healed")):
            entries.append(fault(at + number / 10, task, stage, id=id_, kind="disk"))
    extra = "faults: [{disk: readonly, for: 9s, at: 10s}]"
    ran = timeline(in_time([*entries, job(30)]), extra=extra)
    found = analyse(ran)
    assert [one.unmet for one in found.faults] == [unmet, unmet]
    faults = judge(ran.plan.scenario.expect, found, ran)[1]
    assert (faults.status, unmet in faults.actual) == ("unknown" if unmet else "ok", True)


def test_a_task_that_goes_back_as_it_runs_has_lost_steps() -> None:
    """Worker 1 is lost; the session of the chief goes on from a checkpoint of step 20, twice."""
    events = [happened(0, "run"), *began_again(1, "chief-0", "worker-0")]
    events += [*steps_of("chief-0", {5: 10, 6: 20, 7: 30}), ended(8, "worker-0", 137)]
    events += [restart(8, "worker-0"), *began_again(10, "worker-0"), restored(11, "chief-0", 20)]
    events += steps_of("chief-0", {12: 30, 13: 40})
    # Nobody had failed: another chief has restored the variables that all share.
    events += [restored(14, "chief-0", 20), *steps_of("chief-0", {15: 30, 16: 40, 17: 50})]
    events += [ended(18, "chief-0", 0), job(18)]
    result = analysed(events, "{chief: 1, worker: 1}")
    assert result.lost_steps == 10 + 20  # 21 to 30, 21 to 40
    assert result.restarts == 1
    assert result.time["recovery"] == 4  # from 8 s to the step at 12 s
    # What the failure cut off from 7 s; until step 40 at 13 s; from 14 s until step 50 at 17 s.
    assert result.time["wasted"] == 1 + 1 + 3


def test_a_chief_that_comes_back_takes_the_others_back() -> None:
    """Worker 1 continues alone for 4 s, until worker 0 restores what both train."""
    events = [happened(0, "run"), *began_again(1, "worker-0", "worker-1"), step(5, "worker-0", 10)]
    events += [step(6, "worker-1", 20), ended(7, "worker-0", 137), restart(7, "worker-0")]
    events += [*steps_of("worker-1", {8: 30, 9: 40}), *began_again(8.5, "worker-0")]
    events += [restored(10, "worker-0", 10), restored(10, "worker-1", 10)]
    events += steps_of("worker-1", {11: 20, 12: 30, 13: 40, 14: 50})
    result = analysed([*events, ended(15, "worker-0", 0), job(15)])
    lost = {name: task.lost_steps for name, task in result.tasks.items()}
    assert lost == {"worker-0": 0, "worker-1": 30}
    # 6 to 7 s are cut off by the failure, as far as anybody knows then; 10 to 14 s are repeated.
    assert (result.time["wasted"], result.time["recovery"]) == (1 + 4, 1)


def test_a_program_that_counts_from_0_loses_no_step_too_many() -> None:
    """It has made 30 steps when it is at step 30, and makes these again."""
    first = [*began_again(0, "worker-0"), *steps_of("worker-0", {1: 0, 2: 10, 3: 20, 4: 30})]
    again = [*began_again(6, "worker-0"), *steps_of("worker-0", {7: 0, 8: 10})]
    assert (
        analysed([happened(0, "run"), *first, ended(5, "worker-0", 137), *again]).lost_steps == 30
    )


def source(task: str, words: str, *, counts: bool = True, retracts: bool = False) -> Told:
    about = {"source": words, "counts": counts, "retracts": retracts}
    return happened(1, "step-source", task, **about)


@pytest.mark.parametrize("last", [40, 100])
def test_a_fault_at_a_step_of_something_else_struck_at_another_step(last: int) -> None:
    """A bar of data had the steps until then; unless the training was as far."""
    told = [
        happened(0, "run"),
        *began_again(0, "worker-0"),
        source("worker-0", "a bar"),
        *steps_of("worker-0", {2: 90, 3: 100}),
        fault(4, "worker-0", "triggered", kind="pause"),
        fault(4, "worker-0", "applied", kind="pause"),
        fault(5, "worker-0", "healed", kind="pause"),
        *([source("worker-0", "the format", retracts=True)] if last < 100 else []),
        *steps_of("worker-0", {6: 10, 7: 40}),
        ended(9, "worker-0", 0),
        job(9),
    ]
    extra = "faults: [{pause: worker-0, for: 1s, at: {step: 100}}]"
    whole = timeline(told, extra=extra)
    analysis = analyse(whole)
    assert [one.wrong_source for one in analysis.faults] == ["a bar" if last < 100 else ""]
    verdicts = judge(whole.plan.scenario.expect, analysis, whole)
    verdict = {one.expectation: one for one in verdicts}["faults"]
    assert verdict.status == ("unknown" if last < 100 else "ok")
    assert ("struck at a step of a bar" in verdict.actual) is (last < 100)


@pytest.mark.parametrize(
    ("extra", "default"), [("", "lines of JSON"), ("metrics: {events: logs}", "event files")]
)
def test_sources_are_told_of_with_their_tasks(extra: str, default: str) -> None:
    told = [
        source("worker-0", "a bar", counts=False),
        source("worker-0", "a bar", counts=False),
        source("worker-1", "a bar", counts=False),
        source("worker-0", "the format"),
        source("worker-1", "a loss", retracts=True),  # its steps were those of the default
        source("worker-1", "the format", retracts=True),
        source("worker-2", "the format", counts=False),
        *(step(2, f"worker-{n}", 1) for n in (2, 0, 1)),
    ]
    found = step_sources(timeline(told, "{worker: 3}", extra))
    # Of one that is used by some task, it is not said that another has it too.
    used = {default: ["worker-2"], "the format": ["worker-0", "worker-1"]}
    seen = {"a bar": ["worker-0", "worker-1"], "a loss": ["worker-1"]}
    assert found == StepSources(used, seen)
    assert not found.has_trainer_lines
    assert found.as_data()["seen"][1] == {"source": "a loss", "tasks": ["worker-1"]}


def test_an_advance_is_a_step_that_is_further_than_all_before() -> None:
    at = [(1, "worker-0", 0), (2, "worker-1", 0), (3, "worker-1", 9), (4, "worker-0", 8)]
    advances = analysed([step(*one) for one in at]).traffic.advances
    assert [(one.t, one.step) for one in advances] == [(1, 0), (3, 9)]


# --- Which steps are the job's --------------------------------------------------------------------

BESIDE = "{chief: 1, evaluator: 1}"
FRAMEWORKS = ["", "framework: none"]
"""In TensorFlow's cluster the evaluator has no place; elsewhere it is a role like others."""
RESTARTED = [
    *began_again(0, "chief-0", "evaluator-0"),
    *steps_of("chief-0", {2: 1, 3: 2, 4: 3}),
    ended(5, "chief-0", 1),
    restart(5, "chief-0"),
    *began_again(5, "chief-0"),
]


def judged(entries: Sequence[Told], expect: str, extra: str = "") -> dict[str, str]:
    """Return the verdicts of some expectations of a chief with an evaluator."""
    run = timeline(entries, BESIDE, f"{extra}\nexpect: {expect}")
    return {
        one.expectation: one.status for one in judge(run.plan.scenario.expect, analyse(run), run)
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_old_checkpoint_is_no_result_of_the_training(framework: str) -> None:
    steps = steps_of("chief-0", {2: 1, 3: 2, 4: 3})
    entries = [step(1, "evaluator-0", 1000, accuracy=0.99), *steps, job(5)]
    found = judged(
        entries, "{final_step: 1000, accuracy: 0.9, values: {accuracy: {min: 0.9}}}", framework
    )
    assert found == {
        "outcome": "ok",
        "final_step": "failed",
        "accuracy": "unknown",
        "values.accuracy.min": "unknown",
    }
    result = analysed(entries, BESIDE, framework)
    assert (result.final_step, result.first_step, result.lost_steps) == (3, 2, 0)
    assert result.goodput == 0.4  # two of five seconds
    # Who goes on training from it has come as far.
    first = happened(0.5, "phase", "chief-0", phase="restore", state="end", step=1000)
    assert analysed([first, *entries], BESIDE, framework).accuracy == 0.99


@pytest.mark.parametrize(
    ("at", "accuracy"),
    [
        ({2: 10, 3: 20}, 0.5),  # at most as far ahead as the chief may be, from report to report
        ({2: 1, 3: 2}, None),
    ],
)
def test_an_evaluator_tells_the_accuracy(at: dict[float, int], accuracy: float | None) -> None:
    entries = [*steps_of("chief-0", at), step(4, "evaluator-0", 30, accuracy=0.5), job(5)]
    assert analysed(entries, BESIDE).accuracy == accuracy


def test_what_an_evaluator_says_counts_once_the_training_has_come_so_far() -> None:
    steps = steps_of("chief-0", {2: 1, 3: 2, 4: 3})
    early, late = (step(t, "evaluator-0", 3, accuracy=t / 10) for t in (2.5, 4.5))
    for entries, accuracy in (([early], None), ([late], 0.45), ([early, late], 0.45)):
        assert analysed(in_time([*steps, *entries, job(5)]), BESIDE).accuracy == accuracy


def test_steps_of_an_evaluator_alone_are_those_of_the_job() -> None:
    entries = [*steps_of("evaluator-0", {1: 10, 2: 20}), step(3, "evaluator-0", 30, accuracy=0.5)]
    result = analysed([*entries, job(5)], BESIDE)
    assert (result.final_step, result.accuracy, result.first_step) == (30, 0.5, 1)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "other",
    [
        steps_of("evaluator-0", {4.5: 1, 6.5: 2, 7: 3, 8: 9}),
        [step(t, "evaluator-0", 1) for t in (1, 3, 6.5, 8)],
    ],
)
def test_a_recovery_ends_with_a_step_of_the_training(other: list[Told], framework: str) -> None:
    entries = in_time([*RESTARTED, *other, step(15, "chief-0", 4), job(16)])
    result = analysed(entries, BESIDE, framework)
    assert (result.recoveries, result.time["recovery"]) == ([10], 10)


def test_a_step_that_another_task_repeats_ends_no_recovery() -> None:
    entries = [*began_again(0, "worker-0", "worker-1"), step(2, "worker-0", 3)]
    entries += [step(2, "worker-1", 3), ended(5, "worker-0", 1), restart(5, "worker-0")]
    entries += [*began_again(5, "worker-0"), *(step(t, "worker-1", 3) for t in (7, 8))]
    result = analysed([*entries, step(15, "worker-0", 3), job(16)])
    assert (result.recoveries, result.time["recovery"]) == ([10], 10)


def test_an_evaluator_that_reads_older_checkpoints_loses_no_steps() -> None:
    entries = [*began_again(0, "chief-0", "evaluator-0"), *steps_of("chief-0", {2: 10, 3: 20})]
    entries += [step(4, "evaluator-0", 10), ended(5, "evaluator-0", 1)]
    entries += [*began_again(6, "evaluator-0"), step(8, "evaluator-0", 5), job(9)]
    result = analysed(entries, BESIDE)
    assert (result.lost_steps, result.tasks["evaluator-0"].lost_steps) == (0, 6)


# --- What the training ended with -----------------------------------------------------------------

FIRST_LIFE = [
    *began_again(0, "worker-0"),
    step(2, "worker-0", 15, accuracy=0.95),
    *steps_of("worker-0", {2.5: 50, 3: 99}),
    step(4, "worker-0", 100, accuracy=0.97),
    ended(5, "worker-0", 137),
    restart(5, "worker-0"),
    *began_again(5, "worker-0"),
]


@pytest.mark.parametrize(
    ("then", "outcome", "found"),
    [
        # From scratch, and it ends early: what it had reached is gone.
        (steps_of("worker-0", {7: 10, 8: 20}), "succeeded", ("failed", "unknown", 20)),
        # What it tells itself of the model that it ends with counts.
        ([step(7, "worker-0", 20, accuracy=0.5)], "succeeded", ("failed", "failed", 20)),
        (steps_of("worker-0", {7: 60, 8: 100}), "succeeded", ("ok", "ok", None)),
        # There was nothing left to do, or what it did is unknown.
        ([restored(7, "worker-0", 100)], "succeeded", ("ok", "ok", None)),
        # It was tested in its last life, step by step.
        (steps_of("worker-0", {7: 100, 8: 1, 9: 9}), "succeeded", ("ok", "ok", None)),
        # Who did not come to an end had reached it, as far as is known.
        (steps_of("worker-0", {7: 10}), "timeout", ("ok", "ok", None)),
    ],
)
def test_what_counts_is_what_the_training_ended_with(
    then: list[Told], outcome: str, found: tuple[str, str, int | None]
) -> None:
    events = [*FIRST_LIFE, *then, ended(10, "worker-0", 0), job(10, outcome)]
    run = timeline(events, "{worker: 1}", "expect: {final_step: 100, accuracy: 0.9}")
    result = analyse(run)
    verdicts = {one.expectation: one for one in judge(run.plan.scenario.expect, result, run)}
    statuses = verdicts["final_step"].status, verdicts["accuracy"].status
    assert (*statuses, result.ended_at) == found
    assert result.final_step == 100
    if result.ended_at == 20:
        assert verdicts["final_step"].actual == "20 where it ended, 100 before"


def test_an_evaluator_says_nothing_of_a_life_before_the_last() -> None:
    def accuracy(*told: Told) -> float | None:
        events = [*FIRST_LIFE, *steps_of("worker-0", {7: 10, 8: 20}), *told, job(10)]
        return analysed(in_time(events), "{worker: 1, evaluator: 1}").accuracy

    told = [step(t, "evaluator-0", n, accuracy=t / 10) for t, n in ((4.5, 15), (8.5, 15), (9, 100))]
    assert [accuracy(*told[:n]) for n in range(4)] == [None, None, 0.85, 0.85]


def test_who_of_several_tasks_is_back_late_does_not_decide_what_the_training_ended_with() -> None:
    events = [*FIRST_LIFE, step(7, "worker-0", 60), step(8, "worker-1", 120), job(9)]
    assert (analysed(events).final_step, analysed(events).ended_at) == (120, None)
