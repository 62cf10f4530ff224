"""Why a run ended as it did, in the words of its tasks: last output, known errors, warnings (pure).

`explain` gets a function that reads the end of a task's output, and reads only what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from emulator.analysis.checkpoints import checkpoints_of
from emulator.analysis.failed_output import (
    WIDTH,
    Found,
    Place,
    exceptions,
    known_errors,
    last_words,
    tells,
)
from emulator.analysis.progress import ProgressIndex
from emulator.analysis.saves import GONE
from emulator.analysis.shells import not_passed_on
from emulator.analysis.values import StepSources, outdated, step_sources
from emulator.analysis.why import SAVE_THERE, why
from emulator.faults.kinds import FAULTS
from emulator.metrics.unread import looks_like, suggested
from emulator.record.events import SavedFiles, Unread
from emulator.scenario.frameworks.spec import role_of
from emulator.validation.units import format_duration

if TYPE_CHECKING:
    from emulator.analysis.analyse import Analysis
    from emulator.record.timeline import Timeline

READ = 10
"""Tasks whose output is read at most."""

_NO_STEP = (
    "No step was read from the output of any task, so nothing shows that the job has trained. "
)
NO_STEP = _NO_STEP + (
    "Set `metrics.steps` to a pattern, such as 'iter (?P<step>\\d+)', or print a line of JSON for "
    "each step; "
    "`expect: {steps: none}` is for programs that have no steps."
)

NO_STEP_OF_TRAINER = (
    "No step was read: Hugging Face's Trainer prints its values without the step. Leave its "
    "progress bar on (`disable_tqdm=False`), or let it write TensorBoard's event files below "
    'EMULATOR_SHARED (`report_to="tensorboard"`) and read them with `metrics: {events: ..}`.'
)

Tail = Callable[[str], Sequence[str]]
"""Returns the last lines that a task printed."""


@dataclass(frozen=True)
class Explanation:
    """What a report says beside numbers and verdicts."""

    why: Sequence[str] = ()
    """What interrupted the training, what followed, and which tasks failed: sentences."""
    warnings: Sequence[str] = ()
    hints: Sequence[Found] = ()
    last_words: Mapping[str, Sequence[str]] | None = None
    """By task; the one that settled the outcome is the first."""
    sources: StepSources = field(default_factory=StepSources)
    """From what the steps were read."""

    def as_data(self) -> dict[str, Any]:
        """Return its part of `summary.json`."""
        return {
            "why": list(self.why),
            "warnings": list(self.warnings),
            "hints": [
                {
                    "name": found.hint.name,
                    "advice": found.advice,
                    "docs": found.hint.docs,
                    "tasks": list(found.tasks),
                    "line": found.line,
                }
                for found in self.hints
            ],
            "last_words": {task: list(words) for task, words in (self.last_words or {}).items()},
            "step_sources": self.sources.as_data(),
        }


NOTHING = Explanation()
"""Of a run whose output was not read."""


def explain(timeline: Timeline, analysis: Analysis, tail: Tail) -> Explanation:
    """Return the explanation of a run.

    Known errors are looked for in the output of failed tasks, and after a timeout in that of the
    tasks that ran until then.
    """
    trained_nothing = _has_no_step(timeline, analysis)
    names = [] if analysis.outcome == "succeeded" else list(to_blame(timeline, analysis))
    outputs = {name: tail(name) for name in names[:READ]}
    places = {task.name: Place(task.image, timeline.plan.python) for task in timeline.plan.tasks}
    found = list(known_errors(outputs, places))
    if trained_nothing and not outputs:
        outputs = dict(_first_output(timeline, tail))
    words = {name: last_words(lines, tells=tells) for name, lines in outputs.items()}
    sources = step_sources(timeline)
    told = why(timeline)
    return Explanation(
        told,
        [
            *([_no_step(sources, timeline, outputs)] if trained_nothing else []),
            *not_passed_on(timeline),
            *_never_went_on(timeline, analysis),
            *_counted_anew(analysis),
            *_of_another_training(timeline, analysis),
            *_not_needed(timeline),
            *_on_own_disks(timeline, told),
            *(one.words for one in timeline.left_out),
        ],
        found,
        {name: lines for name, lines in words.items() if lines},
        sources,
    )


def in_short(timeline: Timeline, tail: Tail) -> str:
    """Return why a job ended, in half a sentence: the last exception of its task, or the reason."""
    if timeline.ended_by:
        lines = tail(timeline.ended_by)
        if raised := exceptions(lines):
            return f"{timeline.ended_by}: {lines[raised[-1].line].strip().rstrip('.')[:WIDTH]}"
    return timeline.reason.rstrip(".") or "it has not ended by itself"


def _no_step(sources: StepSources, timeline: Timeline, outputs: Mapping[str, Sequence[str]]) -> str:
    """Return the warning that no step was read, with what was seen instead."""
    if sources.has_trainer_lines:
        return NO_STEP_OF_TRAINER
    told = [entry for entry in timeline.history if isinstance(entry, Unread)]
    is_own = bool(told) and told[-1].pattern is None
    begin = (
        f"{_NO_STEP}The pattern of `metrics.steps` has matched nothing. " if is_own else _NO_STEP
    )
    lines = (line for printed in outputs.values() for line in printed)
    likely = told[-1] if told and not is_own else suggested(lines)
    if likely is not None and likely.pattern is not None:
        return f"{begin}{looks_like(likely.line, likely.pattern)}."
    if not sources.seen:
        return NO_STEP
    seen = ", ".join(sources.seen)
    return f"{NO_STEP} Seen was {seen}, which says nowhere that it is training."


def _never_went_on(timeline: Timeline, analysis: Analysis) -> Iterator[str]:
    """Yield a warning if no step was made after the last fault that ended its target."""
    applied = [
        (fault.triggered + fault.applied_after, fault)
        for fault in analysis.faults
        if fault.triggered is not None
        and fault.applied_after is not None
        and FAULTS[fault.kind].ends_target
    ]
    if not applied or not timeline.steps:
        return
    since, fault = max(applied, key=lambda one: one[0])
    if any(step.t > since for step in ProgressIndex(timeline).steps):
        return
    what = f"No step was made after fault {fault.id} ({fault.kind} {fault.target})"
    if analysis.outcome == "succeeded":
        yield f"{what}: nothing shows that the training goes on after it."
    elif analysis.outcome == "timeout" and timeline.plan.scenario.restart.stall is None:
        yield (
            f"{what}, until the time limit: the job seems to wait. `restart: {{stall: 1m}}` "
            "restarts a job that makes no step for a minute."
        )


def _counted_anew(analysis: Analysis) -> Iterator[str]:
    """Yield a warning for each task whose steps are not those of the job since it came back."""
    for task in analysis.tasks.values():
        if words := task.counted_anew:
            yield f"{words[0].upper()}{words[1:]}: what was made again is not known from them."


def _of_another_training(timeline: Timeline, analysis: Analysis) -> Iterator[str]:
    """Yield warnings of what was reported, and is none of the training that ended."""
    early = outdated(timeline)
    for task in sorted(timeline.plan.evaluators):
        last = next((one for one in reversed(timeline.tasks[task].steps) if one.values), None)
        if last is not None and last.n in early:
            yield (
                f"{task} reported step {last.step:,}, and the training had not come so far: "
                "what it says of that checkpoint does not count."
            )
    if analysis.ended_at is not None:
        yield (
            f"The job ended at step {analysis.ended_at:,}, and had been at step "
            f"{analysis.final_step:,} before: what it had made from there on was lost, and not "
            "made again."
        )


def _not_needed(timeline: Timeline) -> Iterator[str]:
    """Yield a warning for each checkpoint that a fault has broken, and that nothing has needed."""
    seen = checkpoints_of(timeline)
    for id_, change in {change.fault: change for change in seen.changes}.items():
        lives = [
            life.begin
            for task in timeline.tasks.values()
            for life in task.incarnations
            if life.begin > change.t and change.task in ("", task.name)
        ]
        is_read = any(id_ in {one.fault for one in read.broken.values()} for read in seen.reads)
        if is_read or not seen.sees(change.task, change.t, timeline.duration):
            continue
        there = seen.there(change.task, min(lives, default=timeline.end))
        if newer := [save for save in there if save.ended > change.t]:
            later = format_duration(newer[0].ended - change.t)
            why = f"a newer save, {newer[0].path}, was there {later} later"
        elif not lives:
            why = "nothing was started again after that"
        else:
            continue
        what = "missed it" if change.how == GONE else "read what was broken"
        yield f"Fault {id_} ({change.how} {change.path}): {why}, and nothing {what}."


def _on_own_disks(timeline: Timeline, told: Sequence[str]) -> Iterator[str]:
    """Yield a warning if all that was saved is on disks which a preemption takes away.

    `told`: what is said of interruptions; the same advice is not given twice.
    """
    seen, over = checkpoints_of(timeline), timeline.duration
    if any(not save.task for save in seen.saves) or not seen.sees("", over, over):
        return
    training = {task.name for task in timeline.plan.in_training} - timeline.plan.evaluators
    saved = [
        (entry.task, entry.saved[0]["path"])
        for entry in timeline.history
        if isinstance(entry, SavedFiles) and entry.t >= over
        if entry.task in training and entry.saved
    ]
    if saved and not any(SAVE_THERE in words for words in told):
        task, path = saved[-1]
        yield (
            f"Nothing was saved on /shared, and {path} is on the own disk of {task}, which a "
            f"preemption takes away. {SAVE_THERE}."
        )


def _has_no_step(timeline: Timeline, analysis: Analysis) -> bool:
    """Return whether a finished run reported no step, although its program should.

    A job that failed unexpectedly is left out: its failure says more.
    """
    expect = timeline.plan.scenario.expect
    finished = analysis.outcome in (expect.outcome, "succeeded", "timeout")
    return finished and analysis.final_step is None and expect.steps is None


def to_blame(timeline: Timeline, analysis: Analysis) -> Iterator[str]:
    """Yield the task that settled the outcome, then others that failed, the first one first.

    After a timeout also those that ran until then, the training ones first.
    """
    if timeline.ended_by:
        yield timeline.ended_by
    ends = [task.final_exit for task in timeline.tasks.values()]
    failed = [end for end in ends if end is not None and end.state == "failed"]
    for end in sorted(failed, key=lambda end: end.t):
        if end.task != timeline.ended_by:
            yield end.task
    if analysis.outcome == "timeout":
        names = [name for name, task in analysis.tasks.items() if task.state == "stopped"]
        yield from _by_importance(timeline, names)


def _first_output(timeline: Timeline, tail: Tail) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the most important task that printed anything, with its output."""
    names = _by_importance(timeline, (task.name for task in timeline.plan.tasks))
    for name in names[:READ]:
        if lines := tail(name):
            yield name, lines
            return


def _by_importance(timeline: Timeline, names: Iterable[str]) -> list[str]:
    """Return tasks with the leading one first, then those that train, then the others."""
    roles = timeline.plan.roles

    def key(task: str) -> tuple[bool, bool]:
        return role_of(task) not in roles.leaders, not roles.trains(role_of(task))

    return sorted(names, key=key)
