"""Finished runs on the terminal: one run, several of them, and one below a failed test."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.text import Text

from emulator.analysis import comparison
from emulator.analysis.figures import (
    FAULT_STAGES,
    FIGURES,
    fault_rates,
    fault_stages,
    in_summary,
)
from emulator.record.reader import Record
from emulator.report.data import HTML, causes, notes, notice_table, sources_of_steps
from emulator.report.event_text import event_lines
from emulator.report.tables import (
    FOLD,
    GAP,
    STYLES,
    Row,
    Table,
    fold,
    print_table,
    range_label,
    status_text,
)
from emulator.report.text import printable
from emulator.results import Result
from emulator.validation.units import format_rate

IN_A_LINE = (
    "duration",
    "all_running",
    "first_step",
    "steps_per_second",
    "examples_per_second",
    "goodput",
    "accuracy",
)
"""Figures in the line below the tables; the tables and verdicts contain the others."""
COST_OF_FAULTS = ("lost_steps", "worst_recovery")
"""Figures in the last line."""
NO_STEP = "no step reported"
"""What the time of a job is called that reported none."""
_NUMBERS = 88
"""Least characters for the numbers; a name with less room than the rest is printed above."""
_EFFICIENCY = "efficiency"
"""The column of runs that are compared with a baseline."""
_BY_STEPS = (
    "* by steps, which holds where a step is the same work with any number of workers; "
    "report examples otherwise"
)
_Column = tuple[str, Sequence[Text | str]]
"""A head, and a cell for each run."""
WIDTH = 110
"""Characters of a line below a failed test."""


def print_result(result: Result, console: Console, *, kept: bool = False) -> None:
    """Print the tables at the end of a run."""
    print_summary(result.summary, console)
    console.out(f"Record: {result.folder}", highlight=False)
    if (page := result.folder / HTML).is_file():
        console.out(f"Report: {page}", highlight=False)
    if kept:
        console.out(f"Kept; `emulate down {result.folder}` removes it.", highlight=False)


def print_summary(summary: Mapping[str, Any], console: Console) -> None:
    """Print a summary: last output, tasks, verdicts, faults, figures, advice."""
    for task, lines in list(summary["last_words"].items())[:1]:
        console.print(f"\nThe last output of [bold]{task}[/bold]:")
        for line in lines:
            console.out(f"  {printable(line)}", highlight=False)
    heads = ["task", "state", "exit", "restarts", "last step", "steps/s"]
    print_table(console, Table(heads, [*_task_rows(summary)]))
    print_verdicts(summary, console)
    if summary["faults"]:
        stages = (head for head, _ in FAULT_STAGES.values())
        heads = ["fault", "status", *stages, "exit", "steps/s"]
        rows = [*map(_fault_row, summary["faults"])]
        print_table(console, Table(heads, rows, whole={"steps/s"}))
    if worth := notice_table(summary):
        print_table(console, worth)
    print_figures(summary, console)
    for name, helper in summary["helpers"].items():
        if helper["state"] == "failed":
            console.print(Text.assemble(("note:", "yellow"), f" {_failed_helper(name, helper)}"))
    print_notes(summary, console)
    text = f"{summary['scenario']}: {summary['outcome']}, verdict {summary['verdict']}"
    text += ", with a warning" if summary["warnings"] else ""
    console.print(Text(text, f"bold {STYLES[summary['verdict']]}"))
    print_why(summary, console)


def print_why(summary: Mapping[str, Any], console: Console) -> None:
    """Print what interrupted the training, what followed, and what that cost."""
    for line in summary["why"]:
        console.print(Text(printable(line)), soft_wrap=not console.is_terminal)
    if cost := list(_phrases(summary, COST_OF_FAULTS)):
        console.out(", ".join(cost), highlight=False)


def _failed_helper(name: str, helper: Mapping[str, Any]) -> str:
    """Return why a helper failed, with the last line that it printed."""
    how = "" if helper["exit_code"] is None else f" with exit code {helper['exit_code']}"
    last = helper["reason"] or next(reversed(helper["last_words"]), "it printed nothing")
    return printable(f"the helper {name} failed{how}, which does not decide the job: {last}")


def _task_rows(summary: Mapping[str, Any]) -> Iterator[Row]:
    tasks, rates = summary["tasks"], summary["throughput"]["tasks"]
    for names in fold(tasks, lambda name: tuple(tasks[name].values()), FOLD):
        task = tasks[names[0]]
        state = task["state"] + (" (oom)" if task["oom_killed"] else "")
        known = [rate for n in names if (rate := rates[n]["steps_per_second"]) is not None]
        # The smallest and the largest.
        ends = dict.fromkeys(format_rate(f(known)) for f in (min, max) if known)
        numbers = (task[key] for key in ("exit_code", "restarts", "last_step"))
        yield range_label(names), state, *numbers, " to ".join(ends)


def _fault_row(fault: Mapping[str, Any]) -> Row:
    name = f"{fault['id']}: {fault['kind']} {fault['target']}"
    stages = fault_stages(fault).values()
    return name, fault["status"], *stages, fault["exit_code"], fault_rates(fault)


def print_verdicts(summary: Mapping[str, Any], console: Console) -> None:
    """Print the verdict of each expectation."""
    rows = [
        (v["expectation"], status_text(v["status"]), v["expected"], v["actual"])
        for v in summary["verdicts"]
    ]
    print_table(console, Table(("expectation", "verdict", "expected", "actual"), rows))


def print_figures(summary: Mapping[str, Any], console: Console) -> None:
    """Print the known figures, and the causes with at least 1 % of the time."""
    console.out("  ".join(_phrases(summary, IN_A_LINE)), highlight=False)
    known = sorted(causes(summary["time"]), key=lambda c: (c.name != "productive", -c.seconds))
    # Without a step nothing is known of the time: `other` would hide that.
    called = {"other": NO_STEP} if summary["steps"]["final"] is None else {}
    shares = [
        f"{called.get(cause.name, cause.name)} {cause.share:.0%}"
        for cause in known
        if cause.share >= 0.01
    ]
    if shares:
        console.out(f"time: {', '.join(shares)}", highlight=False)
    if sources := sources_of_steps(summary):
        console.out(sources, highlight=False)
    if warm := summary["warm"]:
        tasks = "1 task" if len(warm) == 1 else f"{len(warm)} tasks"
        console.out(f"{tasks} started warm: these times have no imports", highlight=False)


def print_notes(summary: Mapping[str, Any], console: Console) -> None:
    """Print advice on known errors, and warnings; these are never wrapped."""
    for kind, text in notes(summary):
        console.print(Text(f"{kind}: {printable(text)}", "bold"), soft_wrap=True)


def _phrases(summary: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    """Yield the known ones of some figures, and after the rate how long a step took."""
    for key in keys:
        if (value := in_summary(summary, key)) is not None:
            yield FIGURES[key].in_words(value)
        if key == "examples_per_second" and (times := summary["throughput"]["step_time"]):
            p50, p99 = (_millis(times[share]) for share in ("p50", "p99"))
            yield f"a step took {p50} (p50), {p99} (p99)"


def _millis(seconds: float) -> str:
    return f"{seconds * 1000:.{0 if seconds >= 0.01 else 2}f} ms"


# --- Several runs ---------------------------------------------------------------------------------


def print_comparison(rows: Sequence[comparison.Row], console: Console) -> None:
    """Print what was varied, and a row for each run with its ratios to the first."""
    for key in rows[0].differs:
        values = " | ".join(row.words(key) for row in rows)
        console.out(f"{key}: {values}", highlight=False)
    names = list(comparison.called(rows))
    scaled = any(row.efficiency is not None for row in rows)
    room = console.width - _NUMBERS - (len(_EFFICIENCY) + 1 if scaled else 0)
    narrow = max(len(word) for name in names for word in name.split()) > room
    if narrow:
        for number, name in enumerate(names, start=1):
            console.out(f"{number}: {name}", highlight=False)
        names = [str(number) for number in range(1, len(rows) + 1)]
    gap = 1 if narrow else 2
    outcomes: list[_Column] = [
        ("outcome", [row.outcome for row in rows]),
        ("verdict", [status_text(row.verdict) for row in rows]),
    ]
    scaling = [(_EFFICIENCY, [_efficiency(row) for row in rows])] if scaled else []
    _print_runs(
        console, names, [*outcomes, *_compared(rows, comparison.COMPARED), *scaling], gap, room
    )
    if columns := comparison.reported(rows):
        _print_runs(console, names, columns, gap)
    if any(row.efficiency_by == "steps" for row in rows):
        console.out(_BY_STEPS, highlight=False)


def _compared(rows: Sequence[comparison.Row], keys: Sequence[str]) -> list[_Column]:
    return [
        (FIGURES[key].column, [comparison.cell(row, rows[0], key) for row in rows]) for key in keys
    ]


def _print_runs(
    console: Console,
    names: Sequence[str],
    columns: Sequence[_Column],
    gap: int = GAP,
    room: int = sys.maxsize,
) -> None:
    """Print a row for each run; its name is wrapped where it is longer than `room`."""
    heads = ["run", *(head for head, _ in columns)]
    rows = [*zip(names, *(cells for _, cells in columns), strict=True)]
    print_table(console, Table(heads, rows, most={"run": room}, gap=gap))


def _efficiency(row: comparison.Row) -> str:
    if row.efficiency is None:
        return ""
    return f"{row.efficiency:.2f}" + ("*" if row.efficiency_by == "steps" else "")


# --- Below a failed test --------------------------------------------------------------------------


def story(result: Result) -> str:
    """Return a summary of a run as plain text, from its folder."""
    text = StringIO()
    console = Console(file=text, width=WIDTH, color_system=None, force_terminal=False)
    print_why(result.summary, console)
    print_verdicts(result.summary, console)
    print_figures(result.summary, console)
    tables = "\n".join(line.rstrip() for line in text.getvalue().splitlines())
    lines = [tables.strip("\n"), "", "what happened:", *event_lines(Record(result.folder).history)]
    for task, words in list(result.last_words.items())[:1]:
        lines += ["", f"the last output of {task}:", *(f"  {printable(line)}" for line in words)]
    if said := [f"{kind}: {printable(text)}" for kind, text in notes(result.summary)]:
        lines += ["", *said]
    lines += ["", f"run     {result.folder}"]
    if (page := result.folder / HTML).is_file():
        lines.append(f"report  {page.as_uri()}")
    return "\n".join(lines)
