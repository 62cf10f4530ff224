"""What the supervisor does with the init steps and side-cars of a task."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.engines.base import Exited, Line, SidecarEnded
from emulator.engines.memory import MemoryEngine, Script
from emulator.planning.plan import Plan, make_plan
from emulator.record.events import Sidecar, Step, StopSignal, TaskExit, TaskRunning, TaskStart
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.runtime.clock import AtOnce, ManualClock
from emulator.scenario.loader import parse
from emulator.supervisor.engine_calls import Called
from emulator.supervisor.history import HistoryWriter
from emulator.supervisor.job import JobEnd
from emulator.supervisor.supervisor import Supervisor
from emulator.supervisor.takeover import recover_run

POD = """\
name: test
framework: none
image: none
timeout: 10s
program: {command: [a]}
cluster: {worker: {init: [{name: fetch}], sidecars: [{name: proxy}]}}
"""
STEP = '{"emulate": "step", "step": 9}'


class Held(AtOnce):
    """Workers on which a start with init steps goes on for ever; the others take no time."""

    def aside(self, call: Callable[[], object], /) -> None:
        """Do not even begin."""


class Run:
    """A run on the memory engine."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.engine = MemoryEngine(self.clock, {"*": Script(exits_at=1.0)})
        self.plan: Plan = make_plan(
            parse(POD), "test-1", self.engine.plan_context("test-1", folder)
        )
        self.record = RunWriter(folder / "test-1", self.plan, POD, self.clock)

    def supervisor(self, workers: AtOnce | None = None) -> Supervisor:
        history = HistoryWriter(self.record)
        workers = workers or AtOnce()
        return Supervisor(self.plan, self.engine, history, clock=self.clock, workers=workers)

    def to_end(self, supervisor: Supervisor) -> JobEnd:
        with contextlib.closing(self.record):
            return supervisor.run()

    def log(self, name: str) -> str:
        return (self.record.path / "logs" / f"{name}.log").read_text()


def test_what_a_step_prints_is_in_the_log_of_its_task_and_no_step_of_the_training(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path)
    supervisor = run.supervisor()
    for name in ("worker-0.fetch", "worker-0.proxy"):
        supervisor.inbox.put(Line(name, run.clock.wall(), STEP))
        supervisor.inbox.put(Line(name, run.clock.wall(), "50%", is_finished=False))
    supervisor.inbox.put(SidecarEnded("worker-0.proxy", run.clock.wall(), 3))
    assert run.to_end(supervisor).outcome == "succeeded"
    assert run.log("worker-0") == f"[fetch] {STEP}\n"
    assert run.log("worker-0.proxy") == f"{STEP}\n"
    history = Record(run.record.path).history
    assert not any(isinstance(entry, Step) for entry in history)
    (end,) = [entry for entry in history if isinstance(entry, Sidecar)]
    assert (end.task, end.name, end.exit_code) == ("worker-0", "proxy", 3)


def test_a_task_at_its_steps_is_stopped_when_the_job_is_over(tmp_path: Path) -> None:
    run = Run(tmp_path)
    supervisor = run.supervisor(Held())

    def signal(task: str, number: int) -> None:
        run.engine.signals.append((task, number))
        if number == 9:  # the engine ends the step, and so the start
            supervisor.inbox.put(Exited(task, run.clock.wall(), 137))
            supervisor.inbox.put(Called("start", task, "id"))

    run.engine.signal = signal  # type: ignore[method-assign]
    end = run.to_end(supervisor)
    assert end.outcome == "timeout"
    assert run.engine.signals == [("worker-0", 15), ("worker-0", 9)]
    history = [e for e in Record(run.record.path).history if e.task == "worker-0"]
    assert [type(entry) for entry in history] == [
        TaskStart, StopSignal, StopSignal, TaskRunning, TaskExit,
    ]  # fmt: skip
    assert isinstance(history[-1], TaskExit)
    assert history[-1].told_to_stop


@pytest.mark.parametrize(("part", "step"), [("fetch", None), ("mine", 9)])
def test_steps_are_not_read_from_the_lines_of_an_init_step_again(
    tmp_path: Path, part: str, step: int | None
) -> None:
    """Another word in brackets is the program's own."""
    run = Run(tmp_path)
    run.record.write(TaskStart(task="worker-0", fresh=False))
    run.record.log("worker-0", f"[{part}] INFO:tensorflow:loss = 1, step = 9")
    run.record.write(TaskRunning(task="worker-0", id="x"))
    with contextlib.closing(run.record):
        recovered = recover_run(run.plan, run.record, 0.0)
    assert recovered.tasks["worker-0"].step == step
    assert recovered.known.keys() == {"worker-0", "worker-0.proxy"}
