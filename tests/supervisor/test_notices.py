"""What is recorded of a preempted task: its processes, and the first line after its notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.engines.base import Exited, TaskProcess
from emulator.engines.memory import MemoryEngine, Script, Scripts
from emulator.errors import EmulatorError, EngineError, NotRunning
from emulator.faults.preempt import Kill, Preempt, Restart, Terminate
from emulator.faults.spec import FaultSpec
from emulator.record.events import Entry, Reaction, TaskProcesses
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from emulator.supervisor.task_processes import reaches
from tests.supervisor import in_memory
from tests.supervisor.in_memory import SERVES, faults, run_on, step, trains

MAIN = TaskProcess(7, "sh", main=True, handled=frozenset({15}))
CHILD = TaskProcess(8, "worker", main=False)


class Witness(MemoryEngine):
    """Sees the processes of a task, and at its end what outlives it."""

    def __init__(self, scripts: Scripts, error: EmulatorError | None = None) -> None:
        super().__init__(ManualClock(), scripts)
        self.capabilities |= {"processes"}
        self.error, self.watched = error, list[tuple[str, int]]()

    def processes(self, task: str) -> Sequence[TaskProcess]:
        if self.error:
            raise self.error
        return [MAIN, CHILD]

    def watch_end(self, task: str) -> None:
        self.watched.append((task, len(self.signals)))

    def _end(self, start: int, end: Exited) -> None:
        left = [{"pid": 8, "name": "worker", "seconds": 5.0, "how": "left"}] * 60
        super()._end(start, replace(end, outlived=left if self.watched else None))


def run(folder: Path, extra: str, engine: MemoryEngine) -> tuple[list[Entry], Result]:
    result = run_on(engine, folder, f"cluster: {{worker: 3}}\n{extra}")
    return in_memory.history(result), result


def witnessed(history: Sequence[Entry]) -> list[tuple[str, float, int, int]]:
    found = [one for one in history if isinstance(one, TaskProcesses)]
    return [(one.moment, one.t, len(one.processes), one.more) for one in found]


TALKS = [(n + 0.5, f"line {n}") for n in range(20)]
PREEMPTS = "faults: [{preempt: worker-1, at: 4s, grace: 2s, down: 3s}]"
TO_ALL = f"signals: all\n{PREEMPTS}"


def test_the_processes_of_a_preempted_task_are_written_before_each_signal_and_at_its_end(
    tmp_path: Path,
) -> None:
    deaf = Script(TALKS, exits_at=None, on_sigterm=None)
    engine = Witness({"worker-0": trains(), "worker-1": deaf, "*": SERVES})
    history, result = run(tmp_path, TO_ALL, engine)
    assert witnessed(history) == [("signal", 4, 2, 0), ("kill", 6, 2, 0), ("end", 6, 50, 10)]
    first, *_ = (one for one in history if isinstance(one, TaskProcesses))
    assert [(one["main"], one["reached"]) for one in first.processes] == [
        (True, True),
        (False, True),
    ]
    assert [one.get("handles") for one in first.processes] == [True, None]
    assert engine.watched == [("worker-1", 0)]  # before its signal
    (notice,) = result.analysis.notices
    assert (notice.reaction, notice.reacted_after, notice.killed) == ("line 4", 0.5, True)
    assert [one.line for one in history if isinstance(one, Reaction)] == ["line 4"]


@pytest.mark.parametrize(
    ("extra", "error"),
    [
        (PREEMPTS, EngineError("It does not answer.")),
        (PREEMPTS, NotRunning("It has just ended.")),
        ("restart: on-failure\nfaults: [{kill: worker-1, at: 4s}]", None),
    ],
)
def test_processes_that_are_not_seen_or_of_no_preemption_are_unknown(
    extra: str, error: EmulatorError | None, tmp_path: Path
) -> None:
    engine = Witness({"worker-0": trains(), "*": SERVES}, error)
    history, result = run(tmp_path, extra, engine)
    assert witnessed(history) == []
    assert [one.outlived for one in result.analysis.notices] == [None] * (error is not None)
    assert faults(history)[-1].stage in ("healed", "applied")


def test_a_line_is_a_reaction_only_to_a_notice_and_only_once(tmp_path: Path) -> None:
    """Nor is a step, or a line of a task that was skipped, or of what replaces it."""
    script = Script([*TALKS, (4.2, step(1)), (4.3, "  ")], exits_at=None, on_sigterm=1.0)
    extra = PREEMPTS.replace("faults: [", "faults: [{preempt: worker-2, at: 4s, loss: silent}, ")
    scripts = {"worker-0": trains(30), "worker-[12]": script, "*": SERVES}
    history, _ = run(tmp_path, extra, MemoryEngine(ManualClock(), scripts))
    found = [(e.task, e.fault, e.line, e.t) for e in history if isinstance(e, Reaction)]
    assert found == [("worker-1", "1", "line 4", 4.5)]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (PREEMPTS, [("signal", 4), ("kill", 6)]),
        ("faults: [{restart: worker-1, at: 4s, grace: 2s}]", [("signal", 4), ("kill", 6)]),
        ("faults: [{terminate: worker-1, at: 4s}]", [("signal", 4)]),
        ("signals: all\nfaults: [{terminate: worker-1, at: 4s}]", [("signal", 4)]),
    ],
)
def test_the_end_is_watched_of_what_is_replaced_and_was_told_as_a_whole(
    text: str, at: list[tuple[str, float]], tmp_path: Path
) -> None:
    deaf = Script(TALKS, exits_at=None, on_sigterm=None)
    engine = Witness({"worker-0": trains(), "worker-1": deaf, "*": SERVES})
    history, _ = run(tmp_path, text, engine)
    assert [(moment, t) for moment, t, *_ in witnessed(history)] == at
    assert engine.watched == []


@pytest.mark.parametrize(
    ("spec", "reached"),
    [
        (Preempt(preempt="a-0"), [True, False]),
        (Preempt(preempt="a-0", signals="all"), [True, True]),
        (Preempt(preempt="a-0", signals="all", signal="none"), [False, False]),
        (Terminate(terminate="a-0"), [True, False]),
        (Restart(restart="a-0", signals="all"), [True, True]),
        (Kill(kill="a-0"), [False, False]),
    ],
)
def test_a_signal_is_for_the_command_or_for_all(spec: FaultSpec, reached: list[bool]) -> None:
    assert [reaches(spec, one) for one in (MAIN, CHILD)] == reached
