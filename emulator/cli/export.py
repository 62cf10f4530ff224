"""`export`: a run in the formats of other tools, or a scenario as a manifest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.options import HERE, Out, Sets, chosen_scenario, find_run, note, read
from emulator.errors import UsageError


def _complete(context: typer.Context) -> list[str]:
    from emulator.cli.options import complete_runs, complete_scenarios

    return [*complete_runs(context), *complete_scenarios()]


def _complete_formats() -> list[str]:
    from emulator.plugins.kubeflow.manifests.out.export import IN_CLUSTER, TARGETS

    return [*TARGETS, IN_CLUSTER]


What = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN|SCENARIO",
        help="A run [default: the latest]; with --to, a scenario file or its name "
        f"[default: {HERE}].",
        autocompletion=_complete,
    ),
]
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
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="FORMAT",
        help="A scenario for a cluster: tfjob, pytorchjob, trainjob, compose, kubernetes, "
        "helm-values; or the emulator itself in a cluster: kubernetes-job.",
        autocompletion=_complete_formats,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Of --to; default: standard output."),
]
Image = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        metavar="NAME=REF",
        help="Of --to: the image to write for a role, or for an image of the scenario.",
    ),
]


def export(
    what: What = None,
    tensorboard: TensorBoard = None,
    csv: Csv = None,
    parquet: Parquet = None,
    trace: Trace = None,
    wandb: Wandb = None,
    mlflow: Mlflow = None,
    otel: Otel = None,
    to: To = None,
    output: Output = None,
    image: Image = None,
    sets: Sets = None,
    out: Out = Path("runs"),
) -> None:
    """Write a run for other tools, or a scenario for a cluster.

    A run for TensorBoard, pandas, DuckDB, Perfetto, Weights & Biases, MLflow or OpenTelemetry; with
    --to a scenario as a manifest.

    An earlier export in the same place is replaced, other files never. Exit codes: 0, or 2 where
    nothing could be written.
    """
    of_files = {"tensorboard": tensorboard, "csv": csv, "parquet": parquet, "trace": trace}
    of_services = {"wandb": wandb, "mlflow": mlflow, "otel": otel}
    if to is None:
        _refuse({"-o": output, "--image": image, "--set": sets}, "needs --to: it is for a scenario")
        from emulator.plugins.exports.export import export

        export(find_run(what or "last", out), note, **of_files, services=of_services)
        return
    of_runs = {**of_files, **of_services}
    _refuse({f"--{name}": given for name, given in of_runs.items()}, "is for a run, not with --to")
    _check_format(to)
    path = chosen_scenario(Path(what) if what else None, None)
    _scenario(path, to, output, image or [], sets)


def _check_format(name: str) -> None:
    """Raise UsageError if there is no format of that name, before a file is looked for."""
    from emulator.plugins.kubeflow.manifests.out.export import IN_CLUSTER, TARGETS
    from emulator.validation.similar import suggestion

    if name not in (*TARGETS, IN_CLUSTER):
        hint = suggestion(name, (*TARGETS, IN_CLUSTER), "Formats")
        raise UsageError(f"There is no format {name}.", hint)


def _refuse(options: dict[str, object], why: str) -> None:
    for name, given in options.items():
        if given:
            raise UsageError(
                f"{name} {why}.",
                "`emulate export RUN --csv DIR` writes a run, "
                "`emulate export SCENARIO --to tfjob` a scenario.",
            )


def _scenario(
    path: Path, to: str, output: Path | None, images: list[str], sets: list[str] | None
) -> None:
    from emulator.plugins.exports.destination import claim_file, writing
    from emulator.plugins.kubeflow.manifests.out.export import HEAD, IN_CLUSTER, export, target
    from emulator.runtime.files import atomic_write
    from emulator.scenario.loader import overridden

    given = read(path)
    scenario = given.parse(sets or [])
    file = output.name if output else "FILE"
    if to == IN_CLUSTER:
        from emulator.plugins.kubernetes import job

        data = overridden(given.text, str(path), sets or [])
        written = job.export(scenario, data, folder=given.folder, images=_images(images), file=file)
    else:
        written = export(
            scenario,
            target(to, scenario),
            destination=output.resolve().parent if output else Path.cwd(),
            images=_images(images),
            file=file,
        )
    for one in written.notes:
        note(one)
    if output is None:
        sys.stdout.write(written.text)
        return
    claim_file(output, HEAD)
    with writing(output):
        atomic_write(output, written.text, many_writers=True)


def _images(given: list[str]) -> dict[str, str]:
    images = {}
    for text in given:
        name, equals, reference = text.partition("=")
        if not (name and equals and reference):
            raise UsageError(
                f"--image {text} is not NAME=REF.", "For example: --image cpu=registry/train:1"
            )
        images[name] = reference
    return images
