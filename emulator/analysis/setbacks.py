"""Which steps tasks made again, and why (pure): the one rule for lost steps, with its causes.

Of a bar not every step is seen. A task may have made up to a stride more than was drawn last,
unless it was at the end of its bar; so the steps that it makes again lie between two numbers. Where
a counter begins anew after a restore, it counts the steps since then: what was made again is not
known from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from emulator.metrics.steps import JSON
from emulator.record.events import Phase

if TYPE_CHECKING:
    from emulator.record.events import Step, StepSource
    from emulator.record.timeline import Incarnation, TaskTimeline

LOOKED_AT = 6
"""Step events before and after a restart that show the stride of a bar: its widest advance."""
JUMP = 4
"""Strides after which a bar that has just opened was moved on; a program may be faster than
before."""
ENOUGH = 3
"""Advances before a restart that show it alone; a program may be slower, or faster, after it."""


@dataclass(frozen=True)
class Setback:
    """A task went on from an earlier step than it had reached."""

    task: str
    steps: int
    """How many it makes again at most; 0 if it went on from where it was."""
    fewest: int
    """How many at least: fewer than `steps` where not every step is seen."""
    reached: int
    """The last step that it is known to have made."""
    resumed: int
    """The step from which it went on; the last that it may be."""
    restored: bool
    """It reported that it restored this step."""
    at: float
    """When it went on, in seconds since the run began."""
    before: Incarnation | None
    """The life that had reached the step; None if it went back while it ran."""
    anew: str = ""
    """How its steps were counted anew, in words: they don't tell what was made again."""


@dataclass(frozen=True)
class Begin:
    """From which step a task went on: a number between these."""

    least: int
    most: int


def setbacks(task: TaskTimeline) -> Iterator[Setback]:
    """Yield where a task went on with steps that it had made before.

    It restores in a new incarnation, or goes back while it runs, as a session of TensorFlow 1 does
    when another task was lost. An incarnation that reports no restore repeats its first step and
    all after it. Once a restore is reported, nothing is lost until the next step.
    """
    past = _Past(task)
    for life in task.incarnations:
        resumes, steps, count = True, life.steps, 0
        for report in life.reports:
            if isinstance(report, Phase):
                past.note(life, report)
                continue
            if past.made and (resumes or past.restored_step(life) is not None):
                yield past.goes_on(life, steps[count : count + LOOKED_AT])
            past.add(life, report)
            resumes, count = False, count + 1
    if past.made and past.restored is not None and past.restored[1].step is not None:
        yield past.goes_on(past.restored[0], [])


def begin_of(task: TaskTimeline, steps: Sequence[Step], first: Sequence[Step]) -> Begin:
    """Return from which step a task went on in one of its lives, by its steps and the first's."""
    return _begin(task, steps[:LOOKED_AT], first[:LOOKED_AT])


class _Past:
    """What a task had made when it went on."""

    def __init__(self, task: TaskTimeline) -> None:
        self._task = task
        self._first: Sequence[Step] = ()
        """The first steps that it has made at all."""
        self._of: Incarnation | None = None
        """The life that has made the last step."""
        self.made: list[Step] = []
        """The steps since it last went on; empty: there is nothing to lose."""
        self.restored: tuple[Incarnation, Phase] | None = None
        """The last restore, as long as no step follows."""
        self._uncounted = 0
        """So many steps may come before those of a counter that began anew."""

    def note(self, life: Incarnation, phase: Phase) -> None:
        """Take a phase: of a life the first restore with a step counts."""
        is_new = self.restored is None or self.restored[0] is not life
        if phase.phase == "restore" and (is_new or self.restored_step(life) is None):
            self.restored = life, phase

    def restored_step(self, life: Incarnation) -> int | None:
        """Return the step that a life has reported to restore since its last one."""
        if self.restored is None or self.restored[0] is not life:
            return None
        return self.restored[1].step

    def add(self, life: Incarnation, step: Step) -> None:
        """Take a step."""
        self.made.append(step)
        self._of, self.restored = life, None

    def goes_on(self, life: Incarnation, later: Sequence[Step]) -> Setback:
        """Return what is lost as a life goes on with these steps; then there is no more to lose."""
        self._first = self._first or self.made[:LOOKED_AT]
        last, step = self.made[-1], self.restored_step(life)
        old, reached = self.made[-LOOKED_AT:], last.step
        before = None if self._of is life else self._of
        at_end = before is not None and before.exit is not None and before.exit.bar_ended
        if _is_drawn(self._task, last) and not at_end:
            reached += _unseen(old, later)
        anew = self._counts_anew(life, later)
        if anew:
            reached += self._uncounted
            self._uncounted = reached if step is None else step
            begin = Begin(0, last.step if step is None else step)
        else:
            begin = _begin(self._task, later, old) if step is None else Begin(step, step)
        report = later[0] if step is None or self.restored is None else self.restored[1]
        self.made = []
        return Setback(
            self._task.name,
            max(0, reached - begin.least),
            max(0, last.step - begin.most),
            last.step,
            begin.most,
            step is not None,
            report.t,
            before,
            anew,
        )

    def _counts_anew(self, life: Incarnation, later: Sequence[Step]) -> str:
        """Return how the steps of a life are counted anew; empty: they are not.

        Its counter begins as the first one did, although what was restored is further. Or nothing
        was restored, and the steps are read from something else.
        """
        if not later:
            return ""
        name, step = self._task.name, self.restored_step(life)
        first = _begin(self._task, self._first)
        begin = _begin(self._task, later, self.made[-LOOKED_AT:])
        restored = self.restored is not None and self.restored[0] is life
        # Where it is not seen how a bar opened, it may have drawn one stride later than at first.
        unsure = begin.most - begin.least
        is_near = begin.least - (unsure and unsure + 1) <= first.most
        if restored and is_near and (step is None or begin.most < step):
            what = "" if step is None else f" step {step:,}"
            return (
                f"the counter of {name} began at 1 again after it restored{what}, so step "
                "numbers after that are those since the restart"
            )
        old, new = (_source(self._task, one) for one in (self.made[-1], later[0]))
        if step is not None or _kind(old) == _kind(new) or later[0].first > self.made[-1].step:
            return ""
        if later[0].bar_opened:  # it says where it goes on
            return ""
        return (
            f"the steps of {name} were read from {_words(old)}, and since the restart from "
            f"{_words(new)}, so step numbers after that may not go on from those before"
        )


def _is_drawn(task: TaskTimeline, step: Step) -> bool:
    source = _source(task, step)
    return source is not None and bool(source.drawn)


def _advances(steps: Sequence[Step]) -> list[int]:
    """Return by how many steps a life was seen to advance each time; of merged steps the mean."""
    merged = [-(-(one.step - one.first) // (one.count - 1)) for one in steps if one.count > 1]
    found = [two.first - one.step for one, two in pairwise(steps)]
    return [advance for advance in (*merged, *found) if advance > 0]


def _unseen(old: Sequence[Step], new: Sequence[Step]) -> int:
    """Return how many steps a bar may not have drawn after its last drawing: one stride.

    One that draws every step has drawn all.
    """
    before = _advances(old)
    advances = before if len(before) >= ENOUGH else [*before, *_advances(new)]
    stride = max(advances, default=old[0].first - (old[0].bar_opened or 0))
    return stride if stride > 1 else 0


def _begin(task: TaskTimeline, new: Sequence[Step], old: Sequence[Step] = ()) -> Begin:
    """Return from which step a task went on, by its first steps since then and those before.

    A bar may be moved on at once by what was restored: then what is drawn first is further than
    some strides. Hugging Face's Trainer does so, and a loop that skips what was done before. Such a
    bar is then rarely drawn (tqdm takes the leap for its pace), and at its end in any case: that is
    no stride.
    """
    first, opened = new[0].first, new[0].bar_opened
    latest = max(0, first - 1)  # some count from 0
    if not _is_drawn(task, new[0]):
        return Begin(latest, latest)
    ended = (one.steps for one in task.incarnations if one.exit and one.exit.bar_ended)
    end = next((steps[-1].step for steps in ended if new[0] in steps), None)
    before = _advances(old)
    after = _advances([one for one in new if one.step != end] if before else new)
    stride = max(*before, min(after, default=0), 0) if before else max(after, default=first)
    if opened is None or first - opened > JUMP * stride + 1:
        return Begin(max(opened or 0, first - stride), latest)
    return Begin(opened, opened if first - opened <= stride + 1 else latest)


def _source(task: TaskTimeline, step: Step) -> StepSource | None:
    """Return from what a step was read; None: from what is as certain as can be."""
    return next((one for one in reversed(task.sources) if one.n < step.n), None)


def _words(source: StepSource | None) -> str:
    return JSON.words if source is None else source.source


def _kind(source: StepSource | None) -> str:
    """Return a source without the length of its bar, which may be that of what is left."""
    return _words(source).rpartition(" (")[0] or _words(source)
