"""Helpers: programs next to the job, on the memory engine."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emulator.engines.base import Exited
from emulator.engines.memory import Script
from emulator.record.events import AllRunning, Entry, HelperEvent, Step, fields_of
from emulator.record.reader import Record
from emulator.report.event_text import describe
from emulator.results import Result, RunCallbacks
from emulator.supervisor.helpers import GRACE, LONGEST_WORD, Helpers, pending_helpers
from emulator.supervisor.supervisor import STOP_GRACE
from tests.histories import a_plan
from tests.supervisor.in_memory import DEAF, SERVES, history, run, scalars, times, trains

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
    words = [(0.1 * n, f"line {n}") for n in range(1, 8)]
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
            "last_words": ("line 3", "line 4", "line 5", "line 6", "line 7"),
        }
    }
    (said,) = [text for e in history(result) if (text := describe(e)).startswith("helper")]
    assert said == (
        "helper board ended by itself with exit code 3, which does not decide the job; "
        "its last output: line 3; line 4; line 5; line 6; line 7"
    )
    assert Record(result.folder).log("board") == [f"line {n}" for n in range(1, 8)]


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


class Told:
    """Notes what the helpers ask of the engine, of timers and of the history."""

    def __init__(self, *names: str) -> None:
        text = ", ".join(f"{name}: {{command: [a]}}" for name in names)
        self.states = pending_helpers(a_plan("{worker: 1}", f"helpers: {{{text}}}\n"))
        self.told: list[object] = []
        note: Any = SimpleNamespace(
            start=lambda task: self.told.append(f"start {task.name}"),
            stop=lambda name, number: self.told.append(f"{number.name} {name}"),
            after=lambda delay, action: self.told.append((delay, action)),
            write=lambda one: self.told.append(f"{one.task} is {one.stage}"),
        )
        self.helpers = Helpers(self.states, timers=note, calls=note, history=note)

    def since(self) -> list[object]:
        told, self.told[:] = list(self.told), []
        return told


@pytest.mark.parametrize(
    ("state", "started", "over", "then", "told"),
    [
        ("running", True, False, "running", []),
        ("running", False, False, "ended", ["a is ended"]),
        ("starting", True, False, "running", ["a is running"]),
        ("starting", True, True, "running", ["a is running"]),
        ("starting", False, False, "starting", ["a is starting", "start a"]),
        ("pending", False, False, "starting", ["a is starting", "start a"]),
        ("starting", False, True, "ended", []),
        ("pending", False, True, "ended", []),
        ("ended", False, False, "ended", []),
        ("ended", True, True, "ended", []),
    ],
)
def test_a_successor_goes_on_with_a_helper_where_it_was(
    state: Any, started: bool, over: bool, then: str, told: list[str]
) -> None:
    one = Told("a")
    one.states["a"].state = state
    one.helpers.resume({"a": "id"} if started else {}, job_is_over=over)
    assert (one.states["a"].state, one.since()) == (then, told)
    assert one.states["a"].exit_code == (137 if told == ["a is ended"] else None)
    assert one.helpers.starting == (then == "starting")
    assert one.helpers.anything_left == (then in ("starting", "running"))


def test_a_helper_ends_early_is_refused_and_is_told_to_end_once_it_runs() -> None:
    one = Told("a", "b", "c")
    helpers, states = one.helpers, one.states
    helpers.begin()
    assert one.since() == [
        f"{what} {n}" if what == "start" else f"{n} is {what}"
        for n in "abc"
        for what in ("starting", "start")
    ]
    helpers.on_exit(Exited("a", 1.0, 3))
    assert (states["a"].state, one.since()) == ("starting", [])
    helpers.on_started("a", "id")  # it had ended before the answer came
    assert (states["a"].exit_code, one.since()) == (3, ["a is running", "a is ended"])
    helpers.on_refused("b", "no image")
    assert (states["b"].state, one.since()) == ("ended", ["b is failed"])
    helpers.stop()
    helpers.stop()
    assert one.since() == [(GRACE, helpers.kill)]  # none runs
    helpers.on_started("c", "id")
    assert states["c"].stop_sent is True
    assert one.since() == ["c is running", "c is stopping", "SIGTERM c"]
    helpers.kill()
    assert one.since() == ["c is stopping", "SIGKILL c"]
    helpers.on_stop_refused("c", "SIGTERM", "no")
    assert (states["c"].state, one.since()) == ("running", [])
    helpers.on_stop_refused("c", "SIGKILL", "no")
    assert (states["c"].state, one.since()) == ("ended", ["c is failed"])
    helpers.on_stop_refused("c", "SIGKILL", "no")
    assert one.since() == []
    assert "a" in helpers
    assert "worker-0" not in helpers


def test_the_last_words_of_a_helper_are_five_lines_none_blank_or_endless() -> None:
    one = Told("a")
    for text in ("0", "1", " ", "2", "3", "4", "x" * 2 * LONGEST_WORD):
        one.helpers.on_line("a", text)
    assert list(one.states["a"].last_words) == ["1", "2", "3", "4", "x" * LONGEST_WORD]
