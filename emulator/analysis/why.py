"""What interrupted a training, from where it went on and why there, and what was lost (pure).

`why` has a sentence or two for each interruption. The terminal, the page, pytest and report.md show
the same ones. `CAUSES` is the table of causes: why a task did not go on from where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.analysis.checkpoints import checkpoints_of
from emulator.analysis.ends import LISTED, exit_in_words, fault_behind, sentence
from emulator.analysis.progress import ProgressIndex
from emulator.analysis.saves import NEAR, Save
from emulator.analysis.setbacks import Setback, setbacks
from emulator.faults.checkpoint import Checkpoint
from emulator.faults.kinds import FAULTS
from emulator.record.events import Entry, Phase, SavedFiles
from emulator.record.timeline import Incarnation, Timeline
from emulator.validation.units import format_count, format_duration

SAVE_THERE = "Save in $EMULATOR_SHARED, which all tasks see and which outlives them"


@dataclass
class Interruption:
    """A task was ended by a fault, or failed by itself, while the training went on."""

    at: float
    """When, in seconds since the run began."""
    task: str
    how: str
    """In words: "was killed"."""
    step: int | None = None
    """How far it was, or if it reports no step the job; -1: before the first step."""
    also: list[str] = field(default_factory=list)
    """What other faults did before the training went on."""
    running: float | None = None
    """When the task ran again."""
    followed: float | None = None
    """When the job made its next step after that."""
    until: float = math.inf
    """When the next one was."""
    setbacks: Sequence[Setback] = ()
    """The tasks that made steps again after it."""


def why(timeline: Timeline) -> list[str]:
    """Return what became of the training after each interruption, in sentences.

    Of many those that lost most are told, in the order of time, and then how many more there were.
    """
    return [*_worst(interruptions(timeline), timeline), *_failed(timeline)]


def why_lost(timeline: Timeline) -> str:
    """Return the same of the interruptions after which steps were made again; empty: none were."""
    found = [one for one in interruptions(timeline) if any(back.steps for back in one.setbacks)]
    return " ".join(_worst(found, timeline))


def _worst(found: Sequence[Interruption], timeline: Timeline) -> Iterator[str]:
    told = sorted(found, key=_weight, reverse=True)[:LISTED]
    yield from (_told(one, timeline) for one in found if one in told)
    if len(found) > len(told):
        yield f"And {format_count(len(found) - len(told), 'more interruption')}."


def _weight(one: Interruption) -> tuple[bool, int]:
    return one.followed is None, max((back.steps for back in one.setbacks), default=0)


# --- What interrupted it --------------------------------------------------------------------------


def interruptions(timeline: Timeline) -> list[Interruption]:
    """Return what interrupted the training, in order.

    What ends a task before the training has gone on from the last one belongs to that: peers fail,
    and tasks are restarted together.
    """
    progress = ProgressIndex(timeline)
    found: list[Interruption] = []
    for event, task, words, is_fault in sorted(_blows(timeline), key=lambda one: one[0].t):
        last = found[-1] if found else None
        if last is not None and (last.followed is None or event.t < last.followed):
            if is_fault and task != last.task:
                last.also.append(f"{task} {words}")
            continue
        running = progress.running(task, event)
        step = progress.step_after(running or event)
        one = Interruption(event.t, task, words, _step_at(timeline, task, event))
        one.running = None if running is None else running.t
        one.followed = None if step is None else step.t
        if last is not None:
            last.until = event.t
        found.append(one)
    every = [
        back
        for task in timeline.plan.in_training
        if task.name in timeline.tasks and task.name not in progress.beside
        for back in setbacks(timeline.tasks[task.name])
    ]
    for one in found:
        one.setbacks = [back for back in every if one.at <= back.at < one.until]
        # What it printed last was read after the fault was triggered.
        own = [back.reached for back in one.setbacks if back.task == one.task]
        one.step = own[0] if own else one.step
    since = found[0].at if found else math.inf
    alone = [back for back in every if back.before is None and back.steps and back.at < since]
    return [*map(_went_back, alone), *found]


def _went_back(back: Setback) -> Interruption:
    once = Interruption(back.at, back.task, "went back while it ran,", back.reached)
    once.running = once.followed = back.at
    once.setbacks = [back]
    return once


def _blows(timeline: Timeline) -> Iterator[tuple[Entry, str, str, bool]]:
    """Yield what ended a task of the training: the event, the task, how, and whether by a fault."""
    names = {task.name for task in timeline.plan.in_training}
    for fault in timeline.faults.values():
        begin, end = (fault.stages.get(stage) for stage in ("triggered", "applied"))
        task = fault.planned.target
        if FAULTS[fault.kind].ends_target and begin and end and task in names:
            words = FAULTS[fault.kind].ended.format(task).removeprefix(task).strip()
            yield min(begin, end, key=lambda event: event.t), task, words, True
    for task in names & timeline.tasks.keys():
        for life in timeline.tasks[task].incarnations:
            left = life.exit
            if left is None or life.restart is None or not left.exit_code:
                continue
            if not fault_behind(timeline, task, life):
                yield left, task, exit_in_words(left), False


def _step_at(timeline: Timeline, task: str, event: Entry) -> int | None:
    """Return the last step of a task before an event, or if it reports none that of the job."""
    own = timeline.tasks[task].steps if task in timeline.tasks else []
    for steps in (own, [step for _, step in timeline.steps]):
        if steps:
            return next((step.step for step in reversed(steps) if step.t <= event.t), -1)
    return None


# --- What followed --------------------------------------------------------------------------------


def _told(one: Interruption, timeline: Timeline) -> str:
    far = _far(one.step)
    what = "; ".join([f"{one.task} {one.how}{far}", *one.also[:LISTED]])
    if one.followed is None:
        if one.running is None:
            again = "it did not run again, and " if one.task else ""
            return sentence(f"{what}; {again}no step of the training followed")
        return sentence(f"{what}; it ran again, and no step of the training followed")
    took = f" after {format_duration(one.followed - one.at)}"
    worst = max(one.setbacks, key=lambda back: back.steps, default=None)
    if worst is None:
        all_ = "all tasks were restarted, and " if _all_restarted(one, timeline) else ""
        return sentence(f"{what}; {all_}the training went on{took}; no step was done twice")
    who = _who(worst, one, timeline)
    if worst.at == one.at:
        took = ""  # it went back while it ran
    if worst.anew:
        return " ".join([sentence(f"{what}; {worst.anew}"), sentence(_twice(worst, one, timeline))])
    if worst.restored:
        where = f"{who} restored step {worst.resumed:,}" + (f" and went on{took}" if took else "")
    elif is_anew(worst, timeline):
        where = f"{who} began again at step {_first_step(worst, timeline):,}{took}"
    else:
        near = "near" if worst.fewest < worst.steps else "from"  # not every step of it is seen
        where = f"{who} went on {near} step {worst.resumed:,}{took}"
    if not worst.steps:
        return sentence(f"{what}; {where}; no step was done twice")
    cause, advice = _cause(worst, one, timeline)
    words = [f"{what}; {where}{f': {cause}' if cause else ''}", _twice(worst, one, timeline)]
    return " ".join(sentence(part) for part in [*words, advice] if part)


def _far(step: int | None) -> str:
    if step is None:
        return ""
    return " before its first step" if step < 0 else f" at step {step:,}"


def _all_restarted(one: Interruption, timeline: Timeline) -> bool:
    several = len(timeline.plan.in_training) > 1
    return several and any(
        restart.scope == "job" and one.at <= restart.t < one.until for restart in timeline.restarts
    )


def _who(worst: Setback, one: Interruption, timeline: Timeline) -> str:
    """Return who went on as the task did that lost most, after what had to happen before."""
    same = [
        back
        for back in one.setbacks
        if back.resumed == worst.resumed or (is_anew(back, timeline) and is_anew(worst, timeline))
    ]
    training = [task.name for task in timeline.plan.in_training]
    reporting = [n for n in training if n in timeline.tasks and timeline.tasks[n].steps]
    names = list(dict.fromkeys(back.task for back in same))
    restarted = _all_restarted(one, timeline)
    if len(reporting) > 1 and {*reporting} <= {*names}:
        return "all tasks"
    many = len(names) > LISTED
    who = format_count(len(names), "task") if many else " and ".join(names)
    who = "it" if names == [one.task] and not one.also else who
    if restarted and len(reporting) == 1 and names == reporting:
        return "all tasks"
    return f"all tasks were restarted, and {who}" if restarted else who


def is_anew(back: Setback, timeline: Timeline) -> bool:
    """Return whether a task began again where it had begun at first."""
    steps = timeline.tasks[back.task].steps
    return not back.resumed or back.resumed < steps[0].first


def _first_step(back: Setback, timeline: Timeline) -> int:
    steps = timeline.tasks[back.task].steps
    # Of a bar the first drawing may be later; a program that counts from 0 begins with that.
    seen = [step.first for step in steps if step.t >= back.at]
    return min([*seen[:1], back.resumed + 1])


def _twice(back: Setback, one: Interruption, timeline: Timeline) -> str:
    """Return how many steps were lost, and how long it took to make them again."""
    many = f"{back.steps:,} step{'s' * (back.steps != 1)}"
    if back.fewest < back.steps:
        many = f"{back.fewest:,} to {back.steps:,} steps"
    steps = timeline.tasks[back.task].steps
    again = next((s.t for s in steps if s.t >= back.at and s.step >= back.reached), None)
    were = "was" if back.steps == 1 else "were"
    if back.anew:
        return f"between {back.fewest:,} and {back.steps:,} steps {were} done twice"
    if again is None:
        return f"{many} {were} lost"
    seconds = f" ({format_duration(again - back.at)})" if again > back.at else ""
    if back.reached != one.step and back.task != one.task:
        return f"{back.task} did {many} twice{seconds}"
    return f"{many} {were} done twice{seconds}"


# --- Why from there -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Traces:
    """What the record has of saves before a task went on."""

    back: Setback
    is_anew: bool
    life: Incarnation
    """The one in which it went on."""
    disks: Sequence[SavedFiles]
    """What lay on the disks of tasks, the task's own first."""
    shared: SavedFiles | None
    """What lay on /shared."""
    saved: int | None
    """The latest step whose save was reported."""
    saves_reported: bool
    broken: Sequence[str]
    """What faults had done to checkpoints."""
    seen: Save | None = None
    """The last whole save that was there when the task was started again, if all was seen."""
    was_read: bool = False
    """That was read since then."""

    def on_shared(self) -> str:
        """Return the latest file on /shared that was there when the task was started again."""
        if self.seen is not None and not self.seen.task:
            return self.seen.path
        start = self.life.start or self.life.running
        until = math.inf if start is None else start.wall
        names = (
            [_path(one) for one in self.shared.saved if one["wall"] <= until]
            if (self.shared)
            else []
        )
        return names[0] if names else ""


def _path(file: Mapping[str, Any]) -> str:
    return str(file["path"])


def _cause(back: Setback, one: Interruption, timeline: Timeline) -> tuple[str, str]:
    """Return why a task did not go on from where it was, and what helps."""
    traces = _traces(back, one, timeline)
    return next((found for cause in CAUSES if (found := cause(traces))), ("", ""))


def _traces(back: Setback, one: Interruption, timeline: Timeline) -> _Traces:
    own = timeline.tasks[back.task]
    life = next(life for life in reversed(own.incarnations) if life.begin <= back.at)
    seen = [entry for entry in timeline.history if isinstance(entry, SavedFiles)]
    over = math.inf if timeline.ended is None else timeline.ended
    until = min(one.until, over)  # what was looked at when the run was over is no cause
    seen = [entry for entry in seen if one.at <= entry.t < until]
    disks = [entry for entry in seen if entry.task and entry.saved]
    reports = [
        entry
        for entry in timeline.history
        if isinstance(entry, Phase)
        and (entry.phase, entry.state) == ("checkpoint", "end")
        and entry.t <= back.at
    ]
    steps = [entry.step for entry in reports if entry.step is not None]
    seen_saves = checkpoints_of(timeline)
    save = _last_save(back, life, timeline)
    return _Traces(
        back=back,
        is_anew=is_anew(back, timeline),
        life=life,
        disks=sorted(disks, key=lambda entry: entry.task != back.task),
        shared=next((entry for entry in seen if not entry.task), None),
        saved=max(steps, default=None),
        saves_reported=bool(reports),
        broken=[
            fault.stages["applied"].effect or ""
            for fault in timeline.faults.values()
            if fault.kind == Checkpoint.kind
            and "applied" in fault.stages
            and fault.stages["applied"].t <= back.at
            and seen_saves.was_newest(fault.id, back.task, life.begin) is not False
        ],
        seen=save,
        was_read=any(
            save is not None and read.save == save and life.begin <= read.entry.t <= back.at + NEAR
            for read in seen_saves.reads
        ),
    )


def _last_save(back: Setback, life: Incarnation, timeline: Timeline) -> Save | None:
    """Return the last whole save that a task could have loaded, if nothing was missed since."""
    seen = checkpoints_of(timeline)
    there = [save for save in seen.there(back.task, life.begin) if save.whole]
    if not there or not seen.sees(there[-1].task, there[-1].ended, back.at):
        return None
    return there[-1]


Cause = Callable[[_Traces], tuple[str, str] | None]


def _was_broken(traces: _Traces) -> tuple[str, str] | None:
    """A fault had broken a checkpoint before."""
    return (f"a fault had broken a checkpoint ({traces.broken[-1]})", "") if traces.broken else None


def _on_own_disk(traces: _Traces) -> tuple[str, str] | None:
    """It lay on the disk of a task, which is gone, or which other tasks do not see."""
    if not traces.is_anew or traces.on_shared():
        return None
    for disk in traces.disks:
        path, is_own = _path(disk.saved[0]), disk.task == traces.back.task
        if disk.removed:
            whose = "its own" if is_own else f"the own disk of {disk.task}"
            where = "its own disk" if is_own else whose
            return f"{path} was on {where}, which was removed with it", SAVE_THERE
        if not is_own:
            return f"{path} is on the own disk of {disk.task}, which it does not see", SAVE_THERE
    return None


def _not_loaded(traces: _Traces) -> tuple[str, str] | None:
    """It was there. Whether it was broken, or not looked for, is not known."""
    path, where = traces.on_shared(), "/shared"
    if traces.seen is not None and traces.seen.task:
        path, where = traces.seen.path, "its disk"
    if not path:
        own = [disk for disk in traces.disks if disk.task == traces.back.task and not disk.removed]
        path, where = (_path(own[0].saved[0]), "its disk") if own else ("", "")
    if not path or not traces.is_anew:
        return None
    if traces.was_read:
        return f"{path} was on {where} and was read, and the steps began again all the same", ""
    if traces.seen is not None:
        step = traces.seen.step if traces.seen.is_exact else None
        whole = "saved whole" if step is None else f"saved whole at step {step:,}"
        return f"{path} was on {where}, {whole}, and nothing read it", ""
    words = f"{path} was on {where}, and was not loaded; whether it was broken, or not looked for"
    return f"{words}, is not known", ""


def _older(traces: _Traces) -> tuple[str, str] | None:
    """A later step had been saved."""
    if traces.saved is None or traces.saved <= traces.back.resumed:
        return None
    return f"although a checkpoint of step {traces.saved:,} had been saved", ""


def _nothing_saved(traces: _Traces) -> tuple[str, str] | None:
    """There was nothing, or nothing that looks like a checkpoint."""
    seen = traces.shared
    if seen is None or seen.saved or not traces.is_anew:
        return None
    if not seen.others:
        return "no checkpoint on /shared", ""
    names = ", ".join(seen.others[:LISTED])
    more = " and others" if len(seen.others) > LISTED else ""
    return f"nothing on /shared looks like a checkpoint (there is {names}{more})", ""


def _none_reported(traces: _Traces) -> tuple[str, str] | None:
    """No look was taken, and the program has told of no save."""
    if traces.saves_reported or not traces.is_anew or traces.shared is not None:
        return None
    return "no checkpoint had been reported", ""


CAUSES: Sequence[Cause] = (
    _was_broken,
    _older,
    _on_own_disk,
    _not_loaded,
    _nothing_saved,
    _none_reported,
)
"""The first that holds is told. Where none does, the record does not show a cause."""


# --- Who failed -----------------------------------------------------------------------------------


def _failed(timeline: Timeline) -> Iterator[str]:
    """Yield each task that has failed for good, also after the outcome was settled."""
    failed = [
        (name, task.final_exit)
        for name, task in timeline.tasks.items()
        if task.final_exit is not None and task.state == "failed"
    ]
    for name, end in failed[:LISTED]:
        assert end is not None
        after = end.t - timeline.duration
        when = (
            f"{format_duration(after)} after the job had {timeline.outcome}"
            if after > 0 and timeline.outcome == "succeeded"
            else f"at {format_duration(end.t)}"
        )
        yield sentence(f"{name} {exit_in_words(end)} {when}")
    if len(failed) > LISTED:
        yield f"{format_count(len(failed) - LISTED, 'more task')} failed."
