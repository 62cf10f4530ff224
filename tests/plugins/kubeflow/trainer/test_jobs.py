"""JobSets under way on the memory engine: restarts, disks, deadlines, and a take-over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.engines.memory import MemoryEngine, Script, Scripts
from emulator.errors import ScenarioError
from emulator.plugins.kubeflow.trainer.jobs import replayed
from emulator.plugins.kubeflow.trainer.ladder import Ladder
from emulator.record.events import Entry, JobEnded, Restart
from emulator.record.reader import Record
from emulator.record.timeline import Timeline
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from tests.supervisor.in_memory import BASE, SERVES, history, restarts, run_on, trains
from tests.supervisor.test_takeover import (
    WAYS,
    World,
    check,
    end_as_it_would_have,
    length_of,
    live_through,
    survive_kills,
)

TWO = "cluster: {node: 2}\n"
FAIL_JOB = "pod_failure: [{action: fail-job, on_conditions: [DisruptionTarget]}]"
PREEMPTED = "faults: [{preempt: node-0, at: 3s, grace: 0s, down: 4s}]\n"


def run(tmp_path: Path, extra: str, **scripts: Any) -> Result:
    """Run two nodes; each trains for 20 s unless its script is given (`node_1`)."""
    given: Scripts = {name.replace("_", "-"): script for name, script in scripts.items()}
    engine = MemoryEngine(ManualClock(), {**given, "*": Script(exits_at=20)})
    return run_on(engine, tmp_path, TWO + extra)


def fails(times: int, code: int = 1) -> Any:
    """Return a script that fails after 1 s so often on one disk."""
    return lambda n: Script(exits_at=1, exit_code=code) if n <= times else Script(exits_at=20)


def run_first(tmp_path: Path, extra: str, task: str) -> Result:
    """Run a scenario in which the first run of a task fails after 1 s."""
    clock = ManualClock()
    began = clock.now()

    def script(_: int) -> Script:
        return Script(exits_at=1, exit_code=1) if clock.now() == began else Script(exits_at=20)

    return run_on(MemoryEngine(clock, {task: script, "*": Script(exits_at=20)}), tmp_path, extra)


def levels(entries: list[Entry]) -> list[tuple[str, str | None, float]]:
    return [(e.scope, e.level, e.delay) for e in entries if isinstance(e, Restart)]


def test_a_container_keeps_its_disk_and_a_new_pod_has_a_new_one(tmp_path: Path) -> None:
    entries = history(run(tmp_path, "jobset: {}\n", node_0=fails(2)))
    assert restarts(entries) == [("node-0", 1, False), ("node-0", 12, False)]
    assert levels(entries) == [("task", "container", 0), ("task", "container", 10)]
    never = "jobset: {jobs: {node: {restart: never}}}\nrestart: {backoff: 2s}\n"
    entries = history(run_first(tmp_path / "2", TWO + never, "node-0"))
    assert restarts(entries) == [("node-0", 3, True)]
    assert levels(entries) == [("task", "pod", 2)]


def test_a_preempted_pod_is_replaced_alone_and_the_peer_that_hangs_is_left(
    tmp_path: Path,
) -> None:
    result = run(tmp_path, f"jobset: {{}}\n{PREEMPTED}timeout: 60s\n", node_1=SERVES)
    assert result.outcome == "timeout"
    # The machine is back after 4 s, the Job makes its Pod after the back-off of 10 s.
    assert restarts(history(result)) == [("node-0", 13, True)]
    assert levels(history(result)) == []


def test_fail_job_and_max_restarts_start_the_gang_again(tmp_path: Path) -> None:
    jobs = f"jobs: {{node: {{restart: never, {FAIL_JOB}}}}}"
    gang = f"jobset: {{{jobs}, failure: {{max_restarts: 1}}}}\n{PREEMPTED}"
    result = run(tmp_path, gang)
    assert restarts(history(result)) == [("node-1", 3, True), ("node-0", 7, True)]
    assert levels(history(result)) == [("job", None, 0)]
    assert result.outcome == "succeeded"
    result = run(tmp_path, f"jobset: {{{jobs}}}\n{PREEMPTED}")
    assert (result.outcome, result.end.cause) == ("failed", "pod-failure-policy")
    assert "rule 0 of the podFailurePolicy says FailJob" in result.end.reason


def test_a_pod_whose_peers_fail_meanwhile_waits_as_long_as_they_do(tmp_path: Path) -> None:
    never = "jobset: {jobs: {node: {restart: never}}}\n"
    second = "faults: [{kill: node-1, at: 9s}, {preempt: node-0, at: 3s, grace: 0s, down: 1s}]\n"
    assert restarts(history(run(tmp_path, never + second))) == [
        ("node-1", 29, True),
        ("node-0", 29, True),
    ]
    both = "faults: [{kill: node-0, at: 3s}, {kill: node-1, at: 9s}]\n"
    assert [t for _, t, _ in restarts(history(run(tmp_path, never + both)))] == [29, 29]


def test_a_pod_that_needs_its_grace_is_replaced_as_soon_as_it_has_ended(tmp_path: Path) -> None:
    fault = "faults: [{preempt: node-0, at: 3s, grace: 12s, down: 1s}]\n"
    deaf = Script(exits_at=40, on_sigterm=None)
    entries = history(run(tmp_path, f"jobset: {{}}\n{fault}", node_0=deaf))
    assert restarts(entries) == [("node-0", 16, True)]
    code = {"node_0": Script(exits_at=40, on_sigterm=4, sigterm_code=0)}
    entries = history(run(tmp_path / "2", f"jobset: {{}}\n{fault}", **code))
    assert restarts(entries) == [("node-0", 13, True)]


def test_a_pod_that_is_lost_while_all_end_comes_back_with_its_machine(tmp_path: Path) -> None:
    jobs = f"jobs: {{node: {{restart: never, {FAIL_JOB}}}}}"
    gang = f"jobset: {{{jobs}, failure: {{max_restarts: 1}}}}\n"
    first = "{preempt: node-1, at: 2s, grace: 3s, down: 9s}"
    second = "{preempt: node-0, at: 3s, grace: 0s, down: 4s}"
    deaf = Script(exits_at=40, on_sigterm=None)
    result = run(tmp_path, f"{gang}faults: [{first}, {second}]\n", node_1=deaf)
    assert restarts(history(result)) == [("node-0", 7, True), ("node-1", 14, True)]
    assert levels(history(result)) == [("job", None, 0)]
    assert result.outcome == "succeeded"


def test_deadlines_of_a_job_count_anew_and_that_of_all_does_not(tmp_path: Path) -> None:
    job = "jobset: {jobs: {node: {active_deadline: 5s}}, failure: {max_restarts: 1}}\n"
    result = run(tmp_path, job)
    assert [e.t for e in history(result) if isinstance(e, Restart | JobEnded)] == [5, 10]
    assert result.end.cause == "deadline"
    result = run(tmp_path, "jobset: {active_deadline: 7s}\n")
    assert (result.outcome, result.end.cause) == ("failed", "deadline")
    assert [e.t for e in history(result) if isinstance(e, JobEnded)] == [7]


def test_a_job_before_training_is_made_again_by_itself(tmp_path: Path) -> None:
    extra = (
        "cluster: {data: {before: training}, node: 1}\n"
        "jobset: {jobs: {data: {restart: never, backoff_limit: 0}}, failure: {max_restarts: 1}}\n"
    )
    result = run_first(tmp_path, extra, "data-0")
    assert [(e.task, e.t) for e in history(result) if e.event == "start"] == [
        ("data-0", 0),
        ("data-0", 1),
        ("node-0", 21),
    ]
    assert result.outcome == "succeeded"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("jobset: {jobs: {nod: {}}}", "jobset.jobs: nod is not a role of the cluster"),
        ("jobset: {success: {jobs: [x]}}", "jobset.success.jobs: x is not a role"),
        (f"jobset: {{jobs: {{node: {{{FAIL_JOB}}}}}}}", "jobs.node.pod_failure: needs new Pods"),
        (
            "jobset: {jobs: {node: {restart: never, max_failed_indexes: 1}}}",
            "max_failed_indexes: needs a limit for each index",
        ),
        (
            "jobset: {jobs: {node: {restart: never, pod_replacement: terminating-or-failed, "
            f"{FAIL_JOB}}}}}}}",
            "pod_replacement: a Job with `pod_failure` only replaces Pods that have ended",
        ),
        ("jobset: {}\nrestart: never", "restart.policy: can't be set beside `jobset`"),
        ("jobset: {active_deadline: 0s}", "jobset.active_deadline"),
        (
            "jobset: {jobs: {node: {restart: never, pod_failure: [{action: ignore, on_exit_codes: "
            "{operator: in, values: [0]}}]}}}",
            "0 is no failure",
        ),
        ("jobset: {}\nsuccess: chief", "success: can't be set beside `jobset`"),
        ("jobset: {}\noperator: {kind: TFJob, job: a}", "operator: can't be set beside `jobset`"),
        (
            "jobset: {jobs: {node: {success: [{indexes: 0-a}]}}}",
            "'0-a' is no list of indexes",
        ),
        (
            "jobset: {failure: {rules: [{action: fail-jobset, messages: ['(']}]}}",
            "missing )",
        ),
    ],
)
def test_a_mistake_says_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as error:
        parse(f"{BASE}{TWO}{text}\n")
    assert problem in str(error.value)


# --- Taken over -----------------------------------------------------------------------------------

GANG = (
    "cluster: {worker: 2}\nrestart: {backoff: 1s}\njobset:\n"
    "  jobs: {worker: {restart: never, backoff_limit: 2, active_deadline: 1h, "
    f"{FAIL_JOB}}}}}\n"
    "  failure: {max_restarts: 2}\nfaults:\n"
    "  - {kill: worker-0, at: 3s}\n  - {preempt: worker-1, at: 8s, grace: 1s, down: 14s}\n"
    "  - {kill: worker-0, at: {recovery: 1, delay: 2s}}\n",
    {"*": trains()},
)


def test_the_jobs_are_as_before_after_a_take_over(tmp_path: Path) -> None:
    extra, scripts = GANG
    for kill in range(1, length_of(tmp_path / "whole", extra, scripts, 0.25) + 1):
        here = World(tmp_path / str(kill), extra, scripts, 0.25)
        check(here, live_through(here, [kill, 0], 0.0))


def test_a_history_has_the_state_of_its_jobs(tmp_path: Path) -> None:
    jobs = f"jobs: {{node: {{restart: never, {FAIL_JOB}}}}}"
    result = run(
        tmp_path,
        f"jobset: {{{jobs}, failure: {{max_restarts: 2}}}}\n"
        "faults: [{preempt: node-0, at: 3s, grace: 0s, down: 1s}, {kill: node-1, at: 9s}]\n",
    )
    record = Record(result.folder)
    timeline = Timeline(record.plan, record.history)
    rules: Any = record.plan.scenario.jobset
    status = replayed(Ladder(rules, {"node": ("node-0", "node-1")}), timeline)
    assert (status.restarts, status.counted, status.jobs["node"].failed) == (1, 1, 1)
    assert status.jobs["node"].indexes["node-1"].rung == "pod"
    assert status.jobs["node"].complete


@pytest.mark.slow
@pytest.mark.parametrize(("away", "slow", "twice"), WAYS)
def test_a_kill_between_any_two_effects_is_survived(
    tmp_path: Path, away: float, slow: float, twice: bool
) -> None:
    survive_kills(tmp_path, *GANG, away=away, slow=slow, twice=twice)


@pytest.mark.slow
def test_a_run_that_is_taken_over_at_once_ends_as_it_would_have(tmp_path: Path) -> None:
    end_as_it_would_have(tmp_path, *GANG)
