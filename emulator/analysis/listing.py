"""The list of runs in a folder, from their summaries: `emulate runs`."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from emulator.analysis.figures import in_summary
from emulator.errors import RecordError
from emulator.record.version import OtherFormat
from emulator.validation.stored import open_stored, stored_json, stored_lines

if TYPE_CHECKING:
    from emulator.analysis.expectations import Status
    from emulator.record.folder import RunFolder

OTHER_FORMAT = "other format"
"""The outcome of a record that only another version of the emulator can read."""

UNREADABLE = "unreadable"
"""The outcome of a record that something has damaged."""

LISTED = ("steps_per_second", "goodput", "lost_steps", "duration")
"""Figures of a listing."""


@dataclass(frozen=True)
class Listed:
    """One run; None: unknown."""

    run_id: str
    scenario: str
    variant: str
    engine: str
    began: float | None
    """Seconds since 1970."""
    outcome: str
    """Also `running`, `crashed` if the record has no outcome, OTHER_FORMAT and UNREADABLE."""
    verdict: Status | None
    """None while it runs; `unknown` if it crashed."""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """By key."""
    commit: str = ""
    """That of the program, ` with changes` if it differed; empty: not known."""


def listed(record: RunFolder) -> Listed:
    """Return the row of a run.

    Of a record that can't be read, as much as possible.
    """
    live, summary, outcome = record.live, dict[str, Any](), "crashed"
    scenario, variant, engine = "?", "", "?"
    try:
        summary = record.summary or {}
        scenario, variant, engine = _identity(record, summary)
    except OtherFormat:
        outcome = OTHER_FORMAT
    except RecordError:
        outcome = UNREADABLE
    began, commit = _beginning(record)
    return Listed(
        run_id=record.run_id,
        scenario=scenario,
        variant=variant,
        engine=engine,
        began=began,
        outcome="running" if live else str(summary.get("outcome", outcome)),
        verdict=None if live else summary.get("verdict", "unknown"),
        figures={key: in_summary(summary, key) for key in LISTED},
        commit=commit,
    )


def chosen(
    rows: Iterable[Listed],
    *,
    scenario: str = "*",
    verdict: str | None = None,
    since: float | None = None,
    limit: int | None = None,
) -> list[Listed]:
    """Return the matching rows, oldest first, at most the latest `limit`.

    `scenario` is a glob, `since` seconds since 1970.
    """
    matching = [
        row
        for row in rows
        if fnmatch.fnmatchcase(row.scenario, scenario)
        and verdict in (None, row.verdict)
        and (since is None or (row.began is not None and row.began >= since))
    ]
    matching.sort(key=lambda row: row.began or 0.0)
    return matching if limit is None else matching[max(0, len(matching) - limit) :]


def _identity(record: RunFolder, summary: dict[str, Any]) -> tuple[str, str, str]:
    """Return scenario, variant and engine, from the summary or else the plan."""
    if summary:
        return str(summary["scenario"]), str(summary.get("variant", "")), str(summary["engine"])
    outline = record.outline
    return outline.scenario, outline.variant, outline.engine


def _beginning(record: RunFolder) -> tuple[float | None, str]:
    """Return when a run began, and its program's commit, from the first line of its history."""
    try:
        with open_stored(record.path / "history.jsonl") as file:
            first = stored_json(next(stored_lines(file), b""))
            began = float(first["wall"]) - float(first["t"])
            datetime.fromtimestamp(began)  # else no date can be shown
    except (OSError, RecordError, ValueError, KeyError, TypeError, IndexError, OverflowError):
        return None, ""
    origin = first.get("origin")
    commit = origin.get("commit") if isinstance(origin, dict) else None
    return began, commit if isinstance(commit, str) else ""
