"""Checks of this machine for the process engine, for `emulate doctor`."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import sys
from collections.abc import Iterator

from emulator.engines.base import Finding
from emulator.engines.process.keeper import adopts

TENSORFLOW = {True: "tensorflow-cpu>=2.21,<2.22", False: "tensorflow>=2.21,<2.22"}
"""What is installed on x86_64, and elsewhere."""
KERAS = "tf_keras>=2.21,<2.22"


def examine() -> Iterator[Finding]:
    """Yield findings on TensorFlow, Python, and daemons of tasks."""
    yield _tensorflow()
    yield Finding("Python", "ok", f"{sys.version.split()[0]} in {sys.executable}")
    yield _daemons()


def _tensorflow() -> Finding:
    for name in ("tensorflow-cpu", "tensorflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return Finding("TensorFlow", "ok", f"{name} {importlib.metadata.version(name)}")
    library = TENSORFLOW[platform.machine() == "x86_64"]
    advice = f"Only for the process engine: pip install '{library}' '{KERAS}'."
    return Finding("TensorFlow", "missing", "not installed beside emulate", advice)


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
