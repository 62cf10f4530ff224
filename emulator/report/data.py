"""The data of a report, read from the run folder alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.analysis.failed_output import last_words, tells
from emulator.analysis.figures import BEFORE_SIGNAL, FIGURES
from emulator.analysis.goodput import Piece, pieces
from emulator.analysis.throughput import Curve, curve
from emulator.analysis.values import UNSAID
from emulator.faults.platform import scale_in_words
from emulator.record.folder import RunFolder
from emulator.report.tables import Table, range_label
from emulator.report.text import printable
from emulator.validation.units import format_duration, format_size

if TYPE_CHECKING:
    from emulator.analysis.analyse import Analysis, FaultResult
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
"""Lines of output of a task that say why it ended."""
SHOWN_LINES, SHOWN_WIDTH = 200, 400
"""Lines of output of each task in the page, at most, and characters of each of them."""


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

    @cached_property
    def spent(self) -> Sequence[Piece]:
        """What each moment of the job went into; empty if no task reported a step."""
        if not self.timeline.steps:
            return ()
        return list(pieces(self.timeline, self.analysis.duration))

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
        """Every exit of each task."""
        return [end for task in self.timeline.tasks.values() for end in task.exits]

    @cached_property
    def outputs(self) -> Mapping[str, Sequence[str]]:
        """The last lines that each task and helper printed, SHOWN_LINES at most."""
        folder = RunFolder(self.folder)
        tails = {name: folder.tail(name)[-SHOWN_LINES:] for name in self.logs}
        return {name: [_cut(printable(line)) for line in tail] for name, tail in tails.items()}


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


def _cut(line: str) -> str:
    return line if len(line) <= SHOWN_WIDTH else f"{line[:SHOWN_WIDTH]}…"


def fault_title(fault: FaultResult | Mapping[str, Any]) -> str:
    """Return `1: preempt worker-10`; the id of one of several targets names it, too."""
    of = fault if isinstance(fault, Mapping) else vars(fault)
    return f"{of['id'].removesuffix(':' + of['target'])}: {of['kind']} {of['target']}"


def _last_lines(record: Record, task: str) -> Sequence[str]:
    words = last_words(record.tail(task), LAST_LINES, tells=tells)
    return tuple(printable(line) for line in words)


def notes(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a report says beside its numbers: the kind of each text, and the text.

    Advice on the errors that were recognised, warnings, and what makes times other than real ones.
    """
    for found in summary["hints"]:
        yield "hint", f"{found['advice']} See {found['docs']} in the emulator's repository."
    for warning in summary["warnings"]:
        yield "warning", warning
    if scale := summary.get("speed"):
        yield "note", f"the times of presets are {scale_in_words(scale)}"


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
)
"""Figures of the page, as far as they are known."""


def key_figures(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield title, value and note of the key figures that are known."""
    faults = facts.analysis.faults
    applied = sum(fault.status == "applied" for fault in faults)
    for key, figure in FIGURES.items():
        value = figure.value_in(facts.analysis)
        if key in SHOWN and value is not None:
            note = figure.note
            if key == "restarts":
                note = f"{applied} of {len(faults)} faults applied" if faults else "no faults"
            yield figure.title, figure.text(value), note


@dataclass(frozen=True)
class Cause:
    """A cause of time, such as `recovery`."""

    name: str
    seconds: float
    share: float
    """Of the duration, 0..1."""


def causes(time: Mapping[str, float]) -> list[Cause]:
    """Return the causes that took any time."""
    total = sum(time.values())
    return [Cause(name, seconds, seconds / total) for name, seconds in time.items() if seconds > 0]


def notice_table(summary: Mapping[str, Any]) -> Table | None:
    """Return what the notices of preemptions were worth; None if there were none.

    Times are after the notice. Columns that no row fills are left out.
    """
    found = [_notice_cells(notice) for notice in summary.get("notices", ())]
    if not found:
        return None
    heads = [head for head in found[0] if any(cells[head] for cells in found)]
    return Table(heads, [[cells[head] for head in heads] for cells in found])


def _notice_cells(notice: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells of a notice, each with the head of its column."""

    def after(key: str) -> str:
        return "" if notice[key] is None else format_duration(notice[key])

    sign, by = printable(notice["reaction"]), notice["saved_by"]
    sign = sign if len(sign) <= SIGN else f"{sign[:SIGN]}…"
    end = "killed" if notice["killed"] else f"exit {notice['exit_code']}"
    return {
        "notice of": "{id}: {kind} {target}".format(**notice),
        "came at": format_duration(notice["noticed"]),
        "signal": after("signal_after") if notice["announced"] else "",
        "reacted": after("reacted_after") or "none seen",
        "first sign": sign,
        "first save": (
            after("saved_after") or ("none" if notice.get("all_seen") else "none reported")
        )
        + (f" by {by}" if by not in ("", notice["target"]) else ""),
        "left of the grace": _left_in_words(notice),
        "ended": f"{after('ended_after')}, {end}",
        "signal was for": _reached_in_words(notice),
        "ran on": _outlived_in_words(notice),
    }


SAVES = 20
"""Saves that a table shows, besides those that were loaded or are not whole."""


def save_table(summary: Mapping[str, Any]) -> Table | None:
    """Return the saves that were seen, and who has loaded which; None if there were none."""
    saves = summary.get("saves", ())
    shown = [
        save
        for place, save in enumerate(saves)
        if save["loaded"] or not save["whole"] or save["broken"] or place >= len(saves) - SAVES
    ]
    heads = ("save", "step", "saved at", "took", "size", "whole", "loaded by")
    return Table(heads, [_save_cells(save) for save in shown], numbers={"step"}) if shown else None


def _save_cells(save: Mapping[str, Any]) -> Sequence[str]:
    path = f"{save['path']} of {save['task']}" if save["task"] else save["path"]
    whole = "yes" if save["whole"] else "unknown" if save["whole"] is None else "no"
    whole += f", then {save['broken']}" if save["broken"] else ""
    loaded = [
        f"{'' if one['sure'] else 'perhaps '}{one['task']} at {format_duration(one['at'])}"
        for one in save["loaded"]
    ]
    return (
        printable(path),
        "" if save["step"] is None else f"{save['step']:,}",
        format_duration(save["saved"]),
        format_duration(save["seconds"]),
        format_size(save["bytes"]),
        f"{whole}: {save['why']}" if save["why"] else whole,
        ", ".join(loaded[:LOADS]) + (f" and {len(loaded) - LOADS} more" * (len(loaded) > LOADS)),
    )


LOADS = 4
"""Tasks that have loaded a save that a table names."""
SIGN = 40
"""Characters of the first line after a notice that a table shows."""


def _left_in_words(notice: Mapping[str, Any]) -> str:
    left, saving = notice["left"], notice["saving"]
    if left is not None:
        words = format_duration(abs(left))
        return f"{words} left" if left > 0 else f"{words} missing"
    if saving is not None:
        return f"cut off after {format_duration(saving)}"
    if notice["announced"] and notice["signal_after"] is None and notice["ended_after"] is not None:
        return BEFORE_SIGNAL  # which would have begun it
    return "" if notice["saved_after"] is None else "no limit"


def _reached_in_words(notice: Mapping[str, Any]) -> str:
    reached, others = notice["reached"], notice["not_reached"]
    if reached is None:
        return "unknown"
    count = len(reached) + len(others)
    return f"{len(reached)} of {count} process{'es' if count != 1 else ''}"


def _outlived_in_words(notice: Mapping[str, Any]) -> str:
    """Return which processes ran on after the signal's grace period, or the main one's end."""
    words = [
        f"{printable(one['name'])} for {format_duration(one['seconds'])}"
        + ("" if one["how"] == "ended" else ", killed")
        for one in (notice["outlived"] or ())[:3]
    ]
    if (more := len(notice["outlived"] or ()) - 3) > 0:
        words.append(f"{more} more")
    if notice["killed"] and (at_the_kill := notice["at_the_kill"]):
        words.append(f"{len(at_the_kill)} until SIGKILL")
    return "; ".join(words) or ("unknown" if notice["outlived"] is None else "nothing")
