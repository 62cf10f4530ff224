"""What became of a training whose tasks were ended by faults, in sentences (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from emulator.analysis.analyse import Analysis, FaultResult, ProgressIndex
from emulator.analysis.figures import FIGURES, AtMost
from emulator.faults.kinds import FAULTS
from emulator.validation.units import format_count, format_duration

if TYPE_CHECKING:
    from emulator.record.timeline import Timeline


def survival(timeline: Timeline, analysis: Analysis) -> str:
    """Return what faults ended, when training was back, and how many steps it made again.

    `worker-1 was preempted at step 150; training lost 50 steps and was back after 2.51s.` Times are
    from a fault's trigger to the job's first step with its target restored, steps those reported.
    Empty if the scenario has no fault that ends its target.
    """
    faults = [fault for fault in analysis.faults if FAULTS[fault.kind].ends_target]
    return " ".join(_sentences(timeline, analysis, faults))


def _sentences(
    timeline: Timeline, analysis: Analysis, faults: Sequence[FaultResult]
) -> Iterator[str]:
    progress = ProgressIndex(timeline)
    applied = [fault for fault in faults if fault.status == "applied"]
    lost = _lost(analysis)
    for fault in faults:
        if fault.status != "applied":
            why = f": {fault.reason}" if fault.reason else ""
            yield f"Fault {fault.id} ({fault.kind} {fault.target}) did not take effect{why}."
            continue
        head = FAULTS[fault.kind].ended.format(fault.target) + _at(timeline, fault, progress)
        if fault.first_step_after is None:
            yield f"{head}; no step of the training followed."
            continue
        back = f"was back after {format_duration(fault.first_step_after)}"
        # Which of several faults cost how many steps is not always known: their effects overlap.
        yield f"{head}; training {lost} and {back}." if len(applied) == 1 else f"{head}; it {back}."
    if len(applied) > 1:
        yield f"Training {lost} in all."


def _lost(analysis: Analysis) -> str:
    """Return how many steps a training lost, in words."""
    if analysis.lost_steps is None:
        return "reported no step"
    if isinstance(lost := FIGURES["lost_steps"].value_in(analysis), AtMost):
        return f"lost {FIGURES['lost_steps'].text(lost)} steps"
    return f"lost {format_count(analysis.lost_steps, 'step') if analysis.lost_steps else 'no step'}"


def _at(timeline: Timeline, fault: FaultResult, progress: ProgressIndex) -> str:
    """Return how far the job was at a fault, in words."""
    stages = timeline.faults[fault.id].stages
    known = [stages[stage] for stage in ("triggered", "applied") if stage in stages]
    step = progress.furthest_before(min(known, key=progress.place))
    return f" at step {step}" if step >= 0 else " before the first step"
