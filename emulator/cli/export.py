"""`export`: a run in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.options import Out, RunArgument, find_run, note

TensorBoard = Annotated[
    Path | None,
    typer.Option("--tensorboard", metavar="DIR", help="Event files, as a log dir has them."),
]
Csv = Annotated[
    Path | None,
    typer.Option("--csv", metavar="DIR", help="Steps, samples, GPUs, events and faults."),
]
Parquet = Annotated[
    Path | None, typer.Option("--parquet", metavar="DIR", help="The same with types and units.")
]
Trace = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="The timeline for Perfetto, as JSON."),
]
Wandb = Annotated[
    str | None,
    typer.Option("--wandb", metavar="PROJECT", help="A run of Weights & Biases."),
]
Mlflow = Annotated[
    str | None,
    typer.Option("--mlflow", metavar="EXPERIMENT", help="A run of MLflow."),
]
Otel = Annotated[
    str | None,
    typer.Option("--otel", metavar="SERVICE", help="A trace for OpenTelemetry's collector."),
]


def export(
    run: RunArgument = None,
    tensorboard: TensorBoard = None,
    csv: Csv = None,
    parquet: Parquet = None,
    trace: Trace = None,
    wandb: Wandb = None,
    mlflow: Mlflow = None,
    otel: Otel = None,
    out: Out = Path("runs"),
) -> None:
    """Write a run for other tools.

    TensorBoard, pandas, DuckDB, Perfetto, Weights & Biases, MLflow or OpenTelemetry. An earlier
    export in the same place is replaced, other files never. Exit codes: 0, or 2 where nothing could
    be written.
    """
    from emulator.plugins.exports.export import export

    files = {"tensorboard": tensorboard, "csv": csv, "parquet": parquet, "trace": trace}
    services = {"wandb": wandb, "mlflow": mlflow, "otel": otel}
    export(find_run(run or "last", out), note, **files, services=services)
