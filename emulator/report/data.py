"""The data of a report, read from the run folder alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.analysis.failed_output import last_words, tells
from emulator.analysis.figures import COSTS, FIGURES
from emulator.analysis.throughput import Curve, curve
from emulator.analysis.values import UNSAID
from emulator.report.tables import Column, Table, range_label, table_of
from emulator.report.text import printable
from emulator.validation.units import format_money

if TYPE_CHECKING:
    from emulator.analysis.analyse import Analysis, FaultResult
    from emulator.analysis.costs.costs import Costs
    from emulator.analysis.expectations import Verdict
    from emulator.metrics.samples import Sample
    from emulator.planning.plan import Plan
    from emulator.record.events import TaskExit
    from emulator.record.reader import Record
    from emulator.record.timeline import Timeline
    from emulator.results import Judged

HTML = "report.html"
"""The page in the run folder."""
LAST_LINES = 25
"""Lines of output of a task; the page links to the whole log."""


@dataclass(frozen=True)
class Facts:
    """One run, finished or not."""

    folder: Path
    timeline: Timeline
    analysis: Analysis
    verdicts: Sequence[Verdict]
    summary: Mapping[str, Any]
    samples: Sequence[Sample]
    scenario: str
    """The text of the scenario file."""
    logs: Mapping[str, Sequence[str]]
    """Tasks and helpers with a log, and the lines that say why they ended of those whose end is
    explained."""
    files: frozenset[str]
    """Names of the files in the folder."""
    running: bool
    """Whether a supervisor is running it."""

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        return self.timeline.plan

    @property
    def state(self) -> str:
        """The outcome; `running` or `crashed` if there is none."""
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
        """Where the time axis of the charts ends, in seconds."""
        return self.timeline.end or 1.0

    @cached_property
    def speed(self) -> Curve:
        """Steps per second over time."""
        return curve(self.timeline, self.end)

    @cached_property
    def triggered(self) -> Sequence[tuple[float, FaultResult]]:
        """The faults that were triggered, in order, with the times."""
        faults = [(f.triggered, f) for f in self.analysis.faults if f.triggered is not None]
        return sorted(faults, key=lambda fault: fault[0])

    @property
    def has_failures(self) -> bool:
        """Whether there were faults, or failures to recover from."""
        return bool(self.summary["faults"] or self.summary["recoveries"])

    @property
    def has_timeline(self) -> bool:
        """Whether a task has started, so that there is anything to draw over the time."""
        return any(task.incarnations for task in self.timeline.tasks.values())

    @property
    def exits(self) -> Sequence[TaskExit]:
        """The final exit of each task."""
        return [end for task in self.timeline.tasks.values() if (end := task.final_exit)]


def read(record: Record, judged: Judged) -> Facts:
    """Read a run that was judged. Raises RecordError."""
    exits = (task.final_exit for task in record.timeline.tasks.values())
    shown = {one.task for one in exits if one and one.state == "failed"}
    shown |= {name for name, one in record.timeline.helpers.items() if one.state == "failed"}
    shown.update(judged.summary["last_words"])
    try:
        scenario = (record.path / "scenario.yaml").read_text("utf-8", "replace")
    except OSError:
        scenario = ""
    return Facts(
        record.path,
        record.timeline,
        *judged,
        samples=record.samples,
        scenario=printable(scenario),
        logs={
            name: _last_lines(record, name) if name in shown else ()
            for name in record.plan.printing
            if (record.path / "logs" / f"{name}.log").is_file()
        },
        files=frozenset(path.name for path in record.path.iterdir()),
        running=record.live,
    )


def _last_lines(record: Record, task: str) -> Sequence[str]:
    words = last_words(record.tail(task), LAST_LINES, tells=tells)
    return tuple(printable(line) for line in words)


def notes(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield advice on the errors that were recognised, and warnings: what it is, and its text."""
    for found in summary["hints"]:
        yield "hint", f"{found['advice']} See {found['docs']} in the emulator's repository."
    for warning in summary["warnings"]:
        yield "warning", warning


def sources_of_steps(summary: Mapping[str, Any]) -> str:
    """Return from what the steps were read, in words; empty where it is as certain as can be."""
    used, seen = (summary["step_sources"][key] for key in ("used", "seen"))
    if not used or (not seen and UNSAID.issuperset(one["source"] for one in used)):
        return ""
    sources = "; ".join(f"from {one['source']} of {_who(one['tasks'])}" for one in used)
    others = ", ".join(one["source"] for one in seen)
    return printable(f"steps: {sources}" + (f"; also seen: {others}" if others else ""))


def _who(tasks: Sequence[str]) -> str:
    return range_label(tasks) if len(tasks) > 3 else " and ".join(tasks)


SHOWN = (
    "steps_per_second",
    "examples_per_second",
    "final_step",
    "lost_steps",
    "goodput",
    "worst_recovery",
    "first_step",
    "restarts",
    "accuracy",
    *COSTS,
)
"""Figures of the page, as far as they are known."""


def key_figures(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield title, value and note of the key figures that are known."""
    faults, costs = facts.analysis.faults, facts.analysis.costs
    currency = "" if costs is None else costs.currency
    applied = sum(fault.status == "applied" for fault in faults)
    for key, figure in FIGURES.items():
        value = figure.value_in(facts.analysis)
        if key in SHOWN and value is not None:
            note = figure.note
            if key == "restarts":
                note = f"{applied} of {len(faults)} faults applied" if faults else "no faults"
            yield figure.title, figure.text(value, currency=currency), note


@dataclass(frozen=True)
class Cause:
    """A cause of time, such as `recovery`."""

    name: str
    seconds: float
    share: float
    """Of the duration, 0..1."""
    cost: str = ""
    """What the machines cost in this time."""


def causes(time: Mapping[str, float], costs: Costs | None = None) -> list[Cause]:
    """Return the causes that took any time, with what they cost."""
    total = sum(time.values())
    money = {} if costs is None else costs.time
    return [
        Cause(name, seconds, seconds / total, format_money(money[name]) if name in money else "")
        for name, seconds in time.items()
        if seconds > 0
    ]


def machines(costs: Costs | None) -> Table | None:
    """Return what each machine cost; None without prices."""
    if costs is None:
        return None

    def money(amount: float) -> str:
        return format_money(amount, costs.currency)

    return table_of(
        "Machine of",
        list(costs.tasks),
        [
            Column("Paid", {n: one.kind for n, one in costs.tasks.items()}, number=False),
            Column("An hour", {n: one.per_hour for n, one in costs.tasks.items()}, money),
            Column("Seconds", {n: one.paid for n, one in costs.tasks.items()}, "{:.2f}".format),
            Column("Cost", {n: one.cost for n, one in costs.tasks.items()}, money),
        ],
    )
