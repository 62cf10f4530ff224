"""`convert`: the scenario that a manifest becomes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.options import (
    Command,
    ConfigMaps,
    Faults,
    Images,
    additions,
    note,
    read,
)
from emulator.errors import UsageError


def convert(
    manifest: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A TFJob, PyTorchJob, Helm values, or a cluster as JSON.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to write it, not to stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    images: Images = None,
    faults: Faults = None,
    configmaps: ConfigMaps = None,
    command: Command = None,
) -> None:
    """Write the scenario that `up` and `plan` make of a manifest.

    Comments at its head say what is approximated or ignored. Exit codes: 0, or 2 where the manifest
    is wrong or can't be converted.
    """
    from emulator.scenario.assembly import moved

    given = read(manifest, additions(images, faults, configmaps, command))
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
