"""Tasks that end before training: the others start when all of them have succeeded."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.memory import Script, Scripts
from emulator.record.events import Restart
from emulator.scenario.restart import Restart as Rules
from emulator.supervisor.restart_policy import (
    BeginTraining,
    Fail,
    RestartTask,
    Wait,
    decide_before_training,
)
from tests.supervisor.in_memory import SERVES, history, run, stages, starts, step, trains

INGEST = "cluster: {worker: 2, ingest: {replicas: 2, before: training}}\n"
TRAINS = trains(5)


def fails(times: int, code: int = 1, **kwargs: Any) -> Callable[[int], Script]:
    """Return a script that fails so often, 2 s after its start, and then succeeds after 2 s."""
    return lambda start: Script(exits_at=2.0, exit_code=code if start <= times else 0, **kwargs)


def test_training_starts_when_every_task_before_it_has_succeeded(tmp_path: Path) -> None:
    scripts = {"ingest-0": Script(exits_at=3), "ingest-1": Script(exits_at=5), "*": TRAINS}
    result, engine = run(tmp_path, INGEST + "expect: {final_step: 5, max_restarts: 0}", scripts)
    assert starts(result) == [
        ("ingest-0", 0.0),
        ("ingest-1", 0.0),
        ("worker-0", 5.0),
        ("worker-1", 5.0),
    ]
    events = [e.event for e in history(result) if e.event not in ("step", "start", "running")]
    assert events[2:7] == ["before-training", "exit", "exit", "training", "all-running"]
    assert (result.exit_code, engine.signals) == (0, [])
    assert result.end.reason == "worker-0 finished"
    states = {name: task["state"] for name, task in result.summary["tasks"].items()}
    assert set(states.values()) == {"succeeded"}
    assert result.summary["startup"] == {
        "network": 0,
        "training": 5,
        "all_running": 5,
        "first_step": 6,
    }
    assert {cause: t for cause, t in result.summary["time"].items() if t} == {
        "data": 5,
        "startup": 1,
        "productive": 4,
        "other": 1,
    }


def test_a_failed_task_before_training_fails_the_job_with_a_clear_sentence(tmp_path: Path) -> None:
    words = Script([(1, "no such bucket")], exits_at=2, exit_code=3)
    scripts = {"ingest-1": words, "ingest-0": SERVES, "*": TRAINS}
    result, engine = run(tmp_path, INGEST, scripts)
    assert result.end.reason == "ingest-1 failed with exit code 3, so that training did not begin"
    assert [task for task, _ in starts(result)] == ["ingest-0", "ingest-1"]
    assert engine.signals == [("ingest-0", signal.SIGTERM)]
    assert result.summary["tasks"]["worker-0"]["state"] == "pending"
    assert result.last_words == {"ingest-1": ["no such bucket"]}
    assert result.exit_code == 1


@pytest.mark.parametrize("scope", ["task", "job"])
def test_a_failed_one_is_restarted_alone_in_every_scope(tmp_path: Path, scope: str) -> None:
    restart = f"restart: {{policy: on-failure, scope: {scope}, backoff: 1s}}\n"
    extra = INGEST + restart + "expect: {max_restarts: 2, recovers_within: 1ms}"
    scripts: Scripts = {"ingest-0": fails(2), "ingest-1": Script(exits_at=4.0), "*": TRAINS}
    result, _ = run(tmp_path, extra, scripts)
    # 2 s, a second of backoff, 2 s, two seconds of backoff, 2 s
    assert starts(result)[2:] == [
        ("ingest-0", 3.0),
        ("ingest-0", 7.0),
        ("worker-0", 9.0),
        ("worker-1", 9.0),
    ]
    restarts = [e for e in history(result) if isinstance(e, Restart)]
    expected = [("ingest-0", "task", number) for number in (1, 2)]
    assert [(e.task, e.scope, e.number) for e in restarts] == expected
    assert result.summary["recoveries"] == []  # there was no training to recover
    assert result.summary["time"]["recovery"] == 0
    assert result.summary["time"]["data"] == 9


def test_its_steps_are_none_of_the_training(tmp_path: Path) -> None:
    lines = [(0.5, step(900)), (1.0, "100%|###| 900/900 [00:01<00:00, 900it/s]")]
    scripts = {"ingest-*": Script(lines, exits_at=2.0), "*": TRAINS}
    result, _ = run(tmp_path, INGEST, scripts)
    assert (result.final_step, result.summary["tasks"]["ingest-0"]["last_step"]) == (5, None)


def test_a_preempted_one_starts_again_on_a_fresh_disk(tmp_path: Path) -> None:
    """Its trigger counts from when the tasks before training run, and a follower's from there."""
    extra = (
        INGEST + "faults:\n  - {name: spot, preempt: ingest-0, at: 1s, grace: 1s, down: 3s}\n"
        "  - {pause: worker-1, at: {after: spot, delay: 9500ms}, for: 500ms}\n"
    )
    script = Script(exits_at=4.0, on_sigterm=0.5)
    result, _ = run(tmp_path, extra, {"ingest-0": script, "ingest-1": Script(), "*": TRAINS})
    # preempted after 1 s, gone after 1.5, back after 4.5, done after 8.5
    assert starts(result)[2:] == [("ingest-0", 4.5), ("worker-0", 8.5), ("worker-1", 8.5)]
    assert stages(history(result)) == [("triggered", 1), ("applied", 1.5), ("healed", 4.5)]
    follower = stages(history(result), "1")
    assert follower == [("triggered", 11), ("applied", 11), ("healed", 11.5)]
    assert result.summary["recoveries"] == []
    assert result.outcome == "succeeded"


def test_a_fault_on_one_that_has_ended_is_skipped(tmp_path: Path) -> None:
    extra = INGEST + "faults:\n  - {preempt: ingest-0, at: 4s, down: 1s}\n"
    result, _ = run(tmp_path, extra, {"ingest-*": Script(exits_at=2.0), "*": TRAINS})
    (fault,) = result.summary["faults"]
    assert (fault["status"], fault["reason"]) == ("skipped", "ingest-0 was not running")


def test_the_timeout_counts_from_the_first_task_and_says_what_it_waited_for(tmp_path: Path) -> None:
    scripts = {"ingest-0": Script(), "ingest-1": SERVES, "*": TRAINS}
    result, _ = run(tmp_path, INGEST + "timeout: 1m\n", scripts)
    assert (result.outcome, result.summary["duration"]) == ("timeout", 60)
    assert result.exit_code == 1
    assert result.end.reason == (
        "not done after the timeout of 60 s; training had not begun, because it waited for ingest-1"
    )


@pytest.mark.parametrize("policy", ["never", "on-failure", "always", "exit-code"])
def test_code_0_is_the_end_under_every_policy(policy: str) -> None:
    rules = Rules.model_validate({"policy": policy, "limit": 1})

    def after(code: int, other: int | None, restarts: int = 0) -> object:
        exits = {"ingest-0": None, "ingest-1": other}
        return decide_before_training(
            "ingest-0", code, restart=rules, exits=exits, restarts=restarts
        )

    assert after(0, None) == Wait()
    assert after(0, 0) == BeginTraining()
    assert isinstance(after(137, 0), Fail if policy == "never" else RestartTask)
    assert isinstance(after(2, 0), Fail if policy in ("never", "exit-code") else RestartTask)
    over = after(137, 0, restarts=1)
    assert isinstance(over, Fail)
    assert over.reason.endswith(", so that training did not begin")
    if policy != "never":
        assert over.reason.startswith(
            "ingest-0 had its 1 restart and ended again, with exit code 137"
        )
