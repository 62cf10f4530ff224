"""Which steps tasks made again, and why (pure): the one rule for lost steps, with its causes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.record.events import Phase, Step

if TYPE_CHECKING:
    from emulator.record.timeline import Incarnation, TaskTimeline


@dataclass(frozen=True)
class Setback:
    """A task went on from an earlier step than it had reached."""

    task: str
    steps: int
    """How many it makes again at most; 0 if it went on from where it was."""
    fewest: int
    """How many at least: fewer than `steps` where not every step is seen."""
    reached: int
    """The last step that it had made."""
    resumed: int
    """The step from which it went on."""
    restored: bool
    """It reported that it restored this step."""
    at: float
    """When it went on, in seconds since the run began."""
    before: Incarnation | None
    """The life that had reached the step; None if it went back while it ran."""


def setbacks(task: TaskTimeline) -> Iterator[Setback]:
    """Yield where a task went on with steps that it had made before.

    It restores in a new incarnation, or goes back while it runs, as a session of TensorFlow 1 does
    when another task was lost. An incarnation that reports no restore repeats its first step and
    all after it. Once a restore is reported, nothing is lost until the next step.
    """
    reached: int | None = None
    of: Incarnation | None = None  # which has reached it
    for incarnation in task.incarnations:
        resumes = True
        before = None if of is incarnation else of
        for report in incarnation.reports:
            match report:
                case Phase(phase="restore", step=int(step)):
                    if reached is not None:
                        before = None if of is incarnation else of
                        lost = max(0, reached - step)
                        yield Setback(task.name, lost, lost, reached, step, True, report.t, before)
                    reached = None
                case Step():
                    if resumes and reached is not None:
                        resumed = max(0, report.first - 1)  # some count from 0
                        lost = max(0, reached - resumed)
                        yield Setback(
                            task.name, lost, lost, reached, resumed, False, report.t, before
                        )
                    reached, resumes, of = report.step, False, incarnation
