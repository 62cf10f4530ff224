"""`report`, `runs`, `compare`: results of finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.cli.options import (
    Out,
    RunArgument,
    RunOption,
    chosen_run,
    complete_names,
    complete_runs,
    console,
    find_run,
    moment,
    note,
    print_json,
)
from emulator.errors import UsageError

if TYPE_CHECKING:
    from emulator.record.reader import Record


class _Verdict(StrEnum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


def report(
    run: RunArgument = None,
    option: RunOption = None,
    out: Out = Path("runs"),
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write only the page, and there."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Write the reports of a run again.

    These are report.html, report.md and junit.xml; the path of the page is printed. Every run
    writes them when it has finished. A run under way is shown as it is now.
    """
    from emulator.report.files import write, write_page

    record = find_run(chosen_run(run, option), out)
    page = (write(record) if html is None else write_page(record, html)).resolve()
    typer.echo(page)
    if open_:
        open_page(page)


def open_page(page: Path) -> None:
    """Show a page in the browser, or say that there is none."""
    import webbrowser

    if not webbrowser.open(page.as_uri()):
        note("no browser is to be found here; open the file by hand")


def runs(
    out: Out = Path("runs"),
    scenario: Annotated[
        str,
        typer.Option(
            "--scenario",
            metavar="GLOB",
            help="Only runs of scenarios that match.",
            autocompletion=complete_names,
        ),
    ] = "*",
    verdict: Annotated[
        _Verdict | None, typer.Option("--verdict", help="Only runs with this verdict.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only runs that began since then: 2h, 7d, 2026-11-23."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Only this many, the latest.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the names of runs.")] = False,
) -> None:
    """List runs with their results, the latest last. `emulate ps` lists those under way."""
    from emulator.analysis.figures import as_data
    from emulator.analysis.listing import chosen, listed
    from emulator.record.folder import runs_in
    from emulator.report.listings import print_listing

    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is no folder of runs: it is a file.", "--out names a folder.")
    rows = chosen(
        map(listed, runs_in(out)),
        scenario=scenario,
        verdict=None if verdict is None else verdict.value,
        since=None if since is None else moment(since, "--since"),
        limit=limit,
    )
    if json:
        print_json([as_data(row) for row in rows])
    elif quiet:
        for row in rows:
            typer.echo(row.run_id)
    elif rows:
        print_listing(rows, console())
    else:
        note(f"no such run in {out}")


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
    from emulator.report.terminal import print_comparison
    from emulator.session.variants import compare as compare_runs
    from emulator.session.variants import judge_all

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
