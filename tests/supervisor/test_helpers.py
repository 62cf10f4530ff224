"""Programs next to the job and its tasks: helpers and init steps."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.engines.base import Exited, Line
from emulator.engines.memory import MemoryEngine, Script
from emulator.errors import EngineError
from emulator.planning.plan import Task
from emulator.record.events import (
    AllRunning,
    Entry,
    HelperEvent,
    Refused,
    Step,
    TaskRunning,
    TaskStart,
    fields_of,
)
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.report.event_text import describe
from emulator.results import Result, RunCallbacks
from emulator.runtime.clock import AtOnce, ManualClock
from emulator.supervisor.engine_calls import Called
from emulator.supervisor.job import HELPER_GRACE as GRACE
from emulator.supervisor.job import LONGEST_WORD
from emulator.supervisor.supervisor import STOP_GRACE
from emulator.supervisor.takeover import recover, recover_run, resumption
from tests.histories import a_plan, an_event
from tests.supervisor.in_memory import (
    BASE,
    DEAF,
    SERVES,
    Job,
    Late,
    history,
    inbox_of,
    run,
    run_on,
    scalars,
    step,
    times,
    trains,
)

JOB = "cluster: {worker: 2}\nsuccess: all-workers\n"
BOARD = JOB + "helpers: {board: {command: [board], ports: [6006]}}\n"
TRAINS = trains(3)


def of_helpers(result: Result) -> list[tuple[str, str, float]]:
    return [(e.task, e.stage, e.t) for e in history(result) if isinstance(e, HelperEvent)]


def test_a_helper_runs_before_the_tasks_and_is_stopped_after_them(tmp_path: Path) -> None:
    result, engine = run(tmp_path, BOARD, {"board": SERVES, "*": TRAINS})
    assert result.exit_code == 0
    events = [(e.event, e.task) for e in history(result) if e.event != "step"]
    assert events[:7] == [
        ("run", ""),
        ("prepared", ""),
        ("helper", "board"),
        ("helper", "board"),
        ("start", "worker-0"),
        ("start", "worker-1"),
        ("port", "board"),
    ]
    assert of_helpers(result) == [
        ("board", "starting", 0),
        ("board", "running", 0),
        ("board", "stopping", 4),
        ("board", "ended", 4),
    ]
    assert engine.signals == [("board", signal.SIGTERM)]
    assert result.summary["duration"] == 4
    assert set(result.summary["tasks"]) == {"worker-0", "worker-1"}
    assert result.summary["helpers"]["board"]["state"] == "stopped"


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    result, engine = run(tmp_path, BOARD, {"board": DEAF, "*": TRAINS})
    assert engine.signals == [("board", signal.SIGTERM), ("board", signal.SIGKILL)]
    assert of_helpers(result)[-1] == ("board", "ended", 4 + GRACE)
    assert result.summary["duration"] == 4  # the job's, which does not wait


def test_one_that_fails_is_reported_and_decides_nothing(tmp_path: Path) -> None:
    texts = ["line 1", "line 2", "line 3", " ", *[f"line {n}" for n in range(4, 7)]]
    texts.append("7" * 2 * LONGEST_WORD)
    words = [(0.1 * n, text) for n, text in enumerate(texts, 1)]
    fails = Script(lines=words, exits_at=2, exit_code=3)
    restart = "restart: {policy: on-failure, scope: job}\n"
    result, _ = run(tmp_path, BOARD + restart, {"board": fails, "*": TRAINS})
    assert result.exit_code == 0
    assert result.restarts == 0
    assert result.end.reason == "all tasks that count finished"
    assert result.summary["helpers"] == {
        "board": {
            "state": "failed",
            "exit_code": 3,
            "reason": "",
            "last_words": ("line 3", "line 4", "line 5", "line 6", "7" * LONGEST_WORD),
        }
    }
    (said,) = [text for e in history(result) if (text := describe(e)).startswith("helper")]
    assert said == (
        "helper board ended by itself with exit code 3, which does not decide the job; "
        f"its last output: line 3; line 4; line 5; line 6; {'7' * LONGEST_WORD}"
    )
    assert Record(result.folder).log("board") == texts


def test_a_helper_is_stopped_after_a_job_that_failed(tmp_path: Path) -> None:
    """Its tasks get their own grace period first: they may still report to it."""
    fails = Script(exits_at=1, exit_code=1)
    scripts = {"board": SERVES, "worker-0": fails, "worker-1": DEAF}
    result, _ = run(tmp_path, BOARD, scripts)
    assert result.end.reason == "worker-0 failed with exit code 1"
    assert of_helpers(result)[-1] == ("board", "ended", 1 + STOP_GRACE)


@pytest.mark.parametrize("tasks_run", [True, False])
def test_a_signal_ends_job_and_helpers(tmp_path: Path, tasks_run: bool) -> None:
    """No task is started after it."""
    stops: list[Callable[[], object]] = []

    def entry(event: Entry) -> None:
        starting = isinstance(event, HelperEvent) and event.stage == "starting"
        if isinstance(event, AllRunning) if tasks_run else starting:
            stops[0]()

    callbacks = RunCallbacks(entry=entry, stoppable=stops.append)
    result, _ = run(tmp_path, BOARD, {"*": SERVES}, callbacks)
    assert result.outcome == "interrupted"
    assert len(times(history(result), "start")) == (2 if tasks_run else 0)
    assert len(times(history(result), "exit")) == (2 if tasks_run else 0)
    assert of_helpers(result)[-1][1] == "ended"


def test_where_a_port_is_stands_in_the_history(tmp_path: Path) -> None:
    ports = JOB + "helpers: {board: {command: [b], ports: [6006, {port: 80, host_port: 8080}]}}\n"
    result, _ = run(tmp_path, ports, {"board": SERVES, "*": TRAINS})
    published = [fields_of(e) for e in history(result) if e.event == "port"]
    assert [(one["port"], one["address"]) for one in published] == [
        (6006, "127.0.0.1:6006"),
        (80, "127.0.0.1:8080"),
    ]
    said = [text for e in history(result) if (text := describe(e)).startswith("port")]
    assert said[0] == "port 6006 of board is at 127.0.0.1:6006"


# --- The reader of event files -------------------------------------------------------------------


def reads(number: int, **values: float) -> str:
    """Return a step of worker-1, made half a second before it is read."""
    wall = 1_700_000_000.0 + number - 0.5
    return scalars("worker-1", number, wall, wall, **values)


def test_steps_come_from_event_files_and_trigger_faults(tmp_path: Path) -> None:
    lines = [(float(n), reads(n, loss=0.5)) for n in (1, 2, 3, 4)]
    lines[3] = (4.5, reads(4, accuracy=0.9, loss=0.1))  # read after the exit
    shown: list[tuple[str, str]] = []
    reader = Script(lines=[*lines, (0.1, "no file yet")], exits_at=None, on_sigterm=1.0)
    prints = [(1.5, '{"emulate": "step", "step": 99}')]
    prints += [(3.4, '{"emulate": "phase", "phase": "eval", "state": "begin"}')]
    extra = (
        "metrics: {events: logs/run}\n"
        "expect: {final_step: 4, accuracy: 0.9, single_chief: true}\n"
        "faults: [{pause: worker-0, at: {step: 2, task: worker-1}, for: 500ms}]\n"
    )
    result, _ = run(
        tmp_path,
        JOB + extra,
        {"event-files": reader, "*": Script(lines=prints, exits_at=4)},
        RunCallbacks(lines=shown.extend),
    )
    assert result.exit_code == 0
    steps = [e for e in Record(result.folder).in_time_order if isinstance(e, Step)]
    assert [(e.task, e.step, e.t) for e in steps] == [
        ("worker-1", n, n - 0.5) for n in (1, 2, 3, 4)
    ]
    (fault,) = [e for e in history(result) if getattr(e, "stage", "") == "triggered"]
    assert fault.t == 2
    assert ("event-files", "no file yet") in shown
    assert not [text for _, text in shown if "scalars" in text]  # they are in its log
    assert len(Record(result.folder).log("event-files")) == 5
    assert [e.event for e in history(result)].count("phase") == 2


# --- One by one ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "started", "over", "then"),
    [
        ("running", True, False, "follow"),
        ("running", False, False, "lost"),
        ("stopping", False, True, "lost"),
        ("starting", True, False, "started"),
        ("starting", True, True, "started"),
        ("starting", False, False, "start"),
        (None, False, False, "start"),
        ("starting", False, True, "ended"),
        (None, False, True, "ended"),
        ("ended", False, False, "follow"),
        ("failed", True, True, "follow"),
    ],
)
def test_a_successor_goes_on_with_a_helper_where_it_was(
    stage: str | None, started: bool, over: bool, then: str
) -> None:
    events = [an_event("helper", "a", stage=stage, wall=1.0)] if stage else []
    events += [an_event("job", outcome="succeeded", reason="done")] if over else []
    found = recover(a_plan("{worker: 1}", "helpers: {a: {command: [a]}}\n"), events)
    assert resumption("a", found, {"a": "id"} if started else {}) == then
    assert found.helpers["a"].stop_sent == (1.0 if stage == "stopping" else None)


class Odd(MemoryEngine):
    """Has no image of one helper, reports the end of another at once, and can't signal a third."""

    def start(self, task: Task, *, same_address: bool = False) -> str:
        if task.name == "refused":
            raise EngineError("No image.")
        identity = super().start(task, same_address=same_address)
        if task.name == "early":
            inbox_of(self).put(Exited("early", self._clock.wall(), 3))
        return identity

    def signal(self, task: str, number: int) -> None:
        if task == "immune":
            raise EngineError("No.")
        super().signal(task, number)


def test_a_helper_that_ends_early_or_is_refused_decides_nothing(tmp_path: Path) -> None:
    helpers = "helpers: {early: {command: [a]}, refused: {command: [a]}, immune: {command: [a]}}\n"
    engine = Odd(ManualClock(), {"worker-*": TRAINS, "*": SERVES})
    result = run_on(engine, tmp_path, JOB + helpers)
    assert result.exit_code == 0
    said = {
        name: [(stage, t) for task, stage, t in of_helpers(result) if task == name]
        for name in ("early", "refused", "immune")
    }
    assert said == {
        "early": [("starting", 0), ("running", 0), ("ended", 0)],
        "refused": [("starting", 0), ("failed", 0)],
        "immune": [
            *[("starting", 0), ("running", 0), ("stopping", 4)],
            *[("stopping", 4 + GRACE), ("failed", 4 + GRACE)],
        ],
    }
    reasons = [one.reason for one in history(result) if isinstance(one, HelperEvent) and one.reason]
    assert reasons == ["No image.", "No."]
    assert not [one for one in history(result) if isinstance(one, Refused)]


def test_a_helper_that_runs_after_the_end_of_the_job_is_told_to_end(tmp_path: Path) -> None:
    job = Job(tmp_path, BASE + BOARD, MemoryEngine(ManualClock(), {"*": SERVES}))
    job.asks(1.0, lambda control: control.stop())
    assert job.begin(workers=Late(job.clock, "Task", 3.0)) == "interrupted"
    assert [(e.stage, e.t) for e in job.history if isinstance(e, HelperEvent)] == [
        ("starting", 0),
        ("running", 3),
        ("stopping", 3),
        ("ended", 3),
    ]
    assert not times(job.history, "start")


# --- The init steps of a task ---------------------------------------------------------------------

POD = """\
name: test
framework: none
image: none
timeout: 10s
program: {command: [a]}
cluster: {worker: {init: [{name: fetch}]}}
"""
STEP = step(9)


class Held(AtOnce):
    """Workers on which a start with init steps goes on for ever; the others take no time."""

    def aside(self, call: Callable[[], object], /) -> None:
        """Do not even begin."""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """One on an engine that has the capability; no script has init steps."""
    engine = MemoryEngine(ManualClock(), {"*": Script(exits_at=1.0)})
    engine.capabilities |= {"pods"}
    return Job(tmp_path, POD, engine)


def log(job: Job, name: str) -> str:
    return (job.folder / "logs" / f"{name}.log").read_text()


def test_what_a_step_prints_is_in_the_log_of_its_task_and_no_step_of_the_training(job: Job) -> None:
    def prints() -> None:
        name = "worker-0.fetch"
        job.supervisor.inbox.put(Line(name, job.clock.wall(), STEP))
        job.supervisor.inbox.put(Line(name, job.clock.wall(), "50%", is_finished=False))

    job.clock.call_at(ManualClock.BEGAN, prints)
    assert job.begin() == "succeeded"
    assert log(job, "worker-0") == f"[fetch] {STEP}\n"
    assert not any(isinstance(entry, Step) for entry in job.history)


def test_a_task_at_its_steps_is_stopped_when_the_job_is_over(job: Job) -> None:
    def signal(task: str, number: int) -> None:
        job.engine.signals.append((task, number))
        if number == 9:  # the engine ends the step, and so the start
            job.supervisor.inbox.put(Exited(task, job.clock.wall(), 137))
            job.supervisor.inbox.put(Called("start", task, "id"))

    job.engine.signal = signal  # type: ignore[method-assign]
    assert job.begin(workers=Held()) == "timeout"
    assert job.engine.signals == [("worker-0", 15), ("worker-0", 9)]
    history = [e for e in job.history if e.task == "worker-0"]
    assert [e.event for e in history] == ["start", "stop", "stop", "running", "exit"]
    assert fields_of(history[-1])["told_to_stop"]


@pytest.mark.parametrize(("part", "step"), [("fetch", None), ("mine", 9)])
def test_steps_are_not_read_from_the_lines_of_an_init_step_again(
    job: Job, part: str, step: int | None
) -> None:
    """Another word in brackets is the program's own."""
    record = RunWriter(job.folder, job.plan, POD, job.clock)
    record.write(TaskStart(task="worker-0", fresh=False))
    for n in (7, 8, 9):
        record.log("worker-0", f"[{part}] Training: 45%|####   | {n}/20 [00:01<00:01, 5.0it/s]")
    record.write(TaskRunning(task="worker-0", id="x"))
    record.close()
    recovered = recover_run(job.plan, record, 0.0)
    assert recovered.tasks["worker-0"].step == step
    assert recovered.known.keys() == {"worker-0"}
