"""JAX: what `jax.distributed.initialize()` reads without arguments (pure).

It reads the coordinator's address from JAX_COORDINATOR_ADDRESS. The number of processes and its
own it takes only from a cluster that it knows, and of these only Slurm and Open MPI are recognised
by variables alone. So the tasks look like those of a Slurm step with one task per node.
Source: jax/_src/distributed.py, jax/_src/clusters/slurm_cluster.py (JAX 0.10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator.scenario.frameworks.spec import WORKER, Framework, Job, Member, Roles

ROLES = Roles(names=(WORKER,), leaders=())
STEP = "1"
"""The id of the Slurm job; JAX would make a port of it if it had no coordinator's address."""


def _environment(member: Member, members: Sequence[Member], job: Job) -> Mapping[str, str]:
    """Return the variables of JAX, of Slurm, and of Kubeflow; worker 0 is the coordinator."""
    ranked = ROLES.ranked(members)
    first, rank, size = ranked[0], str(ranked.index(member)), str(len(ranked))
    variables = {
        # Read by JAX, and with the next two set by Kubeflow's Trainer.
        "JAX_COORDINATOR_ADDRESS": first.address,
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
        # JAX would listen on all addresses of the machine.
        "JAX_COORDINATOR_BIND_ADDRESS": first.address,
        # Of a JAXJob: pkg/controller.v1/jax/envvar.go of kubeflow/training-operator.
        "COORDINATOR_ADDRESS": first.host,
        "COORDINATOR_PORT": str(first.port),
        "NUM_PROCESSES": size,
        "PROCESS_ID": rank,
        "SLURM_JOB_ID": STEP,
        "SLURM_STEP_NODELIST": ",".join(other.host for other in ranked),
        "SLURM_STEP_NUM_NODES": size,
        "SLURM_NTASKS": size,
        "SLURM_PROCID": rank,
        "SLURM_LOCALID": "0",
    }
    if (gpus := job.role.gpus.count) > 1:
        # With a task id of Slurm, JAX uses one device.
        variables["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, range(gpus)))
    return variables


JAX = Framework(
    "jax",
    _environment,
    roles=ROLES,
    image="jax",
    overridable=frozenset({"JAX_LOCAL_DEVICE_IDS"}),
    preload=("jax",),
)
