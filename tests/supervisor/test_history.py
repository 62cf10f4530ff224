"""Of a run's events and output, what subscribers are told when."""

from __future__ import annotations

from pathlib import Path

from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.results import RunCallbacks
from emulator.runtime.clock import ManualClock
from emulator.supervisor.history import HistoryWriter
from tests.histories import a_plan, an_event


def test_in_a_batch_output_and_steps_wait_for_another_event_or_its_end(tmp_path: Path) -> None:
    told: list[str] = []
    callbacks = RunCallbacks(
        entry=lambda entry: told.append(entry.event),
        lines=lambda lines: told.append(" ".join(text for _, text in lines)),
    )
    record = RunWriter(tmp_path / "run-1", a_plan("{worker: 1}"), "", ManualClock())
    history = HistoryWriter(record, callbacks)

    def after(line: str, *events: str, shown: bool = True) -> list[str]:
        """Return what is told when a task has printed a line and these events have happened."""
        told.clear()
        history.line("worker-0", line, shown=shown)
        for event in events:
            history.write(an_event(event, "worker-0", **({"step": 1} if event == "step" else {})))
        return list(told)

    assert after("a", "step", "phase") == ["a", "step", "phase"]
    assert after("b", shown=False) == []
    history.begin_batch()
    assert after("c", "step", "phase") == []
    assert after("d", "stall") == ["c d", "step", "phase", "stall"]
    assert after("e", "step") == []
    history.end_batch()
    assert told == ["e", "step"]
    assert after("f") == ["f"]
    record.close()
    assert Record(record.path).log("worker-0") == list("abcdef")
