"""The command line: parse, call, print, exit code. Commands lie beside this by theme."""

from __future__ import annotations

import typer

from emulator.cli import (
    by_hand,
    comparing,
    exporting,
    reporting,
    running,
    setting_up,
    tidying,
    watching,
)

__all__ = ["app"]

app = typer.Typer(
    name="emulate",
    help="A training cluster on your laptop, from a scenario file.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

running.add_to(app)
comparing.add_to(app)
reporting.add_to(app)
exporting.add_to(app)
by_hand.add_to(app)
watching.add_to(app)
tidying.add_to(app)
setting_up.add_to(app)
