"""What a run gives its caller: callbacks while it is under way, a result when it has finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from emulator.analysis import expectations as checks
from emulator.analysis.analyse import Analysis, analyse
from emulator.analysis.expectations import Status, Verdict
from emulator.analysis.regression import comparison_of
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.record.events import Entry
from emulator.record.reader import Record, gc_paused
from emulator.supervisor.job import LAST_WORDS, JobEnd, Outcome

__all__ = [
    "ExpectationFailed",
    "Judged",
    "Result",
    "RunCallbacks",
    "exit_code",
    "judge",
    "load_result",
]


@dataclass(frozen=True)
class RunCallbacks:
    """Functions that are called while a run is under way."""

    say: Callable[[str], None] = lambda text: None
    """Progress of our own work, such as building an image."""
    planned: Callable[[Plan, Path], None] = lambda plan, folder: None
    entry: Callable[[Entry], None] = lambda entry: None
    lines: Callable[[Sequence[tuple[str, str]]], None] = lambda lines: None
    """Gets lines that tasks printed: each its task and its text."""
    sample: Callable[[Sample], None] = lambda sample: None
    reachable: Callable[[], None] = lambda: None
    """The API answers; called on a thread of its own."""
    stoppable: Callable[[Callable[[], None]], None] = lambda stop: None
    """Gets a function that ends the job as Ctrl-C does; its second call ends it at once."""


class ExpectationFailed(AssertionError):
    """What a scenario expects did not hold, or could not be judged; the text names every such."""


@dataclass(frozen=True)
class Result:
    """A finished run: its numbers, as its record has them, and what they were judged to be.

    Times are seconds; None: the record does not say.
    """

    folder: Path
    end: JobEnd
    analysis: Analysis
    verdicts: Sequence[Verdict]
    summary: dict[str, Any]

    @property
    def run_id(self) -> str:
        """The folder's name is the run's."""
        return self.folder.name

    @property
    def exit_code(self) -> int:
        """The exit code of `emulate up`; docs/results.md lists them."""
        return exit_code(self.end.outcome, self.verdicts)

    @property
    def outcome(self) -> str:
        """How the job ended: succeeded, failed, timeout, interrupted."""
        return self.end.outcome

    @property
    def verdict(self) -> Status:
        """The worst of all verdicts: ok, failed or unknown."""
        return checks.overall(self.verdicts)

    @property
    def final_step(self) -> int | None:
        """The furthest step of any task."""
        return self.analysis.final_step

    @property
    def lost_steps(self) -> int | None:
        """Steps that were done again after restarts."""
        return self.analysis.lost_steps

    @property
    def restarts(self) -> int:
        """Restarts by the policy; a preempted task's return is none."""
        return self.analysis.restarts

    @property
    def goodput(self) -> float | None:
        """The productive share of the duration."""
        return self.analysis.goodput

    @property
    def steps_per_second(self) -> float | None:
        """The job's rate over the whole training."""
        return self.analysis.steps_per_second

    @property
    def examples_per_second(self) -> float | None:
        """The same in examples."""
        return self.analysis.examples_per_second

    @property
    def recovery(self) -> float | None:
        """The longest time from a failure to the next step; infinite where none came."""
        return self.analysis.worst_recovery

    @property
    def accuracy(self) -> float | None:
        """The last that a step told of."""
        return self.analysis.accuracy

    def check(self) -> None:
        """Raise ExpectationFailed unless every verdict is ok."""
        wrong = [verdict for verdict in self.verdicts if verdict.status != "ok"]
        if wrong:
            said = (
                f"{v.expectation} {v.status}: expected {v.expected}, got {v.actual}" for v in wrong
            )
            raise ExpectationFailed("; ".join(said))


def exit_code(outcome: str, verdicts: Sequence[Verdict]) -> int:
    """Return the exit code that a run's outcome and verdicts stand for."""
    return 130 if outcome == "interrupted" else checks.EXIT_CODES[checks.overall(verdicts)]


class Judged(NamedTuple):
    """What a run came to: made once by `judge`, and handed to whatever reports it."""

    analysis: Analysis
    verdicts: Sequence[Verdict]
    summary: dict[str, Any]


def judge(record: Record) -> Judged:
    """Judge a run from its folder alone."""
    with gc_paused():
        return _judge(record)


def load_result(record: Record) -> Result:
    """Return a run that is over, judged from its folder alone. Raises RecordError."""
    judged = judge(record)
    task = record.timeline.ended_by
    words = tuple(line for line in record.last_words(task, LAST_WORDS) if line.strip())
    outcome = cast("Outcome", judged.analysis.outcome)
    return Result(record.path, JobEnd(outcome, judged.analysis.reason, task, words), *judged)


def _judge(record: Record) -> Judged:
    plan = record.plan
    analysis = analyse(record.timeline)
    verdicts = checks.judge(plan.scenario.expect, analysis, record.timeline, comparison_of(plan))
    summary = checks.summary(
        run_id=plan.run_id,
        scenario=plan.scenario.name,
        variant=plan.variant,
        engine=plan.engine,
        analysis=analysis,
        verdicts=verdicts,
        samples=record.samples,
    )
    return Judged(analysis, verdicts, summary)
