"""What lies on disks is looked at when a task is started again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulator.engines.memory import MemoryEngine, Script
from emulator.errors import EngineError
from emulator.record.events import SavedFiles, TaskStart
from emulator.record.reader import Record
from emulator.runtime.clock import ManualClock
from tests.supervisor.in_memory import run_on, trains

LOST = "cluster: {worker: 1}\nfaults: [{preempt: worker-0, at: 2s, grace: 0s, down: 1s}]\n"


class Looks(MemoryEngine):
    """Has a checkpoint on the disk of a task; /shared can't be seen."""

    def look(self, where: str, since: float) -> Mapping[str, Any]:
        if where == "shared":
            raise EngineError("no python3")
        return {"saved": [{"path": f"{where}.pt", "wall": since}], "others": []}


def looks(tmp_path: Path, extra: str, script: Script) -> list[SavedFiles]:
    result = run_on(Looks(ManualClock(), {"worker-0": script}), tmp_path, extra)
    history = Record(result.folder).history
    for n, entry in enumerate(history):  # before the disk is gone
        if isinstance(entry, SavedFiles):
            assert sum(isinstance(one, TaskStart) for one in history[:n]) == 2
    return [entry for entry in history if isinstance(entry, SavedFiles)]


def test_a_task_that_gets_a_new_disk_is_looked_at_before(tmp_path: Path) -> None:
    (look,) = looks(tmp_path, LOST, trains(5))
    assert (look.task, look.removed, look.saved[0]["path"]) == ("worker-0", True, "worker-0.pt")


def test_one_that_keeps_its_disk_is_looked_at_as_well(tmp_path: Path) -> None:
    again = "cluster: {worker: 1}\nfaults: [{restart: worker-0, at: 2s, grace: 0s}]\n"
    (look,) = looks(tmp_path, again, trains(5))
    assert (look.task, look.removed) == ("worker-0", False)


def test_a_task_that_is_started_once_is_not(tmp_path: Path) -> None:
    assert looks(tmp_path, "cluster: {worker: 1}\n", trains(5)) == []
