"""The fake cluster for tests in milliseconds: scripts for programs, a clock that jumps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from emulator.engines.memory import MemoryEngine, Scripts
from emulator.planning.requested import RunOptions
from emulator.pytest_plugin.settings import Settings
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from emulator.session.launch import ScenarioLike, Sets, assigned, read
from emulator.session.run import up


class MemoryCluster:
    """Runs scenarios on the memory engine: policies, faults and expectations without programs.

    result = memory_cluster("x.yaml", {"worker-*": Script(lines=[(1, '...')], exits_at=2)})
    """

    def __init__(self, item: pytest.Item, settings: Settings, out: Path) -> None:
        self._folders = [item.path.parent, settings.root, *settings.folders]
        self._sets = settings.sets
        self._out = out

    def __call__(
        self,
        scenario: ScenarioLike,
        scripts: Scripts,
        *,
        set: Sets = (),
        gpus: Sequence[str] = (),
    ) -> Result:
        """Run a scenario to its end at once; each task follows the first script that matches it.

        Raises EmulatorError; RuntimeError if nothing would ever happen any more.
        """
        requested = read(scenario, self._folders, assigned(set), self._sets)
        clock = ManualClock()
        engine = MemoryEngine(clock, scripts, gpus=gpus)
        options = RunOptions(out=self._out, variant=requested.label, reports=False)
        return up(requested, engine, options, clock=clock)
