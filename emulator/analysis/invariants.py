"""Invariants: what must hold at every moment of a run (pure).

A job may reach its last step and have had two chiefs on the way. Each function returns what it
looked at and the violations; `expectations.py` turns that into a verdict, which is `unknown` if
there was nothing to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import NamedTuple

from emulator.analysis.observed import Observed
from emulator.analysis.setbacks import setbacks
from emulator.analysis.steps_made import beside
from emulator.record.events import Phase, Step
from emulator.record.timeline import FaultTimeline, Incarnation, TaskTimeline, Timeline

LATE = 2.0
"""Seconds that a line may wait in a pipe before the engine stamps it, on a busy machine. A task
that starts again also runs for a moment before it can be paused again."""


def monotone_checkpoints(timeline: Timeline) -> Observed:
    """Check that the steps that a task saves grow, and that restored steps had been saved.

    After a restore a task continues from there. A restored step is 0, or one whose save any task
    has at least begun: a task that is killed during a save may have completed it.
    """
    count, violations = 0, []
    saved, latest = {0}, dict[str, int]()
    for entry in timeline.history:
        if not isinstance(entry, Phase):
            continue
        if (step := entry.step) is None:
            if entry.phase == "restore":  # from where it goes on is not said
                latest.pop(entry.task, None)
            continue
        match entry.phase, entry.state:
            case "checkpoint", "begin":
                saved.add(step)
            case "checkpoint", "end":
                if step < latest.get(entry.task, step):
                    violations.append(f"{entry.task} saved step {step} after {latest[entry.task]}")
                count += 1
                saved.add(step)
                latest[entry.task] = step
            case "restore", "end":
                if step not in saved:
                    violations.append(f"{entry.task} restored step {step}, which was never saved")
                latest[entry.task] = step
    return Observed("saved steps never go back", count, "checkpoints with a step", violations)


def single_chief(timeline: Timeline) -> Observed:
    """Check that each incarnation of the chief ended before the next, without steps after its end.

    The chief is chief-0 or master-0, for example; without one, worker-0, as in TensorFlow 2.
    """
    started = {name: task for name, task in timeline.tasks.items() if task.incarnations}
    name = timeline.plan.roles.leader(started)
    incarnations = started[name].incarnations if name else []
    return Observed(
        "one chief at a time",
        sum(one.running is not None for one in incarnations),
        f"incarnations of {name or 'a chief'}",
        list(_overlaps(started[name])) if name else [],
    )


def steps_exactly_once(timeline: Timeline) -> Observed:
    """Check that the leading task reported each step once: none repeated, none omitted.

    The leading task is the chief if it reports steps, else the first task that does. Steps are
    omitted if a gap is wider than the most common one. A step that one incarnation reports twice in
    succession was not repeated: programs report the last one again with the accuracy. Of repeated
    merged steps only the first is named.
    """
    tasks = [step.task for _, step in timeline.steps]
    others = beside(timeline.plan, tasks)
    tasks = [task for task in tasks if task not in others]
    leader = timeline.plan.roles.leader(tasks) or next(iter(tasks), "")
    steps = list(_reports(timeline.tasks[leader])) if leader else []
    count = sum(report.entry.count - report.again for report in steps)
    if count < 2:
        return Observed("each step once", 0, "steps", [])
    found = list(_gaps(leader, steps))
    if anew := [one.anew for one in setbacks(timeline.tasks[leader]) if one.anew]:
        return Observed("each step once", count, "steps", undecided=[*anew, *found])
    return Observed("each step once", count, "steps", found)


def no_step_while_paused(timeline: Timeline) -> Observed:
    """Check that no task made a step while a fault had paused it.

    The pause is what the record says: from its effect until it was healed, also of processes that
    have replaced the target's. Steps within LATE of its ends, or of a start, prove nothing; so does
    a pause that is no longer than that, or of a task that reports no step.
    """
    pauses = [one for one in timeline.faults.values() if one.kind == "pause" and one.has_held]
    judged, violations = 0, []
    for fault in pauses:
        task = timeline.tasks[fault.planned.target]
        frozen = list(_frozen(fault, task, timeline.end))
        judged += bool(frozen and task.steps)
        made = [
            step for one, since, until in frozen for step in one.steps if since < step.t < until
        ]
        if made:
            count = sum(step.count for step in made)
            violations.append(
                f"{task.name} made {count} step{'s' * (count > 1)} between {made[0].t:.1f} and "
                f"{made[-1].t:.1f} s, while fault {fault.id} had paused it"
            )
    of = "pauses" if judged == len(pauses) else "pauses in which a step would have been seen"
    return Observed("no step while paused", judged, of, violations)


INVARIANTS: Mapping[str, Callable[[Timeline], Observed]] = {
    "monotone_checkpoints": monotone_checkpoints,
    "single_chief": single_chief,
    "steps_exactly_once": steps_exactly_once,
}
"""By key in `expect:`."""

ALWAYS: Mapping[str, Callable[[Timeline], Observed]] = {
    "no_step_while_paused": no_step_while_paused,
}
"""What every record is held against in which it could be violated: our own word."""


def _frozen(
    fault: FaultTimeline, task: TaskTimeline, end: float
) -> Iterator[tuple[Incarnation, float, float]]:
    """Yield the incarnations that a fault surely held, each with since when and until when."""
    applied, over = fault.stages["applied"], fault.over
    until = (end if over is None else over.t) - LATE
    for one in task.incarnations:
        runs_since = one.begin if one.running is None else one.running.t
        since = max(applied.t, runs_since) + LATE
        last = until if one.exit is None else min(until, one.exit.t)
        if since < last:
            yield one, since, last


def _overlaps(task: TaskTimeline) -> Iterator[str]:
    ended = float("-inf")
    for one, after in zip_longest(task.incarnations, task.incarnations[1:]):
        for step in one.steps:
            if step in one.late:
                yield f"{task.name} reported step {step.step} after its exit"
            elif step.wall < ended:  # both are stamps of the engine
                yield f"{task.name} reported step {step.step} before its previous exit"
        if one.exit is not None:
            ended = one.exit.wall
        elif after is not None and one.running is not None:
            yield f"{task.name} was started at {after.begin:.1f} s while it was running"


class _Report(NamedTuple):
    """One step event; `Coalescer` in `record/writer.py` describes those of many steps."""

    entry: Step
    again: bool
    """The incarnation had just reported its first step."""


def _reports(task: TaskTimeline) -> Iterator[_Report]:
    """Yield a task's step events."""
    for one in task.incarnations:
        before: int | None = None
        for step in one.steps:
            yield _Report(step, step.first == before)
            before = step.step


def _gaps(leader: str, steps: Sequence[_Report]) -> Iterator[str]:
    """Yield where steps go back, or have a wider gap than usual."""
    gaps = Counter(two.first - one.step for (one, _), (two, _) in pairwise(steps))
    for entry, _ in steps:
        gaps[_inner_gap(entry)] += entry.count - 1
    forward = [gap for gap, times in gaps.items() if gap > 0 and times > 0]
    furthest = steps[0].entry.first
    usual = min(forward, key=lambda gap: (-gaps[gap], gap), default=furthest)
    if furthest > usual:
        yield f"{leader} began with step {furthest}"
    for number, (entry, again) in enumerate(steps):
        if entry.first > furthest + usual:
            yield f"{leader} reported no step between {furthest} and {entry.first}"
        elif number and entry.first <= furthest and not again:
            yield f"{leader} reported step {entry.first} after step {furthest}"
        span = entry.step - entry.first
        omitted = span // usual + 1 - entry.count if entry.count > 1 else 0
        if omitted > 0:
            yield f"{leader} omitted {omitted} steps between {entry.first} and {entry.step}"
        furthest = max(furthest, entry.step)


def _inner_gap(entry: Step) -> int:
    """Return the gap between the steps of a merged event, as if evenly spaced."""
    return (entry.step - entry.first) // max(1, entry.count - 1)
