"""All that a report says, read from the run folder and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from emulator.analysis.analyse import Analysis, FaultResult
from emulator.analysis.checks import Verdict
from emulator.analysis.lanes import Ending, Span, endings, over_at, phases, states
from emulator.analysis.throughput import Curve, curve
from emulator.metrics.samples import Sample
from emulator.plan import Plan
from emulator.record.folder import Entry, Record
from emulator.report.text import printable
from emulator.results import judge
from emulator.units import format_duration, format_number

__all__ = ["Facts", "Figure", "key_figures", "read"]

LAST_LINES = 25
"""Of a task that failed; the whole log is a link away."""


@dataclass(frozen=True)
class Facts:
    """One run as its folder has it."""

    folder: Path
    plan: Plan
    history: Sequence[Entry]
    analysis: Analysis
    verdicts: Sequence[Verdict]
    summary: Mapping[str, Any]
    samples: Sequence[Sample]
    scenario: str
    """The text as it was given."""
    logs: Mapping[str, Sequence[str]]
    """Tasks with a log, and the last lines of those that failed."""
    files: frozenset[str]
    """Names of what lies in the folder."""
    running: bool
    """A supervisor is at work on it."""

    @property
    def state(self) -> str:
        """The outcome in a word that fits one whose record just ends, too."""
        if self.analysis.outcome != "running":
            return self.analysis.outcome
        return "running" if self.running else "crashed"

    @property
    def began(self) -> datetime | None:
        """When the run began, UTC."""
        first = next(iter(self.history), None)
        return None if first is None else datetime.fromtimestamp(first.wall - first.t, UTC)

    @cached_property
    def end(self) -> float:
        """Where the axis of the charts ends, in seconds."""
        return over_at(self.history) or 1.0

    @cached_property
    def speed(self) -> Curve:
        """Steps per second over the run."""
        return curve(self.plan, self.history, self.end)

    @cached_property
    def states(self) -> Sequence[Span]:
        """What every task was doing."""
        return states(self.plan, self.history)

    @cached_property
    def phases(self) -> Sequence[Span]:
        """What tasks told of."""
        return phases(self.history)

    @cached_property
    def endings(self) -> Sequence[Ending]:
        """How the tasks ended."""
        return endings(self.history)

    @property
    def sampling(self) -> Mapping[str, Any]:
        """What was watched: the interval, the GPUs, why there are none."""
        return next((e.data for e in self.history if e.event == "sampling"), {})


@dataclass(frozen=True)
class Figure:
    """A number that somebody looks for first."""

    name: str
    value: str
    note: str = ""


def read(record: Record) -> Facts:
    """Read a run, finished or not; raises RecordError where its plan can't be read."""
    analysis, verdicts, summary = judge(record)
    plan = record.plan
    failed = {end.task for end in endings(record.happened) if end.state == "failed"}
    try:
        text = (record.path / "scenario.yaml").read_text("utf-8", "replace")
    except OSError:
        text = ""
    return Facts(
        folder=record.path,
        plan=plan,
        history=record.happened,
        analysis=analysis,
        verdicts=verdicts,
        summary=summary,
        samples=record.samples,
        scenario=printable(text),
        logs={
            task.name: _last_lines(record, task.name) if task.name in failed else ()
            for task in plan.tasks
            if (record.path / "logs" / f"{task.name}.log").is_file()
        },
        files=frozenset(path.name for path in record.path.iterdir()),
        running=record.live and analysis.outcome == "running",
    )


def _last_lines(record: Record, task: str) -> Sequence[str]:
    return tuple(printable(line) for line in record.log(task)[-LAST_LINES:])


def key_figures(facts: Facts) -> Iterator[Figure]:
    """Yield the numbers that are asked for first; a dash where the record does not say."""
    found = facts.analysis
    rate, examples = found.steps_per_second, found.examples_per_second
    yield Figure("Steps/s", _number(rate), "first to last step of the job")
    if examples is not None:
        yield Figure("Examples/s", _number(examples), "of the job")
    final = "—" if found.final_step is None else str(found.final_step)
    yield Figure("Final step", final, "the furthest of any task")
    lost = "—" if found.lost is None else str(found.lost)
    yield Figure("Steps lost", lost, "done again after restarts")
    goodput = "—" if found.goodput is None else f"{found.goodput:.0%}"
    yield Figure("Goodput", goodput, "productive share of the time")
    yield Figure("Worst recovery", _worst(found), "from a failure to the next step")
    yield Figure("Restarts", str(found.restarts), _struck(found.faults))
    if found.first_step is not None:
        yield Figure("First step after", format_duration(found.first_step), "from the run's start")
    if found.accuracy is not None:
        yield Figure("Accuracy", format_number(found.accuracy, 3), "the last that was told")


def _worst(found: Analysis) -> str:
    if found.unrecovered:
        return "never"
    return format_duration(max(found.recoveries)) if found.recoveries else "—"


def _struck(faults: Sequence[FaultResult]) -> str:
    applied = sum(fault.status == "applied" for fault in faults)
    return f"{applied} of {len(faults)} faults struck" if faults else "no faults"


def _number(value: float | None) -> str:
    """Return a rate with about three digits, thousands set apart by a thin space."""
    if value is None:
        return "—"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    shown = format_number(value, digits)
    return shown if "e" in shown else f"{value:,.{digits}f}".replace(",", "\u202f")
