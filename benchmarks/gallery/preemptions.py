"""A table of what the faults of runs did, for pages that show several of them (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.gallery.pages import markdown, written
from benchmarks.gallery.runs import Run

TITLES = ["scenario", "fault", "gone", "others fail", "back", "next step", "steps lost", "steps/s"]


def preemptions(runs: Sequence[Run]) -> str:
    """Return a row for each fault that was applied: seconds after its trigger, lost steps, rates.

    The rates are those before the fault, until the task was restored, and afterwards.
    """
    rows = [
        _row(run, fault)
        for run in runs
        for fault in run.summary["faults"]
        if fault["status"] == "applied"
    ]
    return markdown(TITLES, rows)


def _row(run: Run, fault: dict[str, Any]) -> list[str]:
    stages = ("applied_after", "detected_after", "restored_after", "first_step_after")
    rates = [written(fault[f"rate_{when}"]) for when in ("before", "during", "after")]
    return [
        f"`{run.scenario}`",
        f"{fault['kind']} {fault['target']}",
        *(_seconds(fault[stage]) for stage in stages),
        written(run.summary["steps"]["lost"]),
        " → ".join(rates),
    ]


def _seconds(value: float | None) -> str:
    return "—" if value is None else f"{value:.1f} s"
