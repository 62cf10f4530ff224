"""`up`, `plan`, `check`: from a scenario to a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emulator import checks
from emulator.bundled import scenario_path
from emulator.cli.common import (
    Out,
    RunArgument,
    ScenarioArgument,
    Sets,
    WhichEngine,
    choose_engine,
    console,
    find_run,
    overrides,
    print_json,
    read,
)
from emulator.cli.comparing import up_variants

__all__ = ["add_to"]

Seed = Annotated[int | None, typer.Option("--seed", help="Seed of data order and weights.")]
RunId = Annotated[str | None, typer.Option("--run-id", help="Name the run yourself.")]


def add_to(app: typer.Typer) -> None:
    """Add this theme's commands."""
    app.command()(up)
    app.command()(plan)
    app.command()(check)


def up(
    scenario: ScenarioArgument,
    sets: Sets = None,
    engine: WhichEngine = "auto",
    out: Out = Path("runs"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave containers, network and volume for a look.")
    ] = False,
    seed: Seed = None,
    run_id: RunId = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Put summary.json on stdout (with --vary a list of them), all else on stderr.",
        ),
    ] = False,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=VALUE,VALUE",
            help="Run every combination of the values, one after the other, and compare them.",
        ),
    ] = None,
) -> None:
    """Run a scenario in the foreground; Ctrl-C stops it gracefully, twice at once.

    Exit codes: 0 ok, 1 an expectation failed, 2 bad usage or scenario, 3 an expectation could not
    be judged, 4 the emulator or the engine failed, 130 interrupted. With --vary the worst of all.
    """
    if vary:
        code = up_variants(
            scenario_path(scenario),
            vary,
            overrides(sets, seed),
            engine=engine,
            out=out,
            keep=keep,
            run_id=run_id,
            json=json,
        )
        raise typer.Exit(code)
    from emulator.report.terminal import LivePrinter, print_result
    from emulator.run import up as run_up

    parsed, text, _ = read(scenario, sets, seed)
    printer = LivePrinter()
    result = run_up(
        parsed,
        choose_engine(engine),
        text=text,
        out=out,
        run_id=run_id,
        keep=keep,
        listener=printer.listener(),
    )
    print_result(result, console(stderr=json), kept=keep)
    if json:
        print_json(result.summary)
    raise typer.Exit(result.exit_code)


def plan(
    scenario: ScenarioArgument,
    sets: Sets = None,
    engine: WhichEngine = "auto",
    seed: Seed = None,
    run_id: RunId = None,
    json: Annotated[
        bool, typer.Option("--json", help="Tasks and engine requests as data.")
    ] = False,
) -> None:
    """Show what would run: tasks, TF_CONFIG, engine requests, rules, warnings. Starts nothing."""
    from emulator.report.terminal import print_plan
    from emulator.run import make_ready

    parsed, _, _ = read(scenario, sets, seed)
    chosen = choose_engine(engine)
    try:
        planned, folder = make_ready(parsed, chosen, out=Path("runs"), run_id=run_id)
        requests = chosen.requests(planned, folder)
    finally:
        chosen.close()
    if json:
        print_json({**planned.model_dump(mode="json"), "requests": requests})
    else:
        print_plan(planned, requests, console())


def check(
    run: RunArgument,
    out: Out = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="The summary as data.")] = False,
) -> None:
    """Judge a run again from its folder, without a cluster. Exit codes are those of `up`."""
    from emulator.report.terminal import print_summary
    from emulator.run import judge

    _, verdicts, summary = judge(find_run(run, out))
    if json:
        print_json(summary)
    else:
        print_summary(summary, console())
    raise typer.Exit(checks.EXIT_CODES[checks.overall(verdicts)])
