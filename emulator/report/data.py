"""The data of a report, read from the run folder alone."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.analysis.explanation import to_blame
from emulator.analysis.figures import COSTS, FIGURES
from emulator.analysis.hints import tells
from emulator.analysis.last_words import exceptions, last_words
from emulator.analysis.step_sources import UNSAID
from emulator.analysis.throughput import Curve, curve
from emulator.record.events import Restart, TaskExit
from emulator.report.tables import Column, Table, name_list, range_label, table_of
from emulator.report.text import printable
from emulator.results import Judged, judge
from emulator.validation.units import format_duration, format_money

if TYPE_CHECKING:
    from emulator.analysis.analyse import Analysis, FaultResult
    from emulator.analysis.costs.costs import Costs
    from emulator.analysis.expectations import Verdict
    from emulator.metrics.samples import Sample
    from emulator.planning.plan import Plan
    from emulator.record.reader import Record
    from emulator.record.timeline import TaskTimeline, Timeline

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


def read(record: Record, judged: Judged | None = None) -> Facts:
    """Read a run, and judge it unless `judged` is given. Raises RecordError."""
    judged = judged or judge(record)
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


# --- Why a run is not ok --------------------------------------------------------------------------

LISTED = 5
"""Failed tasks of which the exits are listed; the others are named."""


@dataclass(frozen=True)
class Ended:
    """How a task ended, and what was done about it."""

    task: str
    how: str
    """Its exit code, and what that means."""
    when: str
    step: str
    """The last step that it reported."""
    tried: str
    """Restarts, or why there were none."""


@dataclass(frozen=True)
class Failure:
    """Why the verdict of a run is not `ok`."""

    headline: str
    ended: Sequence[Ended]
    """The task that settled the outcome, then the others that failed, the first one first."""
    others: str
    """Failed tasks that are not listed."""
    task: str
    words: Sequence[str]
    """The task whose output says most, and its last traceback or lines."""
    unmet: Sequence[str]
    """What was expected and did not come true."""


def failure_of(facts: Facts) -> Failure | None:
    """Return why a run is not ok; None for a run that is, or that is still running."""
    if facts.summary["verdict"] == "ok" or facts.state == "running":
        return None
    failed = []
    if facts.analysis.outcome != "succeeded":
        exits = {name: task.final_exit for name, task in facts.timeline.tasks.items()}
        names = to_blame(facts.timeline, facts.analysis)
        failed = [name for name in names if (end := exits.get(name)) and end.state == "failed"]
    words = facts.summary["last_words"]
    told = next((name for name in (*failed, *words) if words.get(name)), "")
    return Failure(
        headline=_headline(facts),
        ended=[_ended(facts, name) for name in failed[:LISTED]],
        others=name_list(failed[LISTED:]),
        task=told,
        words=last_traceback(facts.logs.get(told) or words.get(told, ())),
        unmet=[
            f"{v.expectation}: expected {v.expected}"
            + (f", got {v.actual}" if v.status == "failed" else f"; not known: {v.actual}")
            for v in facts.verdicts
            if v.status != "ok" and v.expectation != "outcome"
        ],
    )


def _headline(facts: Facts) -> str:
    if facts.state == "crashed":
        return "The emulator was killed before the job ended."
    if facts.analysis.outcome == "succeeded":
        return "The job succeeded, but did not meet all expectations."
    return f"{_OUTCOMES[facts.analysis.outcome]}: {facts.analysis.reason}."


_OUTCOMES = {
    "failed": "The job failed",
    "timeout": "The job ran out of time",
    "interrupted": "The job was interrupted",
    "error": "The emulator or its engine failed",
}


def last_traceback(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines from the last traceback on, with those that led to it; else all lines."""
    raised = exceptions(lines)
    if not raised:
        return lines
    begin = raised[-1].header
    for earlier in reversed(raised[:-1]):
        between = " ".join(lines[earlier.line + 1 : begin])
        if not any(phrase in between for phrase in _CHAINED):
            break
        begin = earlier.header
    return lines[begin:]


_CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
"""What Python prints between the exceptions of a chain."""


def _ended(facts: Facts, name: str) -> Ended:
    task = facts.timeline.tasks[name]
    end = task.final_exit
    assert end is not None
    step = facts.analysis.tasks[name].last_step if name in facts.analysis.tasks else None
    return Ended(
        name,
        how_it_ended(end),
        format_duration(end.t),
        "none" if step is None else str(step),
        "; ".join(_tried(facts, task)),
    )


def how_it_ended(end: TaskExit) -> str:
    """Return an exit code in words: `137: killed, out of memory`."""
    why = [end.reason] if end.reason else []
    if end.oom_killed and "OOMKilled" not in why:
        why.append("out of memory")
    if end.exit_code > 128:
        with contextlib.suppress(ValueError):
            why.insert(0, f"ended by {signal.Signals(end.exit_code - 128).name}")
    if not why and end.exit_code in _CODES:
        why.append(_CODES[end.exit_code])
    return f"{end.exit_code}: {', '.join(why)}" if why else str(end.exit_code)


_CODES = {
    1: "an error of the program",
    2: "wrong usage, or a file that is not there",
    126: "the command can't be executed",
    127: "the command was not found",
}
"""What shells and Python mean by an exit code."""


def _tried(facts: Facts, task: TaskTimeline) -> Iterator[str]:
    """Yield what was tried to save the job: restarts of the task, or of all."""
    policy = facts.plan.scenario.restart
    restarts = [entry for entry in facts.timeline.history if isinstance(entry, Restart)]
    own = [one for one in restarts if one.scope == "job" or one.task == task.name]
    if own:
        of_all = sum(one.scope == "job" for one in own)
        times = "once" if len(own) == 1 else f"{len(own)} times"
        what = "with all tasks" if of_all == len(own) else "alone" if not of_all else ""
        yield f"restarted {times} {what}".rstrip()
        if len(own) >= policy.limit:
            yield f"the limit is {policy.limit}"
    else:
        yield f"not restarted (policy {policy.policy})"
    replaced = sum(one.replacement for one in task.incarnations)
    if replaced:
        yield f"brought back {'once' if replaced == 1 else f'{replaced} times'} by faults"
