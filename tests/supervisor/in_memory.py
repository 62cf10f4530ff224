"""Runs of a scenario on the memory engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emulator.engines.memory import MemoryEngine
from emulator.execution import up
from emulator.results import Result, RunCallbacks
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse

BASE = "name: test\nframework: none\nimage: none\nprogram: {command: ['true']}\n"


def run(
    tmp_path: Path,
    extra: str,
    scripts: dict[str, Any],
    callbacks: RunCallbacks = RunCallbacks(),
    **kwargs: Any,
) -> tuple[Result, MemoryEngine]:
    """Run the scenario BASE + `extra`; `kwargs` are the engine's."""
    clock = ManualClock()
    engine = MemoryEngine(clock, scripts, **kwargs)
    text = BASE + extra
    result = up(parse(text), engine, text=text, out=tmp_path, clock=clock, callbacks=callbacks)
    assert engine.find() == []  # whatever happened, nothing is left
    return result, engine
