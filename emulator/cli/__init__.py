"""The command line: parse, call, print, exit code. Commands lie beside this by theme."""

from __future__ import annotations

import typer

from emulator.cli import compare, export, manual, report, runs, setup, top, up

__all__ = ["app"]

app = typer.Typer(
    name="emulate",
    help="A training cluster on your laptop, from a scenario file.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for commands in (up, compare, report, export, manual, top, runs, setup):
    commands.add_to(app)
