"""Where a run was made, and what its tasks run in, for whoever repeats it."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.engines.base import Engine, Identifying
from emulator.engines.kit import recipes

if TYPE_CHECKING:
    from emulator.planning.plan import Plan

PATIENCE = 3.0
"""Seconds that git may take; a run waits for it."""


@dataclass(frozen=True)
class Origin:
    """What the first event of a run says for its repetition; what is not known is left out."""

    machine: Mapping[str, str]
    """The machine, the commit of the program, the command, and `scenario` if it is no file."""
    software: Mapping[str, Mapping[str, str]]
    """What is known of each image; see `Identifying`."""


def origin_of(plan: Plan, engine: Engine, command: str = "", scenario: str = "") -> Origin:
    """Return the origin of a run that begins, with the `command` that runs it again, if any.

    `scenario` says what that was read from if it is no file. This never fails a run.
    """
    given = {key: text for key, text in (("command", command), ("scenario", scenario)) if text}
    return Origin({**machine_of(plan), **given}, software_of(plan, engine))


def software_of(plan: Plan, engine: Engine) -> Mapping[str, Mapping[str, str]]:
    """Return what the recipes of the images and the engine say of what tasks run in."""
    found: dict[str, dict[str, str]] = {}
    if isinstance(engine, Identifying):
        with suppress(Exception):  # whatever it is, a run does not fail for it
            found = {image: dict(known) for image, known in engine.software(plan).items()}
    for image in dict.fromkeys(task.image for task in plan.everything if task.image):
        with suppress(Exception):
            found[image] = {**found.get(image, {}), **recipes.required_versions(image)}
    return {image: known for image, known in found.items() if known}


def machine_of(plan: Plan) -> Mapping[str, str]:
    """Return the machine and, if the program is in a git repository, its commit."""
    found = {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cores": str(os.cpu_count() or ""),
        "python": platform.python_version(),
    }
    source = plan.scenario.program.source
    if source is not None and (commit := commit_of(Path(source))):
        found["commit"] = commit
    return {key: text for key, text in found.items() if text}


def commit_of(program: Path) -> str:
    """Return the commit of a file or folder, ` with changes` if it differs; empty: not in git."""
    folder = program if program.is_dir() else program.parent
    first, *rest = _git(
        folder, "status", "--porcelain=v2", "--branch", "--", str(program.absolute())
    ) or [""]
    commit = first.removeprefix("# branch.oid ")
    if commit in (first, "(initial)"):
        return ""
    changes = any(not line.startswith("#") for line in rest)
    return f"{commit} with changes" if changes else commit


def _git(folder: Path, *command: str) -> list[str]:
    """Return the lines that git says, without the changes that `status` makes to its index."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *command],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            errors="replace",  # as text
            timeout=PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()
