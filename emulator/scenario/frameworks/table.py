"""The table of frameworks. A new one is one file and its name here and in `FrameworkName`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from emulator.scenario.frameworks.jax import JAX
from emulator.scenario.frameworks.mpi import MPI
from emulator.scenario.frameworks.none import NONE
from emulator.scenario.frameworks.pytorch import PYTORCH
from emulator.scenario.frameworks.ray import RAY
from emulator.scenario.frameworks.spec import Framework, FrameworkName, Roles
from emulator.scenario.frameworks.tensorflow import TENSORFLOW, TFJOB_ROLES

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

FRAMEWORKS: Mapping[FrameworkName, Framework] = {
    framework.name: framework for framework in (TENSORFLOW, PYTORCH, JAX, MPI, RAY, NONE)
}
"""Every framework by its value of `framework:`."""


def roles_of(scenario: Scenario) -> Roles:
    """Return what the roles of a scenario's tasks mean."""
    if scenario.operator is not None and scenario.operator.kind == "TFJob":
        return TFJOB_ROLES
    return FRAMEWORKS[scenario.framework].roles
