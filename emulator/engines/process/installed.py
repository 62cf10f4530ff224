"""The versions of what tasks of the process engine import: they run in this interpreter."""

from __future__ import annotations

import importlib.metadata
import platform

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
