"""Where a run stood, from its history."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Exited
from emulator.engines.memory import MemoryEngine
from emulator.planning.planner import make_plan
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.supervisor.job import JobEnd
from emulator.supervisor.takeover import RecoveredState, _fault, recover, resumption
from tests.histories import an_event

TEXT = "name: t\nframework: none\nimage: none\nprogram: {command: [a]}\ncluster: {worker: 3}\n"
CONTEXT = MemoryEngine(ManualClock()).plan_context("r", Path())
BEGIN = [("start", 0), ("start", 1), ("start", 2), ("running", 0), ("running", 1), ("running", 2)]


def stood(*events: Any, text: str = TEXT) -> RecoveredState:
    """Return where a run stood after such (event, number of the worker, data), a second each."""
    entries = []
    for n, (event, worker, *data) in enumerate(events):
        task = "" if worker is None else f"worker-{worker}"
        fields = data[0] if data else {}
        entries.append(an_event(event, task, n=n, t=float(n), wall=100.0 + n, **fields))
    return recover(make_plan(parse(text), "r", CONTEXT), entries)


def ended(worker: int, code: int = 1, **data: object) -> tuple[str, int, dict[str, object]]:
    return "exit", worker, {"exit_code": code, "oom_killed": False, "told_to_stop": False, **data}


def states(found: RecoveredState) -> list[str]:
    return [state.state for state in found.tasks.values()]


def replaced(found: RecoveredState) -> list[str]:
    return [name for name, task in found.timeline.tasks.items() if task.is_being_replaced]


def test_nothing_was_done_yet() -> None:
    found = stood(("run", None))
    assert states(found) == ["pending"] * 3
    assert (found.timeline.prepared, found.timeline.all_running) == (None, None)
    assert (found.end, found.last_exit) == (None, None)


def test_each_task_is_where_its_last_event_left_it() -> None:
    found = stood(("run", None), ("prepared", None), *BEGIN[:4], ("step", 0, {"step": 7}))
    assert found.timeline.prepared == 1
    assert states(found) == ["running", "starting", "starting"]
    assert found.tasks["worker-0"].step == 7
    starts = [task.incarnations[-1].start for task in found.timeline.tasks.values()]
    assert [start.wall for start in starts if start is not None] == [102, 103, 104]
    assert found.timeline.end == 6


def test_all_ran_and_the_job_is_over() -> None:
    job = {"outcome": "failed", "reason": "because"}
    found = stood(*BEGIN, ("all-running", None), ("job", 1, job), ("stop", 0))
    assert found.timeline.all_running == 6
    assert found.end == JobEnd("failed", "because", "worker-1")
    assert [state.stop_sent for state in found.tasks.values()] == [108.0, None, None]


def test_an_exit_without_a_decision_is_kept_as_it_was() -> None:
    found = stood(*BEGIN, ended(1, 137, oom_killed=True))
    assert states(found) == ["running", "ended", "running"]
    assert found.last_exit == Exited("worker-1", 106, 137, oom_killed=True)
    assert found.tasks["worker-1"].exit_code == 137


def test_a_task_in_its_backoff_waits_for_its_restart() -> None:
    again = ("restart", 1, {"scope": "task", "number": 2, "delay": 4.0})
    found = stood(*BEGIN, ended(1), again)
    assert states(found) == ["running", "backoff", "running"]
    assert (found.tasks["worker-1"].restarts, found.job_restarts) == (2, 0)


def test_a_preempted_task_is_down_and_then_replaced() -> None:
    away = [*BEGIN, ended(1, fault="0")]
    assert states(stood(*away)) == ["running", "down", "running"]
    back = stood(*away, ("start", 1))
    assert states(back) == ["running", "starting", "running"]
    assert replaced(back) == ["worker-1"]
    assert replaced(stood(*away, ("start", 1), ("start", 1))) == ["worker-1"]  # a second kill
    assert replaced(stood(*away, ("start", 1), ("running", 1), ended(1), ("start", 1))) == []


GANG = [*BEGIN, ended(0), ("restart", 0, {"scope": "job", "number": 1, "delay": 1.0})]


@pytest.mark.parametrize(
    ("then", "restarting", "expected"),
    [
        ([], True, ["ended", "running", "running"]),
        ([ended(1), ended(2)], True, ["ended"] * 3),
        ([ended(1, fault="0"), ("start", 1), ("start", 1)], True, ["ended", "starting", "running"]),
        # A replacement that comes meanwhile does not mean that the others have started again.
        ([ended(1, fault="0"), ("start", 1)], True, ["ended", "starting", "running"]),
        ([ended(1), ended(2), ("start", 0)], False, ["starting", "backoff", "backoff"]),
        ([ended(1, fault="0"), ended(2), ("start", 0)], False, ["starting", "down", "backoff"]),
    ],
)
def test_a_gang_restarts_once_its_first_has_started(
    then: list[Any], restarting: bool, expected: list[str]
) -> None:
    found = stood(*GANG, *then)
    assert (found.timeline.restarting, states(found)) == (restarting, expected)
    assert found.job_restarts == 1


STARTED = {"worker-0": "a", "worker-1": "b"}


@pytest.mark.parametrize(
    ("events", "started", "expected"),
    [
        ([], {}, ["start"] * 3),
        (BEGIN[:3], STARTED, ["started", "started", "start"]),
        (BEGIN, STARTED, ["follow", "follow", "lost"]),
        ([*BEGIN, ended(1)], STARTED, ["follow", "follow", "lost"]),
        ([*BEGIN[:2], ended(1, fault="0"), ("start", 1)], {}, ["start", "down", "start"]),
        ([*GANG, ended(1), ended(2), ("start", 0)], {}, ["start"] * 3),
        ([*BEGIN[:2], ("job", 1, {"outcome": "failed", "reason": "x"})], {}, ["ended"] * 3),
    ],
)
def test_a_successor_starts_what_had_to_start(
    events: list[Any], started: dict[str, str], expected: list[str]
) -> None:
    found = stood(*events)
    assert [resumption(name, found, started) for name in found.tasks] == expected


FAULTS = """faults:
  - {preempt: worker-1, at: 1s, grace: 1s, down: 4s}
  - {restart: worker-1, at: 1s}
  - {pause: worker-1, at: 1s, for: 9s}
  - {terminate: worker-1, at: 1s}
"""
STEPPED = [*BEGIN, ("step", 1, {"step": 1})]
BACK = [("start", 1), ("running", 1), ("step", 0, {"step": 2}), ("step", 1, {"step": 2})]


def at(fault: int, *stages: str) -> list[tuple[str, int, dict[str, str]]]:
    kind = ("preempt", "restart", "pause", "terminate")[fault]
    return [("fault", 1, {"id": str(fault), "kind": kind, "stage": one}) for one in stages]


ENDED = ("triggered", "applied")


@pytest.mark.parametrize(
    ("fault", "events", "stage", "times"),
    [
        (0, STEPPED, "planned", (50, None, inf, inf)),
        (0, [*STEPPED, *at(0, "preparing")], "planned", (50, None, inf, inf)),
        (0, [*STEPPED, *at(0, "triggered")], "terminating", (57, 107, inf, inf)),
        (2, [*STEPPED, *at(2, "triggered")], "active", (57, 107, inf, inf)),
        (2, [*STEPPED, *at(2, *ENDED)], "active", (57, 107, 58, inf)),
        # Its exit is written, or else the engine reports that again.
        (0, [*STEPPED, *at(0, *ENDED), ended(1, fault="0")], "down", (57, 107, 58, inf)),
        (0, [*STEPPED, *at(0, *ENDED)], "terminating", (57, 107, 58, inf)),
        (3, [*STEPPED, *at(3, *ENDED)], "over", (57, 107, 58, inf)),
        (0, [*STEPPED, *at(0, "triggered", "skipped")], "over", (57, 107, inf, inf)),
        # The job has recovered with any step; from a rolling restart with the task's own.
        (0, [*STEPPED, *at(0, *ENDED), ended(1, fault="0"), *BACK], "down", (57, 107, 58, 62)),
        (1, [*STEPPED, *at(1, *ENDED), ended(1, fault="1"), *BACK], "down", (57, 107, 58, 63)),
        (1, [*BEGIN, *at(1, *ENDED), ended(1), *BACK], "down", (56, 106, 57, 61)),
        (2, [*STEPPED, *at(2, *ENDED, "healed"), *BACK[2:]], "over", (57, 107, 58, 60)),
    ],
)
def test_a_fault_is_where_its_last_event_left_it(
    fault: int, events: list[Any], stage: str, times: tuple[float | None, ...]
) -> None:
    """The run began at 50 of the clock and 100 of the wall."""
    timeline = stood(*events, text=TEXT + FAULTS).timeline
    one = _fault(timeline.faults[str(fault)], timeline, 50.0)
    assert one.stage == stage
    assert (one.triggered_at, one.asked_at, one.applied_at, one.recovered_at) == times
    assert one.restored == (one.recovered_at < inf)


def test_neither_an_evaluator_nor_a_repeated_step_has_recovered_a_job() -> None:
    text = TEXT.replace("cluster: {worker: 3}", "cluster: {worker: 2, evaluator: 1}") + FAULTS
    again = [("start", 1), ("running", 1), ("step", 0, {"step": 2})]
    seen = [*STEPPED, ("step", 0, {"step": 2}), *at(0, *ENDED), ended(1, fault="0"), *again]
    timeline = stood(*seen, ("step", 2, {"step": 9}), text=text).timeline
    timeline.history = [
        replace(one, task="evaluator-0") if one.task == "worker-2" else one
        for one in timeline.history
    ]
    assert _fault(timeline.faults["0"], timeline, 50.0).recovered_at == inf
