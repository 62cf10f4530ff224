"""Jobs of the training operator, from start to verdict on the memory engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.memory import MemoryEngine, Script
from emulator.plugins.kubeflow.operator_job import QUIET
from emulator.record.events import TaskExit, TaskStart
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from tests.supervisor import in_memory
from tests.supervisor.in_memory import DEAF, SERVES, history, run_on

TFJOB = "name: test\nimage: none\nprogram: {command: ['true']}\n"
CHIEF = "{chief: 1, worker: 1}"


def text_of(cluster: str, settings: str, rest: str = "") -> str:
    job = f"{{kind: TFJob, job: m, {settings}}}"
    return f"cluster: {cluster}\noperator: {job}\n{rest}"


def run(
    tmp_path: Path, cluster: str, settings: str, scripts: dict[str, Any], rest: str = ""
) -> Result:
    """Run a TFJob with these settings; a list has what a task does from a time of the run on."""
    clock = ManualClock()
    began = clock.now()

    def script(name: str, start: int) -> Script:
        made: Any = scripts[name]
        if isinstance(made, list):
            made = [one for since, one in made if clock.now() - began >= since][-1]
        chosen: Script = made(start) if callable(made) else made
        return chosen

    engine = MemoryEngine(clock, {name: partial(script, name) for name in scripts})
    return run_on(engine, tmp_path, text_of(cluster, settings, rest), base=TFJOB)


def starts(result: Result, task: str) -> list[tuple[float, bool]]:
    found = (e for e in history(result) if isinstance(e, TaskStart) and e.task == task)
    return [(e.t, e.fresh) for e in found]


def times(result: Result, event: str, task: str = "") -> list[float]:
    return in_memory.times(history(result), event, task)


def fails(*codes: int) -> Callable[[int], Script]:
    """Return a script whose starts on one disk end after 1 s with these codes."""
    return lambda n: Script(exits_at=1, exit_code=codes[n - 1]) if n <= len(codes) else SERVES


def test_on_failure_restarts_in_place_later_each_time(tmp_path: Path) -> None:
    scripts = {"worker-0": fails(1, 1, 1), "chief-0": Script(exits_at=60)}
    result = run(tmp_path, CHIEF, "restart: {worker: on-failure}", scripts)
    assert starts(result, "worker-0") == [(0, False), (1, False), (12, False), (33, False)]
    assert result.outcome == "succeeded"
    scripts |= {"worker-0": fails(1)}  # also of the pod that replaces a preempted one
    faults = "faults: [{preempt: worker-0, at: 3s, grace: 0, down: 2s}]\n"
    result = run(tmp_path / "2", CHIEF, "restart: {worker: on-failure}", scripts, faults)
    assert starts(result, "worker-0") == [(0, False), (1, False), (5, True), (6, False)]


def test_exit_code_makes_new_pods_at_once(tmp_path: Path) -> None:
    scripts = {"worker-0": [(0, fails(137)), (2, SERVES)], "chief-0": Script(exits_at=9)}
    result = run(tmp_path, CHIEF, "restart: {worker: exit-code}", scripts)
    assert starts(result, "worker-0") == [(0, False), (1, True), (2, True)]


def test_the_limit_is_that_of_all_pods(tmp_path: Path) -> None:
    scripts = {"worker-0": fails(1), "worker-1": fails(1, 1), "chief-0": Script(exits_at=90)}
    settings = "restart: {worker: on-failure}, backoff_limit: 3"
    result = run(tmp_path, "{chief: 1, worker: 2}", settings, scripts)
    assert result.outcome == "failed"
    assert "backoffLimit of 3" in result.end.reason
    assert times(result, "job", "worker-1") == [2]


def test_the_deadline(tmp_path: Path) -> None:
    settings = "active_deadline: 5s, clean_pods: all, success: all-workers"
    scripts = {"worker-0": Script(exits_at=8), "worker-1": SERVES}
    result = run(tmp_path, "{worker: 2}", settings, scripts)
    assert "activeDeadlineSeconds of 5 s" in result.end.reason
    assert times(result, "job") == [5]


PRINTS = Script([(float(second), "still here") for second in range(1, 30, 4)], exits_at=None)


@pytest.mark.parametrize(
    ("settings", "worker_1", "ends"),
    [
        ("clean_pods: none", Script(exits_at=7), 7),
        ("clean_pods: running", Script(exits_at=7), 3),
        ("clean_pods: all", Script(exits_at=7), 3),
        ("clean_pods: none", PRINTS, 29 + QUIET),  # left alone until it is silent
        ("ttl_after_finished: 4s", SERVES, 7),  # the job is deleted with its pods
    ],
)
def test_pods_that_still_run_when_the_job_has_ended(
    tmp_path: Path, settings: str, worker_1: Script, ends: float
) -> None:
    scripts = {"worker-0": Script(exits_at=3), "worker-1": worker_1, "ps-0": SERVES}
    result = run(tmp_path, "{ps: 1, worker: 2}", settings, scripts)
    assert times(result, "job") == [3]
    assert times(result, "exit", "worker-1") == [ends]
    assert times(result, "exit", "ps-0") == [ends]


def test_a_preemption_that_outlasts_the_job_is_still_what_ends_the_pod(tmp_path: Path) -> None:
    scripts = {"worker-0": Script(exits_at=6), "worker-1": DEAF}
    faults = "faults: [{preempt: worker-1, at: 5s, grace: 5s, down: 1s}]\n"
    result = run(tmp_path, "{worker: 2}", "clean_pods: none", scripts, faults)
    (ended,) = [e for e in history(result) if isinstance(e, TaskExit) and e.task == "worker-1"]
    assert (ended.t, ended.exit_code, ended.fault) == (10, 137, "0")


@pytest.mark.parametrize(
    ("policy", "code", "outcome"),
    [
        ("never", 143, "failed"),
        ("on-failure", 143, "succeeded"),
        ("exit-code", 143, "succeeded"),
        ("exit-code", 42, "failed"),
    ],
)
def test_a_preempted_pod_comes_back_if_its_policy_says_so(
    tmp_path: Path, policy: str, code: int, outcome: str
) -> None:
    worker = [(0, Script(exits_at=3, exit_code=code, on_sigterm=None)), (4, SERVES)]
    result = run(
        tmp_path,
        CHIEF,
        f"clean_pods: all, restart: {{worker: {policy}}}",
        {"worker-0": worker, "chief-0": Script(exits_at=20)},
        "faults: [{preempt: worker-0, at: 2s, down: 3s}]\n",
    )
    assert result.outcome == outcome
    back = [(0, False), (6, True)] if outcome == "succeeded" else [(0, False)]
    assert starts(result, "worker-0") == back


def test_a_worker_that_may_leave_does_not_come_back(tmp_path: Path) -> None:
    """With restartPolicy Never; and when all have left, the operator would wait for ever."""
    crash = Script(exits_at=5, exit_code=1)
    scripts = {"worker-0": crash, "worker-1": SERVES, "ps-0": Script(exits_at=8, exit_code=0)}
    faults = "faults: [{preempt: worker-1, at: 2s, down: 1s}]\n"
    result = run(tmp_path, "{ps: 1, worker: 2}", "dynamic_worker: true", scripts, faults)
    assert result.outcome == "failed"
    assert "would never end" in result.end.reason
    assert starts(result, "worker-1") == [(0, False)]
    assert times(result, "job", "ps-0") == [8]
    assert [one["type"] for one in result.summary["conditions"]] == ["Created", "Running"]
