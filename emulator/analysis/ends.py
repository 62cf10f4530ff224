"""How tasks ended, in words, and the rules of all sentences of an analysis (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emulator.faults.kinds import FAULTS

if TYPE_CHECKING:
    from emulator.record.events import TaskExit
    from emulator.record.timeline import Incarnation, Timeline

OF_SHELLS = {126: "it can't be executed", 127: "command not found"}
"""What exit codes mean to a shell."""
LISTED = 3
"""Things of one kind that a sentence lists; of more it says how many."""
CLOSE = 0.5
"""Seconds by which the stamps of an exit and of the fault that caused it may differ."""


def fault_behind(timeline: Timeline, task: str, life: Incarnation) -> str:
    """Return the id of the fault that ended a life of a task; empty if none did."""
    if life.exit is None:
        return ""
    if life.exit.fault:
        return life.exit.fault
    for fault in timeline.faults.values():
        begin, end = (fault.stages.get(stage) for stage in ("triggered", "applied"))
        if not FAULTS[fault.kind].ends_target or begin is None or end is None:
            continue
        in_life = life.begin <= begin.t <= life.exit.t + CLOSE and end.t >= life.exit.t - CLOSE
        if fault.planned.target == task and in_life:
            return fault.id
    return ""


def end_in_words(timeline: Timeline, task: str, life: Incarnation) -> str:
    """Return how a life of a task ended, with its last step: `worker-1 was ended by fault 0`."""
    life, task, others = _cause(timeline, task, life)
    at = f" at step {life.steps[-1].step:,}" if life.steps else " before its first step"
    if fault := fault_behind(timeline, task, life):
        how = f"was ended by fault {fault} ({timeline.faults[fault].kind})"
    elif life.exit is None:
        how = "went on"
    else:
        how = exit_in_words(life.exit)
    return f"{task} {how}{at}" + ("; all tasks were restarted" if others else "")


def exit_in_words(end: TaskExit) -> str:
    """Return how a process ended by itself: `ended with exit code 1`."""
    if end.oom_killed:
        return "ran out of memory"
    why = end.reason or OF_SHELLS.get(end.exit_code, "")
    return f"ended with exit code {end.exit_code}" + (f" ({why})" if why else "")


def _cause(timeline: Timeline, task: str, life: Incarnation) -> tuple[Incarnation, str, bool]:
    """Return the life whose end had this one ended, its task, and whether all were restarted."""
    restart, end = life.restart, life.exit
    if restart is None and end is not None and end.told_to_stop:
        earlier = [one for one in timeline.restarts if one.scope == "job" and one.t <= end.t]
        restart = earlier[-1] if earlier else None
    if restart is None or restart.scope != "job":
        return life, task, False
    ended = [
        one
        for one in timeline.tasks[restart.task].incarnations
        if one.exit is not None and one.exit.t <= restart.t + CLOSE
    ]
    return (ended[-1], restart.task, True) if ended else (life, task, True)


def several(words: Sequence[str]) -> str:
    """Return up to LISTED texts, and how many more there are."""
    more = len(words) - LISTED
    return "; ".join(words[:LISTED]) + (f"; and {more} more" if more > 0 else "")


def sentence(text: str) -> str:
    """Return a text with a full stop, and a capital unless it begins with a task's name."""
    first = text.split(" ", 1)[0]
    begin = text[:1] if "-" in first else text[:1].upper()
    return f"{begin}{text[1:].rstrip('.')}." if text else ""
