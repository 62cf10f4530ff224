"""Checks of this machine for the process engine, for `emulate doctor`."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from emulator.engines.base import Finding, Status
from emulator.engines.process.interpreter import has_module, of_caller, versions
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

    python = of_caller(os.environ)
    found = versions(python)
    yield Finding("Python", "ok", f"{found.get('python', 'tasks run')} in {python}")
    if scenario is None:
        yield from (_framework(module, "optional", python, found) for module in FRAMEWORKS)
    elif module := module_of(scenario):
        yield _framework(module, "fatal", python, found)
    yield _daemons()


def _framework(module: str, without: Status, python: str, found: Mapping[str, str]) -> Finding:
    title, packages = FRAMEWORKS[module]
    if not has_module(python, module):
        advice = (
            f"Only for the process engine: {python} -m pip install {packages}. Or activate the "
            "environment that has it, or name its Python with --python."
        )
        return Finding(title, without, f"not installed in {python}", advice)
    for name in (module, f"{module}-cpu"):
        if version := found.get(name):
            return Finding(title, "ok", f"{name} {version}")
    return Finding(title, "ok", f"installed in {python}")


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
