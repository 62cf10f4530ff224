"""What a run tells those who wait for it: a listener while it happens, a result when it is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.analysis import checks
from emulator.analysis.analyse import Analysis, analyse
from emulator.analysis.checks import Verdict
from emulator.metrics.samples import Sample
from emulator.plan import Plan
from emulator.record.folder import Entry, Record, uncollected
from emulator.supervisor.events import JobEnd

__all__ = ["Listener", "Result", "exit_code", "judge"]


@dataclass(frozen=True)
class Listener:
    """Who wants to know, while it happens."""

    say: Callable[[str], None] = lambda text: None
    """Progress of our own work, such as building an image."""
    planned: Callable[[Plan, Path], None] = lambda plan, folder: None
    entry: Callable[[Entry], None] = lambda entry: None
    line: Callable[[str, str], None] = lambda task, text: None
    sample: Callable[[Sample], None] = lambda sample: None
    reachable: Callable[[], None] = lambda: None
    """The API answers; called on a thread of its own."""


@dataclass(frozen=True)
class Result:
    """A finished run."""

    folder: Path
    end: JobEnd
    analysis: Analysis
    verdicts: Sequence[Verdict]
    summary: dict[str, Any]

    @property
    def exit_code(self) -> int:
        """The exit code of `emulate up`; docs/results.md lists them."""
        return exit_code(self.end.outcome, self.verdicts)


def exit_code(outcome: str, verdicts: Sequence[Verdict]) -> int:
    """Return the exit code that a run's outcome and verdicts stand for."""
    return 130 if outcome == "interrupted" else checks.EXIT_CODES[checks.overall(verdicts)]


def judge(record: Record) -> tuple[Analysis, list[Verdict], dict[str, Any]]:
    """Judge a run from its folder alone; return numbers, verdicts and summary."""
    with uncollected():
        return _judge(record)


def _judge(record: Record) -> tuple[Analysis, list[Verdict], dict[str, Any]]:
    plan = record.plan
    history = record.happened
    analysis = analyse(plan, history)
    verdicts = checks.judge(plan.scenario.expect, analysis, history)
    summary = checks.summary(
        run_id=plan.run_id,
        scenario=plan.scenario.name,
        variant=plan.variant,
        engine=plan.engine,
        analysis=analysis,
        verdicts=verdicts,
        samples=record.samples,
    )
    return analysis, verdicts, summary
