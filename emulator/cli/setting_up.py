"""`build`, `doctor`, `schema`, `init`: before the first run."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from emulator.bundled import ROOT
from emulator.cli.common import console, note, print_json
from emulator.errors import UsageError
from emulator.units import format_duration

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add this theme's commands."""
    app.command()(build)
    app.command()(doctor)
    app.command()(schema)
    app.command()(init)


def build(
    kind: Annotated[str, typer.Argument(help="cpu, gpu, pytorch or all.")] = "cpu",
    base: Annotated[
        str | None,
        typer.Option(
            help="The image to build on [default: python:3.11-slim]", envvar="EMULATOR_BASE"
        ),
    ] = None,
    ca_bundle: Annotated[
        Path | None,
        typer.Option(
            help="Certificates, where the network intercepts TLS [default: SSL_CERT_FILE]"
        ),
    ] = None,
    wheels: Annotated[
        Path | None,
        typer.Option(help="A folder of wheels to install from [default: PIP_FIND_LINKS]"),
    ] = None,
) -> None:
    """Build the images that scenarios run in; one that is up to date is left alone."""
    from emulator.engines.docker_connection import connect
    from emulator.images import KINDS, BuildOptions, Images
    from emulator.report.terminal import LivePrinter

    if kind not in (*KINDS, "all"):
        raise UsageError(f"There is no image {kind}.", f"Images: {', '.join(KINDS)}, all.")
    options = BuildOptions.from_environment(base, ca_bundle, wheels)
    images = Images(connect(), options)
    say = LivePrinter().listener().say
    for one in KINDS if kind == "all" else (kind,):
        began = time.monotonic()
        tag = images.build(one, say)
        note(f"{tag} is ready after {format_duration(time.monotonic() - began)}")


def doctor(
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """Check what this machine has for the emulator, and say what to do about the rest."""
    from dataclasses import asdict

    from emulator.doctor import examine
    from emulator.report.terminal import print_findings

    findings = examine()
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_findings(findings, console())
    raise typer.Exit(4 if any(finding.status == "fatal" for finding in findings) else 0)


def schema() -> None:
    """Print the JSON Schema of a scenario, for your editor."""
    from emulator.scenario.model import json_schema

    print_json(json_schema())


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Write a scenario with comments and a small program to start from; it runs as it is."""
    starter = sorted((ROOT / "images" / "starter").iterdir())
    there = [name for name in (file.name for file in starter) if (folder / name).exists()]
    if there and not force:
        raise UsageError(f"{folder / there[0]} is there already.", "--force overwrites it.")
    folder.mkdir(parents=True, exist_ok=True)
    for file in starter:
        shutil.copyfile(file, folder / file.name)
        note(f"wrote {folder / file.name}")
    note(f"now try: emulate up {folder / 'scenario.yaml'}")
