"""What an engine may still be making for a run whose emulator was killed a moment ago.

An engine performs a request although its sender is gone: a network or a container may come into
being after somebody has looked for what the run had made. The record says what was asked for and
not answered; whoever removes the run, or takes it over, waits for that first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from emulator.errors import RecordError
from emulator.record.reader import Record
from emulator.runtime import signals
from emulator.runtime.waiting import pause
from emulator.supervisor.takeover import recover

__all__ = ["SETTLES_WITHIN", "let_settle", "settles_at"]

SETTLES_WITHIN = 5.0
"""Seconds after a kill in which the engine's last answers come; a second was seen on a busy one."""


def settles_at(record: Record) -> float:
    """Return until when something may still come into being, in seconds since 1970; 0: nothing."""
    until = _last_sign(record.path) + SETTLES_WITHIN
    if until < time.time() or record.result("summary.json") is not None:
        return 0.0  # most runs; one that ended by itself has waited for all answers
    try:
        found = recover(record.plan, record.history)
    except RecordError:
        return 0.0
    starting = any(task.state == "starting" for task in found.tasks.values())
    return until if starting or found.timeline.prepared is None else 0.0


def let_settle(records: Iterable[Record], say: Callable[[str], None]) -> None:
    """Wait until nothing of these runs can come into being any more. Raises Interruption."""
    until = {record.run_id: settles_at(record) for record in records}
    if waiting := [run_id for run_id, when in until.items() if when]:
        say(f"waiting a moment for what the engine may still be making for {', '.join(waiting)}")
        pause(max(until.values()) - time.time(), signals.check)


def _last_sign(folder: Path) -> float:
    """Return when an emulator last wrote in a run folder, in seconds since 1970."""
    written = [folder / "plan.json", folder / "history.jsonl", folder / "samples.jsonl"]
    return max((path.stat().st_mtime for path in written if path.is_file()), default=0.0)
