"""Faults on the memory engine: what follows from what, and that all is healed."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from emulator.engines.base import Inbox, Line, Lines
from emulator.engines.memory import MemoryEngine, Script, Scripts
from emulator.errors import EngineError, NotRunning
from emulator.faults.netem import Link
from emulator.planning.plan import Plan, Task
from emulator.record.events import Entry, Refused, StopSignal, TaskExit, fields_of
from emulator.record.reader import Record
from emulator.report.event_text import describe
from emulator.report.timeline_chart import _fault_in_words
from emulator.results import Result
from emulator.runtime.clock import AtOnce, ManualClock
from emulator.supervisor.engine_calls import Called, EngineCalls
from emulator.supervisor.tracing import path_pattern
from tests.supervisor import in_memory
from tests.supervisor.in_memory import DEAF, SERVES, faults, restarts, run_on, stages, step, trains

SCRIPTS: Scripts = {"worker-0": trains(), "*": SERVES}


def run(
    folder: Path, extra: str, scripts: Scripts = SCRIPTS, engine: MemoryEngine | None = None
) -> tuple[list[Entry], MemoryEngine, Result]:
    """Run three workers."""
    engine = engine or MemoryEngine(ManualClock(), scripts)
    result = run_on(engine, folder, f"cluster: {{worker: 3}}\n{extra}")
    return in_memory.history(result), engine, result


def reason(history: list[Entry], fault: str = "0") -> str | None:
    return next(e.reason for e in faults(history, fault) if e.reason is not None)


# --- Out of memory ------------------------------------------------------------------------------


def test_out_of_memory_is_for_the_restart_policy(tmp_path: Path) -> None:
    history, _, result = run(tmp_path, "restart: on-failure\nfaults: [{oom: worker-1, at: 5s}]")
    assert stages(history) == [("triggered", 5), ("applied", 5)]
    (ended,) = [e for e in history if isinstance(e, TaskExit) and e.t == 5]
    assert (ended.task, ended.exit_code, ended.oom_killed) == ("worker-1", 137, True)
    assert ended.fault is None
    (restart,) = [e for e in history if e.event == "restart"]
    assert (restart.task, fields_of(restart)["number"]) == ("worker-1", 1)
    (fault,) = result.analysis.faults
    assert (fault.status, fault.exit_code, fault.killed) == ("applied", 137, True)


def test_without_a_restart_out_of_memory_ends_the_job(tmp_path: Path) -> None:
    history, _, result = run(tmp_path, "faults: [{oom: worker-1, at: 5s}]")
    assert stages(history)[-1] == ("applied", 5)
    assert "out of memory" in result.end.reason
    assert result.summary["tasks"]["worker-1"]["oom_killed"] is True


# --- A loss of power ----------------------------------------------------------------------------


def test_a_silent_loss_ends_its_target_at_once_and_it_is_back_after_its_time_down(
    tmp_path: Path,
) -> None:
    history, _, result = run(
        tmp_path,
        "faults: [{preempt: worker-1, loss: silent, at: 5s, down: 4s}]",
        {"worker-0": Script(exits_at=30.0), "*": DEAF},
    )
    assert in_memory.in_words(history) == [
        ("triggered", 5, "fault 0: preempt worker-1"),
        ("applied", 5, "fault 0: worker-1 has lost power (exit code 137)"),
        ("healed", 9, "fault 0: worker-1 is back"),
    ]
    (end,) = [e for e in history if isinstance(e, TaskExit) and e.t == 5]
    assert (end.exit_code, end.fault) == (128 + signal.SIGKILL, "0")
    states = Record(result.folder).timeline.states()
    assert ("down", 5, 9) in [(s.name, s.begin, s.end) for s in states if s.task == "worker-1"]
    (fault,) = result.analysis.faults
    assert (fault.silent, fault.killed) == (True, True)
    assert (fault.saved_after, fault.restored_after) == (None, 4)
    assert "exit code 137 (lost power)" in _fault_in_words(fault)


# --- A rolling restart --------------------------------------------------------------------------


def test_each_is_restarted_once_the_one_before_steps_itself(tmp_path: Path) -> None:
    """All step every second; a restarted one needs three to come as far."""
    history, _, result = run(
        tmp_path,
        "success: all-workers\nfaults: [{restart: 'worker-*', at: 5s, grace: 2s}]",
        {"*": lambda n: trains(first=1.0 if n == 1 else 3.0)},
    )
    assert restarts(history) == [
        ("worker-0", 5, False),
        ("worker-1", 8, False),
        ("worker-2", 11, False),
    ]
    for number, when in enumerate([5, 8, 11]):
        found = stages(history, f"0:worker-{number}")
        assert found == [("triggered", when), ("applied", when), ("healed", when)]
    assert [task.restarts for task in result.analysis.tasks.values()] == [0, 0, 0]
    assert result.end.outcome == "succeeded"


def test_of_one_that_does_not_step_any_step_of_the_job_will_do(tmp_path: Path) -> None:
    history, engine, _ = run(
        tmp_path,
        "faults: [{restart: 'worker-[12]', at: 4500ms, grace: 3s}]",
        {"worker-0": trains(), "worker-1": DEAF, "*": SERVES},
    )
    assert restarts(history) == [("worker-1", 7.5, False), ("worker-2", 8, False)]
    assert engine.signals[:3] == [("worker-1", 15), ("worker-1", 9), ("worker-2", 15)]


def test_a_rolling_restart_ends_with_one_that_was_not_there(tmp_path: Path) -> None:
    scripts = {"worker-0": trains(), "worker-1": Script(exits_at=2.0), "*": SERVES}
    history, _, result = run(tmp_path, "faults: [{restart: 'worker-[12]', at: 4s}]", scripts)
    assert stages(history, "0:worker-1") == [("triggered", 4), ("skipped", 4)]
    assert stages(history, "0:worker-2") == [("skipped", 41)]
    assert result.exit_code == 3


# --- The network --------------------------------------------------------------------------------

CUT = {Link("worker-0", "worker-1", loss=1.0), Link("worker-1", "worker-0", loss=1.0)}
SLOW = {Link("worker-2", "worker-0", delay=0.02)}


def test_a_healed_network_is_as_slow_as_the_scenario_says(tmp_path: Path) -> None:
    _, engine, result = run(
        tmp_path,
        "network: {delay: 3ms}\nfaults: [{partition: [[worker-0], [worker-1]], at: 5s, for: 1s}]",
    )
    base = set(Record(result.folder).plan.links)
    assert len(base) == 6
    assert [set(links) for links in engine.links] == [base, base | CUT, base]


@pytest.mark.parametrize("lasts", ["1h", "forever"])
def test_the_end_of_the_job_heals_and_records_it_though_no_task_is_left(
    tmp_path: Path, lasts: str
) -> None:
    history, engine, _ = run(
        tmp_path,
        f"faults: [{{partition: [[worker-0], [worker-1]], at: 5s, for: {lasts}}}]",
        {"worker-0": trains(), "*": Script(exits_at=20)},
    )
    assert stages(history) == [("triggered", 5), ("applied", 5), ("healed", 41)]
    assert engine.links[-1] == ()


def test_links_that_the_engine_would_not_make_are_not_made_with_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = MemoryEngine.shape

    def refusing(self: MemoryEngine, links: Any) -> None:
        if set(links) >= CUT:
            raise EngineError("No.")
        shape(self, links)

    monkeypatch.setattr(MemoryEngine, "shape", refusing)
    overlap = (
        "faults:\n  - {partition: [[worker-0], [worker-1]], at: 5s, for: 10s}\n"
        "  - {shape: worker-2, to: worker-0, oneway: true, delay: 20ms, at: 8s, for: 20s}\n"
    )
    history, engine, _ = run(tmp_path, overlap)
    assert stages(history, "0") == [("triggered", 5), ("failed", 5)]
    assert stages(history, "1")[1:] == [("applied", 8), ("healed", 28)]
    assert [set(links) for links in engine.links] == [set(), SLOW, set()]


# --- Addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("address", "same"), [("same", True), ("new", False)])
def test_a_replacement_has_the_address_that_was_asked_for(
    tmp_path: Path, address: str, same: bool
) -> None:
    asked = []

    class Engine(MemoryEngine):
        def start(self, task: Task, *, same_address: bool = False) -> str:
            asked.append((task.name, same_address))
            return super().start(task, same_address=same_address)

    extra = f"faults: [{{preempt: worker-1, at: 5s, grace: 0, down: 1s, address: {address}}}]"
    history, _, _ = run(tmp_path, extra, engine=Engine(ManualClock(), SCRIPTS))
    assert asked[3:] == [("worker-1", same)]
    assert restarts(history) == [("worker-1", 6, True)]


def test_an_exit_is_that_of_every_fault_whose_signal_came_before_it(tmp_path: Path) -> None:
    """Of one alone, the others would wait for an exit until the job is over."""
    extra = (
        "faults:\n"
        "  - {preempt: worker-1, at: 5s, grace: 4s, down: 2s}\n"
        "  - {preempt: worker-1, at: 6s, grace: 1s, down: 5s}\n"
        "  - {preempt: worker-2, at: 5s, grace: 10s, down: 1s}\n"
        "  - {kill: worker-2, at: 8s}\n"
    )
    history, _, result = run(tmp_path, extra, {"worker-0": trains(), "*": DEAF})
    assert stages(history, "0") == [("triggered", 5), ("applied", 7), ("healed", 9)]
    assert stages(history, "1") == [("triggered", 6), ("applied", 7), ("healed", 9)]
    assert stages(history, "2") == [("triggered", 5), ("applied", 8), ("healed", 9)]
    assert stages(history, "3") == [("triggered", 8), ("applied", 8)]
    assert restarts(history) == [("worker-1", 9, True), ("worker-2", 9, True)]
    assert {one.status for one in result.analysis.faults} == {"applied"}


def test_a_task_whose_machine_is_back_waits_for_the_end_of_a_gang(tmp_path: Path) -> None:
    """Started before, it would be stopped again."""
    extra = (
        "restart: {policy: on-failure, scope: job}\n"
        "faults: [{preempt: worker-1, at: 5s, grace: 0, down: 2s}]\n"
    )
    slow = Script(exits_at=None, on_sigterm=6)
    fails = [Script(exits_at=6.0, exit_code=1), trains(30)]
    scripts: Scripts = {
        "worker-0": lambda number: fails[min(number, 2) - 1],
        "worker-1": SERVES,
        "*": slow,
    }
    history, _, _ = run(tmp_path, extra, scripts)
    starts = {
        name: [e.t for e in history if e.event == "start" and e.task == name] for name in scripts
    }
    assert starts["worker-1"] == starts["worker-0"] != [0]
    assert stages(history)[-1] == ("healed", starts["worker-1"][-1])


def test_a_trace_preempts_when_it_says(tmp_path: Path) -> None:
    extra = (
        "faults: [{trace: [{time: 10, target: worker-1, down: 4},"
        " {time: 30, target: 'worker-[12]', down: 2}], speed: 2, grace: 0}]"
    )
    history, _, _ = run(tmp_path, extra)
    expected = {"0.0": (5, 7), "0.1:worker-1": (15, 16), "0.1:worker-2": (15, 16)}
    for fault, (gone, back) in expected.items():
        assert stages(history, fault) == [("triggered", gone), ("applied", gone), ("healed", back)]


def test_a_trace_waits_for_a_task_that_is_back_later_than_planned(tmp_path: Path) -> None:
    """On a busy machine each end and each start take seconds."""
    extra = (
        "faults: [{trace: [{time: 5, target: worker-1, down: 1}, {time: 9, target: worker-1,"
        " down: 1}], grace: 0}]"
    )
    late = Script(exits_at=None, reported_after=10.0)
    history, _, result = run(tmp_path, extra, {"worker-0": trains(60), "*": late})
    assert {one.status for one in result.analysis.faults} == {"applied"}
    first, second = (dict(stages(history, fault)) for fault in ("0.0", "0.1"))
    assert first["triggered"] == 5
    assert second["triggered"] == first["healed"] > 9


# --- What the engine refuses --------------------------------------------------------------------


class Refusing(MemoryEngine):
    """Refuses to send these signals."""

    refused: Collection[int] = (signal.SIGTERM, signal.SIGKILL)

    def signal(self, task: str, number: int) -> None:
        if number in self.refused:
            raise EngineError(f"{task} can't be signalled.")
        super().signal(task, number)


def run_refusing(
    folder: Path, extra: str, scripts: Scripts, refused: Collection[int]
) -> tuple[list[Entry], Result]:
    engine = Refusing(ManualClock(), scripts)
    engine.refused = refused
    result = run_on(engine, folder, extra)
    return in_memory.history(result), result


@pytest.mark.parametrize(
    ("fault", "refused"),
    [
        ("kill: worker-0", [signal.SIGKILL]),
        ("terminate: worker-0", [signal.SIGTERM]),
        ("preempt: worker-0, grace: 3s, down: 1s", [signal.SIGTERM, signal.SIGKILL]),
        ("restart: worker-0, grace: 3s", [signal.SIGTERM]),
    ],
)
def test_a_refused_signal_is_in_the_history_and_its_fault_failed(
    tmp_path: Path, fault: str, refused: Collection[int]
) -> None:
    extra = f"cluster: {{worker: 1}}\nfaults: [{{{fault}, at: 5s}}]"
    history, result = run_refusing(tmp_path, extra, {"*": trains()}, refused)
    assert stages(history) == [("triggered", 5), ("failed", 5)]
    assert reason(history) == "worker-0 can't be signalled."
    (found,) = result.analysis.faults
    assert (found.status, found.reason) == ("failed", "worker-0 can't be signalled.")
    assert result.end.outcome == "succeeded"
    assert result.exit_code == 3  # nothing is known of how the job would have survived


def test_a_refused_stop_is_in_the_history_and_the_run_ends_all_the_same(tmp_path: Path) -> None:
    scripts = {"worker-0": trains(10), "*": SERVES}
    refused = (signal.SIGTERM, signal.SIGKILL)
    extra = (
        "cluster: {worker: 2}\nfaults:\n  - {pause: worker-1, at: 5s, for: 1s}\n"
        "  - {kill: worker-1, at: {after: 0, delay: 9s}}\n"
    )
    history, result = run_refusing(tmp_path, extra, scripts, refused)
    assert stages(history, "1") == [("skipped", 11)]  # and not again when it would be due
    refusals = [(e.t, describe(e)) for e in history if isinstance(e, Refused)]
    why = "for worker-1: worker-1 can't be signalled."
    assert refusals == [
        (21, f"the engine refused SIGTERM {why}"),
        (31, f"the engine refused SIGKILL {why}"),
    ]
    assert result.end.outcome == "succeeded"


def test_each_refused_kill_of_the_watchdog_is_recorded(tmp_path: Path) -> None:
    hangs = Script([(1.0, step(1))], exits_at=None, on_sigterm=2)
    extra = "cluster: {worker: 1}\ntimeout: 25s\nrestart: {policy: on-failure, stall: 10s}"
    history, result = run_refusing(tmp_path, extra, {"*": hangs}, [signal.SIGKILL])
    assert [(e.t, e.operation) for e in history if isinstance(e, Refused)] == [
        (11, "SIGKILL"),
        (21, "SIGKILL"),
    ]
    assert result.end.outcome == "timeout"


@pytest.mark.parametrize("of_evaluator", [[10] * 30, list(range(100, 130))])
def test_an_evaluator_neither_triggers_a_fault_nor_recovers_a_job(
    tmp_path: Path, of_evaluator: Sequence[int]
) -> None:
    lines = [(n + 0.5, step(number)) for n, number in enumerate(of_evaluator)]
    slow = trains(20, first=8, since=5)
    scripts: Scripts = {
        "chief-0": lambda start: trains(20) if start == 1 else slow,
        "evaluator-0": Script(lines, exits_at=None),
    }
    result, _ = in_memory.run(
        tmp_path,
        "cluster: {chief: 1, evaluator: 1}\nrestart: {policy: on-failure, backoff: 0s}\n"
        "faults:\n- {name: k, kill: chief-0, at: {step: 5}}\n"
        "- {pause: chief-0, at: {recovery: k}, for: 1s}\n"
        "- {pause: chief-0, at: {step: 10, task: evaluator-0}, for: 1s}",
        scripts,
    )
    entries = in_memory.history(result)
    assert in_memory.stages(entries)[0] == ("triggered", 5)
    restarted = in_memory.times(entries, "running", "chief-0")[-1]
    assert in_memory.stages(entries, "1")[0] == ("triggered", restarted + 8)
    assert in_memory.stages(entries, "2")[0] == ("triggered", 0.5)


class PrintsFirst(MemoryEngine):
    """Its tasks have printed something before it says that they run, as those of a kubelet."""

    def start(self, task: Task, *, same_address: bool = False) -> str:
        identity = super().start(task, same_address=same_address)
        in_memory.inbox_of(self).put(Lines([Line(task.name, 0, "begins")]))
        return identity


def test_a_fault_waits_for_a_target_that_the_engine_does_not_call_running_yet(
    tmp_path: Path,
) -> None:
    extra = (
        "faults:\n  - {preempt: worker-1, at: 2s, grace: 1s, down: 1s}\n"
        "  - {pause: worker-1, at: {log: begins, task: worker-1}, for: 3s}\n"
    )
    history, _, _ = run(tmp_path, extra, engine=PrintsFirst(ManualClock(), SCRIPTS))
    assert [stage for stage, _ in stages(history, "1")] == ["triggered", "applied", "healed"]


SAVES = Script([(1.0, step(1))], exits_at=None, on_sigterm=0.5, sigterm_code=0)
"""The best-behaved program: it saves when it is asked to end, and exits with 0."""


@pytest.mark.parametrize(
    ("struck", "back"), [("preempt: worker-1, down: 4s", 9.5), ("restart: worker-1", 5.5)]
)
def test_a_target_that_saves_and_exits_with_0_was_ended_by_the_fault(
    tmp_path: Path, struck: str, back: float
) -> None:
    history, _, result = run(
        tmp_path,
        f"faults: [{{{struck}, at: 5s, grace: 3s}}]\nexpect: {{max_restarts: 0}}",
        {"worker-0": trains(20), "worker-1": SAVES, "*": SERVES},
    )
    assert stages(history) == [("triggered", 5), ("applied", 5.5), ("healed", back)]
    (fault,) = result.analysis.faults
    assert (fault.status, fault.exit_code, fault.killed) == ("applied", 0, False)
    assert [start[:2] for start in restarts(history)] == [("worker-1", back)]
    assert result.exit_code == 0


def test_an_exit_that_is_reported_late_took_effect_at_its_stamp(tmp_path: Path) -> None:
    """Meanwhile the grace period was over, and SIGKILL was sent: it was not needed."""
    slow = Script([(1.0, step(1))], exits_at=None, on_sigterm=0.5, reported_after=4.0)
    history, engine, result = run(
        tmp_path,
        "faults: [{preempt: worker-1, at: 5s, grace: 2s, down: 3s}]",
        {"worker-0": trains(20), "worker-1": lambda n: slow if n == 1 else SERVES, "*": SERVES},
    )
    assert ("worker-1", 9) in engine.signals
    (fault,) = result.analysis.faults
    assert (fault.applied_after, fault.exit_code, fault.killed) == (0.5, 143, False)
    (applied,) = [e for e in faults(history) if e.stage == "applied"]
    assert describe(applied) == "fault 0: worker-1 has exited (by itself, exit code 143)"
    # It was down for three seconds, of which the engine had told none: it is back at once.
    assert stages(history)[-1] == ("healed", 9.5)


FAILS = Script([(1.0, step(1))], exits_at=6.0, exit_code=1)


@pytest.mark.parametrize(
    ("fault", "then", "sent", "exit_code"),
    [
        ("preempt: worker-0, grace: 3s", ("applied", 8), [], 0),
        # The job's end comes first.
        ("preempt: worker-0, grace: 30s", ("failed", 16), [(16, "SIGKILL")], 3),
        ("terminate: worker-0", ("failed", 16), [(16, "SIGKILL")], 3),
    ],
)
def test_a_target_that_ends_in_its_grace_period_after_the_job_was_ended_by_the_fault(
    tmp_path: Path,
    fault: str,
    then: tuple[str, float],
    sent: list[tuple[float, str]],
    exit_code: int,
) -> None:
    """Another task has failed for want of it, and the engine said that first."""
    history, _, result = run(
        tmp_path,
        f"faults: [{{{fault}, at: 5s}}]\nexpect: {{outcome: failed}}",
        {"worker-0": DEAF, "worker-1": FAILS, "*": SERVES},
    )
    assert stages(history) == [("triggered", 5), then]
    assert (result.end.outcome, result.end.task) == ("failed", "worker-1")
    stops = [(e.t, e.signal) for e in history if isinstance(e, StopSignal) and e.task == "worker-0"]
    assert stops == sent
    (ended,) = [e for e in history if isinstance(e, TaskExit) and e.task == "worker-0"]
    by_the_fault = then[0] == "applied"
    assert (ended.t, ended.exit_code, ended.fault) == (then[1], 137, "0" if by_the_fault else None)
    assert by_the_fault or reason(history) == "the job ended before the task did"
    assert result.exit_code == exit_code


# --- Calls that are late ------------------------------------------------------------------------

LATE = f"{in_memory.BASE}cluster: {{worker: 2}}\nfaults: [{{preempt: worker-1, at: 5s, grace: 1s}}]"


def test_no_target_is_killed_before_it_was_asked_to_end(tmp_path: Path) -> None:
    """The call that asks it takes longer than its grace period."""
    engine = MemoryEngine(ManualClock(), {"worker-0": trains(), "*": DEAF})
    job = in_memory.Job(tmp_path, LATE, engine)
    assert job.begin(workers=in_memory.Late(job.clock, "inject", 3.0)) == "succeeded"
    assert engine.signals[:2] == [("worker-1", signal.SIGTERM), ("worker-1", signal.SIGKILL)]
    assert stages(job.history) == [("triggered", 5), ("applied", 8), ("healed", 18)]
    (applied,) = [e for e in faults(job.history) if e.stage == "applied"]
    assert (applied.exit_code, applied.killed) == (137, True)


class LastFirst(AtOnce):
    """Of calls that were begun together, makes the last one first."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], object]] = []

    def submit(self, call: Callable[..., object], /, *args: object) -> None:
        self._calls.append(partial(call, *args))

    aside = submit

    def make(self) -> None:
        while self._calls:
            self._calls.pop()()


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("signalled", ["inject", "kill", "stop"])
def test_no_late_signal_reaches_what_replaces_its_target(
    signalled: Literal["inject", "kill", "stop"], queued: bool, tmp_path: Path
) -> None:
    engine, inbox, workers = MemoryEngine(ManualClock(), {"*": SERVES}), Inbox(), LastFirst()
    engine.starts_wait = queued  # type: ignore[attr-defined]
    job = in_memory.Job(tmp_path, LATE, engine)
    calls = EngineCalls(job.plan, engine, inbox, workers, job.clock)
    engine.prepare(job.plan, job.folder, inbox)
    task, (fault,) = job.plan.task("worker-1"), job.plan.faults
    calls.start(task)
    workers.make()
    if signalled == "stop":
        calls.stop(task.name, signal.SIGKILL)
    else:
        calls.perform(signalled, fault)
    calls.start(task, fresh=True)
    workers.make()
    job.clock.next_event(Inbox(), job.clock.now() + 1)
    replacement = engine._running("worker-1")
    assert replacement is not None
    assert (replacement.start, len(engine.signals)) == (2, 1)
    operations = [getattr(inbox.get(), "operation", "exit") for _ in range(4)]
    assert operations == ["start", signalled, "exit", "start"]


# --- Before a call to the kernel ----------------------------------------------------------------


class Holds(MemoryEngine):
    """Holds a task 4 s after it is watched, or says why it can't."""

    def __init__(self, answer: dict[str, Any] | None, scripts: Scripts = SCRIPTS) -> None:
        super().__init__(ManualClock(), scripts)
        self.capabilities |= {"calls"}
        self.answer, self.asked = answer, list[tuple[float, str, dict[str, Any]]]()

    def hold(self, task: str, program: str, request: Any, told: Callable[[str], None]) -> None:
        rules = [one for one in request["rules"] if one["do"] != "begin"]
        if rules != request["rules"]:
            told(json.dumps({"begun": 2}))
        if not rules:
            return
        self.asked.append((self._clock.now() - ManualClock.BEGAN, task, rules[0]))
        if self.answer == {}:
            told("its image has no python3")
        told(json.dumps(self.answer if self.answer and "late" in self.answer else {"attached": 2}))
        if self.answer is None:
            raise NotRunning("It has ended.")
        if "error" in self.answer:
            told(json.dumps(self.answer))
        answer = json.dumps(self.answer)
        self._clock.call_at(self._clock.now() + 4.0, lambda: told(answer))

    def tell(self, task: str, line: str) -> None:
        raise AssertionError("on a manual clock it has always ended")

    def let_go(self, task: str) -> None:
        self.asked.append((self._clock.now() - ManualClock.BEGAN, task, {}))


HELD = {"held": "pwrite64", "path": "/shared/a.pt", "number": 3, "bytes": 4096}
WORDS = "worker-1 was about to make write 3 of 4,096 bytes: /shared/a.pt"
AT_WRITE = "restart: on-failure\nfaults: [{kill: worker-1, at: {write: 3, of: '*.pt'}}]"


class HoldsWarm(Holds):
    """Could start tasks warm."""

    def lease_warm(self, plan: Plan) -> Plan:
        raise AssertionError("they begin held")

    def give_back(self, plan: Plan) -> int:
        raise AssertionError("none was leased")

    waits = remove_waiting = staticmethod(pytest.fail)


def test_tasks_that_begin_held_start_cold_in_a_warm_run_which_says_so(tmp_path: Path) -> None:
    engine = HoldsWarm(HELD)
    engine.capabilities |= {"warm"}
    result = run_on(engine, tmp_path, f"cluster: {{worker: 3}}\n{AT_WRITE}", warm=True)
    plan = Record(result.folder).plan
    assert all(task.held for task in plan.tasks)
    assert plan.warnings == (
        "all tasks start cold: they begin held, since their calls to the kernel count",
    )
    assert (engine.asked[0][1], result.exit_code) == ("worker-1", 0)


def test_a_fault_happens_before_a_call_and_its_task_is_let_go(tmp_path: Path) -> None:
    engine = Holds(HELD)
    history, _, result = run(tmp_path, AT_WRITE, engine=engine)
    of = path_pattern("*.pt")
    request = {"do": "hold", "id": "0", "call": "write", "count": 3, "of": of}
    assert engine.asked == [(0, "worker-1", request), (4, "worker-1", {})]
    assert stages(history) == [("triggered", 4), ("applied", 4)]
    triggered, applied = faults(history)
    assert (triggered.effect, applied.effect, applied.exit_code) == (WORDS, WORDS, 137)
    assert f"kill worker-1; {WORDS}" in describe(triggered)
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("glob", "matched", "others"),
    [
        ("*.pt", "/a/b/m.pt /m.pt", "/a/m.pt.tmp /m.pt/x"),
        ("run/*.pt", "/a/run/m.pt /run/m.pt", "/a/run/x/m.pt /a/rerun/m.pt"),
        ("run/**/m-?.pt", "/s/run/m-1.pt /run/a/b/m-2.pt", "/run/m-10.pt"),
        ("/tmp/*.pt", "/tmp/m.pt", "/a/tmp/m.pt /tmp/a/m.pt"),
        ("/shared/*", "/shared/m /runs/one/shared/m", "/shared/a/m /tmp/m"),
        ("*", "/a /a/b", ""),
    ],
)
def test_a_glob_means_the_end_of_a_path_or_all_of_it(glob: str, matched: str, others: str) -> None:
    matches = re.compile(path_pattern(glob)).match
    assert [one for one in matched.split() if not matches(one)] == []
    assert [one for one in others.split() if matches(one)] == []


@pytest.mark.parametrize(
    ("answer", "when", "why"),
    [
        ({"error": "its processes can't be traced here"}, 0,
         "worker-1: its processes can't be traced here."),
        ({"attached": 1, "late": True}, 0,
         "worker-1 had begun before it was traced: calls of it may have been missed."),
        ({}, 0, "worker-1: its image has no python3."),
        (None, 41, "the job ended, and its target made no write of *.pt number 3"),
    ],
)  # fmt: skip
def test_a_call_that_can_t_be_watched_or_never_comes_is_a_failed_fault(
    answer: dict[str, Any] | None, when: float, why: str, tmp_path: Path
) -> None:
    history, _, result = run(tmp_path, AT_WRITE, engine=Holds(answer))
    assert (stages(history), reason(history)) == ([("failed", when)], why)
    assert result.exit_code == 3


def test_a_task_that_nobody_may_trace_is_told_to_begin(tmp_path: Path) -> None:
    class Refuses(Holds):
        def hold(self, task: str, program: str, request: Any, told: Callable[[str], None]) -> None:
            told(json.dumps({"error": "its processes can't be traced here"}))

    engine = Refuses(None)
    history, _, result = run(tmp_path, AT_WRITE, engine=engine)
    told = {task for task, number in engine.signals if number == signal.SIGCONT}
    assert told == {"worker-0", "worker-1", "worker-2"}
    assert reason(history) == "worker-1: its processes can't be traced here."
    assert result.exit_code == 3


def test_the_calls_of_a_task_before_training_count_from_its_beginning_too(tmp_path: Path) -> None:
    extra = "cluster: {worker: 2, ingest: {before: training}}\nrestart: on-failure\n"
    fault = "kill: ingest-0, at: {write: 3, of: '*.pt'}"
    engine = Holds(HELD, {"ingest-0": Script(exits_at=6), "*": trains(9)})
    result = run_on(engine, tmp_path, f"{extra}faults: [{{{fault}}}]")
    held = {task.name for task in Record(result.folder).plan.tasks if task.held}
    assert held == {"ingest-0"}
    assert stages(in_memory.history(result)) == [("triggered", 4), ("applied", 4)]


def test_a_task_that_ran_while_nobody_traced_it_is_not_counted_until_it_starts_again(
    tmp_path: Path,
) -> None:
    text = f"{in_memory.BASE}cluster: {{worker: 3}}\n{AT_WRITE}"
    job = in_memory.Job(tmp_path, text, engine := Holds(HELD))
    inbox, (fault,) = Inbox(), job.plan.faults
    calls = EngineCalls(job.plan, engine, inbox, AtOnce(), job.clock)
    engine.prepare(job.plan, job.folder, inbox)
    calls.miss("worker-1")  # as when its emulator was killed
    calls.watch(fault)
    missed = inbox.get()
    assert isinstance(missed, Called)
    assert (missed.operation, missed.subject) == ("watch", "0")
    assert missed.error is not None
    assert "worker-1 had begun before it was traced" in missed.error.message
    calls.let_go(fault)
    calls.start(job.plan.task("worker-1"))
    calls.watch(fault)
    assert [task for _, task, rule in engine.asked if rule] == ["worker-1"]


def test_a_task_that_is_started_again_is_watched_again(tmp_path: Path) -> None:
    scripts = {"worker-0": trains(), "worker-2": Script(exits_at=2.0, exit_code=1), "*": SERVES}
    engine = Holds(None, scripts)
    watched = AT_WRITE.replace("write: 3", "write: 3, task: worker-2")
    run(tmp_path, watched + "\ntimeout: 8s", engine=engine)
    begun = [when for when, task, request in engine.asked if request and task == "worker-2"]
    assert begun[:2] == [0, 3]
