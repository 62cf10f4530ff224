"""By what a job has noticed a fault: the first sign of it beyond its target (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from emulator.analysis.observed import Observed
from emulator.faults.kinds import FAULTS
from emulator.record.events import Complaint, Entry, Restart, Stall, TaskExit
from emulator.validation.units import format_duration

if TYPE_CHECKING:
    from emulator.analysis.analyse import FaultResult
    from emulator.faults.schedule import PlannedFault

SIGNS = (TaskExit, Stall, Restart, Complaint)
"""Events that may be one."""

SHOWN = 160
"""Characters of who has noticed a fault, and by what, in a verdict."""


class Sign(NamedTuple):
    """The first sign of a fault."""

    entry: Entry
    words: str
    """Who has noticed it, and by what."""


def first_sign(fault: PlannedFault, entries: Iterable[Entry]) -> Sign | None:
    """Return the first sign of a fault among what happened until the job went on; None: no sign.

    It is a task that fails, a restart of all tasks, a line that names a task, a time-out or a lost
    connection, or a stall. If the fault ends its target, what the target does is no sign. A task
    that exits with 0 may be done.
    """
    ends_target = FAULTS[fault.kind].ends_target
    for entry in entries:
        words = ""
        match entry:
            case Stall(seconds=seconds):
                words = f"the watchdog, after {format_duration(seconds)} without a step"
            case Restart(scope="job"):
                words = "the restart policy, which started all tasks again"
            case TaskExit(task=task, exit_code=code, told_to_stop=False) if code:
                words = f"{task}, which ended with exit code {code}"
            case Complaint(task=task, line=line):
                words = f"{task}, which printed: {line}"
        own = ends_target and entry.task == fault.target and not isinstance(entry, Stall | Restart)
        if words and not own:
            return Sign(entry, words)
    return None


def noticed_within(limit: float, faults: Iterable[FaultResult], end: float) -> Observed:
    """Check that each fault that has taken effect was noticed in time; `end`: of the run.

    Times are in seconds. A fault that was over before, or whose run was, can't be judged.
    """
    count, late, undecided, slowest = 0, [], [], (-1.0, "")
    for one in faults:
        kind = FAULTS[one.kind]
        if one.applied_after is None or not (kind.lasting or kind.ends_target):
            continue
        count += 1
        over = end - (one.triggered or 0.0)
        if one.first_step_after is not None:
            over = min(over, one.first_step_after)
        name = f"{one.kind} {one.target}"
        if one.detected_after is not None:
            took = max(0.0, one.detected_after - one.applied_after)
            by = f"{format_duration(took)}, by {_shortened(one.detected_by)}"
            slowest = max(slowest, (took, by))
            if took > limit:
                late.append(f"{name}: {by}")
        elif (passed := over - one.applied_after) > limit:
            late.append(f"{name}: nobody in {format_duration(passed)}")
        else:
            undecided.append(f"{name}: nobody, until it was over after {format_duration(passed)}")
    expected = f"each in {format_duration(limit)}"
    return Observed(expected, count, "faults", late, undecided, slowest[1])


def _shortened(words: str) -> str:
    return words if len(words) <= SHOWN else f"{words[:SHOWN]}…"
