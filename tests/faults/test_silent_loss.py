"""A preemption with `loss: silent`, from the scenario to the record and its words."""

from __future__ import annotations

import signal
from pathlib import Path

from emulator.engines.memory import Script
from emulator.record.events import TaskExit
from emulator.record.reader import Record
from emulator.report.event_text import describe
from emulator.report.timeline_chart import _fault_in_words
from tests.supervisor.in_memory import DEAF, faults, run

SCENARIO = """\
cluster: {worker: 2}
faults: [{preempt: worker-1, loss: silent, at: 5s, down: 4s}]
"""


def test_its_target_ends_at_once_and_is_back_after_its_time_down(tmp_path: Path) -> None:
    result, _ = run(tmp_path, SCENARIO, {"worker-0": Script(exits_at=30.0), "*": DEAF})
    record = Record(result.folder)
    assert [(entry.stage, entry.t, describe(entry)) for entry in faults(record.history)] == [
        ("triggered", 5, "fault 0: preempt worker-1"),
        ("applied", 5, "fault 0: worker-1 has lost power (exit code 137)"),
        ("healed", 9, "fault 0: worker-1 is back"),
    ]
    (end,) = [e for e in record.history if isinstance(e, TaskExit) and e.t == 5]
    assert (end.exit_code, end.fault) == (128 + signal.SIGKILL, "0")
    states = [one for one in record.timeline.states() if one.task == "worker-1"]
    assert ("down", 5, 9) in [(one.name, one.begin, one.end) for one in states]
    (fault,) = result.analysis.faults
    assert (fault.silent, fault.killed) == (True, True)
    assert (fault.saved_after, fault.restored_after) == (None, 4)
    assert "exit code 137 (lost power)" in _fault_in_words(fault)
