"""What lies on disks is looked at when a task is started again, and when the run is over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulator.engines.memory import MemoryEngine, Script
from emulator.errors import EngineError
from emulator.record.events import JobEnded, SavedFiles, TaskStart
from emulator.record.reader import Record
from emulator.runtime.clock import ManualClock
from tests.supervisor.in_memory import run_on, trains

LOST = "cluster: {worker: 1}\nfaults: [{preempt: worker-0, at: 2s, grace: 0s, down: 1s}]\n"


class Looks(MemoryEngine):
    """Has a checkpoint on the disk of a worker; /shared can't be seen."""

    def look(self, where: str, since: float) -> Mapping[str, Any]:
        if where == "shared":
            raise EngineError("no python3")
        if not where.startswith("worker"):
            return {"saved": [], "others": []}
        return {"saved": [{"path": f"{where}.pt", "wall": since}], "others": []}


def looks(tmp_path: Path, extra: str, script: Script) -> tuple[list[SavedFiles], SavedFiles]:
    """Return the looks at starts, and the one when the run was over."""
    result = run_on(Looks(ManualClock(), {"worker-0": script}), tmp_path, extra)
    history = Record(result.folder).history
    places = [n for n, entry in enumerate(history) if isinstance(entry, SavedFiles)]
    found = [entry for entry in history if isinstance(entry, SavedFiles)]
    for n in places[:-1]:  # before the disk is gone
        assert sum(isinstance(one, TaskStart) for one in history[:n]) == 2
    assert any(isinstance(one, JobEnded) for one in history[: places[-1]])
    return found[:-1], found[-1]


def test_a_task_that_gets_a_new_disk_is_looked_at_before(tmp_path: Path) -> None:
    (look,), _ = looks(tmp_path, LOST, trains(5))
    assert (look.task, look.removed, look.saved[0]["path"]) == ("worker-0", True, "worker-0.pt")


def test_one_that_keeps_its_disk_is_looked_at_as_well(tmp_path: Path) -> None:
    again = "cluster: {worker: 1}\nfaults: [{restart: worker-0, at: 2s, grace: 0s}]\n"
    (look,), _ = looks(tmp_path, again, trains(5))
    assert (look.task, look.removed) == ("worker-0", False)


def test_a_task_that_has_saved_is_looked_at_when_the_run_is_over(tmp_path: Path) -> None:
    before, look = looks(tmp_path, "cluster: {worker: 1, ps: 1}\n", trains(5))
    assert before == []
    assert (look.task, look.removed, look.saved[0]["path"]) == ("worker-0", False, "worker-0.pt")
