"""`up`, `plan`, `check`: from a scenario to a verdict."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.cli.additions import Command, ConfigMaps, Faults, Images, additions
from emulator.cli.options import (
    ApiPort,
    Out,
    Plain,
    Quiet,
    RunArgument,
    RunOption,
    ScenarioArgument,
    ScenarioFile,
    Sets,
    Verbose,
    WhichEngine,
    check_verbosity,
    chosen_run,
    chosen_scenario,
    complete_sets,
    console,
    find_run,
    note,
    overrides,
    perhaps_unread,
    print_json,
    requested,
)
from emulator.errors import UsageError
from emulator.runtime.signals import Interruption

if TYPE_CHECKING:
    from emulator.planning.requested import RequestedScenario, RunOptions
    from emulator.report.live import LivePrinter

Seed = Annotated[int | None, typer.Option("--seed", help="Seed of data order and weights.")]


def _checked(run_id: str | None) -> str | None:
    from emulator.validation.run_id import check_new_run_id

    return None if run_id is None else check_new_run_id(run_id)


RunId = Annotated[
    str | None, typer.Option("--run-id", help="Name the run yourself.", callback=_checked)
]


Keep = Annotated[
    bool, typer.Option("--keep", help="Leave containers, network and volume for a look.")
]
Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="In the background; return once all tasks run.")
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Put summary.json on stdout (with --vary a list of them), all else on stderr.",
    ),
]
Warm = Annotated[
    bool, typer.Option("--warm", help="Fork tasks from processes that have imported TensorFlow.")
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="KEY=VALUE,VALUE",
        help="Run every combination of the values, one after the other, and compare them.",
        autocompletion=complete_sets,
    ),
]


def up(
    scenario: ScenarioArgument = None,
    file: ScenarioFile = None,
    sets: Sets = None,
    engine: WhichEngine = "auto",
    out: Out = Path("runs"),
    keep: Keep = False,
    detach: Detach = False,
    seed: Seed = None,
    run_id: RunId = None,
    json: Json = False,
    warm: Warm = False,
    plain: Plain = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    api_port: ApiPort = None,
    vary: Vary = None,
    images: Images = None,
    faults: Faults = None,
    configmaps: ConfigMaps = None,
    command: Command = None,
) -> None:
    """Run a scenario to its end, and judge it.

    A TFJob, a PyTorchJob, Helm values and a cluster's JSON are converted first: see `convert`.

    Ctrl-C stops the run gracefully; press it twice to kill. With -d it runs in the background: see
    `emulate ps`, `logs -f`, `preempt`, `fault`, `wait` and `down`.

    Exit codes: 0 ok, 1 an expectation failed, 2 bad usage or scenario, 3 an expectation could not
    be judged, 4 the emulator or the engine failed, 130 interrupted. With --vary the worst of all.
    """
    if vary and detach:
        raise UsageError("--vary runs in the foreground.", "Leave -d out.")
    if vary and api_port is not None:
        raise UsageError("--api-port is for one run, not for --vary.", "Leave it out.")
    if vary and warm:
        raise UsageError("--warm is for one run, not for --vary.", "Leave one of them out.")
    if keep and warm:
        raise UsageError("--keep leaves containers for a look, --warm to the next run.", "Use one.")
    check_verbosity(quiet, verbose)
    added = additions(images, faults, configmaps, command)
    asked = requested(chosen_scenario(scenario, file), overrides(sets, seed), added)
    from emulator.planning.requested import RunOptions
    from emulator.report.live import view

    options = RunOptions(out=out, run_id=run_id, keep=keep, warm=warm)
    shown = partial(view, quiet=quiet, verbose=verbose)
    if vary:
        from emulator.cli.compare import up_variants

        code = up_variants(asked, vary, engine, options, partial(shown, plain=True), json=json)
    elif detach:
        more = [*added.arguments, *([] if api_port is None else [f"--api-port={api_port}"])]
        code = _in_background(asked, engine, options, more, json=json)
    else:
        code = _here(asked, engine, options, shown(plain=plain), api_port, json=json)
    raise typer.Exit(code)


def _here(
    asked: RequestedScenario,
    engine: str,
    options: RunOptions,
    live: LivePrinter,
    api_port: int | None,
    *,
    json: bool,
) -> int:
    """Run a scenario in the foreground; print its result. Returns the exit code."""
    from emulator.api.tcp import TcpEndpoint
    from emulator.cli.background import reporting_to_parent
    from emulator.engines import choose
    from emulator.report.terminal import print_result
    from emulator.session.execution import up as run_up

    asked.scenario  # noqa: B018  its mistakes come before those of the engine
    with asked.placed(), live:
        callbacks = reporting_to_parent(live.callbacks())
        with contextlib.closing(choose(engine, callbacks.say)) as chosen:
            result = run_up(
                asked,
                chosen,
                replace(options, reference=asked.reference(chosen.name, warm=options.warm)),
                endpoint=None if api_port is None else TcpEndpoint(api_port),
                callbacks=callbacks,
            )
    with perhaps_unread():
        print_result(result, console(stderr=json), kept=options.keep)
        if json:
            print_json(result.summary)
    return result.exit_code


def _in_background(
    asked: RequestedScenario, engine: str, options: RunOptions, more: list[str], *, json: bool
) -> int:
    """Run a scenario by a supervisor in the background, with `more` arguments for it.

    Returns the exit code, once all tasks run.
    """
    from emulator.cli.background import forget, output, start
    from emulator.record.remains import require_free

    folder = options.out / options.named(asked.scenario)
    arguments = [
        *("up", str(asked.path), f"--engine={engine}", f"--out={options.out}"),
        *(f"--run-id={folder.name}", *(f"--set={one}" for one in asked.chosen), *more),
        *["--keep"] * options.keep,
        *["--warm"] * options.warm,
    ]
    require_free(folder)  # before the log is made there
    try:
        code = start(arguments, folder, note)
    except Interruption:
        forget(folder)
        raise
    if code is None:
        note(f"{folder.name} is up; `emulate logs -f {folder.name}` shows what it prints")
        if json:
            print_json({"run_id": folder.name, "folder": str(folder.resolve())})
        return 0
    print(output(folder), end="", file=sys.stderr)  # noqa: T201  in its own words
    forget(folder)
    return code


def plan(
    scenario: ScenarioArgument = None,
    file: ScenarioFile = None,
    sets: Sets = None,
    engine: WhichEngine = "auto",
    seed: Seed = None,
    run_id: RunId = None,
    json: Annotated[
        bool, typer.Option("--json", help="Tasks and engine requests as data.")
    ] = False,
    images: Images = None,
    faults: Faults = None,
    configmaps: ConfigMaps = None,
    command: Command = None,
) -> None:
    """Show what would run, and start nothing.

    That is every task with its environment, what the engine is asked for, rules, and warnings.
    """
    from emulator.engines import REMOTE, choose
    from emulator.engines.base import Explaining
    from emulator.engines.requirements import make_ready
    from emulator.planning.requested import RunOptions
    from emulator.report.plan_tables import print_plan

    added = additions(images, faults, configmaps, command)
    asked = requested(chosen_scenario(scenario, file), overrides(sets, seed), added)
    parsed = asked.scenario
    with contextlib.closing(choose(engine, note)) as chosen:
        options = RunOptions(run_id=run_id, reference=asked.reference(chosen.name))
        with asked.placed():
            planned, folder = make_ready(parsed, chosen, options, asked.given.warnings)
        requests = chosen.requests(planned, folder) if isinstance(chosen, Explaining) else []
        capacity = None if chosen.name in REMOTE else chosen.capacity()
    if json:
        print_json({**planned.model_dump(mode="json"), "requests": requests})
    else:
        print_plan(planned, requests, console(), capacity)


def check(
    run: RunArgument = None,
    option: RunOption = None,
    out: Out = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="The summary as data.")] = False,
) -> None:
    """Judge a run again from its folder. Exit codes are those of `up`."""
    from emulator.analysis.expectations import EXIT_CODES, overall
    from emulator.report.terminal import print_summary
    from emulator.results import judge

    _, verdicts, summary = judge(find_run(chosen_run(run, option), out))
    with perhaps_unread():
        if json:
            print_json(summary)
        else:
            print_summary(summary, console())
    raise typer.Exit(EXIT_CODES[overall(verdicts)])
