"""What tasks were doing when; every expected time was worked out by hand."""

from __future__ import annotations

from emulator.analysis.lanes import Ending, Span, endings, phases, states
from emulator.record.events import Entry
from tests.histories import (
    a_plan,
    began_again,
    ended,
    fault,
    happened,
    history,
    job,
    phase,
    restart,
)
from tests.report.runs import PREEMPT, preempted


def of(task: str, told: list[Entry], extra: str = "") -> list[tuple[str, float, float]]:
    plan = a_plan("{worker: 2}", extra)
    return [(s.what, s.begin, s.end) for s in states(plan, told) if s.task == task]


def test_a_preempted_task_is_down_until_it_is_started_again() -> None:
    assert of("worker-1", history(preempted()), PREEMPT) == [
        ("starting", 1, 2),
        ("running", 2, 9),
        ("down", 9, 12),
        ("starting", 12, 13),
        ("running", 13, 20),
    ]


def test_a_task_of_a_restarted_job_waits_from_its_exit_to_its_start() -> None:
    told = history(
        [
            happened(0, "run"),
            *began_again(0, "worker-0", "worker-1"),
            ended(5, "worker-0", 1),
            restart(5, "worker-0", "job"),
            ended(6, "worker-1", 143, told=True),
            *began_again(8, "worker-0", "worker-1"),
            job(10),
        ]
    )
    assert ("backoff", 5, 8) in of("worker-0", told)
    assert ("backoff", 6, 8) in of("worker-1", told)


def test_what_lasts_is_laid_over_a_running_task_and_ends_with_it() -> None:
    extra = "faults: [{pause: worker-0, at: 3s, for: 4s}]\n"
    paused = [
        happened(0, "run"),
        *began_again(0, "worker-0"),
        fault(3, "worker-0", "triggered", "pause"),
        fault(4, "worker-0", "applied", "pause"),
    ]
    healed = [*paused, fault(8, "worker-0", "healed", "pause"), ended(9, "worker-0", 0), job(9)]
    assert of("worker-0", history(healed), extra)[1:] == [
        ("running", 1, 4),
        ("paused", 4, 8),
        ("running", 8, 9),
    ]
    crashed = history([*paused, happened(6, "removed")])
    assert of("worker-0", crashed, extra)[1:] == [("running", 1, 4), ("paused", 4, 6)]


def test_a_partition_cuts_off_all_whom_it_names() -> None:
    extra = "faults: [{partition: [[worker-0], [worker-1]], at: 3s, for: 4s}]\n"
    told = history(
        [
            happened(0, "run"),
            *began_again(0, "worker-0", "worker-1"),
            fault(3, "", "applied", "partition"),
            fault(7, "", "healed", "partition"),
            job(9),
        ]
    )
    for task in ("worker-0", "worker-1"):
        assert ("cut off", 3, 7) in of(task, told, extra)


def test_who_is_down_when_the_record_ends_is_down_until_then_and_who_failed_is_gone() -> None:
    told = preempted()[:13]
    assert of("worker-1", history([*told, happened(15, "removed")]), PREEMPT)[-1] == ("down", 9, 15)
    failed = [happened(0, "run"), *began_again(0, "worker-0"), ended(4, "worker-0", 1), job(9)]
    assert of("worker-0", history(failed)) == [("starting", 0, 1), ("running", 1, 4)]


def test_phases_are_spans_and_end_with_their_task() -> None:
    told = history(
        [
            happened(0, "run"),
            happened(1, "phase", "worker-0", phase="restore", state="begin"),
            happened(2, "start", "worker-0"),
            happened(3, "phase", "worker-0", phase="restore", state="end"),
            *phase(4, 6, "worker-0", "checkpoint"),
        ]
    )
    assert phases(told) == [
        Span("worker-0", "restore", 1, 2),
        Span("worker-0", "checkpoint", 4, 6),
    ]


def test_the_engines_stamp_says_when_a_task_ended_but_never_later_than_it_was_heard_of() -> None:
    early = ended(5, "worker-0", 0, late=-2.0)
    late = ended(5, "worker-1", 137, told=True, late=30.0)
    told = history([happened(0, "run"), *began_again(0, "worker-0", "worker-1"), early, late])
    assert endings(told) == [
        Ending("worker-0", 3, 0, "succeeded"),
        Ending("worker-1", 5, 137, "stopped"),
    ]


def test_what_was_started_again_has_not_ended() -> None:
    told = history(preempted())
    assert [(e.task, e.state) for e in endings(told)] == [
        ("worker-0", "succeeded"),
        ("worker-1", "failed"),
    ]
    assert endings(history(preempted()[:-3])) == []
