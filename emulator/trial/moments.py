"""When the workers of a trial are preempted, from a run without a fault (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.analysis.progress import ProgressIndex
from emulator.analysis.saves import Save, saves_of
from emulator.record.events import CheckpointSaved, Entry, Witness
from emulator.record.timeline import Timeline
from emulator.validation.units import format_duration

STEP = 20
"""Where nothing is saved before."""
AFTER_OUTPUT = 3.0
"""Seconds after the first output, where no step is read."""
SOON = 3.0
"""Seconds after a save, where no step is read: another run may start more slowly."""


@dataclass(frozen=True)
class Seen:
    """What a run without a fault has shown. Times are seconds since all tasks ran."""

    lasted: float
    ended: bool
    """It was not cut off."""
    last_step: int | None = None
    """None: no step was read."""
    is_late: bool = False
    """Its steps were read when it had ended; none tells how far it is."""
    reporting: Collection[str] = ()
    """The tasks whose steps were read."""
    first_output: float | None = None
    save: str = ""
    """The file of the first save that was followed by more, and not made at the very start, where
    going on from it could not be told from beginning again; empty: there was none."""
    save_at: float = 0.0
    save_step: int | None = None
    """The step that had been made then, or about that."""
    safe_step: int | None = None
    """A step that was made when that save was certainly over, and that more steps followed."""
    sees_own: bool = True
    """Saves on the disks of tasks were seen; else those on the shared volume alone."""
    saves_at_end: str = ""
    """The file that was saved last of all, if nothing was saved before."""

    @property
    def reads_steps(self) -> bool:
        """Whether its steps tell how far it is."""
        return self.last_step is not None and not self.is_late

    @property
    def words(self) -> str:
        """It in words."""
        steps = "no step was read" if self.last_step is None else f"{self.last_step:,} steps"
        whole = steps if self.ended else f"{steps} when it was stopped"
        at = "" if self.save_step is None else f" at step {self.save_step:,}"
        where = "" if self.sees_own else " on shared storage"
        nothing = f"no save was seen{where}"
        saved = f"it saved {self.save}{at}" if self.save else nothing
        if self.saves_at_end:
            saved = f"only at its end it saved {self.saves_at_end}"
        return f"{whole} in {format_duration(self.lasted)}; {saved}"


@dataclass(frozen=True)
class Moment:
    """When a worker is preempted."""

    at: Mapping[str, Any] | str
    """As a scenario has it."""
    why: str


def seen_in(timeline: Timeline, first_output: float | None) -> Seen:
    """Return what the record of a run without a fault shows.

    `first_output` are the seconds until a task printed something, since the run began.
    """
    since = timeline.all_running or 0.0
    advances = ProgressIndex(timeline).advances
    last = max((step.step for step in advances), default=None)
    ended = timeline.outcome == "succeeded"
    lasted = max(0.0, timeline.duration - since)
    whole = [save for save in saves_of(timeline)[0] if save.whole is not False]
    saves: list[tuple[Save, int | None]] = []
    late = ""
    for save in whole:
        step = step_of(save, timeline)
        if ended and last is not None and step is not None and step >= last:
            late = late or save.path
        else:
            saves.append((save, step))
    start = advances[0].first if advances else 0
    later = [one for one in saves if one[1] is not None and one[1] > start + 1]
    early = next(iter(later or (saves[1:] if last is None else ()) or saves), None)
    return Seen(
        lasted=lasted,
        ended=ended,
        last_step=last,
        is_late=0 < len(advances) < FEW and advances[0].t - since > LATE * lasted,
        reporting={step.task for step in advances},
        first_output=None if first_output is None else max(0.0, first_output - since),
        save=early[0].path if early else "",
        save_at=max(0.0, early[0].ended - since) if early else 0.0,
        save_step=early[1] if early else None,
        safe_step=_after(early[0], timeline, last) if early else None,
        sees_own=any(isinstance(one, Witness) and one.own for one in timeline.history),
        saves_at_end="" if early else late,
    )


FEW, LATE = 3, 0.8
"""Fewer reports of steps, of which the first comes after this share of the run, tell no moment."""


def is_seen(history: Sequence[Entry], now: float) -> bool:
    """Return whether a run without a fault, which goes on, has shown when to preempt a worker."""
    first = next((one.t for one in history if isinstance(one, CheckpointSaved)), None)
    return first is not None and now - first > SEEN


SEEN = 10.0
"""Seconds since the first save."""


def _after(save: Save, timeline: Timeline, last: int | None) -> int | None:
    """Return a step that was made when a save was over; None: it was the last one.

    It is one more than was saved, so that going on from there can be told from going on. A line is
    read a moment after it was printed, so that what was read just then may be older.
    """
    steps = (one.step for one in ProgressIndex(timeline).advances if one.t > save.ended + LAG)
    after = next(steps, None)
    saved = save.step if save.is_exact and save.step is not None else 0
    return (
        max(after, saved + 1) if after is not None and last is not None and after < last else None
    )


LAG = 0.25
"""Seconds."""


def step_of(save: Save, timeline: Timeline) -> int | None:
    """Return the step that had been made when a save was over."""
    if save.is_exact:
        return save.step
    made = [step.step for step in ProgressIndex(timeline).advances if step.t <= save.ended]
    return max(made, default=None)


def moment(seen: Seen, target: str = "") -> Moment:
    """Return when to preempt a worker: when there is something to lose, and before the end."""
    if seen.reads_steps and seen.last_step is not None:
        own = {"task": target} if target in seen.reporting else {}
        if seen.safe_step is not None:
            step_of_target = {"step": seen.safe_step, **own}
            return Moment(step_of_target, f"just after {seen.save} was saved")
        half = max(1, seen.last_step // 2)
        if not seen.sees_own:
            return Moment({"step": half, **own}, "half-way, since saves on own disks are not seen")
        step = min(STEP, half) if seen.ended else STEP
        why = "no save was seen before" if step == STEP else "half-way"
        return Moment({"step": step, **own}, why)
    if seen.save:
        soon = min(SOON, (seen.lasted - seen.save_at) / 2)
        return Moment(_seconds(seen.save_at + soon), f"just after {seen.save} was saved")
    at = (seen.first_output or 0.0) + AFTER_OUTPUT
    if seen.ended and at > seen.lasted / 2:
        return Moment(_seconds(seen.lasted / 2), "half-way, since no step was read")
    return Moment(_seconds(at), "3 s after the first output, since no step was read")


def _seconds(time: float) -> str:
    return f"{max(100, round(time * 1000))}ms"
