"""The table of frameworks. A new one is one file and its name here and in `FrameworkName`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from emulator.scenario.frameworks.jax import JAX
from emulator.scenario.frameworks.mpi import LAUNCHER, MPI
from emulator.scenario.frameworks.pytorch import PYTORCH
from emulator.scenario.frameworks.ray import RAY
from emulator.scenario.frameworks.spec import Framework, FrameworkName, Job, Member, Roles
from emulator.scenario.frameworks.tensorflow import TENSORFLOW

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario


AUTO = "auto"
"""The name of the image that fits the framework."""


def _addresses(member: Member, members: Sequence[Member], job: Job) -> Mapping[str, str]:
    """Return all addresses by role, for programs with a rendezvous of their own."""
    cluster: dict[str, list[str]] = {}
    for other in members:
        cluster.setdefault(other.role, []).append(other.address)
    return {"EMULATOR_CLUSTER": json.dumps(cluster)}


NONE = Framework(
    "none", _addresses, roles=Roles(leaders=(*Roles().leaders, LAUNCHER)), image="python"
)
"""No framework: programs that find each other by themselves; a launcher leads them, as of MPI."""
FRAMEWORKS: Mapping[FrameworkName, Framework] = {
    framework.name: framework for framework in (TENSORFLOW, PYTORCH, JAX, MPI, RAY, NONE)
}
"""Every framework by its value of `framework:`."""


def roles_of(scenario: Scenario) -> Roles:
    """Return what the roles of a scenario's tasks mean."""
    rules = scenario.rules
    return (rules and rules.roles) or FRAMEWORKS[scenario.framework].roles


def module_of(scenario: Scenario) -> str:
    """Return the module that the training imports; empty without a framework or a Python program.

    A shell script may start anything, so nothing is known of that.
    """
    commands = [Job(scenario, role, run_id="").command for role in scenario.in_training.values()]
    names = [command[0].rpartition("/")[2] for command in commands if command]
    runs_python = any(name.startswith(("python", "torchrun")) for name in names)
    modules = FRAMEWORKS[scenario.framework].preload
    return modules[0] if runs_python and modules else ""
