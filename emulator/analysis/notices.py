"""What the notice of each preemption was worth, from the events of the record alone (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from emulator.analysis.checkpoints import checkpoints_of
from emulator.analysis.observed import Observed
from emulator.analysis.saves import NEAR
from emulator.record.events import (
    CheckpointSaved,
    Entry,
    FaultEvent,
    Phase,
    Reaction,
    TaskProcesses,
)
from emulator.validation.units import format_duration

if TYPE_CHECKING:
    from emulator.record.timeline import FaultTimeline, Timeline

SIGKILLED = 137
"""The exit code of what SIGKILL has ended."""


@dataclass(frozen=True)
class Left:
    """A process that ran on when the main one of its task had ended."""

    name: str
    pid: int
    seconds: float
    """For how long."""
    how: str
    """It `ended` by itself, was `killed` by SIGKILL, or was `left` until the engine killed it."""


@dataclass(frozen=True)
class NoticeResult:
    """What a preemption's notice was worth. Times are seconds since it; None: unknown, or never."""

    id: str
    """Of the fault."""
    kind: str
    target: str
    noticed: float
    """When it came, in seconds since the run began: the announcement, or else the signal."""
    announced: bool = False
    """It was announced before the signal."""
    signal_after: float | None = None
    reacted_after: float | None = None
    """Until the target printed a line that is no step, or began a phase."""
    reaction: str = ""
    """What that was: a line's beginning, or `checkpoint began`."""
    saved_after: float | None = None
    """Until a checkpoint was whole, if that was before the target's end."""
    saved_by: str = ""
    """The target if it saved one, else the task that did; empty: nobody has reported it."""
    ended_after: float | None = None
    """Until the target's main process had ended."""
    exit_code: int | None = None
    killed: bool = False
    """It still ran when the grace period was over."""
    deadline_after: float | None = None
    """Until it would have been, or was, killed."""
    left: float | None = None
    """Seconds of this time that were left when the checkpoint was whole; negative: as many were
    missing to a save that was cut off, if it had taken as long as the target's last whole one."""
    saving: float | None = None
    """Seconds for which a save had run that the end cut off."""
    reached: Sequence[str] | None = None
    """The processes that the signal was for, by name; None: unknown."""
    not_reached: Sequence[str] | None = None
    """The others that the target had then."""
    at_the_kill: Sequence[str] | None = None
    """Those that still ran when the grace period was over; none if it ended before."""
    outlived: Sequence[Left] | None = None
    """Those that ran on when the main one had ended; None: unknown."""
    all_seen: bool = False
    """All that the target could write was seen, whatever it reports."""
    doubt: str = ""
    """Why what was reported, or that nothing was, may not be so."""

    @property
    def stragglers(self) -> Sequence[Left]:
        """What had to be killed after the main process had ended by itself.

        When a grace period is over all processes get SIGKILL, and some die a moment later.
        """
        by_itself = self.exit_code != SIGKILLED
        return [
            one
            for one in self.outlived or ()
            if one.how == "left" or (one.how == "killed" and by_itself)
        ]


def notices(timeline: Timeline) -> Sequence[NoticeResult]:
    """Return what the notice of each applied preemption was worth; one without any had none."""
    history = timeline.history
    places = {
        entry.n: place for place, entry in enumerate(history) if isinstance(entry, FaultEvent)
    }
    seen: dict[str, dict[str, TaskProcesses]] = {}
    for entry in history:
        if isinstance(entry, TaskProcesses):
            seen.setdefault(entry.fault, {})[entry.moment] = entry
    found = []
    for fault in timeline.faults.values():
        spec, stages = fault.planned.spec, fault.stages
        notice, applied = stages.get("announced") or stages.get("triggered"), stages.get("applied")
        if not spec.replaces_target or notice is None or applied is None:
            continue
        if spec.gives_notice or "announced" in stages:
            during = history[places[notice.n] : places[applied.n]]
            result = _worth(fault, timeline, during, notice, applied)
            found.append(replace(result, **_witnessed(seen.get(fault.id, {}))))
    return tuple(found)


class Saved(NamedTuple):
    """A save was over."""

    t: float
    task: str
    """Who has reported it; empty: nobody, but it was seen."""


def saved_in(
    entries: Sequence[Entry], target: str, timeline: Timeline, since: float, until: float
) -> Saved | None:
    """Return the first save of a time: the one that a target reports, else any that was seen.

    `entries`: the events of that time. Where no file was seen, another task's report is one too.
    """
    saves = [
        Saved(entry.t, entry.task)
        for entry in entries
        if isinstance(entry, Phase) and entry.phase == "checkpoint" and entry.state == "end"
    ]
    own = next((one for one in saves if one.task == target), None)
    if own is not None:
        return own
    # One just before the end may be stamped after it.
    first = next(iter(checkpoints_of(timeline).saved_in(target, since, until + NEAR)), None)
    reported = next(iter(saves), None)
    if first is None:
        return reported
    at = min(first.ended, until)
    if reported is not None and reported.t - NEAR <= at:
        return reported._replace(t=min(reported.t, at))
    return Saved(at, first.task)


def _worth(
    fault: FaultTimeline,
    timeline: Timeline,
    during: Sequence[Entry],
    notice: FaultEvent,
    applied: FaultEvent,
) -> NoticeResult:
    target, spec, stages = fault.planned.target, fault.planned.spec, fault.stages
    signalled = stages.get("triggered")

    def since(entry: Entry | None) -> float | None:
        return None if entry is None else round(entry.t - notice.t, 6)

    reaction, words = _reaction(during, target)
    saved = saved_in(during, target, timeline, notice.t, applied.t)
    signal_after = since(signalled)
    deadline = None
    if spec.kills_after is not None and signal_after is not None:
        deadline = round(signal_after + spec.kills_after, 6)
    saving = None if saved else _cut_off(during, applied, target)
    left = None
    if saved is not None and deadline is not None:
        left = round(deadline - (saved.t - notice.t), 6)
    elif saving is not None and applied.killed:
        usual = _last_save(timeline, notice, target)
        left = None if usual is None else round(min(0.0, saving - usual), 6)
    return NoticeResult(
        id=fault.id,
        kind=fault.kind,
        target=target,
        noticed=notice.t,
        announced="announced" in stages,
        signal_after=signal_after,
        reacted_after=since(reaction),
        reaction=words,
        saved_after=None if saved is None else round(saved.t - notice.t, 6),
        saved_by="" if saved is None else saved.task,
        all_seen=checkpoints_of(timeline).sees(target, notice.t, applied.t),
        doubt=_doubt(saved, target, timeline, notice.t, applied.t),
        ended_after=since(applied),
        exit_code=applied.exit_code,
        killed=bool(applied.killed),
        deadline_after=deadline,
        left=left,
        saving=saving,
    )


def _reaction(during: Sequence[Entry], target: str) -> tuple[Entry | None, str]:
    """Return the first that a target did after a notice, and that in words."""
    for entry in during:
        match entry:
            case Reaction(task=task) if task == target:
                return entry, entry.line
            case Phase(task=task, state="begin") if task == target:
                return entry, f"{entry.phase} began"
            case _:
                pass
    # Some programs report only the end of a save.
    own = (entry for entry in during if isinstance(entry, Phase) and entry.task == target)
    saved = next((entry for entry in own if entry.phase == "checkpoint"), None)
    return saved, "" if saved is None else "checkpoint ended"


def _doubt(saved: Saved | None, target: str, timeline: Timeline, since: float, until: float) -> str:
    """Return why a save, or that there was none, is not certain."""
    seen = checkpoints_of(timeline)
    # In a container its own disk is not seen; who saves on /shared is not expected to save there.
    places = {save.task for save in seen.saves}
    if not places or not seen.sees("" if "" in places else target, since, until):
        return ""
    files = seen.saved_in(target, since, until + NEAR, unsure=True)
    if saved is not None and saved.task and not files:
        return f"{saved.task} reported a save, and no file of one was written"
    unsure = next((one for one in files if one.whole is None), None)
    if saved is None and unsure is not None:
        return f"{unsure.path} may not be whole: {unsure.why}"
    return ""


def _cut_off(during: Sequence[Entry], applied: FaultEvent, target: str) -> float | None:
    """Return for how many seconds a target had been saving when it ended; None: it was not."""
    began: float | None = None
    for entry in during:
        if isinstance(entry, Phase) and (entry.task, entry.phase) == (target, "checkpoint"):
            began = entry.t if entry.state == "begin" else None
    return None if began is None else round(applied.t - began, 6)


def _last_save(timeline: Timeline, notice: Entry, target: str) -> float | None:
    """Return how long the last whole save of a target before a notice took; None: unknown."""
    saves = [
        one.end - one.begin
        for one in timeline.tasks[target].phases(timeline.end)
        if one.name == "checkpoint" and "cut off" not in one.values and one.end <= notice.t
    ]
    return saves[-1] if saves else None


def _witnessed(seen: Mapping[str, TaskProcesses]) -> dict[str, Any]:
    """Return what is known of the processes of a preemption's target, from those by moment."""
    signal, kill, end = (seen.get(moment) for moment in ("signal", "kill", "end"))
    known: dict[str, Any] = {}
    if signal is not None:
        known["reached"] = _names(signal.processes, reached=True)
        known["not_reached"] = _names(signal.processes, reached=False)
        known["at_the_kill"] = []
    if kill is not None:
        known["at_the_kill"] = _names(kill.processes)
    if end is not None:
        known["outlived"] = [_left(one) for one in end.processes]
    return known


def _names(processes: Sequence[Mapping[str, Any]], **having: bool) -> Sequence[str]:
    return [
        str(one.get("name", "?"))
        for one in processes
        if all(bool(one.get(key)) is value for key, value in having.items())
    ]


def _left(process: Mapping[str, Any]) -> Left:
    seconds, pid = process.get("seconds"), process.get("pid")
    return Left(
        name=str(process.get("name", "?")),
        pid=pid if isinstance(pid, int) else 0,
        seconds=seconds if isinstance(seconds, int | float) else 0.0,
        how=str(process.get("how", "left")),
    )


# --- What is expected of it -----------------------------------------------------------------------

NO_SAVES = "no task reports when it saves, and no save was seen"
IN_CONTAINERS = (
    "what outlives a main process is seen by the process engine, with `signals: all` alone"
)


def saved_within_grace(timeline: Timeline, results: Sequence[NoticeResult]) -> Observed:
    """Check that a checkpoint was whole between each notice and the end of its target.

    Where no task ever reports a checkpoint, and none is seen, none can be missed.
    """
    unsaved = [
        f"{one.target} saved no checkpoint before its end" + _how_late(one)
        for one in results
        if one.saved_after is None and not one.doubt
    ]
    saves = any(
        isinstance(one, CheckpointSaved) or (isinstance(one, Phase) and one.phase == "checkpoint")
        for one in timeline.history
    )
    doubts = [f"{one.target}: {one.doubt}" for one in results if one.doubt]
    return Observed(
        "a checkpoint before each end",
        len(results),
        "preemptions with notice",
        unsaved if saves else (),
        doubts if saves else [*doubts, *(f"{one}: {NO_SAVES}" for one in unsaved)],
    )


def _how_late(notice: NoticeResult) -> str:
    if notice.saving is None:
        return ""
    late = "" if notice.left is None else f", about {format_duration(-notice.left)} too late"
    return f": it had been saving for {format_duration(notice.saving)}{late}"


def nothing_outlives(_: Timeline, results: Sequence[NoticeResult]) -> Observed:
    """Check that no process of a preempted task had to be killed after its main one had ended.

    On clusters such a process drains its node.
    """
    violations = [
        f"{straggler.name} (pid {straggler.pid}) of {one.target} ran on for "
        f"{format_duration(straggler.seconds)}, until it was killed"
        for one in results
        for straggler in one.stragglers
    ]
    return Observed(
        "no process after the main one",
        len(results),
        "preemptions with notice",
        violations,
        [f"{one.target}: {IN_CONTAINERS}" for one in results if one.outlived is None],
    )


NOTICED: Mapping[str, Callable[[Timeline, Sequence[NoticeResult]], Observed]] = {
    "saved_within_grace": saved_within_grace,
    "nothing_outlives": nothing_outlives,
}
"""By key in `expect:`."""
