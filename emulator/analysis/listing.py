"""Runs in a folder, one row each: what `emulate runs` lists, from their summaries."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator.analysis.expectations import Status
from emulator.analysis.figures import in_summary
from emulator.errors import RecordError
from emulator.record.reader import Record
from emulator.record.version import OtherFormat

__all__ = ["LISTED", "Listed", "chosen", "listed"]


OTHER_FORMAT = "other format"
"""The outcome of a record that another version of the emulator has to read."""

LISTED = ("steps_per_second", "goodput", "lost_steps", "duration")
"""Figures of a listing."""


@dataclass(frozen=True)
class Listed:
    """One run; None: its record does not say."""

    run_id: str
    scenario: str
    variant: str
    engine: str
    began: float | None
    """Seconds since 1970."""
    outcome: str
    """Also `running`, `crashed` where the record just ends, and OTHER_FORMAT."""
    verdict: Status | None
    """A run that goes on has none yet; what crashed can't be judged."""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """LISTED, by key."""


def listed(record: Record) -> Listed:
    """Return the row of a run. A record that can't be read is listed by what can be."""
    live, done, what = record.live, dict[str, Any](), ("?", "", "?")
    outcome = "crashed"
    try:
        done = record.summary or {}
        what = _what(record, done)
    except OtherFormat:
        outcome = OTHER_FORMAT
    except RecordError:
        pass  # its plan is damaged
    scenario, variant, engine = what
    return Listed(
        run_id=record.run_id,
        scenario=scenario,
        variant=variant,
        engine=engine,
        began=_began(record),
        outcome="running" if live else str(done.get("outcome", outcome)),
        verdict=None if live else done.get("verdict", "unknown"),
        figures={key: in_summary(done, key) for key in LISTED},
    )


def chosen(
    rows: Iterable[Listed],
    *,
    scenario: str = "*",
    verdict: str | None = None,
    since: float | None = None,
    limit: int | None = None,
) -> list[Listed]:
    """Return the rows that are asked for, oldest first; of more than `limit` the latest.

    `scenario` is a glob, `since` seconds since 1970.
    """
    kept = [
        row
        for row in rows
        if fnmatch.fnmatchcase(row.scenario, scenario)
        and verdict in (None, row.verdict)
        and (since is None or (row.began is not None and row.began >= since))
    ]
    kept.sort(key=lambda row: row.began or 0.0)
    return kept if limit is None else kept[max(0, len(kept) - limit) :]


def _what(record: Record, done: dict[str, Any]) -> tuple[str, str, str]:
    """Return scenario, variant and engine, from the summary or else the plan."""
    if done:
        return str(done["scenario"]), str(done.get("variant", "")), str(done["engine"])
    plan = record.plan
    return plan.scenario.name, plan.variant, plan.engine


def _began(record: Record) -> float | None:
    """Return when a run began; of a long history only the first line is read."""
    try:
        with (record.path / "history.jsonl").open("rb") as lines:
            first = json.loads(lines.readline())
            return float(first["wall"]) - float(first["t"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
