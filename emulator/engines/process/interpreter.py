"""The Python in which tasks of the process engine run: the caller's.

The emulator may be installed apart from what its user trains with, as pipx does it. So an active
environment comes first; the emulator's own Python is what is left.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from emulator.errors import UsageError

VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""What names the active environment; that of conda stays set where another is active in it."""
NAMES = ("python", "python3")
"""The commands that are this Python."""
PATIENCE = 20.0
"""Seconds that another Python may take to answer."""

PACKAGES = (
    "tensorflow",
    "tensorflow-cpu",
    "tf_keras",
    "keras",
    "torch",
    "lightning",
    "accelerate",
    "transformers",
    "jax",
    "jaxlib",
    "orbax-checkpoint",
    "ray",
    "mpi4py",
    "numpy",
)
"""What trainings are made with; to read the versions of all packages would take long."""

_HAS = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
_VERSIONS = """
import importlib.metadata, json, platform, sys

found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def of_caller(
    environ: Mapping[str, str],
    own: str = sys.executable,
    is_program: Callable[[str], bool] = _is_program,
) -> str:
    """Return the Python of the active environment, or else our own."""
    found = (Path(environ[name], "bin", "python") for name in VARIABLES if environ.get(name))
    active = next((path for path in found if is_program(str(path))), Path(own))
    return own if active.parent == Path(own).parent else str(active)


def named(path: str) -> str:
    """Return the Python that `--python` names: a path, or a command. Raises UsageError."""
    found = shutil.which(os.path.expanduser(path))
    if found is None:
        raise UsageError(
            f"--python {path}: there is no such program.",
            "Name the Python of an environment, such as ~/env/bin/python.",
        )
    return os.path.abspath(found)  # a link to a Python elsewhere is what makes an environment


def has_module(python: str, module: str) -> bool:
    """Return whether a Python can import a module; one that does not answer may."""
    if python == sys.executable:
        return importlib.util.find_spec(module) is not None
    try:
        return _ask(python, _HAS, module).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return True


def versions(python: str) -> dict[str, str]:
    """Return the versions of a Python and of those of PACKAGES that it has, by name."""
    if python == sys.executable:
        found = {"python": platform.python_version()}
        for name in PACKAGES:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return found
    try:
        told: dict[str, str] = json.loads(_ask(python, _VERSIONS, *PACKAGES).stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return told


def _ask(python: str, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", program, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd="/",  # what lies in the current folder is not where tasks run
    )
