"""What the witness tells becomes events of the history."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from emulator.engines.memory import MemoryEngine
from emulator.errors import EngineError
from emulator.record.events import CheckpointSaved, Entry, Witness
from emulator.record.reader import Record
from emulator.runtime.clock import ManualClock
from tests.supervisor.in_memory import run_on, trains

ONE = "cluster: {worker: 1}\n"


class Sees(MemoryEngine):
    """Tells what it was given as soon as it is asked to watch; a text is what it fails for."""

    tells: Sequence[str] | str = ()
    stopped = 0

    def watch_files(self, program: str, since: float, told: Callable[[str], object]) -> None:
        assert "inotify" in program
        if isinstance(self.tells, str):
            raise EngineError(self.tells)
        for line in self.tells:
            told(line)

    def stop_watching(self) -> None:
        self.stopped += 1


def history(tmp_path: Path, tells: Sequence[str] | str) -> list[Entry]:
    engine = Sees(ManualClock(), {"worker-0": trains(5)})
    engine.tells = tells
    result = run_on(engine, tmp_path, ONE)
    assert engine.stopped == 1
    return list(Record(result.folder).history)


def line(at: float, saw: str, **more: Any) -> str:
    return json.dumps({"at": at, "saw": saw, "in": "shared", "path": "", **more})


def test_a_save_is_an_event_with_its_own_time(tmp_path: Path) -> None:
    wall = ManualClock().wall()
    told = [
        line(wall, "watching"),
        line(wall + 1, "open", path="model.pt"),
        line(wall + 2, "written", path="model.pt", first=wall + 1, bytes=9),
    ]
    found = history(tmp_path, told)
    (begun,) = [one for one in found if isinstance(one, Witness)]
    assert begun.sees
    (save,) = [one for one in found if isinstance(one, CheckpointSaved)]
    assert (save.path, save.seconds, save.wall) == ("model.pt", 1.0, wall + 2)


def test_a_witness_that_can_not_begin_or_says_something_else_is_blind(tmp_path: Path) -> None:
    (refused,) = [one for one in history(tmp_path, "no room") if isinstance(one, Witness)]
    assert (refused.sees, refused.reason) == (False, "no room")
    told = ["its image has no python3"]
    (blind,) = [one for one in history(tmp_path / "b", told) if isinstance(one, Witness)]
    assert (blind.sees, blind.reason) == (False, "its image has no python3")
