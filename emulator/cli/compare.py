"""`compare`, and the runs of `up --vary`: what if something were otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.cli.options import Out, complete_runs, console, find_run, note, print_json
from emulator.errors import UsageError

if TYPE_CHECKING:
    from emulator.planning.requested import RequestedScenario, RunOptions
    from emulator.record.reader import Record
    from emulator.report.live import LivePrinter


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


def up_variants(
    asked: RequestedScenario,
    varied: Sequence[str],
    engine: str,
    options: RunOptions,
    shown: Callable[[], LivePrinter],
    *,
    json: bool,
) -> int:
    """Run every variant, print each result and the comparison; return the exit code of all."""
    from emulator.report.terminal import print_comparison, print_result
    from emulator.results import Result
    from emulator.scenario.matrix import variants
    from emulator.session.execution import up
    from emulator.session.sweep import PlannedVariant, judge_all, plan_all, read_all, up_all
    from emulator.session.sweep import compare as compare_runs

    found = variants(varied, asked.chosen)
    scenarios = read_all(asked.given, found, asked.chosen)
    # What auto means is decided once, for all variants.
    from emulator.engines import choose

    with contextlib.closing(choose(engine, note)) as first:
        planned = plan_all(found, scenarios, first, options)
    chosen = {one.number: asked.variant([*asked.chosen, *one.overrides]) for one in planned}
    references = {number: one.reference(first.name) for number, one in chosen.items()}
    tables = console(stderr=json)

    def run(variant: PlannedVariant) -> Result:
        note(f"variant {variant.number} of {len(planned)}: {variant.label}")
        own = replace(
            options,
            run_id=variant.run_id,
            variant=variant.label,
            reference=references[variant.number],
        )
        with shown() as printer, contextlib.closing(choose(first.name)) as engine:
            result = up(chosen[variant.number], engine, own, callbacks=printer.callbacks())
        print_result(result, tables, kept=options.keep)
        return result

    sweep = up_all(planned, run, out=options.out)
    judged = judge_all(sweep.records)
    if judged:
        print_comparison(compare_runs(judged), tables)
    if json:
        print_json([one.summary for _, one in judged])
    if sweep.failure:
        note(str(sweep.failure))
    return sweep.exit_code
