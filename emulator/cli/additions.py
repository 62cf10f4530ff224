"""The options that add to a manifest what it can't have, or what this machine can't get."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.errors import UsageError, shown

if TYPE_CHECKING:
    from emulator.manifests.convert import Additions

Images = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        metavar="NAME=REF",
        help="Of a manifest: the image to use for a container, a role or an image reference.",
    ),
]
Faults = Annotated[
    Path | None,
    typer.Option(
        "--faults", metavar="FILE", help="A part of a scenario to merge over it: faults, expect."
    ),
]
ConfigMaps = Annotated[
    list[str] | None,
    typer.Option(
        "--configmap",
        metavar="NAME=PATH",
        help="Of a manifest: the values of a ConfigMap or Secret, a file or a folder.",
    ),
]
Command = Annotated[
    str | None,
    typer.Option("--command", help="Of a manifest: the command of every task."),
]


def additions(
    images: Sequence[str] | None,
    faults: Path | None,
    configmaps: Sequence[str] | None,
    command: str | None,
) -> Additions:
    """Return what the options of a command add to a file. Raises UsageError."""
    from emulator.manifests.convert import Additions

    folders = _pairs("--configmap", configmaps or (), "data=./data")
    return Additions(
        images=_pairs("--image", images or (), "tensorflow=cpu"),
        configmaps={name: Path(path) for name, path in folders.items()},
        faults=faults,
        command=_words(command),
    )


def _pairs(option: str, given: Sequence[str], example: str) -> dict[str, str]:
    """Return `NAME=VALUE` options. Raises UsageError."""
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            what = shown(text) or "an empty text"
            raise UsageError(f"{option} {what} is not NAME=VALUE.", f"Example: {option} {example}")
        if name in pairs:
            raise UsageError(f"{option} {shown(name)} is given twice.", "Leave one of them out.")
        pairs[name] = value
    return pairs


def _words(command: str | None) -> tuple[str, ...]:
    """Return a command as words, split as a shell does. Raises UsageError."""
    try:
        words = () if command is None else tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"--command {shown(command or '')}: {error}.") from None
    if command is not None and not words:
        raise UsageError("--command is empty.", "Example: --command 'python train.py'")
    return words
