"""`convert`: the scenario that a manifest becomes, or a manifest for a newer system."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.cli.options import (
    STDIN,
    Command,
    ConfigMaps,
    Faults,
    Images,
    Others,
    additions,
    note,
    read,
)
from emulator.errors import UsageError

if TYPE_CHECKING:
    from emulator.scenario.given import Additions


def _complete_formats() -> list[str]:
    from emulator.scenario.assembly import others

    return others()


To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="FORMAT",
        help="Write a TFJob as a TrainJob of Kubeflow's Trainer v2: trainjob.",
        autocompletion=_complete_formats,
    ),
]


def convert(
    manifest: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A TrainJob, JobSet, Job, TFJob, PyTorchJob, Helm values, or a cluster as JSON.",
        ),
    ],
    to: To = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to write it, not to stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    images: Images = None,
    faults: Faults = None,
    configmaps: ConfigMaps = None,
    others: Others = None,
    command: Command = None,
) -> None:
    """Write the scenario that `up` and `plan` make of a manifest.

    With --to, write a manifest for another system of a cluster. Comments at the head say what is
    approximated, ignored or lost. Exit codes: 0, or 2 where the manifest is wrong or can't be
    converted.
    """
    from emulator.scenario.assembly import moved

    added = additions(images, faults, configmaps, command, others)
    if to is not None:
        text = _for_other(manifest, to, output, added)
    else:
        given = read(manifest, added)
        given.parse()  # reports its mistakes, in the manifest
        text = moved(given, Path() if output is None else output.parent)
    if output is None:
        sys.stdout.write(text)
        return
    if output.exists() and not force:
        raise UsageError(f"{output} is there already.", "--force overwrites it.")
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Can't write {output}: {error.strerror}.") from None
    note(f"wrote {output}; now try: emulate plan {output}")


def _for_other(manifest: Path, to: str, output: Path | None, added: Additions) -> str:
    """Return the manifest that --to names, and print what is lost."""
    from emulator.scenario.assembly import check_other, for_other
    from emulator.scenario.given import PIPED, manifest_text

    check_other(to)
    if added.arguments:
        option = added.arguments[0].partition("=")[0]
        raise UsageError(f"{option} is for a scenario, not with --to.", "Leave one of them out.")
    if manifest == STDIN:
        from emulator.cli.piped import from_stdin

        manifest, text = PIPED, from_stdin()
    else:
        text = manifest_text(manifest)
    made, notes = for_other(manifest, text, to, output.name if output else "FILE")
    for one in notes:
        note(one)
    return made
