"""What the witness tells becomes events of the history."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from emulator.engines.memory import MemoryEngine
from emulator.errors import EngineError
from emulator.record.events import Attached, CheckpointRemoved, CheckpointSaved, Entry, Witness
from emulator.record.reader import Record
from emulator.results import RunCallbacks
from emulator.runtime.clock import ManualClock
from tests.supervisor.in_memory import BASE, Job, run_on, trains
from tests.supervisor.test_takeover import Killed

ONE = "cluster: {worker: 1}\n"


class Sees(MemoryEngine):
    """Tells what it was given as soon as it is asked to watch; a text is what it fails for."""

    tells: Sequence[str] | str = ()
    ended, is_late = 0, False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.since: list[float] = []
        self.late: list[Callable[[Callable[[], object]], object]] = []

    def watch_files(
        self,
        program: str,
        since: float,
        told: Callable[[str], object],
        opened: Callable[[Callable[[], object]], object],
    ) -> None:
        assert "inotify" in program
        self.since.append(since)
        if isinstance(self.tells, str):
            raise EngineError(self.tells)
        for line in self.tells:
            told(line)
        if self.is_late:
            self.late.append(opened)
        else:
            opened(self.end_input)

    def end_input(self) -> None:
        self.ended += 1


def history(tmp_path: Path, tells: Sequence[str] | str) -> list[Entry]:
    engine = Sees(ManualClock(), {"worker-0": trains(5)})
    engine.tells = tells
    result = run_on(engine, tmp_path, ONE)
    assert engine.ended == (not isinstance(tells, str))
    return list(Record(result.folder).history)


def saves(found: Sequence[Entry]) -> list[str]:
    return sorted(one.path for one in found if isinstance(one, CheckpointSaved))


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


def test_one_that_begins_when_the_run_is_over_tells_the_rest_and_ends(tmp_path: Path) -> None:
    """As where a container takes longer to start than the tasks do for all their work."""
    engine = Sees(ManualClock(), {"worker-0": trains(5)})
    engine.is_late = True
    run_on(engine, tmp_path, ONE)
    (opened,) = engine.late
    opened(engine.end_input)
    assert engine.ended == 1


def test_a_successor_has_one_at_once_which_tells_of_no_save_again(tmp_path: Path) -> None:
    engine, wall = Sees(ManualClock(), {"worker-0": trains(20)}), ManualClock().wall()
    told = [line(wall + 1, "written", path=f"{name}.pt", first=wall, bytes=9) for name in "abc"]
    gone = [line(wall + n, saw, path="c.pt") for n, saw in enumerate(("read", "removed"), 1)]
    engine.tells = [line(wall, "watching"), *told, *gone]
    here = Job(tmp_path, BASE + ONE, engine)

    def dies(entry: Entry) -> None:
        if isinstance(entry, CheckpointRemoved):
            raise Killed

    with contextlib.suppress(Killed):
        here.begin(RunCallbacks(entry=dies))
    before = here.history
    assert saves(before) == ["a.pt", "b.pt", "c.pt"]
    told[1] = line(wall + 1, "written", path="b.pt", first=wall, bytes=8)
    engine.tells = [line(wall + 5, "watching"), *told]
    assert here.take_over() == "succeeded"
    after = here.history[len(before) :]
    assert [type(one) for one in after[:2]] == [Attached, Witness]
    assert saves(after) == ["b.pt", "c.pt"]
    assert engine.since == [before[0].wall] * 2
