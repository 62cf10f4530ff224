"""What became of a training after a fault, from the record of its run alone (pure).

Only what follows the effect of the fault counts: its `applied`. Lines that a task had printed
before arrive until then, also after the trigger.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from emulator.analysis.promises import (
    loads_what_was_saved,
    never_from_scratch,
    ranks_agree,
    restores_only_complete,
)
from emulator.record.events import FaultEvent, Phase
from emulator.record.timeline import Timeline

Class = Literal["right", "lost", "wrong", "never", "unknown"]
WORDS: dict[Class, str] = {
    "right": "resumed right",
    "lost": "lost more than one save",
    "wrong": "silently wrong",
    "never": "never came back",
    "unknown": "could not be judged",
}
WORST: tuple[Class, ...] = ("wrong", "never", "lost", "unknown", "right")
"""From the worst on: what is silent is found last."""
Z = 1.959964
"""Of an interval of 95 %."""


@dataclass(frozen=True)
class Outcome:
    """What became of a training after a fault."""

    what: Class
    why: str
    """In a sentence."""
    saved: int | None = None
    """The step of the last complete save before the fault took effect; None: there was none."""
    resumed: int | None = None
    """The step that was resumed from, the earliest of all tasks; 0: from scratch; None: nobody
    said."""
    lost: int | None = None
    """Steps that were made again."""
    promise: str = ""
    """The expectation of a scenario that this does not meet."""


def classify(timeline: Timeline, outcome: str, reason: str, lost: int | None) -> Outcome:
    """Return what became of the training; `outcome`, `reason` and `lost` are the analysis's."""
    applied = next(
        (one.stages["applied"] for one in timeline.faults.values() if "applied" in one.stages), None
    )
    if applied is None:
        return Outcome("unknown", _why_not(timeline))
    saved, resumed = complete_before(timeline, applied), resumed_after(timeline, applied)

    def found(what: Class, why: str, promise: str = "") -> Outcome:
        return Outcome(what, why, saved, resumed, lost, promise)

    if outcome == "interrupted":
        return found("unknown", f"the run was interrupted: {reason}")
    for check in (loads_what_was_saved, ranks_agree, restores_only_complete):
        if violations := check(timeline).violations:
            return found("wrong", violations[0], check.__name__)
    if outcome != "succeeded":
        return found("never", f"{outcome}: {reason}")
    if resumed is None:
        return found("unknown", "nothing says from which step it went on")
    if resumed < (saved or 0):
        start = "from scratch" if not resumed else f"from step {resumed}"
        why = f"it went on {start}, although step {saved} was saved"
        return found("lost", why, "" if resumed else never_from_scratch.__name__)
    if (why := _undecided(timeline, applied)) and resumed > (saved or 0):
        return found("unknown", why)
    return found("right", f"it went on {f'from step {resumed}' if resumed else 'from scratch'}")


def complete_before(timeline: Timeline, applied: FaultEvent) -> int | None:
    """Return the last step that all had saved which had begun to."""
    left: dict[int, set[str]] = {}
    for entry in timeline.history:
        if entry.n < applied.n and isinstance(entry, Phase) and entry.phase == "checkpoint":
            if entry.step is None:
                continue
            if entry.state == "begin":
                left.setdefault(entry.step, set()).add(entry.task)
            else:
                left.setdefault(entry.step, set()).discard(entry.task)
    return max((step for step, tasks in left.items() if not tasks), default=None)


def resumed_after(timeline: Timeline, applied: FaultEvent) -> int | None:
    """Return the earliest step from which a task went on after the fault.

    That is the step of its last restore, and of one that restored nothing the one before its first,
    as far apart as its steps are; 0 if it began with its first step again. None where no task
    restored anything or was started again. Evaluators go on from nothing.
    """
    found: list[int] = []
    evaluators = timeline.plan.evaluators
    for task in (one for name, one in timeline.tasks.items() if name not in evaluators):
        steps = [step.first for one in task.incarnations for step in one.steps]
        restored = [
            entry.step
            for entry in timeline.history
            if isinstance(entry, Phase)
            and (entry.task, entry.phase, entry.state) == (task.name, "restore", "end")
            and entry.n > applied.n
        ]
        if restored and restored[-1] is not None:
            found.append(restored[-1])
            continue
        again = [one for one in task.incarnations[1:] if one.steps and one.steps[0].n > applied.n]
        if again:
            begun = again[-1].steps[0].first
            apart = min((two - one for one, two in pairwise(steps) if two > one), default=1)
            found.append(0 if begun <= steps[0] else begun - apart)
    return min(found, default=None)


def _undecided(timeline: Timeline, applied: FaultEvent) -> str:
    """Return what is not known of a restore: whether that was saved whole, and no digest says so.

    A task that was killed before it could report the end of a save may have completed it.
    """
    digests = {
        (entry.step, entry.values["digest"])
        for entry in timeline.history
        if isinstance(entry, Phase) and entry.phase == "checkpoint" and "digest" in entry.values
    }
    restored = [
        entry
        for entry in timeline.history
        if isinstance(entry, Phase)
        and (entry.phase, entry.state) == ("restore", "end")
        and entry.n > applied.n
    ]
    if all((one.step, one.values.get("digest")) in digests for one in restored):
        return ""
    return next(iter(restores_only_complete(timeline).undecided), "")


def _why_not(timeline: Timeline) -> str:
    """Return why no fault took effect."""
    for fault in timeline.faults.values():
        for stage in ("failed", "skipped"):
            if (event := fault.stages.get(stage)) is not None:
                return f"the fault did not happen: {event.reason or stage}"
    return "the fault did not happen"


# --- All moments ----------------------------------------------------------------------------------


def wilson(right: int, of: int) -> tuple[float, float]:
    """Return the interval of 95 % for a share, by Wilson's score (E. B. Wilson, 1927)."""
    if not of:
        return 0.0, 1.0
    share, spread = right / of, Z * Z / of
    centre = (share + spread / 2) / (1 + spread)
    half = Z * math.sqrt(share * (1 - share) / of + spread / (4 * of)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def figure(found: Sequence[Class]) -> str:
    """Return all outcomes in one line: `resumed right 17 of 20 (95 %: 64 to 95 %), ...`."""
    counts = Counter(found)
    judged = len(found) - counts["unknown"]
    low, high = (round(100 * share) for share in wilson(counts["right"], judged))
    interval = f" (95 %: {low} to {high} %)" if judged else ""
    others = (f"{WORDS[what]} {counts[what]}" for what in WORDS if what != "right" and counts[what])
    return ", ".join([f"{WORDS['right']} {counts['right']} of {judged}{interval}", *others])


def exit_code(found: Sequence[tuple[Class, str]]) -> int:
    """Return that of a sweep: 1 if one was not ok, 3 if one could not be judged, else 0.

    Each has the verdict of its run: of what the scenario expects besides.
    """
    if any(what not in ("right", "unknown") or verdict == "failed" for what, verdict in found):
        return 1
    return 3 if any("unknown" in one for one in found) else 0


def worst(found: Sequence[Outcome]) -> int | None:
    """Return the number of the worst one; None if all resumed right."""
    if not found:
        return None

    def key(number: int) -> tuple[Any, ...]:
        return WORST.index(found[number].what), -(found[number].lost or 0)

    number = min(range(len(found)), key=key)
    return None if found[number].what == "right" else number
