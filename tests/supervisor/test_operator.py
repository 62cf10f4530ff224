"""Jobs of the training operator, from start to verdict on the memory engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from emulator.analysis.conditions import changes
from emulator.engines.memory import MemoryEngine, Script
from emulator.errors import UsageError
from emulator.record.events import Entry, TaskStart
from emulator.record.reader import Record
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.supervisor.control import RunControl
from emulator.supervisor.operator_job import QUIET
from tests.supervisor import in_memory
from tests.supervisor.in_memory import SERVES, Job, history, run_on

TFJOB = "name: test\nimage: none\nprogram: {command: ['true']}\n"
CHIEF = "cluster: {chief: 1, worker: 1}\n"


def run(tmp_path: Path, extra: str, scripts: dict[str, Any]) -> Result:
    clock = ManualClock()
    began = clock.now()

    def script(name: str, start: int) -> Script:
        """Return what a task does; a list has what it does from a time of the run on."""
        made: Any = scripts[name]
        if isinstance(made, list):
            made = [one for since, one in made if clock.now() - began >= since][-1]
        chosen: Script = made(start) if callable(made) else made
        return chosen

    engine = MemoryEngine(clock, {name: partial(script, name) for name in scripts})
    return run_on(engine, tmp_path, extra, base=TFJOB)


def starts_of(entries: Sequence[Entry], task: str) -> list[tuple[float, bool]]:
    return [(e.t, e.fresh) for e in entries if isinstance(e, TaskStart) and e.task == task]


def starts(result: Result, task: str) -> list[tuple[float, bool]]:
    return starts_of(history(result), task)


def times(result: Result, event: str, task: str = "") -> list[float]:
    return in_memory.times(history(result), event, task)


def fails(*codes: int) -> Callable[[int], Script]:
    """Return a script whose starts on one disk end after 1 s with these codes."""
    return lambda n: Script(exits_at=1, exit_code=codes[n - 1]) if n <= len(codes) else SERVES


def test_on_failure_restarts_in_place_later_each_time(tmp_path: Path) -> None:
    extra = f"{CHIEF}operator: {{kind: TFJob, job: m, restart: {{worker: on-failure}}}}\n"
    scripts = {"worker-0": fails(1, 1, 1), "chief-0": Script(exits_at=60)}
    result = run(tmp_path, extra, scripts)
    assert starts(result, "worker-0") == [(0, False), (1, False), (12, False), (33, False)]
    assert result.outcome == "succeeded"


def test_exit_code_makes_new_pods_at_once(tmp_path: Path) -> None:
    extra = f"{CHIEF}operator: {{kind: TFJob, job: m, restart: {{worker: exit-code}}}}\n"
    crash = Script(exits_at=1, exit_code=137)
    scripts = {"worker-0": [(0, crash), (2, SERVES)], "chief-0": Script(exits_at=9)}
    result = run(tmp_path, extra, scripts)
    assert starts(result, "worker-0") == [(0, False), (1, True), (2, True)]


def test_the_limit_is_that_of_all_pods(tmp_path: Path) -> None:
    extra = (
        "cluster: {chief: 1, worker: 2}\n"
        "operator: {kind: TFJob, job: m, restart: {worker: on-failure}, backoff_limit: 3}\n"
    )
    scripts = {
        "worker-0": fails(1),
        "worker-1": fails(1, 1),
        "chief-0": Script(exits_at=90),
    }
    result = run(tmp_path, extra, scripts)
    assert result.outcome == "failed"
    assert "backoffLimit of 3" in result.end.reason
    assert times(result, "job", "worker-1") == [2]


@pytest.mark.parametrize("quirks", [False, True])
def test_the_deadline(tmp_path: Path, quirks: bool) -> None:
    extra = (
        "cluster: {worker: 2}\n"
        "operator: {kind: TFJob, job: m, active_deadline: 5s, clean_pods: all, "
        f"success: all-workers, quirks: {quirks}}}\n"
    )
    result = run(tmp_path, extra, {"worker-0": Script(exits_at=8), "worker-1": SERVES})
    assert "activeDeadlineSeconds of 5 s" in result.end.reason
    assert times(result, "job") == [8 if quirks else 5]


@pytest.mark.parametrize(("clean_pods", "ends"), [("none", 7), ("running", 3), ("all", 3)])
def test_pods_that_still_run_when_the_job_has_ended(
    tmp_path: Path, clean_pods: str, ends: float
) -> None:
    extra = (
        "cluster: {ps: 1, worker: 2}\n"
        f"operator: {{kind: TFJob, job: m, clean_pods: {clean_pods}}}\n"
    )
    scripts = {"worker-0": Script(exits_at=3), "worker-1": Script(exits_at=7), "ps-0": SERVES}
    result = run(tmp_path, extra, scripts)
    assert times(result, "job") == [3]
    assert times(result, "exit", "worker-1") == [ends]
    assert times(result, "exit", "ps-0") == [ends]


def test_a_pod_that_is_left_alone_is_stopped_once_it_is_silent(tmp_path: Path) -> None:
    extra = "cluster: {worker: 2}\noperator: {kind: TFJob, job: m}\n"
    lines = [(float(second), "still here") for second in range(1, 30, 4)]
    scripts = {"worker-0": Script(exits_at=3), "worker-1": Script(lines, exits_at=None)}
    result = run(tmp_path, extra, scripts)
    assert times(result, "exit", "worker-1") == [29 + QUIET]


def test_the_job_is_deleted_with_its_pods(tmp_path: Path) -> None:
    extra = "cluster: {worker: 2}\noperator: {kind: TFJob, job: m, ttl_after_finished: 4s}\n"
    scripts = {"worker-0": Script(exits_at=3), "worker-1": SERVES}
    assert times(run(tmp_path, extra, scripts), "exit", "worker-1") == [7]


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
    extra = (
        "cluster: {chief: 1, worker: 1}\n"
        f"operator: {{kind: TFJob, job: m, clean_pods: all, restart: {{worker: {policy}}}}}\n"
        "faults: [{preempt: worker-0, at: 2s, down: 3s}]\n"
    )
    worker = [(0, Script(exits_at=3, exit_code=code, on_sigterm=None)), (4, SERVES)]
    result = run(tmp_path, extra, {"worker-0": worker, "chief-0": Script(exits_at=20)})
    assert result.outcome == outcome
    back = [(0, False), (6, True)] if outcome == "succeeded" else [(0, False)]
    assert starts(result, "worker-0") == back


@pytest.mark.parametrize("quirks", [False, True])
def test_the_operator_fails_a_tfjob_of_which_a_pod_is_deleted(tmp_path: Path, quirks: bool) -> None:
    extra = (
        f"{CHIEF}operator: {{kind: TFJob, job: m, restart: {{worker: on-failure}}, "
        f"quirks: {quirks}}}\nfaults: [{{preempt: worker-0, at: 2s, down: 3s}}]\n"
    )
    result = run(tmp_path, extra, {"worker-0": SERVES, "chief-0": Script(exits_at=9)})
    assert result.outcome == ("failed" if quirks else "succeeded")
    assert len(starts(result, "worker-0")) == (1 if quirks else 2)
    last = result.summary["conditions"][-1]
    assert (last["type"], last["t"]) == (("Failed", 2) if quirks else ("Succeeded", 9))
    assert times(result, "exit", "chief-0") == [9]  # cleanPodPolicy is None


def test_a_worker_that_may_leave_does_not_come_back(tmp_path: Path) -> None:
    """With restartPolicy Never; and when all have left, the operator would wait for ever."""
    extra = (
        "cluster: {ps: 1, worker: 2}\noperator: {kind: TFJob, job: m, dynamic_worker: true}\n"
        "faults: [{preempt: worker-1, at: 2s, down: 1s}]\n"
    )
    crash = Script(exits_at=5, exit_code=1)
    scripts = {"worker-0": crash, "worker-1": SERVES, "ps-0": Script(exits_at=8, exit_code=0)}
    result = run(tmp_path, extra, scripts)
    assert result.outcome == "failed"
    assert "would never end" in result.end.reason
    assert starts(result, "worker-1") == [(0, False)]
    assert times(result, "job", "ps-0") == [8]
    assert [one["type"] for one in result.summary["conditions"]] == ["Created", "Running"]


def test_a_job_that_is_suspended_makes_no_pods(tmp_path: Path) -> None:
    extra = "cluster: {worker: 1}\ntimeout: 60s\noperator: {kind: TFJob, job: m, suspend: true}\n"
    result = run(tmp_path, extra, {"worker-0": Script(exits_at=1)})
    assert result.outcome == "timeout"
    assert starts(result, "worker-0") == []
    assert times(result, "suspension") == [0]


# --- Suspension -----------------------------------------------------------------------------------


class Asking(Job):
    """A run that is suspended and resumed; it may be taken over meanwhile."""

    def __init__(self, out: Path, extra: str, scripts: dict[str, Any]) -> None:
        super().__init__(out, parse(TFJOB + extra), MemoryEngine(ManualClock(), scripts))

    def suspends(self, when: float) -> Future[Any]:
        return self.asks(when, partial(RunControl.suspend, suspended=True))

    def resumes(self, when: float) -> Future[Any]:
        return self.asks(when, partial(RunControl.suspend, suspended=False))

    def of(self, event: str, task: str = "") -> list[float]:
        return in_memory.times(self.history, event, task)

    @property
    def conditions(self) -> list[tuple[str, str, float]]:
        return [(c.type, c.status, c.t) for c in changes(Record(self.folder).timeline)]


OPERATOR = "cluster: {worker: 2}\noperator: {kind: TFJob, job: m, clean_pods: all"


def test_a_job_that_is_suspended_is_resumed(tmp_path: Path) -> None:
    run = Asking(tmp_path, OPERATOR + ", suspend: true}\n", {"*": Script(exits_at=5)})
    reply = run.resumes(3)
    before, after = run.asks(2, RunControl.status), run.asks(4, RunControl.status)
    assert run.begin() == "succeeded"
    assert reply.result(0) is None
    assert [each.result(0)["state"] for each in (before, after)] == ["suspended", "running"]
    assert run.of("start", "worker-0") == run.of("start", "worker-1") == [3]
    assert run.of("job") == [8]
    assert run.conditions == [
        ("Created", "True", 0), ("Suspended", "True", 0), ("Suspended", "False", 3),
        ("Running", "True", 3), ("Succeeded", "True", 8),
    ]  # fmt: skip


def test_a_job_that_runs_is_suspended_and_makes_new_pods(tmp_path: Path) -> None:
    """Its pods get time to save; a deadline counts from when it is resumed."""
    script = Script(exits_at=9, on_sigterm=2)
    run = Asking(tmp_path, OPERATOR + ", active_deadline: 10s}\n", {"*": script})
    run.suspends(4)
    early = run.resumes(5)
    twice = run.suspends(5)
    run.resumes(20)
    assert run.begin() == "succeeded"
    with pytest.raises(UsageError, match="have not ended yet"):
        early.result(0)
    with pytest.raises(UsageError, match="is suspended"):
        twice.result(0)
    assert run.of("exit", "worker-1")[0] == 6
    assert starts_of(run.history, "worker-1") == [(0, False), (20, True)]
    assert run.of("job") == [29]
    assert [one[0] for one in run.conditions] == [
        "Created", "Running", "Running", "Suspended", "Suspended", "Running", "Succeeded",
    ]  # fmt: skip


def test_a_pod_that_ignores_the_signal_is_killed_and_not_the_next_one(tmp_path: Path) -> None:
    script = Script(exits_at=30, on_sigterm=None)
    run = Asking(tmp_path, OPERATOR + "}\n", {"worker-0": script, "worker-1": SERVES})
    run.suspends(4)
    run.resumes(15)
    assert run.begin() == "succeeded"
    assert run.of("exit", "worker-0") == [14, 45]


@pytest.mark.parametrize("dies", [2, 4.5, 8])
def test_a_suspended_job_is_taken_over(tmp_path: Path, dies: float) -> None:
    script = Script(exits_at=9, on_sigterm=2)
    run = Asking(tmp_path, OPERATOR + "}\n", {"*": script})
    run.suspends(4)
    run.resumes(20)
    # It ends at once, as if it was killed.
    die = "nothing that a supervisor knows"
    run.clock.call_at(ManualClock.BEGAN + dies, lambda: run.supervisor.inbox.put(die))
    with pytest.raises(TypeError):
        run.begin()
    assert run.take_over() == "succeeded"
    assert run.of("start", "worker-1") == [0, 20]
    assert run.of("job") == [29]


def test_a_suspended_job_may_be_stopped(tmp_path: Path) -> None:
    run = Asking(tmp_path, OPERATOR + ", suspend: true}\ntimeout: 9s\n", {"*": SERVES})
    assert run.begin() == "timeout"
    assert run.of("job") == [9]


def test_another_job_can_not_be_suspended(tmp_path: Path) -> None:
    run = Asking(tmp_path, "cluster: {worker: 1}\n", {"*": Script(exits_at=5)})
    reply = run.suspends(2)
    run.begin()
    with pytest.raises(UsageError, match="Only a job of the training operator"):
        reply.result(0)
