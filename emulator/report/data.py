"""All that a report says, read from the run folder and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from emulator.analysis.analyse import Analysis, FaultResult
from emulator.analysis.expectations import Verdict
from emulator.analysis.figures import FIGURES
from emulator.analysis.throughput import Curve, curve
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.record.events import SamplingStarted, TaskExit, fields_of
from emulator.record.reader import Record
from emulator.record.timeline import Interval, Timeline
from emulator.report.text import printable
from emulator.results import Judged, judge

__all__ = ["Facts", "Shown", "key_figures", "read"]

LAST_LINES = 25
"""Of a task that failed; the whole log is a link away."""


@dataclass(frozen=True)
class Facts:
    """One run as its folder has it."""

    folder: Path
    plan: Plan
    timeline: Timeline
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
        first = next(iter(self.timeline.history), None)
        return None if first is None else datetime.fromtimestamp(first.wall - first.t, UTC)

    @cached_property
    def end(self) -> float:
        """Where the axis of the charts ends, in seconds."""
        return self.timeline.end or 1.0

    @cached_property
    def speed(self) -> Curve:
        """Steps per second over the run."""
        return curve(self.timeline, self.end)

    @cached_property
    def states(self) -> Sequence[Interval]:
        """What every task was doing."""
        return self.timeline.states()

    @cached_property
    def phases(self) -> Sequence[Interval]:
        """The phases that tasks reported."""
        return self.timeline.phases()

    @cached_property
    def endings(self) -> Sequence[TaskExit]:
        """How the tasks ended."""
        return _endings(self.timeline)

    @property
    def sampling(self) -> Mapping[str, Any]:
        """What was watched: the interval, the GPUs, why there are none."""
        history = self.timeline.history
        return next((fields_of(e) for e in history if isinstance(e, SamplingStarted)), {})


@dataclass(frozen=True)
class Shown:
    """A figure of a run, as it is shown."""

    name: str
    value: str
    note: str


def read(record: Record, judged: Judged | None = None) -> Facts:
    """Read a run, finished or not; it is judged here unless it was before.

    Raises RecordError where its plan can't be read.
    """
    analysis, verdicts, summary = judged or judge(record)
    plan = record.plan
    failed = {end.task for end in _endings(record.timeline) if end.state == "failed"}
    try:
        text = (record.path / "scenario.yaml").read_text("utf-8", "replace")
    except OSError:
        text = ""
    return Facts(
        folder=record.path,
        plan=plan,
        timeline=record.timeline,
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


def _endings(timeline: Timeline) -> list[TaskExit]:
    return [end for task in timeline.tasks.values() if (end := task.final_exit)]


def _last_lines(record: Record, task: str) -> Sequence[str]:
    return tuple(printable(line) for line in record.log(task)[-LAST_LINES:])


ALWAYS = ("steps_per_second", "final_step", "lost_steps", "goodput", "worst_recovery", "restarts")
KNOWN = ("examples_per_second", "first_step", "accuracy")
"""Figures of the page; the latter only where the record has them."""


def key_figures(facts: Facts) -> Iterator[Shown]:
    """Yield the numbers that are asked for first; a dash where the record does not say."""
    for key, figure in FIGURES.items():
        value = figure.of(facts.analysis)
        if key in ALWAYS or (key in KNOWN and value is not None):
            note = _struck(facts.analysis.faults) if key == "restarts" else figure.note
            yield Shown(figure.title, figure.text(value), note)


def _struck(faults: Sequence[FaultResult]) -> str:
    applied = sum(fault.status == "applied" for fault in faults)
    return f"{applied} of {len(faults)} faults struck" if faults else "no faults"
