"""A table of preemptions in jobs whose chief restores what all train (pure).

Steps are lost wherever the chief restores an earlier step, also by tasks that were not lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.gallery.pages import markdown, written
from benchmarks.gallery.runs import Run
from emulator.record.events import Entry, FaultEvent, Phase, Step
from emulator.record.reader import Record

WINDOW = 10.0
"""Seconds before a fault over which its rate is counted."""
TITLES = [
    "scenario",
    "preempted",
    "is the chief",
    "steps/s before",
    "steps/s while it is away",
    "trains again after",
    "goes back by",
]


def table(runs: Sequence[Run]) -> str:
    """Return a row for each fault that was applied: rates of the job, seconds after the trigger."""
    rows = []
    for run in runs:
        record = Record(run.folder)
        chief = record.plan.roles.leader([task.name for task in record.plan.tasks])
        history = record.in_time_order
        for fault in run.summary["faults"]:
            if fault["status"] == "applied":
                rows.append(_row(run.scenario, fault, chief, history))
    return markdown(TITLES, rows)


def _row(scenario: str, fault: dict[str, Any], chief: str, history: Sequence[Entry]) -> list[str]:
    again = trains_again(history, fault["id"], fault["target"], chief)
    before, away = paces(history, fault["id"], again)
    return [
        f"`{scenario}`",
        fault["target"],
        "yes" if fault["target"] == chief else "no",
        written(before),
        written(away),
        "never" if again is None else f"{again:.1f} s",
        written(goes_back(history, fault["id"], chief)),
    ]


def trains_again(history: Sequence[Entry], fault: str, target: str, chief: str) -> float | None:
    """Return the seconds from a fault until its target makes a step again; None if it never does.

    A target that reports no steps, as it only computes for the chief, makes those of the chief.
    """
    says = target if any(isinstance(e, Step) and e.task == target for e in history) else chief
    stages = {e.stage: e.t for e in history if isinstance(e, FaultEvent) and e.id == fault}
    steps = (
        e.t - stages["triggered"]
        for e in history
        if isinstance(e, Step) and e.task == says and e.t > stages["healed"]
    )
    return next(steps, None)


def paces(history: Sequence[Entry], fault: str, again: float | None) -> tuple[float, float]:
    """Return the steps per second in the ten seconds before a fault, and until its target is back.

    They are those of the global step, and end with the first restore: in a summary `rate_during`
    lasts until the target runs again.
    """
    stages = {e.stage: e.t for e in history if isinstance(e, FaultEvent) and e.id == fault}
    struck, gone = stages["triggered"], stages["applied"]
    first = next(e.t for e in history if isinstance(e, Step))
    restores = [e.t for e in history if isinstance(e, Phase) and e.phase == "restore"]
    begin = max([struck - WINDOW, first, *(t for t in restores if t < struck)])
    back = [] if again is None else [struck + again]
    end = min([*back, *(t for t in restores if t > gone)], default=history[-1].t)
    return _pace(history, begin, struck), _pace(history, gone, end)


def _pace(history: Sequence[Entry], begin: float, end: float) -> float:
    steps = [e.step for e in history if isinstance(e, Step) and begin <= e.t < end]
    return (steps[-1] - steps[0]) / (end - begin) if steps else 0.0


def goes_back(history: Sequence[Entry], fault: str, chief: str) -> int:
    """Return by how many steps the chief's restore after a fault, before the next one, went back.

    It counts from the furthest step that any task had reported.
    """
    furthest, active, back = 0, "", 0
    for entry in history:
        match entry:
            case Step():
                furthest = max(furthest, entry.step)
            case FaultEvent(stage="triggered"):
                active = entry.id
            case Phase(phase="restore", step=int(step)) if entry.task == chief:
                back += furthest - step if active == fault else 0
                furthest = step
    return back
