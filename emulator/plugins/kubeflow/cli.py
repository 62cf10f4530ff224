"""Its part of the command line: `convert`, and `--configmap` where manifests are read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.added import NO_OPTIONS, PluginOptions
from emulator.cli.options import (
    Command,
    Faults,
    Images,
    additions,
    note,
    read,
)
from emulator.errors import UsageError
from emulator.runtime import plugins


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
    command: Command = None,
    plugin_options: PluginOptions = NO_OPTIONS,
) -> None:
    """Write the scenario that `up` and `plan` make of a manifest.

    Comments at its head say what is approximated or ignored. Exit codes: 0, or 2 where the manifest
    is wrong or can't be converted.
    """
    from emulator.scenario.assembly import moved

    scenario = read(manifest, additions(images, faults, command, plugin_options))
    scenario.parse()  # reports its mistakes, in the manifest
    text = moved(scenario, Path() if output is None else output.parent)
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


CONVERT = plugins.Command(convert, "Set up", "emulate convert tfjob.yaml -o scenario.yaml")
CONFIGMAP = plugins.Option(
    "configmap",
    "NAME=PATH",
    "Of a manifest: the values of a ConfigMap or Secret, a file or a folder.",
    "data=./data",
    "`mounts:` or `files:`",
    is_path=True,
)
