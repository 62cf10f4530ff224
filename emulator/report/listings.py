"""On the terminal: runs, one a line, the state of one run, and what `emulate doctor` finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from emulator.analysis.figures import FIGURES
from emulator.analysis.listing import LISTED, OTHER_FORMAT, UNREADABLE, Listed, listed
from emulator.engines.base import Finding
from emulator.record.folder import RunFolder
from emulator.report.tables import Table, print_table, status_text


def print_listing(rows: Sequence[Listed], console: Console) -> None:
    """Print runs, in the order given; times are the machine's own."""
    figures = [FIGURES[key].column for key in LISTED]
    heads = ["run", "scenario", "when", "outcome", "verdict", *figures]
    cells = [
        [
            row.run_id,
            _scenario(row),
            None if row.began is None else f"{datetime.fromtimestamp(row.began):%m-%d %H:%M}",
            row.outcome,
            status_text(row.verdict) if row.verdict else None,
            *(FIGURES[key].text(row.figures.get(key), "") for key in LISTED),
        ]
        for row in rows
    ]
    print_table(console, Table(heads, cells, whole={*heads} - {"scenario"}, ids={"run"}))


def _scenario(row: Listed) -> str:
    """Return the scenario with its variant; nothing where the run is called after it."""
    text = f"{row.scenario} {row.variant}".strip()
    return "" if row.run_id.startswith(f"{text}-") else text


def print_runs(records: Sequence[RunFolder], left: Mapping[str, int], console: Console) -> None:
    """Print runs, one a line; `left` is the number of resources of each on an engine."""
    rows = []
    for record in records:
        row = listed(record)
        judged = row.outcome not in ("running", "crashed", OTHER_FORMAT, UNREADABLE)
        scenario, verdict = f"{row.scenario} {row.variant}".strip(), row.verdict if judged else None
        resources = left.get(record.run_id) or None
        rows.append((record.run_id, scenario, row.engine, row.outcome, verdict, resources))
    columns = ("run", "scenario", "engine", "state", "verdict", "on the engine")
    print_table(console, Table(columns, rows, ids={"run"}))


def print_scenarios(found: Sequence[Mapping[str, str]], console: Console) -> None:
    """Print scenarios that come with the emulator."""
    keys = ("theme", "name", "description")
    rows = [[one[key] for key in keys] for one in found]
    print_table(console, Table(keys, rows, whole={"name"}))


def print_status(status: Mapping[str, Any], console: Console) -> None:
    """Print the current state of a run's tasks and faults."""
    head = f"{status['run_id']}: {status['state']}, on the {status['engine']} engine"
    console.print(head, highlight=False)
    keys = ("name", "state", "step", "restarts", "exit_code")
    tasks = [[task[key] for key in keys] for task in status["tasks"]]
    print_table(console, Table(("task", "state", "step", "restarts", "exit"), tasks))
    if status["faults"]:
        said = ("kind", "target", "stage")
        faults = [[fault[key] for key in ("id", *said)] for fault in status["faults"]]
        print_table(console, Table(("fault", *said), faults))
    if status["helpers"]:
        helpers = [(name, h["state"], h["exit_code"]) for name, h in status["helpers"].items()]
        print_table(console, Table(("helper", "state", "exit"), helpers))
    if status.get("ports"):
        ports = [[port[key] for key in ("name", "port", "address")] for port in status["ports"]]
        print_table(console, Table(("task", "port", "is at"), ports))


def print_conditions(
    conditions: Mapping[str, Sequence[Mapping[str, Any]]], console: Console
) -> None:
    """Print the conditions of jobs of a training operator, by run, in the order they were set."""
    columns = ("run", "at", "condition", "status", "reason", "message")
    rows = [
        (run, f"{one['t']:.1f} s", *(one[key] for key in ("type", "status", "reason", "message")))
        for run, listed in conditions.items()
        for one in listed
    ]
    if rows:
        print_table(console, Table(columns, rows))


RANKS = ("ok", "optional", "warning", "missing", "fatal")
"""What findings are, the worst last."""


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print the findings of `emulate doctor`; what is not ok comes last, where it is seen."""
    if rows := [(f.what, status_text(f.status), f.found) for f in findings if f.status == "ok"]:
        print_table(console, Table(("what", "", "found"), rows))
    for f in sorted(findings, key=lambda one: RANKS.index(one.status)):
        if f.status != "ok":
            line = Text.assemble(status_text(f.status), f" {f.what}: {f.found}")
            for text in (line, Text(f"  {f.advice}")):
                console.print(text, soft_wrap=not console.is_terminal)
    for finding in findings:
        if finding.below:
            console.print(finding.below, markup=False, highlight=False, soft_wrap=True, end="")
