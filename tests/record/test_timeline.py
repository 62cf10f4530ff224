"""What tasks, faults and the job did over time; every expected number was worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from emulator.faults.schedule import to_json
from emulator.record.events import Entry, TaskExit
from emulator.record.timeline import Interval, TaskTimeline
from tests.exports.runs import a_history
from tests.histories import (
    began_again,
    ended,
    fault,
    happened,
    history,
    job,
    phase,
    restart,
    step,
    timeline,
)
from tests.report.runs import PREEMPT, preempted

END = 11.0


def of(task: str, events: Sequence[Entry] | None = None) -> TaskTimeline:
    return timeline(a_history() if events is None else events, "{worker: 2, ps: 1}").tasks[task]


def brief(spans: Iterable[Interval]) -> list[tuple[str, float, float]]:
    return [(span.name, span.begin, span.end) for span in spans]


def test_a_preempted_task_is_down_until_it_starts_again() -> None:
    assert brief(of("worker-1").states(END)) == [
        ("starting", 0.5, 1),
        ("running", 1, 4),
        ("down", 4, 6),
        ("starting", 6, 6.5),
        ("running", 6.5, 10.5),
    ]


def test_a_failed_task_is_in_backoff_until_it_starts_again() -> None:
    found = list(of("worker-0").states(END))
    assert brief(found)[2:] == [
        ("backoff", 4.5, 5.5),
        ("starting", 5.5, 5.6),
        ("running", 5.6, 9.8),
    ]
    assert (found[1].values["id"], found[1].values["exit_code"]) == ("x", 1)


def test_an_unfinished_interval_ends_with_the_record() -> None:
    events = [happened(1, "start", "a"), happened(2, "running", "a")]
    assert brief(of("a", events).states(9))[-1] == ("running", 2, 9)
    waiting = [*events, ended(3, "a", 1), restart(3, "a")]
    assert brief(of("a", waiting).states(9))[-1] == ("backoff", 3, 9)


def test_exits_and_steps_are_timed_by_the_engine() -> None:
    events = [happened(1, "running", "a"), step(3, "a", 1, late=-0.5), ended(5, "a", 0, late=-1)]
    assert [entry.t for entry in history(events)] == [1, 2.5, 4]
    # A clock that is off puts no event before an earlier one.
    events = [happened(1, "running", "a"), ended(5, "a", 0, late=-9)]
    assert [entry.t for entry in history(events)] == [1, 1]


def test_a_phase_that_an_end_cut_off_says_so() -> None:
    assert [(s.name, s.begin, s.end, s.values) for s in of("worker-1").phases(END)] == [
        ("checkpoint", 3.5, 4, {"cut off": True})
    ]
    assert [(s.name, s.begin, s.end, s.values) for s in of("worker-0").phases(END)] == [
        ("checkpoint", 2.2, 2.8, {"step": 10})
    ]
    begun = [happened(1, "phase", "a", phase="eval", state="begin")]
    assert brief(of("a", begun).phases(9)) == [("eval", 1, 9)]


def test_steps_lie_between_step_events_of_one_life() -> None:
    assert brief(of("worker-0").step_intervals()) == [("steps to 20", 2, 3), ("steps to 30", 8, 9)]


# --- All tasks, with the faults ---


def shown(task: str, events: Sequence[Entry], extra: str = "") -> list[tuple[str, float, float]]:
    """Return a task's states with the faults laid over them."""
    return brief(s for s in timeline(events, extra=extra).states() if s.task == task)


def endings(events: Sequence[Entry]) -> list[TaskExit]:
    return [end for task in timeline(events).tasks.values() if (end := task.final_exit)]


def test_a_preempted_task_is_down_until_it_is_started_again() -> None:
    assert shown("worker-1", preempted(), PREEMPT) == [
        ("starting", 1, 2),
        ("running", 2, 9),
        ("down", 9, 12),
        ("starting", 12, 13),
        ("running", 13, 20),
    ]


def test_a_task_of_a_restarted_job_waits_from_its_exit_to_its_start() -> None:
    events = [
        happened(0, "run"),
        *began_again(0, "worker-0", "worker-1"),
        ended(5, "worker-0", 1),
        restart(5, "worker-0", "job"),
        ended(6, "worker-1", 143, told=True),
        *began_again(8, "worker-0", "worker-1"),
        job(10),
    ]
    assert ("backoff", 5, 8) in shown("worker-0", events)
    assert ("backoff", 6, 8) in shown("worker-1", events)


def test_what_lasts_is_laid_over_a_running_task_and_ends_with_it() -> None:
    extra = "faults: [{pause: worker-0, at: 3s, for: 4s}]\n"
    paused = [
        happened(0, "run"),
        *began_again(0, "worker-0"),
        fault(3, "worker-0", "triggered", "pause"),
        fault(4, "worker-0", "applied", "pause"),
    ]
    healed = [*paused, fault(8, "worker-0", "healed", "pause"), ended(9, "worker-0", 0), job(9)]
    assert shown("worker-0", healed, extra)[1:] == [
        ("running", 1, 4),
        ("paused", 4, 8),
        ("running", 8, 9),
    ]
    crashed = [*paused, happened(6, "removed")]
    assert shown("worker-0", crashed, extra)[1:] == [("running", 1, 4), ("paused", 4, 6)]


def test_a_partition_cuts_off_all_its_tasks() -> None:
    extra = "faults: [{partition: [[worker-0], [worker-1]], at: 3s, for: 4s}]\n"
    events = [
        happened(0, "run"),
        *began_again(0, "worker-0", "worker-1"),
        fault(3, "", "applied", "partition"),
        fault(7, "", "healed", "partition"),
        job(9),
    ]
    for task in ("worker-0", "worker-1"):
        assert ("cut off", 3, 7) in shown(task, events, extra)


def test_a_task_is_down_until_the_record_ends_and_a_failed_one_is_not() -> None:
    events = preempted()[:13]
    assert shown("worker-1", [*events, happened(15, "removed")], PREEMPT)[-1] == ("down", 9, 15)
    failed = [happened(0, "run"), *began_again(0, "worker-0"), ended(4, "worker-0", 1), job(9)]
    assert shown("worker-0", failed) == [("starting", 0, 1), ("running", 1, 4)]
    assert shown("worker-0", [step(4, "worker-0", 1), job(9)]) == []


def test_phases_are_spans_and_end_with_their_task() -> None:
    events = [
        happened(0, "run"),
        happened(1, "phase", "worker-0", phase="restore", state="begin"),
        happened(2, "start", "worker-0"),
        happened(3, "phase", "worker-0", phase="restore", state="end"),
        *phase(4, 6, "worker-0", "checkpoint"),
    ]
    assert timeline(events).phases() == [
        Interval("restore", 1, 2, {"cut off": True}, "worker-0"),
        Interval("checkpoint", 4, 6, {}, "worker-0"),
    ]


def test_the_engines_stamp_says_when_a_task_ended_but_never_later_than_it_was_heard_of() -> None:
    early = ended(5, "worker-0", 0, late=-2.0)
    late = ended(5, "worker-1", 137, told=True, late=30.0)
    events = [happened(0, "run"), *began_again(0, "worker-0", "worker-1"), early, late]
    assert [(e.task, e.t, e.exit_code, e.state) for e in endings(events)] == [
        ("worker-0", 3, 0, "succeeded"),
        ("worker-1", 5, 137, "stopped"),
    ]


def test_what_was_started_again_has_not_ended() -> None:
    events = preempted()
    assert [(e.task, e.state) for e in endings(events)] == [
        ("worker-0", "succeeded"),
        ("worker-1", "failed"),
    ]
    assert endings(history(preempted()[:-3])) == []


# --- Faults and the job -------------------------------------------------------------------------


def test_a_planned_fault_has_its_stages_with_times_and_evidence() -> None:
    (found,) = timeline(preempted(), extra=PREEMPT).faults.values()
    assert (found.id, found.kind, found.planned.target) == ("0", "preempt", "worker-1")
    assert {stage: event.t for stage, event in found.stages.items()} == {
        "triggered": 7,
        "applied": 9,
        "healed": 13,
    }
    assert (found.stages["applied"].exit_code, found.stages["applied"].killed) == (143, True)
    assert (found.stage, found.since, found.triggered) == ("healed", 13, 7)
    assert found.outcome is found.stages["applied"]
    assert found.impairment(Interval("running", 0, 20, task="worker-1")) is None  # it was gone


@pytest.mark.parametrize(
    ("stages", "stage", "reason", "in_force", "outcome"),
    [
        ([], "waiting", "", False, None),
        (["preparing"], "preparing", "why", False, None),
        (["triggered"], "triggered", "", True, None),
        (["triggered", "applied"], "applied", "", True, "applied"),
        (["triggered", "applied", "healed"], "healed", "", False, "applied"),
        (["triggered", "applied", "failed"], "failed", "why", False, "failed"),
        (["skipped"], "skipped", "why", False, "skipped"),
    ],
)
def test_the_stage_of_a_fault_is_its_last(
    stages: Sequence[str], stage: str, reason: str, in_force: bool, outcome: str | None
) -> None:
    why = {"preparing": "why", "failed": "why", "skipped": "why"}
    events = [
        fault(n, "worker-1", one, **({"reason": why[one]} if one in why else {}))
        for n, one in enumerate(stages)
    ]
    found = timeline(events, extra=PREEMPT).faults["0"]
    assert (found.stage, found.reason, found.in_force) == (stage, reason, in_force)
    assert (found.outcome.stage if found.outcome else None) == outcome
    assert found.since == (len(stages) - 1 if stages else None)


def test_a_manual_fault_is_one_from_the_event_that_planned_it() -> None:
    planned = timeline([], extra="faults: [{pause: worker-1, at: 3s, for: 4s}]\n").faults["0"]
    plan = to_json(planned.planned) | {
        "id": "manual-1",
        "target": "worker-1",
        "tasks": ["worker-1"],
    }
    about = {"id": "manual-1", "kind": "pause"}
    replay = timeline(
        [
            *began_again(0, "worker-1"),
            happened(2, "fault", "worker-1", **about, stage="planned", plan=plan),
            happened(3, "fault", "worker-1", **about, stage="triggered"),
            happened(4, "fault", "worker-1", **about, stage="applied"),
            happened(9, "removed"),
        ],
        extra=PREEMPT,
    )
    assert list(replay.faults) == ["0", "manual-1"]
    assert replay.faults["manual-1"].planned.tasks == ("worker-1",)
    assert (replay.faults["manual-1"].stage, replay.faults["0"].stage) == ("applied", "waiting")
    assert ("paused", 4, 9) in brief(replay.states())


def test_the_job_has_its_times_restarts_and_end() -> None:
    events = [
        happened(0, "run"),
        happened(1, "prepared"),
        *began_again(2, "worker-0", "worker-1"),
        happened(3, "all-running"),
        ended(5, "worker-0", 1),
        restart(5, "worker-0", "job"),
    ]
    cut = timeline(events)
    assert (cut.prepared, cut.all_running, cut.outcome, cut.duration) == (1, 3, None, 5)
    assert cut.restarting
    assert {task.restarts for task in cut.tasks.values()} == {1}
    events += [ended(6, "worker-1", 143, told=True), *began_again(8, "worker-0", "worker-1")]
    replay = timeline([*events, job(9, "failed", "why"), ended(10, "worker-0", 0)])
    assert [event.scope for event in replay.restarts] == ["job"]
    assert not replay.restarting
    assert (replay.outcome, replay.reason, replay.duration, replay.end) == ("failed", "why", 9, 10)
    broken = timeline([*events, happened(9, "error", message="it broke")])
    assert (broken.outcome, broken.reason, broken.ended) == ("error", "it broke", None)


@pytest.mark.parametrize("length", range(len(a_history()) + 1))
def test_events_one_by_one_give_the_same_as_all_at_once(length: int) -> None:
    """The live view and the finished record share the replay."""
    events = a_history()[:length]
    whole, live = timeline(events, "{worker: 2, ps: 1}"), timeline([], "{worker: 2, ps: 1}")
    for entry in events:
        live.add(entry)
    assert live.tasks == whole.tasks
    assert live.faults == whole.faults
    assert (live.outcome, live.restarts, live.ended) == (whole.outcome, whole.restarts, whole.ended)
