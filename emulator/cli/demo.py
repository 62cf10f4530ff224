"""`demo`: what the emulator is for, in a quarter of a minute, with nothing but the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.cli.options import Out, console, perhaps_unread
from emulator.cli.report import open_page
from emulator.runtime.bundled import scenarios

if TYPE_CHECKING:
    from rich.console import Console

    from emulator.results import Result

SCENARIO = "demo"
"""The bundled scenario that it runs, whatever has that name in the current folder."""
NEXT = {
    "emulate try -- python train.py": "a script of your own",
    "emulate up quickstart": "TensorFlow, with Docker where it answers",
}
"""Commands to go on with, and what each does."""


def demo(
    out: Out = Path("runs"),
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Watch a small training lose a worker and resume.

    Two workers in plain Python train on this machine, one is preempted, and both go on from the
    last checkpoint. It takes about 15 seconds, and needs neither Docker nor a framework.
    `emulate up demo` runs the same scenario with any engine and any option. Exit codes are those of
    `up`.
    """
    from emulator.planning.requested import RunOptions
    from emulator.report.data import HTML
    from emulator.report.live import view
    from emulator.session.launch import perform, read

    with view(quiet=not sys.stdout.isatty()) as live:
        path = next(path for path in scenarios() if path.stem == SCENARIO)
        asked = read(path, [path.parent])
        result = perform(
            asked, "process", RunOptions(out=out, python=sys.executable), live.callbacks()
        )
    page = result.folder / HTML
    with perhaps_unread():
        _print_end(result, page, console())
    if open_ and page.is_file():
        open_page(page)
    raise typer.Exit(result.exit_code)


def _print_end(result: Result, page: Path, target: Console) -> None:
    """Print what became of the training, where to look at it, and what to do next."""
    from emulator.report.terminal import print_result, print_verdicts, print_why

    if result.verdict != "ok":
        print_result(result, target)  # with why it failed
    else:
        print_verdicts(result.summary, target)
        print_why(result.summary, target)
    if page.is_file():
        target.out(f"Look at it: {page.as_uri()}", highlight=False)
    width = max(map(len, NEXT))
    for head, (command, does) in zip(("Go on with:", ""), NEXT.items(), strict=True):
        target.out(f"{head:<11} {command:<{width}}  # {does}", highlight=False)
