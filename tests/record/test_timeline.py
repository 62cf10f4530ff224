"""What tasks, faults and the job did over time; every expected number was worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emulator.analysis.analyse import analyse
from emulator.record.events import Entry
from emulator.record.timeline import Interval
from tests.histories import began_again, ended, fault, happened, job, phase, restart, step, timeline
from tests.report.runs import PREEMPT, preempted
from tests.runs import a_history

CLUSTER = "{worker: 2, ps: 1}"


BEGUN = [happened(0, "run"), *began_again(0, "worker-0", "worker-1")]
OVER = happened(9, "removed")
JOB_RESTARTED = [
    *(*BEGUN, ended(5, "worker-0", 1), restart(5, "worker-0", "job")),
    ended(6, "worker-1", 143, told=True),
    *(*began_again(8, "worker-0", "worker-1"), job(10)),
]
PAUSE = "faults: [{pause: worker-0, at: 3s, for: 4s}]\n"
PAUSED = [
    *BEGUN,
    *(fault(3, "worker-0", "triggered", "pause"), fault(4, "worker-0", "applied", "pause")),
]
HEALED = [*PAUSED, fault(8, "worker-0", "healed", "pause"), ended(9, "worker-0", 0), job(9)]
AT_ONCE = [*PAUSED[:-1], *(fault(1, "worker-0", at, "pause") for at in ("applied", "healed")), OVER]
BACK = [*PAUSED, ended(5, "worker-0", 137), restart(5, "worker-0"), *began_again(6, "worker-0")]
PARTITION = "faults: [{partition: [[worker-0], [worker-1]], at: 3s, for: 4s}]\n"
RESTARTED = [ended(4, "worker-0", 1), restart(4, "worker-0"), *began_again(5, "worker-0")]
CUT_OFF = [*BEGUN, fault(3, "", "applied", "partition"), fault(7, "", "healed", "partition"), OVER]
STATES: dict[str, tuple[str, Sequence[Entry], str, str]] = {
    "a preempted task is down until it is started again": (
        *("worker-1", preempted(), PREEMPT),
        "starting 1-2, running 2-9, down 9-12, starting 12-13, running 13-20",
    ),
    "or until the record ends": (
        *("worker-1", [*preempted()[:13], happened(15, "removed")], PREEMPT),
        "starting 1-2, running 2-9, down 9-15",
    ),
    "a failed task is in backoff until it starts again": (
        *("worker-0", a_history(), ""),
        "starting 0.5-1, running 1-4.5, backoff 4.5-5.5, starting 5.5-5.6, running 5.6-9.8",
    ),
    "or until the record ends, if it waits to be restarted": (
        *("worker-0", [*BEGUN, ended(3, "worker-0", 1), restart(3, "worker-0"), OVER], ""),
        "starting 0-1, running 1-3, backoff 3-9",
    ),
    "and has no state after its last end": (
        *("worker-0", [*BEGUN, ended(4, "worker-0", 1), OVER], ""),
        "starting 0-1, running 1-4",
    ),
    "a task that runs does so until the record ends": (
        *("worker-1", [*BEGUN, OVER], ""),
        "starting 0-1, running 1-9",
    ),
    "a task of a restarted job waits from its exit to its start": (
        *("worker-0", JOB_RESTARTED, ""),
        "starting 0-1, running 1-5, backoff 5-8, starting 8-9, running 9-10",
    ),
    "also the one that was told to stop": (
        *("worker-1", JOB_RESTARTED, ""),
        "starting 0-1, running 1-6, backoff 6-8, starting 8-9, running 9-10",
    ),
    "what lasts is laid over a running task": (
        *("worker-0", HEALED, PAUSE),
        "starting 0-1, running 1-4, paused 4-8, running 8-9",
    ),
    "and ends with it": (
        *("worker-0", [*PAUSED, happened(6, "removed")], PAUSE),
        "starting 0-1, running 1-4, paused 4-6",
    ),
    "a partition cuts off the tasks of both sides": (
        *("worker-0 worker-1", CUT_OFF, PARTITION),
        "starting 0-1, running 1-3, cut off 3-7, running 7-9",
    ),
    "a task that starts meanwhile is cut off once it runs": (
        *("worker-0", [*CUT_OFF[:-2], *RESTARTED, *CUT_OFF[-2:]], PARTITION),
        "starting 0-1, running 1-3, cut off 3-4, backoff 4-5, starting 5-6, cut off 6-7, "
        "running 7-9",
    ),
    "also one that the plan does not have": (
        *("a", [happened(1, "start", "a"), happened(2, "running", "a"), OVER], ""),
        "starting 1-2, running 2-9",
    ),
    "a held fault holds what replaces its target once it is applied again": (
        *("worker-0", [*BACK, fault(8, "worker-0", "reapplied", "pause"), OVER], PAUSE),
        "starting 0-1, running 1-4, paused 4-5, backoff 5-6, starting 6-7, running 7-8, paused 8-9",
    ),
    "at the earliest when that runs": (
        *("worker-0", [*BACK, fault(7, "worker-0", "reapplied", "pause"), OVER], PAUSE),
        "starting 0-1, running 1-4, paused 4-5, backoff 5-6, starting 6-7, paused 7-9",
    ),
    "and else not at all": (
        *("worker-0", [*BACK, OVER], PAUSE),
        "starting 0-1, running 1-4, paused 4-5, backoff 5-6, starting 6-7, running 7-9",
    ),
    "a fault that ends as a task starts leaves it as it is": (
        *("worker-0", AT_ONCE, PAUSE),
        "starting 0-1, running 1-9",
    ),
    "a task that never started has none": ("worker-0", [step(4, "worker-0", 1), OVER], "", ""),
}


@pytest.mark.parametrize(("tasks", "events", "extra", "states"), STATES.values(), ids=STATES)
def test_every_task_has_one_state_at_a_time(
    tasks: str, events: Sequence[Entry], extra: str, states: str
) -> None:
    for task in tasks.split():
        found = [span for span in timeline(events, CLUSTER, extra).states() if span.task == task]
        assert ", ".join(f"{span.name} {span.begin:g}-{span.end:g}" for span in found) == states


def test_a_state_has_the_values_of_its_events_and_steps_lie_between_those_of_one_life() -> None:
    task = timeline(a_history(), CLUSTER).tasks["worker-0"]
    running = list(task.states(11.0))[1]
    assert (running.name, running.values["id"], running.values["exit_code"]) == ("running", "x", 1)
    refused = timeline([*BEGUN[:2], ended(3, "worker-0", 127)]).tasks["worker-0"]
    assert [span.values.get("exit_code") for span in refused.states(9)] == [127]
    assert [dict(span.values) for span in task.states(11.0) if span.name == "starting"] == [{}, {}]
    steps = [(span.name, span.begin, span.end) for span in task.step_intervals()]
    assert steps == [("steps to 20", 2, 3), ("steps to 30", 8, 9)]


def test_phases_are_spans_and_one_that_an_end_cut_off_says_so() -> None:
    assert timeline(a_history(), CLUSTER).phases() == [
        Interval("checkpoint", 2.2, 2.8, {"step": 10}, "worker-0"),
        Interval("checkpoint", 3.5, 4, {"cut off": True}, "worker-1"),
    ]
    events = [
        happened(0, "run"),
        happened(1, "phase", "worker-0", phase="restore", state="begin"),
        happened(2, "start", "worker-0"),
        happened(3, "phase", "worker-0", phase="restore", state="end"),
        *phase(4, 6, "worker-0", "checkpoint"),
        happened(7, "phase", "worker-0", phase="eval", state="begin"),
        OVER,
    ]
    assert timeline(events).phases() == [
        Interval("restore", 1, 2, {"cut off": True}, "worker-0"),
        Interval("checkpoint", 4, 6, {}, "worker-0"),
        Interval("eval", 7, 9, {"cut off": True}, "worker-0"),
    ]


def test_the_final_exit_of_a_task_is_the_one_after_which_it_is_not_started_again() -> None:
    """The engine's stamp says when, but never later than it was heard of."""
    late = ended(5, "worker-1", 137, told=True, late=30)
    for events, expected in (
        (
            [*BEGUN, ended(5, "worker-0", 0, late=-2), late],
            [(3, 0, "succeeded"), (5, 137, "stopped")],
        ),
        (preempted(), [(20, 0, "succeeded"), (20, 1, "failed")]),
        (preempted()[:-3], [None, None]),
        ([*BEGUN, ended(3, "worker-0", 137, fault="0")], [None, None]),
    ):
        exits = [task.final_exit for task in timeline(events).tasks.values()]
        assert [one and (one.t, one.exit_code, one.state) for one in exits] == expected


# --- Faults and the job -------------------------------------------------------------------------


def test_a_planned_fault_has_its_stages_with_times_and_evidence() -> None:
    (found,) = timeline(preempted(), extra=PREEMPT).faults.values()
    assert (found.id, found.kind, found.planned.target) == ("0", "preempt", "worker-1")
    times = {stage: event.t for stage, event in found.stages.items()}
    assert times == {"triggered": 7, "applied": 9, "healed": 13}
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
        (["triggered", "preparing", "triggered"], "triggered", "", True, None),  # once more
    ],
)
def test_the_stage_of_a_fault_is_its_last(
    stages: Sequence[str], stage: str, reason: str, in_force: bool, outcome: str | None
) -> None:
    why = dict.fromkeys(("preparing", "failed", "skipped"), "why")
    events = [fault(n, "worker-1", one, reason=why.get(one)) for n, one in enumerate(stages)]
    found = timeline(events, extra=PREEMPT).faults["0"]
    assert (found.stage, found.reason, found.in_force) == (stage, reason, in_force)
    assert (found.outcome.stage if found.outcome else None) == outcome
    assert found.since == (len(stages) - 1 if stages else None)


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
    alone = timeline([*events[:-1], restart(5, "worker-0"), restart(9, "worker-0")])
    assert [task.restarts for task in alone.tasks.values()] == [2, 0]
    assert not alone.restarting
    events += [ended(6, "worker-1", 143, told=True), *began_again(8, "worker-0", "worker-1")]
    replay = timeline([*events, job(9, "failed", "why"), ended(10, "worker-0", 0)])
    assert [event.scope for event in replay.restarts] == ["job"]
    assert not replay.restarting
    assert (replay.outcome, replay.reason, replay.duration, replay.end) == ("failed", "why", 9, 10)
    broken = timeline([*events, happened(9, "error", message="it broke")])
    assert (broken.outcome, broken.reason, broken.ended) == ("error", "it broke", None)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "pending"),
        ([step(1, "worker-0", 1)], "pending"),
        ([happened(1, "start", "worker-0")], "starting"),
        ([happened(1, "running", "worker-0")], "running"),
        (BEGUN, "running"),
        ([ended(1, "worker-0", 0)], "succeeded"),
        ([ended(1, "worker-0", 0, told=True)], "succeeded"),
        ([ended(1, "worker-1", 1)], "pending"),
        ([*BEGUN, ended(3, "worker-0", 1)], "failed"),
        ([*BEGUN, ended(3, "worker-0", 1, told=True)], "stopped"),
        ([*BEGUN, ended(3, "worker-0", 1, fault="0")], "down"),
        ([*BEGUN, ended(3, "worker-0", 1), restart(3, "worker-0")], "backoff"),
        ([*BEGUN, ended(3, "worker-0", 1), restart(3, "worker-0", "job")], "failed"),
    ],
)
def test_a_task_is_in_the_state_of_its_last_event(events: Sequence[Entry], state: str) -> None:
    replay = timeline(events)
    assert replay.tasks["worker-0"].state == analyse(replay).tasks["worker-0"].state == state


def test_steps_that_are_read_after_an_exit_are_late() -> None:
    events = [*BEGUN, step(2, "worker-0", 1), ended(3, "worker-0", 0), step(3, "worker-0", 2)]
    events += phase(3, 3, "worker-0", "eval")
    replay = timeline(events)
    (life,) = replay.tasks["worker-0"].incarnations
    assert [(of is life, one.step) for of, one in replay.steps] == [(True, 1), (True, 2)]
    assert ([one.step for one in life.steps], [one.step for one in life.late]) == ([1, 2], [2])


@pytest.mark.parametrize("length", range(len(a_history()) + 1))
def test_events_one_by_one_give_the_same_as_all_at_once(length: int) -> None:
    """The live view and the finished record share the replay."""
    events = a_history()[:length]
    whole, live = timeline(events, CLUSTER), timeline([], CLUSTER)
    for entry in events:
        live.add(entry)
    assert (live.tasks, live.faults) == (whole.tasks, whole.faults)
    assert (live.outcome, live.restarts, live.ended) == (whole.outcome, whole.restarts, whole.ended)
