"""Checks of this machine for the process engine, for `emulate doctor`."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from emulator.engines.base import Finding, Status
from emulator.engines.process.keeper import adopts

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

TENSORFLOW = {True: "tensorflow-cpu>=2.21,<2.22", False: "tensorflow>=2.21,<2.22"}
"""What is installed on x86_64, and elsewhere."""
KERAS = "tf_keras>=2.21,<2.22"

FRAMEWORKS = {
    "tensorflow": ("TensorFlow", f"'{TENSORFLOW[platform.machine() == 'x86_64']}' '{KERAS}'"),
    "torch": ("PyTorch", "torch"),
    "jax": ("JAX", "jax"),
}
"""The modules of frameworks: what they are called, and what pip installs."""


def examine(scenario: Scenario | None = None) -> Iterator[Finding]:
    """Yield findings on Python, on the framework of the scenario or on all, and on daemons."""
    from emulator.scenario.frameworks.registry import module_of  # not needed to remove what is left

    yield Finding("Python", "ok", f"{sys.version.split()[0]} in {sys.executable}")
    if scenario is None:
        yield from (_framework(module, "optional") for module in FRAMEWORKS)
    elif module := module_of(scenario):
        yield _framework(module, "fatal")
    yield _daemons()


def is_installed(module: str) -> bool:
    """Return whether tasks, which run in this interpreter, can import a module."""
    return importlib.util.find_spec(module) is not None


def _framework(module: str, without: Status) -> Finding:
    title, packages = FRAMEWORKS[module]
    if not is_installed(module):
        advice = f"Only for the process engine: pip install {packages}."
        return Finding(title, without, "not installed beside emulate", advice)
    for name in (module, f"{module}-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return Finding(title, "ok", f"{name} {importlib.metadata.version(name)}")
    return Finding(title, "ok", "installed beside emulate")


def _daemons() -> Finding:
    """Say whether the process engine finds processes that leave their task's session."""
    if adopts():
        return Finding("daemons of tasks", "ok", "the process engine finds and ends them")
    return Finding(
        "daemons of tasks",
        "warning",
        "a process that leaves its session and clears its environment outlives its task",
        "This applies to the process engine only; with Docker they end with their container.",
    )


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


def installed() -> dict[str, str]:
    """Return the versions of Python and of those of PACKAGES that are installed, by name."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
