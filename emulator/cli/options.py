"""What several commands share: options, consoles, completion."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emulator.cli.added import NO_OPTIONS, PluginOptions
from emulator.engines import AUTO, HELP, names
from emulator.errors import EmulatorError, UsageError, printable, shown
from emulator.runtime import plugins
from emulator.runtime.bundled import SCENARIO, scenario_path, scenarios

if TYPE_CHECKING:
    from rich.console import Console

    from emulator.planning.requested import RequestedScenario
    from emulator.record.folder import RunFolder
    from emulator.record.reader import Record
    from emulator.scenario.given import Additions, Given
    from emulator.scenario.schema import Scenario


class Framework(StrEnum):
    """What there is a starter for, and what `try` recognises."""

    TENSORFLOW = "tensorflow"
    PYTORCH = "pytorch"
    JAX = "jax"
    NONE = "none"


STDIN = Path("-")
"""What means standard input where a scenario is asked for."""


# --- Completion: Typer leaves out what does not begin as the word does ----------------------------


def complete_scenarios() -> list[str]:
    """Return the scenarios that are here, and those that come with the emulator, for the shell."""
    here = (path for pattern in ("*.yaml", "*/*.yaml") for path in Path().glob(pattern))
    return [*map(str, here), *complete_names()]


def complete_names() -> list[str]:
    """Return the names of scenarios that may have run: those that come with the emulator."""
    return [path.stem for path in scenarios()]


def complete_runs(context: typer.Context) -> list[str]:
    """Return the runs in the folder that the command line names."""
    from emulator.record.folder import runs_in

    return [run.run_id for run in runs_in(_out(context))]


def complete_tasks(context: typer.Context) -> list[str]:
    """Return the tasks of the run that the command line names, else of the latest."""
    with contextlib.suppress(EmulatorError):
        outline = live_folder(context.params.get("run") or "last", _out(context)).outline
        return [*outline.tasks, *outline.helpers]
    return []


def complete_logs(context: typer.Context) -> list[str]:
    """Return the tasks that a word of `emulate logs` may be, and runs for the first one."""
    tasks = complete_tasks(context)
    return tasks if context.params.get("names") else [*complete_runs(context), *tasks]


def complete_exec(context: typer.Context) -> list[str]:
    """Return the tasks that a word of `emulate exec` may be, and runs for the first one."""
    words = context.params.get("words") or []
    tasks = [one for one in complete_tasks(context) if one not in words]
    return tasks if words else [*tasks, *complete_runs(context)]


def complete_faults(context: typer.Context) -> list[str]:
    """Return the faults of a run that can be healed, or that are still to come: ids and names."""
    from emulator.record.reader import Record

    with contextlib.suppress(EmulatorError):
        folder = live_folder(context.params.get("run") or "last", _out(context))
        faults = Record(folder.path).timeline.faults.values()
        left = [one for one in faults if one.stage not in ("healed", "skipped", "failed")]
        names = dict.fromkeys([one.id for one in left] + [one.planned.name for one in left])
        return [*filter(None, names), "all"]
    return []


def complete_sets(context: typer.Context, incomplete: str) -> list[str]:
    """Return the keys that a dotted key may go on to: those written, and those of the schema."""
    from emulator.scenario.given import NOTHING, read_scenario
    from emulator.scenario.loader import data_of
    from emulator.scenario.messages import fields_at

    parents = incomplete.split(".")[:-1]
    data: Any = {}
    with contextlib.suppress(EmulatorError):
        given = context.params.get("scenario") or context.params.get("file") or HERE
        path = scenario_path(Path(given))
        data = data_of(read_scenario(path, NOTHING).text, str(path))
    for key in parents:
        data = data.get(key) if isinstance(data, dict) else None
    written = [str(key) for key in data] if isinstance(data, dict) else []
    by_name = parents in (["cluster"], ["helpers"])  # its keys are the user's
    keys = dict.fromkeys([*written, *([] if by_name else sorted(fields_at(parents)))])
    return [".".join([*parents, key]) for key in keys]


def _out(context: typer.Context) -> Path:
    return Path(context.params.get("out") or "runs")


HERE = Path(SCENARIO)
"""The scenario of a command that names none."""
ScenarioArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="SCENARIO",
        help="A scenario file, its folder, a manifest such as a TFJob, the name of a bundled "
        "scenario, or - for standard input. "
        f"[default: {HERE}, if there is one]",
        autocompletion=complete_scenarios,
    ),
]
RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="A run id, its beginning, its folder, or a scenario's name [default: the latest].",
        autocompletion=complete_runs,
    ),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        "-r",
        "--run",
        metavar="RUN",
        help="A run id, its beginning, its folder, or a scenario's name [default: the latest].",
        autocompletion=complete_runs,
    ),
]
ScenarioFile = Annotated[
    Path | None,
    typer.Option(
        "-f", "--file", metavar="FILE", help="The scenario, as an option; - is standard input."
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a value: --set cluster.worker=4.",
        autocompletion=complete_sets,
    ),
]
WhichEngine = Annotated[
    str,
    typer.Option(
        "--engine",
        help=f"{HELP}.",
        autocompletion=lambda: [AUTO, *names()],
        envvar="EMULATOR_ENGINE",
    ),
]
Out = Annotated[Path, typer.Option("--out", help="The folder of run folders.")]
Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PATH",
        help="With the process engine: the Python that tasks run in [default: that of the active "
        "environment, else the emulator's own].",
    ),
]

Plain = Annotated[bool, typer.Option("--plain", help="Plain lines, no live panel.")]

Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Only the result, without the output of tasks.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="All that tasks print, and all output of builds.")
]

ApiPort = Annotated[
    int | None,
    typer.Option(
        "--api-port",
        metavar="PORT",
        help="The API and /metrics on 127.0.0.1 too, with a token; 0: any port that is free.",
    ),
]

Keep = Annotated[
    bool, typer.Option("--keep", help="Keep containers, network and volume after the run.")
]

# --- What is added to a manifest that it can't have, or that this machine can't get ---------------

Images = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        metavar="NAME=REF",
        help="Of a manifest: the image to use for a container, a role or an image reference.",
    ),
]
# Of a program of one's own, without a scenario:
OwnWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="Of a command [default: 2 where it trains distributed, else 1]"
    ),
]
OwnFramework = Annotated[
    Framework | None,
    typer.Option("--framework", help="Of a command [default: by its imports]", show_default=False),
]
OwnSource = Annotated[
    Path | None,
    typer.Option(
        "--source", help="Of a command: the folder, or file, that is copied [default: this one]"
    ),
]
OwnSteps = Annotated[
    str | None,
    typer.Option(
        "--steps",
        metavar="REGEX",
        help="Of a command: how it prints a step, with a group called step.",
    ),
]
OwnTimeout = Annotated[
    str | None,
    typer.Option("--timeout", help="Of a command: the most time of each run [default: 3m]"),
]
Faults = Annotated[
    Path | None,
    typer.Option(
        "--faults", metavar="FILE", help="A part of a scenario to merge over it: faults, expect."
    ),
]
Command = Annotated[
    str | None,
    typer.Option("--command", help="Of a manifest: the command of every task."),
]


WithoutGpus = Annotated[
    bool,
    typer.Option("--without-gpus", help="Leave out the GPUs that tasks ask for: run on the CPU."),
]


def additions(
    images: Sequence[str] | None,
    faults: Path | None,
    command: str | None,
    plugin_options: PluginOptions = NO_OPTIONS,
) -> Additions:
    """Return what the options of a command add to a file. Raises UsageError."""
    from emulator.scenario.given import Additions

    examples = {one.name: one.example for one in plugins.options()} if plugin_options else {}
    return Additions(
        _pairs("--image", images or (), "tensorflow=cpu"),
        faults,
        _words(command),
        {name: _pairs(f"--{name}", some, examples[name]) for name, some in plugin_options.items()},
    )


def _pairs(option: str, given: Sequence[str], example: str) -> dict[str, str]:
    """Return `NAME=VALUE` options. Raises UsageError."""
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            what = shown(text) or "an empty text"
            raise UsageError(f"{option} {what} is not NAME=VALUE.", f"Example: {option} {example}")
        if name in pairs:
            raise UsageError(f"{option} {shown(name)} is given twice.", "Leave one of them out.")
        pairs[name] = value
    return pairs


def _words(command: str | None) -> tuple[str, ...]:
    """Return a command as words, split as a shell does. Raises UsageError."""
    try:
        words = () if command is None else tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"--command {shown(command or '')}: {error}.") from None
    if command is not None and not words:
        raise UsageError("--command is empty.", "Example: --command 'python train.py'")
    return words


# --- What a command is about ----------------------------------------------------------------------


def _chosen_scenario(argument: Path | None, option: Path | None) -> Path:
    """Return the scenario that a command was given, or the one of the current folder.

    Raises UsageError if both were given, or if there is none.
    """
    if argument is not None and option is not None:
        raise UsageError("Two scenarios were given.", f"Leave out {argument} or -f {option}.")
    given = argument or option
    if given is None and not HERE.is_file():
        raise UsageError(
            f"No scenario was given, and there is no {HERE} here.",
            "`emulate scenarios` lists those that come with the emulator; `emulate init` writes "
            "one.",
        )
    return given or HERE


def chosen_run(argument: str | None, option: str | None) -> str:
    """Return the run that a command was given, or `last`. Raises UsageError if it has two."""
    if argument is not None and option is not None and argument != option:
        raise UsageError(f"Two runs were given: {argument} and {option}.", "Leave one of them out.")
    return argument or option or "last"


def check_verbosity(quiet: bool, verbose: bool) -> None:
    """Raise UsageError if both were given."""
    if quiet and verbose:
        raise UsageError("Both --quiet and --verbose were given.", "Leave one of them out.")


def _refuse_what_is_no_file(path: Path) -> None:
    """Raise UsageError for an address, and for a program."""
    if path.parts and path.parts[0].endswith(":") and not path.exists():
        address = str(path).replace(":/", "://", 1)  # a path has lost a slash
        raise UsageError(
            f"{shown(address)} is an address; a scenario is a file.",
            "Download it, or pipe it: `curl -sL ADDRESS | emulate plan -`.",
        )
    if path.suffix == ".py":
        raise UsageError(
            f"{path} is a program, not a scenario.",
            "`emulate init` writes a scenario that runs one.",
        )


def read(path: Path, added: Additions | None = None) -> Given:
    """Return what a scenario or a manifest says, with what is added to it, not validated yet."""
    from emulator.scenario.given import NOTHING, piped_scenario, read_scenario

    if path == STDIN:
        from emulator.cli.piped import from_stdin

        return piped_scenario(from_stdin(), added or NOTHING)
    _refuse_what_is_no_file(path)
    found = scenario_path(path)
    if path.parent == Path() and not path.suffix and not os.path.lexists(found):
        from emulator.validation.similar import nearest

        near = nearest(path.name, [one.stem for one in scenarios()])
        raise UsageError(
            f"There is no file {path}, and no bundled scenario of that name.",
            (f"Did you mean '{near}'? " if near else "") + "`emulate scenarios` lists them.",
        )
    return read_scenario(found, added or NOTHING)


def requested(
    argument: Path | None,
    option: Path | None,
    sets: Sequence[str] | None,
    seed: int | None,
    added: Additions,
    *,
    without_gpus: bool = False,
) -> RequestedScenario:
    """Return what a command is to run: a file with what is overridden in it and added to it."""
    from emulator.planning.requested import RequestedScenario

    given = read(_chosen_scenario(argument, option), added)
    chosen = (*(sets or ()), *(() if seed is None else [f"seed={seed}"]))
    if without_gpus:
        chosen += _without_gpus(given.parse(chosen))
    path = given.path if given.piped is None else None
    return RequestedScenario(given, path, chosen=chosen, added=added)


def _without_gpus(scenario: Scenario) -> tuple[str, ...]:
    """Return the overrides with which no task of a scenario has a GPU or the image for one."""
    roles = scenario.cluster.items()
    image = ["image=cpu"] if scenario.image == "gpu" else []
    images = [f"cluster.{role}.image=cpu" for role, spec in roles if spec.image == "gpu"]
    return (*image, *images, *(f"cluster.{role}.gpus=0" for role, s in roles if s.gpus.count))


def find_run(name: str, out: Path) -> Record:
    """Return the run that `name` means: an id, its beginning, a folder, a scenario, or `last`."""
    from emulator.record.reader import Record

    return Record.find(name, out)


def find_live_run(name: str, out: Path) -> Record:
    """Return the run that `name` means, the latest that is under way if there are several."""
    from emulator.record.reader import Record

    return Record(live_folder(name, out).path)


def live_folder(name: str, out: Path) -> RunFolder:
    """Do the same without what reads a record."""
    from emulator.record.folder import RunFolder

    return RunFolder.find(name, out, live=True)


def console(*, stderr: bool = False) -> Console:
    """Return where tables go; a pipe or a file is wide enough for each of them, or as COLUMNS says.

    The width of a terminal is its own.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    measured = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(stderr=stderr, width=None if measured else 120)


def moment(text: str, option: str) -> float:
    """Return the time that an option means, in seconds since 1970. Raises UsageError."""
    from emulator.validation.units import parse_moment

    try:
        return parse_moment(text, time.time())
    except ValueError as error:
        raise UsageError(f"{option}: {error}.") from None


def read_fault(text: str, example: str) -> dict[str, Any]:
    """Return what `--fault` says, as a scenario has it. Raises UsageError, with an example."""
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"--fault is no YAML: {' '.join(str(error).split())}.", example) from None
    if not isinstance(found, dict) or not found:
        raise UsageError(f"--fault {text!r} is no fault.", example)
    return {str(key): value for key, value in found.items()}


def note(text: str) -> None:
    """Print a line to stderr."""
    print(f"emulate: {printable(text)}", file=sys.stderr)  # noqa: T201


@contextlib.contextmanager
def perhaps_unread() -> Iterator[None]:
    """Print the result of something whose exit code counts, be it read or not (`up | head`)."""
    try:
        yield
    except BrokenPipeError:
        pass
    except SystemExit as leaving:
        if not isinstance(leaving.__context__, BrokenPipeError):  # which rich turns into this
            raise


def print_json(value: Any) -> None:  # noqa: ANN401  whatever JSON can say
    """Put JSON on stdout."""
    print(json.dumps(value, indent=2, default=str))  # noqa: T201
