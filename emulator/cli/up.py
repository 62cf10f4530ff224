"""`up`, `plan`, `check`: from a scenario to a verdict."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.cli.added import NO_OPTIONS, PluginOptions
from emulator.cli.options import (
    STDIN,
    ApiPort,
    Command,
    Faults,
    Images,
    Keep,
    Out,
    Plain,
    Python,
    Quiet,
    RunArgument,
    RunOption,
    ScenarioArgument,
    ScenarioFile,
    Sets,
    Verbose,
    WhichEngine,
    WithoutGpus,
    additions,
    check_verbosity,
    chosen_run,
    complete_sets,
    console,
    find_run,
    note,
    perhaps_unread,
    print_json,
    requested,
)
from emulator.errors import Misfit, Unsupported, UsageError
from emulator.runtime.signals import Interruption

if TYPE_CHECKING:
    from emulator.engines.base import Engine
    from emulator.planning.requested import RequestedScenario, RunOptions
    from emulator.report.live import LivePrinter
    from emulator.results import Result, RunCallbacks

Seed = Annotated[int | None, typer.Option("--seed", help="Seed of data order and weights.")]


def _checked(run_id: str | None) -> str | None:
    from emulator.validation.run_id import check_new_run_id

    return None if run_id is None else check_new_run_id(run_id)


RunId = Annotated[
    str | None, typer.Option("--run-id", help="Name the run yourself.", callback=_checked)
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
    bool,
    typer.Option("--warm", help="Fork tasks from processes that have imported the framework."),
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
    python: Python = None,
    json: Json = False,
    warm: Warm = False,
    plain: Plain = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    api_port: ApiPort = None,
    vary: Vary = None,
    images: Images = None,
    faults: Faults = None,
    command: Command = None,
    plugin_options: PluginOptions = NO_OPTIONS,
    without_gpus: WithoutGpus = False,
) -> None:
    """Run a scenario to its end, and judge it.

    A TFJob and other manifests are converted first: see `convert`.

    Ctrl-C stops the run gracefully; press it twice to kill. With -d it runs in the background: see
    `emulate ps`, `logs -f`, `preempt`, `fault`, `wait` and `down`.

    Exit codes: 0 ok, 1 an expectation failed, 2 bad usage or scenario, 3 an expectation could not
    be judged, 4 the emulator or the engine failed, 130 interrupted. With --vary the worst of all.
    """
    _refuse_together(vary, detach=detach, api_port=api_port, keep=keep, warm=warm)
    check_verbosity(quiet, verbose)
    added = additions(images, faults, command, plugin_options)
    asked = requested(scenario, file, sets, seed, added, without_gpus=without_gpus)
    from emulator.planning.requested import RunOptions
    from emulator.report.live import view

    options = RunOptions(out=out, run_id=run_id, keep=keep, warm=warm, python=python)
    shown = partial(view, quiet=quiet, verbose=verbose)
    if vary:
        raise typer.Exit(_variants(asked, vary, engine, options, partial(shown, plain=True), json))
    if detach:
        raise typer.Exit(_in_background(asked, engine, options, api_port, json=json))
    from emulator.report.terminal import print_result

    result = _performed(asked, engine, options, shown(plain=plain), api_port=api_port)
    with perhaps_unread():
        print_result(result, console(stderr=json), kept=keep)
        if json:
            print_json(result.summary)
    raise typer.Exit(result.exit_code)


def _performed(
    asked: RequestedScenario,
    engine: str,
    options: RunOptions,
    live: LivePrinter,
    *,
    api_port: int | None,
) -> Result:
    """Run a scenario here."""
    from emulator.api.tcp import TcpEndpoint
    from emulator.session.run import up as run

    with _supervising(asked, engine, live) as (chosen, callbacks):
        endpoint = None if api_port is None else TcpEndpoint(api_port)
        return run(asked, chosen, options, endpoint=endpoint, callbacks=callbacks)


def _refuse_together(
    vary: list[str] | None, *, detach: bool, api_port: int | None, keep: bool, warm: bool
) -> None:
    """Refuse options that make no sense together. Raises UsageError."""
    if vary and detach:
        raise UsageError("--vary runs in the foreground.", "Leave -d out.")
    if vary and api_port is not None:
        raise UsageError("--api-port is for one run, not for --vary.", "Leave it out.")
    if vary and warm:
        raise UsageError("--warm is for one run, not for --vary.", "Leave one of them out.")
    if keep and warm:
        raise UsageError(
            "--keep keeps containers after the run, --warm gives them to the next.", "Use one."
        )


@contextlib.contextmanager
def _supervising(
    asked: RequestedScenario, engine: str, live: LivePrinter
) -> Iterator[tuple[Engine, RunCallbacks]]:
    """Yield an engine for a scenario, and what reports its run here and to our own parent."""
    from emulator.cli.background import reporting_to_parent
    from emulator.engines import choose

    asked.scenario  # noqa: B018  its mistakes come before those of the engine
    with asked.placed(), live:
        callbacks = reporting_to_parent(live.callbacks())
        with contextlib.closing(choose(engine, callbacks.say)) as chosen:
            yield chosen, callbacks


def _variants(
    asked: RequestedScenario,
    varied: Sequence[str],
    engine: str,
    options: RunOptions,
    shown: Callable[[], LivePrinter],
    json: bool,
) -> int:
    """Run every variant, print each result and the comparison; return the exit code of all."""
    from emulator.report.terminal import print_comparison, print_result
    from emulator.scenario.matrix import variants
    from emulator.session.run import up
    from emulator.session.variants import (
        PlannedVariant,
        compare,
        judge_all,
        plan_all,
        read_all,
        up_all,
    )

    found = variants(varied, asked.chosen)
    read = read_all(asked, found)
    # What auto means is decided once, for all variants.
    from emulator.engines import choose

    with contextlib.closing(choose(engine, note)) as first:
        planned = plan_all(found, read, first, options)
    tables = console(stderr=json)

    def run(variant: PlannedVariant) -> Result:
        note(f"variant {variant.number} of {len(planned)}: {variant.options.variant}")
        with shown() as printer, contextlib.closing(choose(first.name)) as engine:
            result = up(variant.requested, engine, variant.options, callbacks=printer.callbacks())
        print_result(result, tables, kept=options.keep)
        return result

    sweep = up_all(planned, run)
    judged = judge_all(sweep.records)
    if judged:
        print_comparison(compare(judged), tables)
    if json:
        print_json([one.summary for _, one in judged])
    if sweep.failure:
        note(str(sweep.failure))
    return sweep.exit_code


def _in_background(
    asked: RequestedScenario,
    engine: str,
    options: RunOptions,
    api_port: int | None,
    *,
    json: bool,
) -> int:
    """Run a scenario by a supervisor in the background; return the exit code once all tasks run."""
    from emulator.cli.background import forget, output, start
    from emulator.record.remains import require_free

    folder = options.out / options.named(asked.scenario)
    arguments = [
        *("up", str(asked.path or STDIN), f"--engine={engine}", f"--out={options.out}"),
        *(f"--run-id={folder.name}", *(f"--set={one}" for one in asked.chosen)),
        *asked.added.arguments,
        *([] if api_port is None else [f"--api-port={api_port}"]),
        *([] if options.python is None else [f"--python={options.python}"]),
        *["--keep"] * options.keep,
        *["--warm"] * options.warm,
    ]
    require_free(folder)  # before the log is made there
    try:
        code = start(arguments, folder, note, piped=asked.given.piped)
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
    python: Python = None,
    json: Annotated[
        bool, typer.Option("--json", help="Tasks and engine requests as data.")
    ] = False,
    images: Images = None,
    faults: Faults = None,
    command: Command = None,
    plugin_options: PluginOptions = NO_OPTIONS,
    without_gpus: WithoutGpus = False,
) -> None:
    """Show what would run, and start nothing.

    That is every task with its environment, what the engine is asked for, rules, and warnings. What
    the engine can't do, and GPUs that this machine does not have, are named below the plan.

    Exit codes: 0, or 2 where `up` would refuse what the engine can't do.
    """
    from emulator.engines import BUILT_IN, choose
    from emulator.engines.base import Explaining
    from emulator.planning.requested import RunOptions
    from emulator.report.plan_tables import print_plan
    from emulator.session.ready import make_ready

    added = additions(images, faults, command, plugin_options)
    asked = requested(scenario, file, sets, seed, added, without_gpus=without_gpus)
    asked.scenario  # noqa: B018  its mistakes come before those of the engine
    refused: list[Unsupported | Misfit] = []
    with contextlib.closing(choose(engine, note)) as chosen:
        with asked.placed():
            options = RunOptions(run_id=run_id, python=python)
            planned, folder = make_ready(asked, chosen, options, refused)
        requests = chosen.requests(planned, folder) if isinstance(chosen, Explaining) else []
        capacity = chosen.capacity() if chosen.name in BUILT_IN else None
    if json:
        print_json({**planned.model_dump(mode="json"), "requests": requests})
    else:
        print_plan(planned, requests, console(), capacity)
    for error in refused:
        for line in _with_place(asked, error).splitlines():
            note(line)
    raise typer.Exit(0 if all(map(_is_of_gpus, refused)) else 2)


def _with_place(asked: RequestedScenario, refused: UsageError) -> str:
    """Return a refusal with the file and the line that ask for what is refused."""
    try:
        with asked.placed():
            raise refused
    except UsageError as error:
        return str(error)


def _is_of_gpus(refused: UsageError) -> bool:
    """Return whether only GPUs are missing: another machine runs the same scenario."""
    return isinstance(refused, Unsupported) and {path[-1] for path, _ in refused.keys} == {"gpus"}


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
