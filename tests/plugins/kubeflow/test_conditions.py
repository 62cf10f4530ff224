"""The conditions of jobs of the training operator, in their order and with their reasons."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from emulator.plugins.kubeflow.conditions import LISTED, as_data, changes, present
from emulator.record.events import Entry
from emulator.record.timeline import Timeline
from tests import histories
from tests.histories import ended, happened, job, restart


def timeline(history: Sequence[Entry], cluster: str = "{worker: 2}", **operator: Any) -> Timeline:
    about = {"kind": "TFJob", "job": "mnist", **operator}
    framework = "pytorch" if about["kind"] == "PyTorchJob" else "tensorflow"
    extra = f"framework: {framework}\noperator: {json.dumps(about)}\n"
    return histories.timeline([happened(0, "run"), *history], cluster, extra)


SUCCEEDED = job(9)
FAILED = job(9, "failed", "worker-1 failed with exit code 1")


def runs(*tasks: str, t: float = 1.0) -> list[Entry]:
    return [happened(t, event, task) for event in ("start", "running") for task in tasks]


def crash(task: str, code: int, t: float) -> list[Entry]:
    return [ended(t, task, code), restart(t, task)]


STUCK = happened(9, "job", outcome="failed", reason="every pod has ended", cause="stuck")
TIMEOUT = job(9, "timeout", "too long")
BOTH = runs("worker-0", "worker-1")
PREEMPTED = ended(3, "worker-1", 143, fault="f1")


def test_a_job_that_succeeds() -> None:
    found = changes(timeline([*BOTH, happened(1, "all-running"), SUCCEEDED]))
    assert [(one.t, one.type, one.status, one.reason, one.message) for one in found] == [
        (0, "Created", "True", "TFJobCreated", "default/mnist was made"),
        (1, "Running", "True", "TFJobRunning", "mnist-worker-0 runs"),
        (9, "Succeeded", "True", "TFJobSucceeded", "default/mnist succeeded: worker-0 finished"),
    ]
    last = [(one.type, one.status) for one in present(found)]
    assert last == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]


def test_a_new_pod_is_a_restart_and_running_replaces_it() -> None:
    history = [*BOTH, *crash("worker-1", 137, 3), *runs("worker-1", t=4), SUCCEEDED]
    found = changes(timeline(history, restart={"worker": "exit-code"}))
    times = [("Created", 0), ("Running", 1), ("Restarting", 3), ("Running", 4), ("Succeeded", 9)]
    assert [(one.type, one.t) for one in found] == times
    assert found[2].reason == "TFJobRestarting"
    assert "mnist-worker-1" in found[2].message
    assert [one.type for one in present(found)] == ["Created", "Running", "Succeeded"]


@pytest.mark.parametrize(
    ("restart", "after", "until"),
    [
        # A preempted pod is made again, whatever the policy.
        ("on-failure", [PREEMPTED, *runs("worker-0", t=4), *runs("worker-1", t=6)], 6),
        # One of two new pods is not enough.
        ("exit-code", [*crash("worker-0", 137, 3), *crash("worker-1", 137, 3),
                       *runs("worker-0", t=4), *runs("worker-1", t=5)], 5),
    ],
)  # fmt: skip
def test_a_job_restarts_until_each_new_pod_runs(
    restart: str, after: Sequence[Entry], until: float
) -> None:
    found = changes(timeline([*BOTH, *after], restart={"worker": restart}))
    times = [("Created", 0), ("Running", 1), ("Restarting", 3), ("Running", until)]
    assert [(one.type, one.t) for one in found] == times


@pytest.mark.parametrize(
    ("restart", "code", "first"),
    [
        ("on-failure", 0, "worker-1"),
        ("never", 1, "worker-1"),
        ("exit-code", 1, "worker-1"),
        # Its container starts again in it.
        ("on-failure", 1, "worker-0"),
        ("always", 0, "worker-0"),
    ],
)
def test_a_pod_that_has_ended_for_good_runs_no_more(restart: str, code: int, first: str) -> None:
    history = [*BOTH, ended(2, "worker-0", code), PREEMPTED, *runs("worker-1", t=6)]
    *_, last = changes(timeline(history, restart={"worker": restart}))
    assert (last.type, last.message) == ("Running", f"mnist-{first} runs")


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob"])
def test_the_master_decides_whether_the_job_runs(kind: str) -> None:
    history = [*runs("worker-0"), *runs("master-0", t=2)]
    found = changes(timeline(history, kind=kind, cluster="{master: 1, worker: 1}"))
    assert [(one.reason, one.t) for one in found] == [(f"{kind}Created", 0), (f"{kind}Running", 2)]


@pytest.mark.parametrize(
    ("after", "last"),
    [
        # A restart in its pod changes no condition.
        ([*crash("worker-0", 1, 3), *runs("worker-0", t=4), SUCCEEDED], ["Succeeded"]),
        ([FAILED, *runs("worker-0", t=10)], ["Failed"]),
        # A job that would never end has no last condition.
        ([STUCK], []),
        ([TIMEOUT], []),
    ],
)
def test_what_follows_running(after: Sequence[Entry], last: Sequence[str]) -> None:
    found = changes(timeline([*runs("worker-0"), *after], restart={"worker": "on-failure"}))
    assert [one.type for one in found] == ["Created", "Running", *last]


def test_other_jobs_have_none() -> None:
    line = timeline(runs("worker-0"))
    scenario = line.plan.scenario.model_copy(update={"operator": None})
    plain = Timeline(line.plan.model_copy(update={"scenario": scenario}), line.history)
    assert changes(plain) == ()


def test_a_long_series_is_cut_in_its_middle() -> None:
    history = runs("worker-0")
    for second in range(2, 400, 2):
        history += [*crash("worker-0", 137, second), *runs("worker-0", t=second + 1)]
    found = changes(timeline([*history, job(400)], restart={"worker": "exit-code"}))
    for count in (LISTED, LISTED + 1, len(found)):
        listed = [(one["type"], one["t"]) for one in as_data(found[:count])]
        kept = [*range(LISTED // 2), *range(count - LISTED // 2, count)]
        assert listed == [(found[number].type, found[number].t) for number in kept]
    assert len(found) > LISTED + 1
