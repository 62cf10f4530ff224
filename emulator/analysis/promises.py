"""What a run promises of its checkpoints (pure).

They are judged from what the witness saw of files (`checkpoints.py`). What a task reports is used
where it agrees with that. Where nothing was seen, on an engine without a witness or on a disk that
none watches, reports alone decide, and the answer says so.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import zip_longest

from emulator.analysis.checkpoints import Checkpoints, Loaded, checkpoints_of
from emulator.analysis.observed import Observed
from emulator.analysis.saves import Save
from emulator.analysis.setbacks import begin_of
from emulator.faults.checkpoint import Checkpoint
from emulator.record.events import FaultEvent, Phase, Step
from emulator.record.timeline import Incarnation, Timeline

NOT_CHANGED = ("missing", "empty-newer")
"""Faults after which a save is as it was, or gone."""
BY_REPORTS = ", as tasks reported them"


def restores_only_complete(timeline: Timeline) -> Observed:
    """Check that what a task loads had been saved whole, and was not broken since.

    Where two saves may be what it has loaded, and one of them was broken, it is not known.
    """
    seen = checkpoints_of(timeline)
    count, violations, undecided, unseen = 0, list[str](), list[str](), 0
    reported = _Reported(timeline)
    for one in seen.loaded:
        if one.report is not None and one.step == 0:
            continue
        if states := one.states():
            count += 1
            wrong, is_sure = _wrong(one, states)
            if wrong:
                (violations if is_sure else undecided).append(wrong)
        elif one.report is not None and one.step is not None:
            count += 1
            why = _not_seen(one, seen)
            if why:
                undecided.append(why)
                continue
            unseen += 1
            said, is_sure = reported.of(one)
            if said:
                (violations if is_sure else undecided).append(said)
    return Observed(
        "what is restored was saved whole",
        count,
        f"loads{BY_REPORTS if unseen else ''}",
        violations,
        undecided,
    )


def _wrong(one: Loaded, states: Mapping[str, bool | None]) -> tuple[str, bool]:
    """Return what is wrong with what a task has loaded, and whether that is certain."""
    wrong = [f"{one.words}, {why}" for why in states if why]
    is_sure = "" not in states and all(states.values())
    may = "; what else was read meanwhile was whole" if wrong and "" in states else ""
    return (wrong[0] + may if wrong else ""), is_sure


def _not_seen(one: Loaded, seen: Checkpoints) -> str:
    """Return why a reported restore is doubted, of which nothing was seen; empty: it is not."""
    if one.begins_anew:
        return f"{one.words}, as it reports, and its steps began where they had begun at first"
    # Its own disk in a container is not seen; what it saves may look like no save.
    is_there = any(not save.task and save.is_exact and save.step == one.step for save in seen.saves)
    if not seen.saves or not seen.sees("" if is_there else one.task, one.since, one.at):
        return ""
    if one.others:
        paths = ", ".join(dict.fromkeys(read.entry.path for read in one.others))
        return f"{one.words}, as it reports, and what was read meanwhile is {paths}"
    return f"{one.words}, as it reports, and no save was read"


class _Reported:
    """What tasks reported of saves, and what faults broke, as far as reports show it.

    A fault has broken the checkpoint of the step that its name says, or else the last one that was
    saved by then, of the task on whose disk it was.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._said: dict[int, tuple[str, bool]] = {}
        """By the event of a restore, what is wrong with it, and whether that is certain."""
        complete, unfinished = list[tuple[str, int]](), dict[int, set[str]]()
        broken: dict[tuple[str, int], str] = {}
        for entry in timeline.history:
            match entry:
                case FaultEvent(stage="applied", kind=Checkpoint.kind, changed=changed) if (
                    changed and changed.get("how") not in NOT_CHANGED
                ):
                    disk = entry.target or ""
                    own = [
                        step
                        for task, step in complete
                        if disk not in timeline.tasks or task == disk
                    ]
                    named = changed.get("number")
                    if (step := named if named in own else next(reversed(own), None)) is not None:
                        whose = disk if disk in timeline.tasks else ""
                        broken[whose, step] = f"fault {entry.id} had broken ({changed.get('how')})"
                case Phase(phase="checkpoint", step=int(step), state=state):
                    if state == "begin":
                        unfinished.setdefault(step, set()).add(entry.task)
                        continue
                    unfinished.setdefault(step, set()).discard(entry.task)
                    broken.pop(("", step), None)
                    broken.pop((entry.task, step), None)
                    complete.append((entry.task, step))
                case Phase(phase="restore", state="end", step=int(step)) if step:
                    by = broken.get(("", step)) or broken.get((entry.task, step))
                    self._said[entry.n] = _judged(entry, step, by, unfinished)

    def of(self, one: Loaded) -> tuple[str, bool]:
        """Return what is wrong with a restore (empty: nothing), and whether that is certain."""
        return ("", False) if one.report is None else self._said.get(one.report.n, ("", False))


def _judged(
    entry: Phase, step: int, broken: str | None, unfinished: Mapping[int, set[str]]
) -> tuple[str, bool]:
    words = f"{entry.task} restored step {step}"
    if broken:
        return f"{words}, which {broken}", True
    if not unfinished:
        return f"{words}, and nobody has reported the step of a save", False
    if step not in unfinished:
        return f"{words}, which was never saved", True
    if tasks := unfinished[step]:
        return f"{words}, and {min(tasks)} did not report the end of its save", False
    return "", False


def never_from_scratch(timeline: Timeline) -> Observed:
    """Check that no task began with its first step again once a checkpoint was complete.

    Of a task that was started after a completed checkpoint, what it restores decides, or else its
    first step: it must be later than that of the task's first start. It decides nothing where a
    checkpoint may be of an earlier step, after which the task would also begin with that one; where
    not all steps of a bar are seen; nor where the task has reported that it restored something, and
    read a save: its counter may have begun anew. An evaluator may read any checkpoint, and again.
    """
    done = [one for one in timeline.history if isinstance(one, Phase) and one.state == "end"]
    reports = [one for one in done if one.phase == "checkpoint"]
    seen = checkpoints_of(timeline)
    evaluators = timeline.plan.evaluators
    count, violations, undecided = 0, list[str](), list[str]()
    for task in (one for name, one in timeline.tasks.items() if name not in evaluators):
        origin = next((one.steps for one in task.incarnations if one.steps), [])
        for one, after in zip_longest(task.incarnations, task.incarnations[1:]):
            if not one.steps or one.steps[0] is origin[0]:
                continue
            there: list[Phase | Save] = [entry for entry in reports if entry.t < one.begin]
            there += seen.complete(task.name, one.begin)
            if not there or seen.taken_by_faults(task.name, one.begin):
                continue
            count += 1
            until = timeline.end if after is None else after.begin
            restored = [
                entry.step
                for entry in done
                if (entry.phase, entry.task) == ("restore", task.name)
                and one.begin <= entry.t <= until
            ]
            first_save = there[0]
            at = first_save.t if isinstance(first_save, Phase) else first_save.ended
            begun = (
                f"{task.name} began with step {one.steps[0].first} again at {one.begin:.1f} s, "
                f"although a checkpoint was complete at {at:.1f} s"
            )
            if 0 in restored:
                violations.append(begun)
                continue
            begin, first = begin_of(task, one.steps, origin), begin_of(task, origin, [])
            resumed = any(step is not None and step <= begin.most for step in restored)
            if resumed or begin.least > first.most:
                continue
            may_be_earlier = any(
                _time(entry) < origin[0].t if entry.step is None else entry.step < origin[0].first
                for entry in there
            )
            read_nothing = _read_nothing(one, task.name, seen)
            if restored and read_nothing:
                begun += f"; it reports that it restored step {restored[0]}, and read no save"
            is_unsure = (may_be_earlier or bool(restored)) and not read_nothing
            is_unsure = is_unsure or begin.most > first.least
            (undecided if is_unsure else violations).append(begun)
    return Observed(
        "no start from scratch once there is a checkpoint",
        count,
        "starts after a checkpoint",
        violations,
        undecided,
    )


def _read_nothing(life: Incarnation, task: str, seen: Checkpoints) -> bool:
    """Return whether a life of a task has surely loaded nothing that others could see."""
    loads = [one for one in seen.loaded if one.task == task and one.life is life]
    return bool(seen.saves) and all(
        not one.reads and not one.others and seen.sees(task, one.since, one.at) for one in loads
    )


def _time(one: Phase | Save) -> float:
    return one.t if isinstance(one, Phase) else one.ended


def ranks_agree(timeline: Timeline) -> Observed:
    """Check that tasks that resume together resume from the same step.

    Two tasks do if the whole job was restarted, or if one has made no step since it restored when
    the other restores; an evaluator resumes nothing. The step is what was reported, or else that of
    the save that was read.
    """
    evaluators = timeline.plan.evaluators
    count, violations = 0, []
    marks = [
        one
        for one in checkpoints_of(timeline).loaded
        if one.resumed is not None and one.task not in evaluators
    ]
    latest: dict[str, Loaded] = {}
    for one in sorted(marks, key=lambda each: each.read_at):
        for other in latest.values():
            if other.task != one.task and _together(timeline, other, one):
                count += 1
                if other.resumed != one.resumed:
                    violations.append(
                        f"{one.task} resumed from step {one.resumed}, and {other.task} from "
                        f"{other.resumed}"
                    )
        latest[one.task] = one
    return Observed(
        "all resume from the same step", count, "tasks that resume together", violations
    )


def _together(timeline: Timeline, first: Loaded, then: Loaded) -> bool:
    """Return whether two tasks go on together: none has trained, or ended, between the two."""
    restarts = [one.t for one in timeline.restarts if one.scope == "job"]
    by_one = {bisect_left(restarts, one.life.begin) for one in (first, then)}
    if len(by_one) == 1 and 0 not in by_one and first.is_first and then.is_first:
        return True
    moments = (one.t for one in first.life.reports if isinstance(one, Step))
    end = first.life.exit
    return not any(first.read_at < t <= then.read_at for t in moments) and (
        end is None or end.t > then.read_at
    )


def loads_what_was_saved(timeline: Timeline) -> Observed:
    """Check that what is loaded is what was saved.

    The `digest` of a restore must be that of a save of the same step: the task's own, if it has
    reported any. Without digests, what was read must not have been changed by a fault.
    """
    count, violations, undecided = 0, list[str](), list[str]()
    saved: dict[int | None, dict[str, set[str]]] = {}
    judged = set[int]()
    for entry in timeline.history:
        if not isinstance(entry, Phase) or (value := entry.values.get("digest")) is None:
            continue
        digest = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        if entry.phase == "checkpoint":
            saved.setdefault(entry.step, {}).setdefault(entry.task, set()).add(digest)
        elif entry.phase == "restore" and entry.step in saved:
            count += 1
            judged.add(entry.n)
            step = "" if entry.step is None else f" of step {entry.step}"
            of_step = saved[entry.step]
            every = {one for digests in of_step.values() for one in digests}
            if digest not in every:
                violations.append(f"{entry.task} restored {digest}, which no save{step} had")
            elif digest not in of_step.get(entry.task, every):
                other = next(task for task, digests in of_step.items() if digest in digests)
                violations.append(
                    f"{entry.task} restored {digest}, which is the save{step} of {other}"
                )
    seen = checkpoints_of(timeline)
    for one in seen.loaded:
        if (one.report is not None and one.report.n in judged) or not (states := one.states()):
            continue
        count += 1
        wrong, is_sure = _wrong(one, states)
        if wrong:
            (violations if is_sure else undecided).append(wrong)
        elif one.is_of_ranks and (rivals := seen.rivals(one)):
            undecided.append(
                f"{one.words}, and which of its files it has read, and which "
                f"{', '.join(rivals)}, is not known without digests"
            )
    return Observed("what is loaded was saved", count, "loads", violations, undecided)


PROMISES: Mapping[str, Callable[[Timeline], Observed]] = {
    "restores_only_complete": restores_only_complete,
    "never_from_scratch": never_from_scratch,
    "ranks_agree": ranks_agree,
    "loads_what_was_saved": loads_what_was_saved,
}
"""By key in `expect:`."""
