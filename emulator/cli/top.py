"""`top`: a run as it is now, on the whole screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.options import Out, RunArgument, RunOption, chosen_run, console, find_live_run


def top(
    run: RunArgument = None,
    option: RunOption = None,
    out: Out = Path("runs"),
    once: Annotated[
        bool,
        typer.Option("--once", help="Print it once and end, as where there is no terminal."),
    ] = False,
) -> None:
    """Show a run: tasks, progress, faults, usage, last lines. `q` leaves it; the run continues.

    For a finished run, the last state is printed.
    """
    from emulator.record.lock import wait_until_over
    from emulator.record.reader import Record
    from emulator.report.top import print_snapshot, watch

    record = find_live_run(chosen_run(run, option), out)
    screen = console()
    if record.live and not once and sys.stdout.isatty() and not screen.is_dumb_terminal:
        if not watch(record, screen):
            return
        wait_until_over(record.path)
    # What has been read of it before is not all any more.
    print_snapshot(Record(record.path), screen)
