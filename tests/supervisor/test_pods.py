"""What the supervisor does with the init steps and side-cars of a task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.engines.base import Exited, Line
from emulator.engines.memory import MemoryEngine, Script
from emulator.record.events import Sidecar, Step, StopSignal, TaskExit, TaskRunning, TaskStart
from emulator.record.writer import RunWriter
from emulator.runtime.clock import AtOnce, ManualClock
from emulator.scenario.loader import parse
from emulator.supervisor.engine_calls import Called
from emulator.supervisor.takeover import recover_run
from tests.supervisor.in_memory import Job, step

POD = """\
name: test
framework: none
image: none
timeout: 10s
program: {command: [a]}
cluster: {worker: {init: [{name: fetch}], sidecars: [{name: proxy}]}}
"""
STEP = step(9)


class Held(AtOnce):
    """Workers on which a start with init steps goes on for ever; the others take no time."""

    def aside(self, call: Callable[[], object], /) -> None:
        """Do not even begin."""


class Pods(MemoryEngine):
    """Has the capability; no script has init steps."""

    def __init__(self) -> None:
        super().__init__(ManualClock(), {"*": Script(exits_at=1.0)})
        self.capabilities |= {"pods"}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, parse(POD), Pods())


def log(job: Job, name: str) -> str:
    return (job.folder / "logs" / f"{name}.log").read_text()


def test_what_a_step_prints_is_in_the_log_of_its_task_and_no_step_of_the_training(job: Job) -> None:
    def prints() -> None:
        for name in ("worker-0.fetch", "worker-0.proxy"):
            job.supervisor.inbox.put(Line(name, job.clock.wall(), STEP))
            job.supervisor.inbox.put(Line(name, job.clock.wall(), "50%", is_finished=False))
        end = Sidecar(task="worker-0", name="proxy", exit_code=3, wall=job.clock.wall())
        job.supervisor.inbox.put(end)

    job.clock.call_at(ManualClock.BEGAN, prints)
    assert job.begin() == "succeeded"
    assert log(job, "worker-0") == f"[fetch] {STEP}\n"
    assert log(job, "worker-0.proxy") == f"{STEP}\n"
    assert not any(isinstance(entry, Step) for entry in job.history)
    (end,) = [entry for entry in job.history if isinstance(entry, Sidecar)]
    assert (end.task, end.name, end.exit_code) == ("worker-0", "proxy", 3)


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
    assert [type(entry) for entry in history] == [
        TaskStart, StopSignal, StopSignal, TaskRunning, TaskExit,
    ]  # fmt: skip
    assert isinstance(history[-1], TaskExit)
    assert history[-1].told_to_stop


@pytest.mark.parametrize(("part", "step"), [("fetch", None), ("mine", 9)])
def test_steps_are_not_read_from_the_lines_of_an_init_step_again(
    job: Job, part: str, step: int | None
) -> None:
    """Another word in brackets is the program's own."""
    record = RunWriter(job.folder, job.plan, POD, job.clock)
    record.write(TaskStart(task="worker-0", fresh=False))
    record.log("worker-0", f"[{part}] INFO:tensorflow:loss = 1, step = 9")
    record.write(TaskRunning(task="worker-0", id="x"))
    record.close()
    recovered = recover_run(job.plan, record, 0.0)
    assert recovered.tasks["worker-0"].step == step
    assert recovered.known.keys() == {"worker-0", "worker-0.proxy"}
