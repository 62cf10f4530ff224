"""What became of a training after a fault, from the record of its run and of those without (pure).

Only what follows the effect of the fault counts: its `applied`. Lines that a task had printed
before arrive until then, also after the trigger.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from emulator.analysis.checkpoints import checkpoints_of
from emulator.analysis.promises import (
    loads_what_was_saved,
    never_from_scratch,
    ranks_agree,
    restores_only_complete,
)
from emulator.analysis.uninterrupted import Comparison
from emulator.record.events import FaultEvent, Phase
from emulator.record.timeline import Timeline
from emulator.search.moments import Whole
from emulator.validation.units import format_count

Word = Literal["passed", "lost work", "failed", "silently different", "undecided"]
WORST: tuple[Word, ...] = ("silently different", "failed", "lost work", "undecided", "passed")
"""From the worst on: what is silent is found last."""
Z = 1.959964
"""Of an interval of 95 %."""


@dataclass(frozen=True)
class Outcome:
    """What became of a training after a fault."""

    what: Word
    why: str
    """In a sentence."""
    saved: int | None = None
    """The step of the last complete save before the fault took effect; None: there was none, or
    its step is not known."""
    resumed: int | None = None
    """The step that was resumed from, the earliest of all tasks; 0: from scratch; None: nobody
    said."""
    lost: int | None = None
    """Steps that were made again."""
    promise: str = ""
    """The expectation of a scenario that this does not meet."""
    compared: Sequence[str] = ()
    """What was compared with the runs without a fault, and was alike."""


def classify(
    timeline: Timeline,
    outcome: str,
    reason: str,
    lost: int | None,
    comparison: Comparison,
    whole: Whole | None = None,
    during: int | None = None,
) -> Outcome:
    """Return what became of the training; `outcome`, `reason` and `lost` are the analysis's.

    `whole` is the save that was whole at the moment, where that is known from a run without a
    fault; else it is what this run has reported, or what was seen of its files. `during` is the
    step after which the fault was to come.
    """
    faults = list(timeline.faults.values())
    applied = [one.stages["applied"] for one in faults if "applied" in one.stages]
    if not applied or len(applied) < len(faults):
        return Outcome("undecided", _why_not(timeline))
    last = max(applied, key=lambda one: one.n)
    whole = whole or whole_before(timeline, last)
    saved, (resumed, at_most) = (
        (None if whole is None else whole.step),
        resumed_after(timeline, last),
    )

    def found(what: Word, why: str, promise: str = "") -> Outcome:
        return Outcome(what, why, saved, resumed, lost, promise, comparison.compared)

    if outcome == "interrupted":
        return found("undecided", f"the run was interrupted: {reason}")
    if outcome != "succeeded":
        ended = "its time was over" if outcome == "timeout" else reason
        did = "" if resumed is None else f"it went on from step {resumed}, and then "
        return found("failed", f"{did or 'it did not train again: '}{ended}")
    if comparison.differs:
        more = len(comparison.differs) - 1
        others = f", and {format_count(more, 'other difference')}" if more else ""
        return found("silently different", f"{comparison.differs[0]}{others}")
    for check in (loads_what_was_saved, ranks_agree, restores_only_complete):
        if not comparison.compared and (violations := check(timeline).violations):
            return found("silently different", violations[0], check.__name__)
    if during is not None and (reached := _reached(timeline)) < during:
        why = f"its calls differ from run to run: the fault came after step {reached}, not {during}"
        return found("undecided", why)
    if resumed is None:
        return found("undecided", "nothing says from which step it went on")
    if whole is not None and whole.is_newer_than(at_most):
        start = "from nothing" if not resumed else f"from step {resumed}"
        steps = format_count(whole.step - resumed, "step")
        about = "" if whole.is_exact else "about "
        why = f"it went on {start}, although step {whole.step} was saved whole: {about}{steps}"
        return found("lost work", why, "" if resumed else never_from_scratch.__name__)
    start = f"it went on from {f'step {resumed}' if resumed else 'nothing, since none was saved'}"
    if comparison.missing or not comparison.compared:
        missing = "; ".join(comparison.missing) or "what it left and its losses are not known"
        return found("undecided", f"{start}, and how it ended can't be compared: {missing}")
    return found("passed", f"{start}, and ended as without a fault")


def _reached(timeline: Timeline) -> int:
    """Return the last step that was made before anything was started again."""
    first = [one.incarnations[0] for one in timeline.tasks.values() if one.incarnations]
    steps = [one.step for life in first for one in life.steps]
    saves = [one.step for life in first for one in life.reports if isinstance(one, Phase)]
    return max((one for one in (*steps, *saves) if one is not None), default=0)


def whole_before(timeline: Timeline, applied: FaultEvent) -> Whole | None:
    """Return the newest save that was whole when a fault took effect; None: there was none."""
    if (reported := complete_before(timeline, applied)) is not None:
        return Whole(reported)
    evaluators = timeline.plan.evaluators
    tasks = [task.name for task in timeline.plan.in_training if task.name not in evaluators]
    seen = checkpoints_of(timeline)
    saves = [
        save
        for task in tasks
        for save in seen.complete(task, applied.t)
        if save.whole and save.step is not None
    ]
    if not saves:
        return None
    steps = sorted({save.step for save in saves if save.step is not None})
    newest = max(saves, key=lambda save: save.step or 0)
    earlier = steps[-2] if len(steps) > 1 else 0
    return Whole(steps[-1], earlier, is_exact=newest.is_exact)


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


def resumed_after(timeline: Timeline, applied: FaultEvent) -> tuple[int | None, int]:
    """Return the earliest step from which a task went on after the fault, and the last it may be.

    That is the step of its last restore, and of one that restored nothing one before its first, by
    as much as its steps are apart at most; 0 if it began with its first step again. None where no
    task restored anything or was started again, or none said a step before, as where a bar is
    printed at the end alone. Evaluators go on from nothing.
    """
    found: list[tuple[int, int]] = []
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
            found.append((restored[-1], restored[-1]))
            continue
        again = [one for one in task.incarnations[1:] if one.steps and one.steps[0].n > applied.n]
        if again and ((begun := again[-1].steps[0].first) <= 1 or task.incarnations[0].steps):
            apart = min((two - one for one, two in pairwise(steps) if two > one), default=1)
            found.append((0, 0) if begun <= steps[0] else (begun - apart, begun - 1))
    return min(found, default=(None, 0))


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


def figure(found: Sequence[Word]) -> str:
    """Return all outcomes in one line: `passed 17 of 20 (95 %: 64 to 95 %), lost work 2, ...`."""
    counts = Counter(found)
    judged = len(found) - counts["undecided"]
    low, high = (round(100 * share) for share in wilson(counts["passed"], judged))
    interval = f" (95 %: {low} to {high} %)" if judged else ""
    others = (f"{word} {counts[word]}" for word in get_args(Word)[1:] if counts[word])
    return ", ".join([f"passed {counts['passed']} of {judged}{interval}", *others])


def exit_code(found: Sequence[tuple[Word, str]]) -> int:
    """Return that of a sweep: 1 if one did not pass, 3 if one could not be judged, else 0.

    Each has the verdict of its run: of what the scenario expects besides.
    """
    if any(word not in ("passed", "undecided") or verdict == "failed" for word, verdict in found):
        return 1
    return 3 if any(word == "undecided" or verdict != "ok" for word, verdict in found) else 0


def worst(found: Sequence[Outcome]) -> dict[Word, int]:
    """Return the number of the worst one of each word but `passed`, the worst word first."""
    numbers: dict[Word, int] = {}
    for word in WORST[:-1]:
        alike = [number for number, one in enumerate(found) if one.what == word]
        if alike:
            numbers[word] = max(alike, key=lambda number: (found[number].lost or 0, -number))
    return numbers
