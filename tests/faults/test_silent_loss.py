"""A preemption with `loss: silent`: what is planned, performed and said."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from emulator.engines import engine_class
from emulator.engines.memory import MemoryEngine, Script
from emulator.engines.requirements import require
from emulator.errors import Unsupported
from emulator.execution import up
from emulator.planning.requested import RunOptions
from emulator.record.events import FaultEvent, TaskExit
from emulator.record.reader import Record
from emulator.report.event_text import describe
from emulator.report.timeline_chart import _fault_in_words
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from tests.asked import asked

BASE = """
name: silent
framework: none
image: none
program: {command: ['true']}
cluster: {worker: 2}
"""
FAULT = "faults: [{preempt: worker-1, loss: silent, at: 5s, down: 4s}]\n"
SCRIPTS = {"worker-0": Script(exits_at=30.0), "*": Script(exits_at=None, on_sigterm=None)}


def run(
    folder: Path,
    extra: str = FAULT,
    engine: type[MemoryEngine] = MemoryEngine,
    scripts: Mapping[str, Script] = SCRIPTS,
) -> Result:
    clock = ManualClock()
    return up(asked(BASE + extra), engine(clock, scripts), RunOptions(out=folder), clock=clock)


def faults(result: Result) -> list[FaultEvent]:
    return [entry for entry in Record(result.folder).history if isinstance(entry, FaultEvent)]


def test_it_needs_the_helper() -> None:
    assert parse(BASE + FAULT).network_parts == {"iptables"}
    assert not parse(BASE + FAULT.replace("loss: silent, ", "")).network_parts


def test_an_engine_that_can_not_do_it_refuses_it_in_one_sentence() -> None:
    with pytest.raises(Unsupported) as refused:
        require(parse(BASE + FAULT), engine_class("process")())
    assert refused.value.message == ("The process engine can't do this: a silent loss of worker-1.")
    assert refused.value.hint == "Use --engine docker, or leave these out."


def test_its_target_ends_at_once_and_is_back_after_its_time_down(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert [(entry.stage, entry.t, describe(entry)) for entry in faults(result)] == [
        ("triggered", 5, "fault 0: preempt worker-1"),
        ("applied", 5, "fault 0: worker-1 has lost power (exit code 137)"),
        ("healed", 9, "fault 0: worker-1 is back"),
    ]
    (end,) = [e for e in Record(result.folder).history if isinstance(e, TaskExit) and e.t == 5]
    assert (end.exit_code, end.fault) == (128 + signal.SIGKILL, "0")
    states = [one for one in Record(result.folder).timeline.states() if one.task == "worker-1"]
    assert ("down", 5, 9) in [(one.name, one.begin, one.end) for one in states]
    (fault,) = result.analysis.faults
    assert (fault.silent, fault.killed) == (True, True)
    assert (fault.saved_after, fault.restored_after) == (None, 4)
    assert "exit code 137 (lost power)" in _fault_in_words(fault)


def test_another_end_at_that_moment_is_no_silent_loss(tmp_path: Path) -> None:
    class Ends(MemoryEngine):
        def cut_power(self, task: str) -> None:
            self.signal(task, signal.SIGINT)

    scripts = {"worker-0": Script(exits_at=30.0), "*": Script(exits_at=None)}
    result = run(tmp_path, "restart: on-failure\n" + FAULT, Ends, scripts)
    (fault,) = result.analysis.faults
    assert (fault.status, fault.reason) == ("failed", "worker-1 ended otherwise, with 130")
    assert result.exit_code == 3
