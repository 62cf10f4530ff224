"""What became of a program that was preempted, and what to do about it (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from emulator.analysis.checkpoints import checkpoints_of
from emulator.analysis.ends import LISTED
from emulator.analysis.saves import saves_of
from emulator.analysis.setbacks import Setback
from emulator.analysis.why import Interruption, interruptions, is_anew
from emulator.faults.kinds import FAULTS
from emulator.record.events import (
    CheckpointRead,
    Entry,
    FaultEvent,
    KernelCall,
    SavedFiles,
    Step,
    TaskRunning,
)
from emulator.record.timeline import Timeline
from emulator.scenario.program import WORKDIR
from emulator.trial.moments import step_of
from emulator.validation.units import format_count, format_duration

State = Literal["survived", "lost", "failed", "unknown"]
RANK: Sequence[State] = ("survived", "unknown", "lost", "failed")
"""From the best to the worst."""
WORDS = {
    "survived": "survived",
    "lost": "LOST EVERYTHING",
    "failed": "NOT SURVIVED",
    "unknown": "unknown",
}


@dataclass(frozen=True)
class Answer:
    """What a run with one fault shows."""

    target: str
    state: State
    what: str
    """What happened, in some words."""
    lost: int | None = None
    """Steps that were made again; None: not known."""
    seconds: float | None = None
    """From the fault to the job's next step."""
    advice: str = ""
    """What to do about it."""


def answer_of(
    timeline: Timeline,
    *,
    stopped: bool,
    reads_steps: bool,
    saves: str = "",
    outside: Sequence[str] = (),
) -> Answer:
    """Return what a run shows.

    `stopped`: the trial has ended the job, when it had seen enough. `saves` is what should have
    been saved before the fault, `outside` are files that the program writes elsewhere.
    """
    fault = next(iter(timeline.faults.values()))
    target = fault.planned.target
    if "applied" not in fault.stages:
        reason = fault.reason or "the job ended before it was due"
        words = f"was not preempted: {reason.rstrip('.')}"
        if outside:
            words += f"; it writes outside its folder ({', '.join(outside[:LISTED])})"
        return Answer(target, "unknown", words, advice=OUTSIDE if outside else "")
    blow = next(iter(interruptions(timeline)), None)
    step = "" if blow is None or blow.step is None or blow.step < 0 else f" at step {blow.step:,}"
    what = f"{FAULTS[fault.kind].ended.format(target).removeprefix(target).strip()}{step}"
    back = _worst(blow)
    seconds = None if blow is None or blow.followed is None else blow.followed - blow.at
    took = "" if seconds is None else f"back in {format_duration(seconds)}"
    lost = back.steps if back else (0 if seconds is not None else None)
    end = _end(timeline, stopped=stopped)
    advice = advise(timeline, blow, target, reads_steps=reads_steps)
    if end:
        return Answer(target, "failed", f"{what}: {end}", lost, seconds, advice)
    if not reads_steps:
        what, at = what.removesuffix(step), fault.stages["applied"].t
        if saves and not any(save.ended <= at for save in saves_of(timeline)[0]):
            words = f"{what} before {saves} was saved, which was earlier without a fault"
            return Answer(target, "unknown", words, advice=LATER.format(target, "12s"))
        state, words = _by_files(timeline, target, at, outside)
        return Answer(target, state, f"{what}: {words}", advice=OUTSIDE if outside else advice)
    if back is not None and is_anew(back, timeline) and back.steps:
        if (saved := _only_save(timeline, blow, back)) is not None:
            words = f"{what}: it began again, as it would from its only save, of step {saved}"
            return Answer(
                target, "unknown", words, lost, seconds, LATER.format(target, "{step: N}")
            )
        again = f"{what}: it began again, and lost {format_count(back.steps, 'step')}"
        return Answer(target, "lost", again, lost, seconds, advice)
    if outside:
        listed = ", ".join(outside[:LISTED])
        words = f"{what}: {took or 'it went on'}, but it wrote outside its folder ({listed})"
        return Answer(target, "unknown", words, lost, seconds, OUTSIDE)
    if seconds is None:
        words = f"{_went_on(timeline)}, but no step followed"
        return Answer(target, "unknown", f"{what}: {words}", lost, None, advice)
    again = "no step lost" if not lost else f"{format_count(lost, 'step')} made again"
    return Answer(target, "survived", f"{what}: {took}, {again}", lost, seconds, advice)


def in_sentences(answer: Answer) -> list[str]:
    """Return whether it survived, what that cost, and what to do about it."""
    begin = {
        "survived": "Survived",
        "lost": "Not survived",
        "failed": "Not survived",
        "unknown": "It can't be said whether it survived",
    }[answer.state]
    cost = []
    if answer.lost is not None:
        cost.append("no step" if not answer.lost else format_count(answer.lost, "step"))
    if answer.seconds is not None:
        cost.append(format_duration(answer.seconds))
    paid = f"It cost {' and '.join(cost)}." if cost else "What it cost is not known."
    return [f"{begin}: {answer.target} {answer.what}.", paid, *filter(None, [answer.advice])]


OUTSIDE = (
    "What is saved outside the program's folder is not lost here, as it would be with the machine. "
    "Save inside it, with `--shared FOLDER`, or try it in a container with `--engine docker`."
)


LATER = "Preempt it after a later save, with a step or a time: `--fault '{{preempt: {}, at: {}}}'`."


def _only_save(timeline: Timeline, blow: Interruption | None, back: Setback) -> int | None:
    """Return the step of the save that was loaded, if going on from it is to begin again; or None.

    So it is with a save at the very start.
    """
    if blow is None or not _read_again(timeline, blow.at):
        return None
    saves = [save for save in saves_of(timeline)[0] if save.ended <= blow.at]
    steps = [step_of(save, timeline) for save in saves]
    last = steps[-1] if steps else None
    return last if last is not None and last <= back.resumed + 1 else None


def _by_files(
    timeline: Timeline, target: str, at: float, outside: Sequence[str]
) -> tuple[State, str]:
    """Return what became of a program whose steps are not read, by what it saved and loaded."""
    if outside:
        listed = ", ".join(outside[:LISTED])
        return "unknown", f"{_went_on(timeline)}, but it wrote outside its folder ({listed})"
    if _is_gone(timeline, target, at):
        return "lost", "what it had saved was gone with its disk"
    if read := _read_again(timeline, at):
        return "unknown", f"{_went_on(timeline)} and read {read}, but no step was read"
    saves = saves_of(timeline)[0]
    kept = [save for save in saves if save.ended <= at and not save.task]
    # Until it saves again, or has ended well, it may be about to load.
    over = timeline.duration if timeline.outcome == "succeeded" else None
    past = next((save.began for save in saves if save.began > at), over)
    if kept and past is not None and checkpoints_of(timeline).sees("", kept[-1].ended, past):
        return "lost", "it loaded nothing of what it had saved"
    return "unknown", f"{_went_on(timeline)}, but no step was read"


def _went_on(timeline: Timeline) -> str:
    return "it ended well" if timeline.outcome == "succeeded" else "it ran again"


def _is_gone(timeline: Timeline, target: str, at: float) -> bool:
    """Return whether all that had been saved was on the disk that was taken away."""
    places = {save.task for save in saves_of(timeline)[0] if save.ended <= at}
    return places == {target}


def _read_again(timeline: Timeline, since: float) -> str:
    """Return the last save that was read after the fault; empty: none was."""
    reads = [e.path for e in timeline.history if isinstance(e, CheckpointRead) and e.t > since]
    return reads[-1] if reads else ""


def _worst(blow: Interruption | None) -> Setback | None:
    return max(blow.setbacks, key=lambda one: one.steps, default=None) if blow else None


def _end(timeline: Timeline, *, stopped: bool) -> str:
    """Return how the job ended where that was bad; empty: it ended well, or was stopped by us."""
    if stopped:
        return ""
    if timeline.outcome == "timeout":
        return "it did not come to its end any more"
    if timeline.outcome != "succeeded":
        return timeline.reason.rstrip(".") or "it failed"
    failed = [
        f"{name} ended with exit code {task.final_exit.exit_code}"
        for name, task in timeline.tasks.items()
        if task.final_exit is not None and task.state == "failed"
    ]
    return failed[0] if failed else ""


def advise(
    timeline: Timeline, blow: Interruption | None, target: str, *, reads_steps: bool = True
) -> str:
    """Return what to do about what was lost; empty: nothing."""
    if blow is None or (reads_steps and not any(back.steps for back in blow.setbacks)):
        return ""
    saves = [save for save in saves_of(timeline)[0] if save.ended <= blow.at]
    shared = [save.path for save in saves if not save.task]
    own = [(save.task, save.path) for save in saves if save.task] or _on_disks(timeline, blow.at)
    if own and not shared:
        task, path = next((one for one in reversed(own) if one[0] == target), own[-1])
        lay = (
            f"{path} lay on the disk of the node that was taken away."
            if task == target
            else f"{path} is on the disk of {task} alone, where {target} does not see it."
        )
        folder = PurePosixPath(path).parts
        if path.startswith("/"):
            return f"{lay} Save in $EMULATOR_SHARED, which outlives a node."
        if len(folder) > 1:
            return f"{lay} `--shared {folder[0]}` puts that folder on storage that outlives a node."
        return f"{lay} Save into a folder of its own, such as ckpt, and add `--shared ckpt`."
    if not shared:
        return "No save was seen: save every so many steps, and load that at the start."
    back = _worst(blow)
    if reads_steps and (back is None or not is_anew(back, timeline)):
        return ""
    if _read_again(timeline, blow.at):
        if not reads_steps:
            return ""
        return (
            f"{shared[-1]} was read, and the steps began again all the same: restore the step too."
        )
    return (
        f"{shared[-1]} was there, on storage that outlives a node, and was not loaded: look for it "
        "at the start."
    )


def _on_disks(timeline: Timeline, since: float) -> list[tuple[str, str]]:
    """Return the saves that lay on disks of tasks after the fault, where they are not watched."""
    return [
        (one.task, str(one.saved[0]["path"]).removeprefix(f"{WORKDIR}/"))
        for one in timeline.history
        if isinstance(one, SavedFiles) and one.task and one.saved and one.t >= since
    ]


def saved_outside(timeline: Timeline, run: str) -> list[str]:
    """Return the files that tasks wrote elsewhere than in the folder of the run, and would keep.

    The recorded calls are those on such files, or such that move one into that folder. Caches, and
    the temporary files of libraries, which no program looks for again, are none, and neither is a
    file that is removed at once.
    """
    began: dict[str, float] = {}
    for one in timeline.history:
        if not isinstance(one, KernelCall) or not one.path:
            continue
        path = one.to or one.path
        if one.to or (one.call == "unlink" and one.t - began.get(path, one.t) < AT_ONCE):
            began.pop(one.path, None)
        if one.call != "unlink" and not PurePosixPath(path).is_relative_to(run):
            began.setdefault(path, one.t)
    return [path for path in began if is_kept(path)]


def is_kept(path: str, run: str = "") -> bool:
    """Return whether a file is no cache, and nothing that is made again.

    Where the folder of the `run` is says nothing of what is in it.
    """
    path = path.removeprefix(f"{run}/") if run else path
    parts = PurePosixPath(path).parts
    if parts[:2] in (("/", "dev"), ("/", "proc"), ("/", "sys")) or CACHES & {*parts}:
        return False
    return not TEMPORARY.match(path)


AT_ONCE = 1.0
"""Seconds; Python's `tempfile` tries a folder so, once in a process."""
CACHES = frozenset({"__pycache__", ".cache", ".config", ".keras", ".nv", ".triton", ".local"})
"""Folders in which libraries keep what they can make again."""
TEMPORARY = re.compile(
    r"/(?:var/)?tmp/(?:tmp[a-z0-9_]{8}|pymp-|torch|pip-|__autograph|matplotlib-|[^/]*\.lock$)"
)
"""How temporary files of Python and of libraries begin; what else is in /tmp may be a save."""


def is_answered(history: Sequence[Entry], now: float) -> bool:
    """Return whether a job that goes on has shown all: it has come further than it was before."""
    fault = next((e for e in history if isinstance(e, FaultEvent) and e.stage == "applied"), None)
    if fault is None:
        return False
    again = [e for e in history if isinstance(e, TaskRunning) and e.n > fault.n]
    if fault.task not in {one.task for one in again}:
        return False
    if now - again[-1].t > PATIENCE:
        return True
    steps = [one for one in history if isinstance(one, Step)]
    reached = max((one.step for one in steps if one.n < fault.n), default=None)
    return reached is not None and steps[-1].n > fault.n and steps[-1].step > reached + MARGIN


MARGIN = 5
"""Steps that are made beyond what was reached before."""
PATIENCE = 30.0
"""Seconds after which a task that is back and makes no step is not waited for."""
