"""Where a run was made: the machine, and the commit of the program, for whoever repeats it."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from emulator.planning.plan import Plan

PATIENCE = 10.0
"""Seconds that git may take."""


def origin_of(plan: Plan) -> Mapping[str, str]:
    """Return the machine and, if the program is in a git repository, its commit.

    What can't be found out is left out; this never fails a run.
    """
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
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return ""
    changes = _git(folder, "status", "--porcelain", "--", str(program.absolute()))
    return f"{commit} with changes" if changes else commit


def _git(folder: Path, *command: str) -> str:
    """Return what git says, without the changes that `status` makes to its index."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *command],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
