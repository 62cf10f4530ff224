"""Terminal output: the merged task output of a running job, tables for a finished one."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from emulator.analysis.figures import FAULT_STAGES, FIGURES, fault_rates, fault_stages, in_summary
from emulator.analysis.listing import OTHER_FORMAT, listed
from emulator.engines.base import Finding
from emulator.planning.plan import Plan, Task
from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.report import HTML
from emulator.report.event_text import describe
from emulator.report.panel import in_words
from emulator.report.text import printable, shown_line
from emulator.results import Result, RunCallbacks
from emulator.validation.units import format_duration, format_number, format_size

__all__ = [
    "STATUS_COLOURS",
    "LivePrinter",
    "print_figures",
    "print_plan",
    "print_result",
    "print_runs",
    "print_verdicts",
]

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

_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
STATUS_COLOURS = {"ok": "green", "failed": "red", "unknown": "yellow"}


def _no_colours() -> bool:
    """Return whether colours are off by the environment (no-color.org) or unsupported."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")


class LivePrinter:
    """Prints output and events of a run, one line each, with task names in colour."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr
        self._tty = self._stream.isatty()
        self._coloured = self._tty and not _no_colours()
        self._charset = getattr(self._stream, "encoding", None) or "utf-8"
        self._width = 8
        self._colour: dict[str, int] = {}
        self._unread = False
        """Whether the reader of the stream is gone; the run continues without it."""

    def callbacks(self) -> RunCallbacks:
        """Return the callbacks for `up`."""
        return RunCallbacks(self._say, self._planned, self._entry, self._line)

    def close(self) -> None:
        """Restore the terminal; nothing to do after plain lines."""

    def __enter__(self) -> LivePrinter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def follow(self, plan: Plan, lines: Iterable[tuple[str, str]]) -> None:
        """Print the task output of a run of another process."""
        self._lay_out(plan)
        for task, text in lines:
            self._line(task, text)
            if self._unread:
                return

    def _planned(self, plan: Plan, folder: Path) -> None:
        self._lay_out(plan)
        roles = ", ".join(_counted(r, spec.replicas) for r, spec in plan.scenario.cluster.items())
        self._own(f"{plan.run_id}: {roles} on the {plan.engine} engine; record in {folder}")
        for warning in plan.warnings:
            self._own(f"note: {warning}")

    def _lay_out(self, plan: Plan) -> None:
        names = [task.name for task in plan.tasks]
        self._width = max(len(name) for name in [*names, "emulate"])
        self._colour = {n: _COLOURS[i % len(_COLOURS)] for i, n in enumerate(names)}

    def _say(self, text: str) -> None:
        """Print build progress: everything on a terminal, else only the steps."""
        if self._tty or not text.startswith("  "):
            self._own(text)

    def _line(self, task: str, text: str) -> None:
        self._put(task, self._colour.get(task, 37), text)

    def _entry(self, entry: Entry) -> None:
        if text := describe(entry):
            self._own(f"{format_duration(entry.t)}: {text}")

    def _own(self, text: str) -> None:
        self._put("emulate", 1, text)

    def _put(self, name: str, colour: int, text: str) -> None:
        if self._unread:
            return
        try:
            print(self._laid_out(name, colour, text), file=self._stream, flush=True)
        except BrokenPipeError:
            self._unread = True

    def _laid_out(self, name: str, colour: int, text: str) -> str:
        head = f"{name:<{self._width}} |"
        head = f"\x1b[{colour}m{head}\x1b[0m" if self._coloured else head
        # Task output must never fail to encode.
        safe = shown_line(text).encode(self._charset, "replace").decode(self._charset)
        return f"{head} {safe}"


def _counted(role: str, replicas: int) -> str:
    """Return `1 chief`, `2 workers`, `8 ps`."""
    return f"{replicas} {role}" + ("s" if replicas > 1 and not role.endswith("s") else "")


def print_result(result: Result, console: Console, *, kept: bool = False) -> None:
    """Print the tables at the end of a run."""
    if result.end.last_words and result.end.outcome == "failed":
        console.print(f"\nThe last output of [bold]{result.end.task}[/bold]:")
        for line in result.end.last_words:
            text = f"  {printable(line)}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    print_summary(result.summary, console)
    console.print(f"Record: {result.folder}", markup=False, highlight=False, soft_wrap=True)
    if (page := result.folder / HTML).is_file():
        console.print(f"Report: {page}", markup=False, highlight=False, soft_wrap=True)
    if kept:
        console.print(f"Kept; `emulate down {result.folder}` removes it.", markup=False)


def print_summary(summary: Mapping[str, Any], console: Console) -> None:
    """Print a summary: tasks, verdicts, faults, figures."""
    tasks = _table(["task", "state", "exit", "restarts", "last step", "steps/s"])
    rates = summary["throughput"]["tasks"]
    for name, task, alike in _shortened(summary["tasks"]):
        state = task["state"] + (" (oom)" if task["oom_killed"] else "")
        cells = [task["exit_code"], task["restarts"], task["last_step"]]
        shown = ("" if cell is None else str(cell) for cell in cells)
        tasks.add_row(
            name, state, *shown, _from_to(rates[one]["steps_per_second"] for one in alike)
        )
    console.print(tasks)
    print_verdicts(summary, console)
    if summary["faults"]:
        console.print(_fault_table(summary["faults"]))
    print_figures(summary, console)
    colour = STATUS_COLOURS[summary["verdict"]]
    console.print(
        f"[bold {colour}]{summary['scenario']}: {summary['outcome']}, "
        f"verdict {summary['verdict']}[/bold {colour}]"
    )


def print_verdicts(summary: Mapping[str, Any], console: Console) -> None:
    """Print the verdict of each expectation."""
    verdicts = _table(["expectation", "verdict", "expected", "actual"])
    for verdict in summary["verdicts"]:
        colour = STATUS_COLOURS[verdict["status"]]
        status = f"[{colour}]{verdict['status']}[/{colour}]"
        values = (escape(printable(verdict[key])) for key in ("expected", "actual"))
        verdicts.add_row(verdict["expectation"], status, *values)
    console.print(verdicts)


def print_figures(summary: Mapping[str, Any], console: Console) -> None:
    """Print the known figures, and the shares of time by cause."""
    console.print("  ".join(_figures(summary)), highlight=False, soft_wrap=True)
    if shares := ", ".join(_shares(summary["time"])):
        console.print(f"time: {shares}", highlight=False, soft_wrap=True)


def _fault_table(faults: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of faults with the seconds to each stage."""
    heads = (head for head, _ in FAULT_STAGES.values())
    table = _table(["fault", "status", *heads, "exit", "steps/s"])
    for fault in faults:
        code = "" if fault["exit_code"] is None else str(fault["exit_code"])
        name = escape(f"{fault['id']}: {fault['kind']} {fault['target']}")
        stages = fault_stages(fault).values()
        table.add_row(name, fault["status"], *stages, code, fault_rates(fault))
    return table


def _figures(summary: Mapping[str, Any]) -> Iterable[str]:
    """Yield the known figures."""
    for key in IN_A_LINE:
        if (value := in_summary(summary, key)) is not None:
            yield FIGURES[key].in_words(value)
        if key == "examples_per_second" and (times := summary["throughput"]["step_time"]):
            p50, p99 = (_millis(times[share]) for share in ("p50", "p99"))
            yield f"a step took {p50} (p50), {p99} (p99)"


def _millis(seconds: float) -> str:
    return f"{seconds * 1000:.{0 if seconds >= 0.01 else 2}f} ms"


def _from_to(rates: Iterable[float | None]) -> str:
    """Return the smallest and the largest of the known rates."""
    shown = [format_number(rate, 1) for rate in sorted(rate for rate in rates if rate is not None)]
    return " to ".join(dict.fromkeys([*shown[:1], *shown[-1:]]))


def _shares(time: Mapping[str, float]) -> Iterable[str]:
    """Yield the causes with at least 1 % of the time, productive time first."""
    whole = sum(time.values())
    for cause in sorted(time, key=lambda cause: (cause != "productive", -time[cause])):
        if time[cause] > 0 and time[cause] >= whole / 100:
            yield f"{cause} {time[cause] / whole:.0%}"


def _shortened(
    tasks: Mapping[str, Any], limit: int = 12
) -> Iterable[tuple[str, Any, Sequence[str]]]:
    """Yield the tasks; if there are many, one line for equal ones, with their names."""
    if len(tasks) <= limit:
        yield from ((name, task, [name]) for name, task in tasks.items())
        return
    alike: dict[tuple[Any, ...], list[str]] = {}
    for name, task in tasks.items():
        alike.setdefault((name.rpartition("-")[0], *task.values()), []).append(name)
    for names in alike.values():
        label = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]} ({len(names)})"
        yield label, tasks[names[0]], names


def print_plan(plan: Plan, requests: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print a plan: tasks, rules, warnings, and the environment of each role's first task."""
    scenario = plan.scenario
    console.print(f"[bold]{scenario.name}[/bold] on the {plan.engine} engine", highlight=False)
    if scenario.description:
        console.print(scenario.description, highlight=False, markup=False)
    table = _table(["task", "address", "limits", "runs"])
    kinds: dict[tuple[str, ...], str] = {}
    for task in plan.tasks:
        what = ((task.image,) if task.image else ()) + task.command
        kinds.setdefault(what, str(len(kinds) + 1))
        table.add_row(task.name, f"{task.host}:{task.port}", _limits(task), kinds[what])
    console.print(table)
    console.print(f"{_about_limits(plan)}\n", highlight=False, soft_wrap=True)
    for what, number in kinds.items():
        text = f"{number}: {shlex.join(what)}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    console.print()
    restart = scenario.restart
    rule = str(restart.policy)
    if rule != "never":
        backoff = format_duration(restart.backoff)
        rule += f" ({restart.scope}), at most {restart.limit}, backoff from {backoff}"
    timeout = "none" if scenario.timeout is None else format_duration(scenario.timeout)
    console.print(
        f"restart: {rule}\nsuccess: {scenario.success}\ntimeout: {timeout}", highlight=False
    )
    for fault in plan.faults:
        words = f"fault {fault.id}: {fault.kind} {fault.target} at {in_words(fault.trigger)}"
        console.print(words, markup=False, highlight=False)
    for task in plan.tasks:
        if task.index == 0:
            console.print(f"\nenvironment of [bold]{task.name}[/bold]:", highlight=False)
            for key, value in task.env.items():
                console.print(f"  {key}={value}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"\n{len(requests)} engine requests; --json shows each as it is sent.")
    for warning in plan.warnings:
        console.print(f"[yellow]note:[/yellow] {escape(warning)}", highlight=False)


def _limits(task: Task) -> str:
    """Return the limits of a task; a star marks a default."""
    parts = [f"{task.cpus:g} cpu"] if task.cpus is not None else []
    if task.memory_limit is not None:
        parts += [format_size(task.memory_limit) + "*" * (task.memory is None)]
    if task.process_limit is not None:
        parts += [f"{task.process_limit} processes" + "*" * (task.processes is None)]
    parts += [f"{len(task.gpus)} gpu"] if task.gpus else []
    return ", ".join(parts) or "none"


def _about_limits(plan: Plan) -> str:
    """Return a note on the default limits."""
    if all(task.memory_limit is None and task.process_limit is None for task in plan.tasks):
        return f"limits: the {plan.engine} engine limits neither memory nor processes"
    return (
        "limits: * marks a default, which reserves nothing; `memory` and `processes` of the role "
        "change it"
    )


def print_runs(records: Sequence[Record], left: Mapping[str, int], console: Console) -> None:
    """Print runs, one a line; `left` is the number of resources of each on an engine."""
    table = _table(["run", "scenario", "engine", "state", "verdict", "on the engine"])
    for record in records:
        row, things = listed(record), left.get(record.run_id, 0)
        judged = row.outcome not in ("running", "crashed", OTHER_FORMAT)
        table.add_row(
            escape(record.run_id),
            escape(f"{row.scenario} {row.variant}".strip()),
            escape(row.engine),
            row.outcome,
            str(row.verdict) if judged else "",
            str(things) if things else "",
        )
    console.print(table)


def print_status(status: Mapping[str, Any], console: Console) -> None:
    """Print the current state of a run's tasks and faults."""
    head = f"{status['run_id']}: {status['state']}, on the {status['engine']} engine"
    console.print(head, highlight=False)
    tasks = _table(["task", "state", "step", "restarts", "exit"])
    for task in status["tasks"]:
        cells = [task[key] for key in ("step", "restarts", "exit_code")]
        shown = ("" if cell is None else str(cell) for cell in cells)
        tasks.add_row(task["name"], task["state"], *shown)
    console.print(tasks)
    if status["faults"]:
        faults = _table(["fault", "kind", "target", "stage"])
        for fault in status["faults"]:
            faults.add_row(*(escape(fault[key]) for key in ("id", "kind", "target", "stage")))
        console.print(faults)


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print the findings of `emulate doctor`."""
    colours = {"ok": "green", "missing": "yellow", "warning": "yellow", "fatal": "red"}
    table = _table(["what", "", "found", "what to do"])
    for finding in findings:
        status = f"[{colours[finding.status]}]{finding.status}[/]"
        table.add_row(finding.what, status, escape(finding.found), escape(finding.advice))
    console.print(table)


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    return table
