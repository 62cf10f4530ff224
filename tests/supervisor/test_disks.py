"""A run ends before one of its disks is full."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from emulator.engines.memory import MemoryEngine
from emulator.errors import RecordError
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.supervisor import disks
from tests.supervisor.in_memory import BASE, SERVES, Job


class Ticking(ManualClock):
    """Passes for the machine's own."""

    is_real = True


class Storing(MemoryEngine):
    """Keeps containers in a folder of its own."""

    def storage(self) -> Sequence[Path]:
        return [Path("/containers")]


@pytest.mark.parametrize("full", ["run", "containers"])
def test_the_disks_of_the_run_and_of_its_engine_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    clock = Ticking()

    def is_nearly_full(folder: Path) -> int | None:
        return 2**20 if folder.name == full and clock.now() >= clock.BEGAN + 3.2 else None

    monkeypatch.setattr(disks, "is_nearly_full", is_nearly_full)
    here = Job(tmp_path, parse(f"{BASE}cluster: {{worker: 1}}\n"), Storing(clock, {"*": SERVES}))
    with pytest.raises(RecordError, match=f"/{full} has 1 MiB left: the run ends before the"):
        here.begin()
    assert clock.now() == clock.BEGAN + 3.5
