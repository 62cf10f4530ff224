"""MPI: `mpirun` of Open MPI on a launcher, which starts processes on the workers by ssh (pure).

As with Kubeflow's MPIJob, the workers' command is an ssh server, and their image has the keys.
The list of hosts is a variable here instead of a file; Open MPI 4 reads both.
Source: orte/runtime/orte_mca_params.c of Open MPI 4, pkg/controller/mpi_job_controller.go of
kubeflow/mpi-operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from emulator.scenario.frameworks.spec import WORKER, Framework, Job, Member, Roles

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

LAUNCHER = "launcher"
ATTEMPTS = 10
"""How often ssh tries to reach a worker whose server does not listen yet, a second apart."""


def _environment(member: Member, members: Sequence[Member], job: Job) -> Mapping[str, str]:
    """Return the variables of the launcher; the workers need none."""
    workers = sorted((m for m in members if m.role == WORKER), key=lambda m: m.index)
    role = job.scenario.cluster.get(WORKER)  # what is checked may have others
    if member.role != LAUNCHER or not workers or role is None:
        return {}
    slots = max(role.gpus.count, 1)
    options = (
        f"ConnectionAttempts={ATTEMPTS}",
        "StrictHostKeyChecking=no",  # hosts are made anew for each run
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
    )
    return {
        "OMPI_MCA_orte_default_dash_host": ",".join(f"{other.host}:{slots}" for other in workers),
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_plm_rsh_args": " ".join(
            [f"-p {workers[0].port}", *(f"-o {option}" for option in options)]
        ),
    }


def _warnings(scenario: Scenario) -> Iterator[str]:
    for role, why in ((LAUNCHER, "nothing runs mpirun"), (WORKER, "mpirun has no hosts")):
        if role not in scenario.cluster:
            yield f"no {role}: {why}"


MPI = Framework(
    "mpi",
    _environment,
    roles=Roles(
        names=(LAUNCHER, WORKER), leaders=(LAUNCHER,), endless_beside=(LAUNCHER,), idle=(LAUNCHER,)
    ),
    overridable=frozenset({"OMPI_MCA_plm_rsh_args"}),
    needs=(("a host for each task, which framework: mpi needs", "isolation"),),
    warnings=_warnings,
)
