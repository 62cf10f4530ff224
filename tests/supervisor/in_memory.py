"""Runs of a scenario on the memory engine, and what their histories say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from emulator.engines.memory import MemoryEngine, Script, Scripts
from emulator.execution import up
from emulator.record.events import Entry, FaultEvent
from emulator.record.reader import Record
from emulator.results import Result, RunCallbacks
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse

BASE = "name: test\nframework: none\nimage: none\nprogram: {command: ['true']}\n"
SERVES = Script(exits_at=None)
DEAF = Script(exits_at=None, on_sigterm=None)


def step(number: int) -> str:
    return f'{{"emulate": "step", "step": {number}}}'


def trains(until: int = 40, *, first: float = 1.0, since: int = 0) -> Script:
    """A step a second from the one after `since` on, the first after so many."""
    lines = [(first + n, step(since + n + 1)) for n in range(until - since)]
    return Script(lines, exits_at=first + until - since)


def run(
    tmp_path: Path,
    extra: str,
    scripts: Scripts,
    callbacks: RunCallbacks = RunCallbacks(),
    **kwargs: Any,
) -> tuple[Result, MemoryEngine]:
    """Run the scenario BASE + `extra`; `kwargs` are the engine's."""
    engine = MemoryEngine(ManualClock(), scripts, **kwargs)
    return run_on(engine, tmp_path, extra, callbacks=callbacks), engine


def run_on(
    engine: MemoryEngine, tmp_path: Path, extra: str, *, base: str = BASE, **kwargs: Any
) -> Result:
    """Run the scenario `base` + `extra` on an engine; `kwargs` are those of `up`."""
    text = base + extra
    result = up(parse(text), engine, text=text, out=tmp_path, clock=engine._clock, **kwargs)
    assert engine.find() == []  # whatever happened, nothing is left
    return result


def history(result: Result) -> list[Entry]:
    return list(Record(result.folder).history)


def times(entries: Iterable[Entry], event: str, task: str | None = None) -> list[float]:
    return [e.t for e in entries if e.event == event and task in (None, e.task)]


def starts(result: Result) -> list[tuple[str, float]]:
    return [(e.task, e.t) for e in history(result) if e.event == "start"]


def faults(entries: Iterable[Entry], fault: str = "0") -> list[FaultEvent]:
    return [e for e in entries if isinstance(e, FaultEvent) and e.id == fault]


def stages(entries: Iterable[Entry], fault: str = "0") -> list[tuple[str, float]]:
    return [(e.stage, e.t) for e in faults(entries, fault)]
