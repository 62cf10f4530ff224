"""What several commands share: options, consoles, completion."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emulator.bundled import scenario_path, scenarios
from emulator.engines import AUTO, HELP, names
from emulator.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

    from emulator.manifests.convert import Additions, Given
    from emulator.record.reader import Record


def complete_scenarios(incomplete: str) -> list[str]:
    """Return the scenarios that a name may go on to, for the shell."""
    here = [str(path) for path in Path().glob("*.yaml")] + [str(p) for p in Path().glob("*/*.yaml")]
    names = [*here, *(path.stem for path in scenarios())]
    return [name for name in names if name.startswith(incomplete)]


def complete_runs(incomplete: str) -> list[str]:
    """Return the runs that a name may go on to, for the shell."""
    from emulator.record.folder import runs_in

    return [r.run_id for r in runs_in(Path("runs")) if r.run_id.startswith(incomplete)]


ScenarioArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO",
        help="A scenario file, a manifest such as a TFJob, or the name of a bundled scenario.",
        autocompletion=complete_scenarios,
    ),
]
RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run id, its folder, or `last`.", autocompletion=complete_runs
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a value: --set cluster.worker=4."),
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

Plain = Annotated[
    bool, typer.Option("--plain", help="Lines alone, without the live view below them.")
]

ApiPort = Annotated[
    int | None,
    typer.Option(
        "--api-port",
        metavar="PORT",
        help="The API and /metrics on 127.0.0.1 too, with a token; 0: any port that is free.",
    ),
]


def read(path: Path, added: Additions | None = None) -> Given:
    """Return what a scenario or a manifest says, with what is added to it, not validated yet."""
    from emulator.manifests.convert import NOTHING, read_scenario

    return read_scenario(scenario_path(path), added or NOTHING)


def overrides(sets: list[str] | None, seed: int | None) -> list[str]:
    """Return `--set` and `--seed` as assignments."""
    return [*(sets or []), *([f"seed={seed}"] if seed is not None else [])]


def find_run(name: str, out: Path) -> Record:
    """Return the run that `name` means: an id, the beginning of one, a folder, or `last`."""
    from emulator.record.reader import Record

    return Record.find(name, out)


def find_live_run(name: str, out: Path) -> Record:
    """Return the run that `name` means; `last` is the latest that is under way, if any is."""
    from emulator.record.folder import runs_in
    from emulator.record.reader import Record

    live = [run for run in runs_in(out) if run.live] if name == "last" else []
    return Record(live[-1].path) if live else Record.find(name, out)


def console(*, stderr: bool = False) -> Console:
    """Return where tables go; a pipe or a file is wide enough for each of them."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 120)


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
