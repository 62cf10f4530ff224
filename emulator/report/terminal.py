"""Terminal output: the merged task output of a running job, tables for a finished one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from rich.console import Console
from rich.text import Text

from emulator.analysis.figures import (
    COSTS,
    FAULT_STAGES,
    FIGURES,
    fault_rates,
    fault_stages,
    in_summary,
)
from emulator.analysis.last_words import is_boilerplate
from emulator.engines.base import Finding
from emulator.planning.plan import Plan
from emulator.record.events import Entry
from emulator.report import HTML
from emulator.report.data import causes, notes, sources_of_steps
from emulator.report.event_text import describe
from emulator.report.progress import Progress
from emulator.report.tables import (
    FOLD,
    STYLES,
    Row,
    Table,
    fold,
    print_table,
    range_label,
    status_text,
)
from emulator.report.text import printable, shown_line
from emulator.results import Result, RunCallbacks
from emulator.validation.units import format_duration, format_rate

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
NO_STEP = "no step reported"
"""What the time of a job is called that reported none."""

_TASK_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)


_BUILDER = ("--->", "Removing intermediate container")
"""What Docker's builder says of its own work between the steps."""


class LivePrinter:
    """Prints output and events of a run, one line each, with task names in colour.

    What libraries print at every start is left out, unless it is `verbose`.
    """

    def __init__(self, stream: IO[str] | None = None, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._has_left_out = self._has_plan = False
        self._progress = Progress(stream)
        self._stream = stream or sys.stderr
        self._tty = self._stream.isatty()
        # no-color.org
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
        self._coloured = self._tty and not plain
        self._charset = getattr(self._stream, "encoding", None) or "utf-8"
        self._width = 8
        self._colour: dict[str, int] = {}
        self._closed = False
        """Whether the reader has closed the stream; the run continues without it."""

    def callbacks(self) -> RunCallbacks:
        """Return the callbacks for `up`."""
        return RunCallbacks(self._say, self._planned, self._entry, self._print_lines)

    def close(self) -> None:
        """Restore the terminal."""
        self._progress.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def follow(self, plan: Plan, lines: Iterable[tuple[str, str]]) -> None:
        """Print the task output of a run of another process."""
        self._lay_out(plan)
        for line in lines:
            self._print_lines([line])
            if self._closed:
                return

    def _planned(self, plan: Plan, folder: Path) -> None:
        self._progress.end()
        self._lay_out(plan)
        roles = ", ".join(
            _counted(role, spec.replicas) + (f" before {spec.before}" if spec.before else "")
            for role, spec in plan.scenario.cluster.items()
        )
        if plan.helpers:
            roles += f" (helpers: {', '.join(helper.name for helper in plan.helpers)})"
        self._print(f"{plan.run_id}: {roles} on the {plan.engine} engine; record in {folder}")
        for warning in plan.warnings:
            self._print(f"note: {warning}")

    def _lay_out(self, plan: Plan) -> None:
        self._has_plan = True
        names = plan.printing
        self._width = max(map(len, [*names, "emulate"]))
        self._colour = {n: _TASK_COLOURS[i % len(_TASK_COLOURS)] for i, n in enumerate(names)}

    def _say(self, text: str) -> None:
        """Print the steps of a build or a pull; on a terminal, show the latest line of each.

        With `verbose` all lines are printed.
        """
        if self._verbose or not text.startswith("  "):
            self._progress.end()
            self._print(text)
            if not self._verbose and not self._has_plan:
                self._progress.begin()
        elif not text.strip().startswith(_BUILDER):
            self._progress.latest = text.strip()

    def _print_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        if not self._verbose:
            shown = [line for line in lines if not is_boilerplate(line[1])]
            if len(shown) < len(lines) and not self._has_left_out:
                self._has_left_out = True
                self._print("what TensorFlow prints at every start is in logs/; -v shows it here")
            lines = shown
        self._put([self._formatted(task, self._colour.get(task, 37), text) for task, text in lines])

    def _entry(self, entry: Entry) -> None:
        if text := describe(entry):
            self._print(f"{format_duration(entry.t)}: {text}")

    def _print(self, text: str) -> None:
        """Print a line of the emulator itself."""
        self._put([self._formatted("emulate", 1, text)])

    def _put(self, lines: Sequence[str]) -> None:
        if self._closed or not lines:
            return
        try:
            self._stream.write("\n".join([*lines, ""]))
            self._stream.flush()
        except BrokenPipeError:
            self._closed = True

    def _formatted(self, name: str, colour: int, text: str) -> str:
        head = f"{name:<{self._width}} |"
        head = f"\x1b[{colour}m{head}\x1b[0m" if self._coloured else head
        # Task output must never fail to encode.
        safe = shown_line(text).encode(self._charset, "replace").decode(self._charset)
        return f"{head} {safe}"


class QuietPrinter(LivePrinter):
    """Prints only what concerns the emulator itself, such as an image that is built."""

    def callbacks(self) -> RunCallbacks:
        """Return the callbacks for `up`."""
        return RunCallbacks(self._say, planned=lambda plan, folder: self.close())


def _counted(role: str, replicas: int) -> str:
    """Return `1 chief`, `2 workers`, `8 ps`."""
    return f"{replicas} {role}" + ("s" if replicas > 1 and not role.endswith("s") else "")


# --- Tables -------------------------------------------------------------------------------------


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
        print_table(console, Table(heads, [*map(_fault_row, summary["faults"])]))
    print_figures(summary, console)
    for name, helper in summary["helpers"].items():
        if helper["state"] == "failed":
            console.print(Text.assemble(("note:", "yellow"), f" {_failed_helper(name, helper)}"))
    print_notes(summary, console)
    text = f"{summary['scenario']}: {summary['outcome']}, verdict {summary['verdict']}"
    text += ", with a warning" if summary["warnings"] else ""
    console.print(Text(text, f"bold {STYLES[summary['verdict']]}"))


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
    console.out("  ".join(_figures(summary)), highlight=False)
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
    if costs := list(_costs(summary)):
        console.out(", ".join(costs), highlight=False)
    if warm := summary["warm"]:
        tasks = "1 task" if len(warm) == 1 else f"{len(warm)} tasks"
        console.out(f"{tasks} started warm: these times have no imports", highlight=False)


def print_notes(summary: Mapping[str, Any], console: Console) -> None:
    """Print advice on known errors, and warnings; these are never wrapped."""
    for kind, text in notes(summary):
        console.print(Text(f"{kind}: {printable(text)}", "bold"), soft_wrap=True)


def _figures(summary: Mapping[str, Any]) -> Iterator[str]:
    for key in IN_A_LINE:
        if (value := in_summary(summary, key)) is not None:
            yield FIGURES[key].in_words(value)
        if key == "examples_per_second" and (times := summary["throughput"]["step_time"]):
            p50, p99 = (_millis(times[share]) for share in ("p50", "p99"))
            yield f"a step took {p50} (p50), {p99} (p99)"


def _costs(summary: Mapping[str, Any]) -> Iterator[str]:
    for key in COSTS:
        if (value := in_summary(summary, key)) is not None:
            yield FIGURES[key].in_words(value, summary["cost"]["currency"])


def _millis(seconds: float) -> str:
    return f"{seconds * 1000:.{0 if seconds >= 0.01 else 2}f} ms"


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print the findings of `emulate doctor`."""
    rows = [(f.what, status_text(f.status), f.found, f.advice) for f in findings]
    print_table(console, Table(("what", "", "found", "what to do"), rows))
    for finding in findings:
        if finding.below:
            console.print(finding.below, markup=False, highlight=False, soft_wrap=True, end="")
