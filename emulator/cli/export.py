"""`export`: a run in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.options import Out, RunArgument, find_run, note


def export(
    run: RunArgument,
    tensorboard: Annotated[
        Path | None,
        typer.Option("--tensorboard", metavar="DIR", help="Event files, as a log dir has them."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="DIR", help="Steps, samples, GPUs, events and faults."),
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="DIR", help="The same with types and units.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="The timeline for Perfetto, as JSON."),
    ] = None,
    out: Out = Path("runs"),
) -> None:
    """Write a run for TensorBoard, pandas, DuckDB, Perfetto. At least one format, or several.

    An earlier export in the same place is replaced, other files never. Exit codes: 0, or 2 where
    nothing could be written.
    """
    from emulator.exports.export import export

    record = find_run(run, out)
    export(record, note, tensorboard=tensorboard, csv=csv, parquet=parquet, trace=trace)
