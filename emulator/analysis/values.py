"""What tasks reported with their steps, and from what in their output these were read (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from emulator.analysis.steps_made import beside
from emulator.metrics.bars import TRAINER_LINES
from emulator.metrics.steps import JSON
from emulator.record.events import Phase, Step, StepSource
from emulator.scenario.schema import EVENTS

if TYPE_CHECKING:
    from emulator.record.timeline import TaskTimeline, Timeline

NAMES = 200
"""Names that are followed in a run; a program that makes up names does not fill the summary."""

EVENT_FILES = "event files"
"""The source where `metrics.events` names a folder."""
UNSAID = frozenset({JSON.words, EVENT_FILES})
"""Sources that are as certain as can be: reports don't mention them if there is nothing else."""

Values = Mapping[str, Mapping[str, float | None]]
"""The last number of each task by the name it was reported under.

None: what the task reported last is no number. A loss that is NaN at the end has no value, and not
the one that it had before.
"""


def outdated(timeline: Timeline, last_life: Sequence[Step] = ()) -> frozenset[int]:
    """Return the numbers of the step events whose values say nothing of what was trained.

    Those are an evaluator's whose step is further than the training had come by then: its furthest
    step, or what it had saved or restored, and as many more as it may make without a report. And
    if a job that had to begin again ended earlier, with the `last_life`, all that was said before
    it, and of later steps.
    """
    others = beside(timeline.plan, (step.task for _, step in timeline.steps))
    if not others and not last_life:
        return frozenset()
    end = max((step.step for step in last_life), default=math.inf)
    since = last_life[0].t if last_life else 0.0
    found: set[int] = set()
    front, unreported = 0, 1
    for task in timeline.tasks.values():
        if task.name not in others:
            for one in task.incarnations:
                gaps = (two.step - one.step for one, two in pairwise(one.steps))
                unreported = max(unreported, *gaps, 1)
    for entry in timeline.history:
        match entry:
            case Step(step=step) if entry.task in others:
                if step > min(front, end) + unreported or entry.t < since:
                    found.add(entry.n)
            case Step(step=step):
                front = max(front, step)
                if entry.t < since:
                    found.add(entry.n)
            case Phase(phase="checkpoint" | "restore", state="end", step=int(step)):
                front = max(front, step) if entry.task not in others else front
            case _:
                pass
    return frozenset(found)


def last_accuracy(timeline: Timeline, last_life: Sequence[Step] = ()) -> float | None:
    """Return the accuracy that was reported last, also by an evaluator, unless it is `outdated`."""
    old = outdated(timeline, last_life)
    steps = (step for _, step in reversed(timeline.steps) if step.n not in old)
    accuracies = (step.values.get("accuracy") for step in steps)
    return next((float(value) for value in accuracies if isinstance(value, int | float)), None)


def last_values(timeline: Timeline, last_life: Sequence[Step] = ()) -> Values:
    """Return the last value of each name that each task reported in its step events.

    A name under which only texts were reported is left out, and so is what is `outdated`.
    """
    found: dict[str, dict[str, float | None]] = {}
    numbers: set[str] = set()
    old = outdated(timeline, last_life)
    for name, task in timeline.tasks.items():
        for step in (one for one in task.steps if one.n not in old):
            for key in step.values:
                if key in found or len(found) < NAMES:
                    found.setdefault(key, {})[name] = known = step.number(key)
                    if known is not None:
                        numbers.add(key)
    return {key: of for key, of in found.items() if key in numbers}


@dataclass(frozen=True)
class Reported:
    """A value that a task reported with a step."""

    t: float
    """Seconds since the run began."""
    step: int
    value: float | None
    """None: it was no number, such as NaN."""


Lives = Sequence[Sequence[Reported]]
"""What a task reported in each of its lives; one begins with a start, and where it goes back."""


def histories(timeline: Timeline) -> dict[str, dict[str, Lives]]:
    """Return all that tasks reported, by the name of the value and of the task.

    The loss comes first, then the accuracy, then the others as they were first reported. A name
    under which no number was reported is left out, and so are the examples, which only count.
    """
    found: dict[str, dict[str, list[list[Reported]]]] = {}
    for task in timeline.plan.tasks:
        for life in _lives(timeline.tasks[task.name]):
            here: dict[str, list[Reported]] = {}
            for step in life:
                for key in step.values:
                    if key != "examples" and (key in found or len(found) < NAMES):
                        found.setdefault(key, {})
                        here.setdefault(key, []).append(
                            Reported(step.t, step.step, step.number(key))
                        )
            for key, reported in here.items():
                found[key].setdefault(task.name, []).append(reported)
    numbers: dict[str, dict[str, Lives]] = {
        key: dict(of)
        for key, of in found.items()
        if any(one.value is not None for lives in of.values() for life in lives for one in life)
    }
    return {key: numbers[key] for key in sorted(numbers, key=importance)}


def _lives(task: TaskTimeline) -> Iterator[list[Step]]:
    """Yield the steps of each start of a task, anew where it went back to an earlier one."""
    for incarnation in task.incarnations:
        life: list[Step] = []
        for step in incarnation.steps:
            if life and step.step < life[-1].step:
                yield life
                life = []
            life.append(step)
        yield life


def importance(name: str) -> int:
    """Return the place of a value among the others: the loss is first, then the accuracy."""
    words = name.lower()
    if words in ("loss", "accuracy"):
        return 0 if words == "loss" else 1
    return 2 if "loss" in words else 3 if "acc" in words else 4


# --- From what the steps were read ----------------------------------------------------------------


@dataclass(frozen=True)
class StepSources:
    """Each source with the tasks that had it, in the order in which they came."""

    used: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The steps are read from these."""
    seen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """These are no steps of the training, as far as can be known, or something else was surer."""

    @property
    def has_trainer_lines(self) -> bool:
        """Whether Hugging Face's Trainer printed values before any step was read."""
        return TRAINER_LINES in self.seen

    def as_data(self) -> dict[str, list[dict[str, object]]]:
        """Return its part of `summary.json`."""
        return {
            name: [{"source": source, "tasks": list(tasks)} for source, tasks in sources.items()]
            for name, sources in (("used", self.used), ("seen", self.seen))
        }


def step_sources(timeline: Timeline) -> StepSources:
    """Return the sources of a run; a task without a note of its own printed steps as JSON."""
    is_beside = timeline.plan.scenario.metrics.helper == EVENTS
    default = EVENT_FILES if is_beside else JSON.words
    last: dict[str, str] = {}
    seen: dict[str, list[str]] = {}
    for entry in timeline.history:
        if not isinstance(entry, StepSource):
            continue
        if entry.counts:
            if entry.retracts:  # the steps before are not those of the training
                _add(seen, last.get(entry.task, default), entry.task)
            last[entry.task] = entry.source
        else:
            _add(seen, entry.source, entry.task)
    used: dict[str, list[str]] = {}
    for task in dict.fromkeys(step.task for _, step in timeline.steps):
        _add(used, last.get(task, default), task)
    unused = {source: tasks for source, tasks in seen.items() if source not in used}
    return StepSources(used, unused)


def _add(sources: dict[str, list[str]], source: str, task: str) -> None:
    tasks = sources.setdefault(source, [])
    if task not in tasks:
        tasks.append(task)
