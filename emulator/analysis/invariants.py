"""What must hold at every moment of a run (pure).

These promise more than numbers do: a job may reach its last step and have had two chiefs on the
way. Each function says what it looked at and what broke the promise; `checks.py` makes a
verdict of it, which is `unknown` where there was nothing to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import NamedTuple

from emulator.record.events import Phase, Step
from emulator.record.timeline import TaskTimeline, Timeline

__all__ = ["INVARIANTS", "Observed", "monotone_checkpoints", "single_chief", "steps_exactly_once"]


@dataclass(frozen=True)
class Observed:
    """What one promise came to."""

    wanted: str
    seen: int
    """How many things could have broken it."""
    of: str
    """What these are, in the plural."""
    broken: Sequence[str] = ()
    """What broke it, a sentence each."""


def monotone_checkpoints(timeline: Timeline) -> Observed:
    """Look whether the steps that a task saves grow, and what is restored had been saved.

    After a restore a task saves on from there. What is restored may be step 0, or any that some
    task had said it saves: one that is killed before it says that it has may be done all the same.
    """
    ended, broken = 0, []
    saved, latest = {0}, dict[str, int]()
    for entry in timeline.history:
        if not isinstance(entry, Phase) or (step := entry.step) is None:
            continue
        match entry.phase, entry.state:
            case "checkpoint", "begin":
                saved.add(step)
            case "checkpoint", "end":
                if step < latest.get(entry.task, step):
                    broken.append(f"{entry.task} saved step {step} after {latest[entry.task]}")
                ended += 1
                saved.add(step)
                latest[entry.task] = step
            case "restore", "end":
                if step not in saved:
                    broken.append(f"{entry.task} restored step {step}, which nobody had saved")
                latest[entry.task] = step
    return Observed("saved steps never go back", ended, "checkpoints that tell a step", broken)


def single_chief(timeline: Timeline) -> Observed:
    """Look whether each incarnation of the chief ended before the next, and made no step after it.

    The chief is chief-0 or master-0; without these worker-0, as in TensorFlow 2.
    """
    seen = {name: task for name, task in timeline.tasks.items() if task.incarnations}
    chief = _chief(seen)
    lives = [one for one in seen[chief].incarnations if one.running] if chief else []
    broken = list(_overlaps(seen[chief])) if chief else []
    return Observed("one chief at a time", len(lives), f"lives of {chief or 'a chief'}", broken)


def steps_exactly_once(timeline: Timeline) -> Observed:
    """Look whether the task that leads told of every step once: none again, and none left out.

    It is the chief where that tells of steps, else the first that does. Steps are left out where
    the gap is wider than the most common one. A step that is told twice in a row by one life was
    not done twice: programs tell the last one again with the accuracy. Of steps that were told of
    together and done again the first alone is named.
    """
    tellers = [step.task for _, step in timeline.steps]
    leader = _chief(tellers) or next(iter(tellers), "")
    steps = list(_told(timeline.tasks[leader])) if leader else []
    seen = sum(told.entry.count - told.again for told in steps)
    broken = list(_gaps(leader, steps)) if seen > 1 else []
    return Observed("each step once", seen if seen > 1 else 0, "steps", broken)


INVARIANTS: Mapping[str, Callable[[Timeline], Observed]] = {
    "monotone_checkpoints": monotone_checkpoints,
    "single_chief": single_chief,
    "steps_exactly_once": steps_exactly_once,
}
"""By the key of `expect:` that asks for it."""


def _chief(tasks: Collection[str]) -> str:
    return next((name for name in ("chief-0", "master-0", "worker-0") if name in tasks), "")


def _overlaps(chief: TaskTimeline) -> Iterator[str]:
    """Yield where two incarnations of a task overlap."""
    ended = float("-inf")
    for one, after in zip_longest(chief.incarnations, chief.incarnations[1:]):
        for step in one.steps:
            if step in one.late:
                yield f"{chief.name} told of step {step.step} after it had ended"
            elif step.wall < ended:  # both are the engine's stamps
                yield f"{chief.name} told of step {step.step} before its last life had ended"
        if one.exit is not None:
            ended = one.exit.wall
        elif after is not None and one.running is not None:
            yield f"{chief.name} was started at {after.begin:.1f} s while it ran"


class _Told(NamedTuple):
    """One step event; see `emulator/record/coalesce.py` for those of many steps."""

    entry: Step
    again: bool
    """This life had just told of its first step."""


def _told(task: TaskTimeline) -> Iterator[_Told]:
    """Yield the steps that a task told of, without those that one life told twice in a row."""
    for one in task.incarnations:
        before: int | None = None
        for step in one.steps:
            again = step.first == before
            if not again or step.count > 1:
                yield _Told(step, again)
            before = step.step


def _gaps(leader: str, steps: Sequence[_Told]) -> Iterator[str]:
    """Yield where steps go back, or leave out more than they usually do."""
    gaps = Counter(two.first - one.step for (one, _), (two, _) in pairwise(steps))
    for entry, _ in steps:
        gaps[_gap(entry)] += entry.count - 1
    forward = [gap for gap, times in gaps.items() if gap > 0 and times > 0]
    furthest = steps[0].entry.first
    usual = min(forward, key=lambda gap: (-gaps[gap], gap), default=furthest)
    if furthest > usual:
        yield f"{leader} began with step {furthest}"
    yield from _within(leader, steps[0].entry, usual)
    furthest = steps[0].entry.step
    for entry, again in steps[1:]:
        if entry.first > furthest + usual:
            yield f"{leader} told of nothing between {furthest} and {entry.first}"
        elif entry.first <= furthest and not again:
            yield f"{leader} told of step {entry.first} when it had been at {furthest}"
        yield from _within(leader, entry, usual)
        furthest = max(furthest, entry.step)


def _gap(entry: Step) -> int:
    """Return the difference between two of the steps in a merged event, as if evenly spaced."""
    return (entry.step - entry.first) // (entry.count - 1) if entry.count > 1 else 0


def _within(leader: str, entry: Step, usual: int) -> Iterator[str]:
    """Yield how many steps a merged event leaves out."""
    missing = (entry.step - entry.first) // usual + 1 - entry.count if entry.count > 1 else 0
    if missing > 0:
        yield f"{leader} left out {missing} steps between {entry.first} and {entry.step}"
