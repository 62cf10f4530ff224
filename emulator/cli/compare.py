"""`compare`: what if something were otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.cli.options import Out, complete_runs, console, find_run, note, print_json
from emulator.errors import UsageError

if TYPE_CHECKING:
    from emulator.record.reader import Record


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN...",
            help="Two or more: run ids, their beginnings, folders, or `last`.",
            autocompletion=complete_runs,
        ),
    ],
    out: Out = Path("runs"),
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also as a page, with their curves."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Adds each run's scaling efficiency against this one.",
            autocompletion=complete_runs,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The rows as data.")] = False,
) -> None:
    """Compare runs side by side; ratios are to the first one.

    The scaling efficiency is how much faster than the baseline a run was, over how many more
    workers it had: 1 is perfect.

    Exit codes: 0, whatever the verdicts are; 2 where a run is not known.
    """
    from emulator.analysis.figures import as_data
    from emulator.report.run_tables import print_comparison
    from emulator.session.sweep import compare as compare_runs
    from emulator.session.sweep import judge_all

    if len(runs) + (baseline is not None) < 2:
        raise UsageError("A comparison takes two runs or more.", "`emulate runs` lists them.")
    reference = None if baseline is None else find_run(baseline, out)
    records = [find_run(name, out) for name in runs]
    _refuse_twice(runs, records)
    judged = judge_all(records)
    rows = compare_runs(judged, reference)
    if html is not None:
        from emulator.report.files import write_comparison

        note(f"wrote {write_comparison(rows, judged, html)}")
    if json:
        print_json([as_data(row) for row in rows])
    else:
        print_comparison(rows, console())


def _refuse_twice(names: Sequence[str], records: Sequence[Record]) -> None:
    """Raise UsageError if two names mean the same run: each ratio would be 1."""
    seen: dict[Path, str] = {}
    for name, record in zip(names, records, strict=True):
        if (path := record.path.resolve()) in seen:
            raise UsageError(
                f"{seen[path]} and {name} are the same run, {record.run_id}.",
                "`emulate runs` lists the others.",
            )
        seen[path] = name
