"""What a runtime's `mlPolicy` gives to the container of the program (pure).

Source: kubeflow/trainer v2.3.0, pkg/runtime/framework/plugins and pkg/constants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator.plugins.kubeflow.trainer.jobset import NODE, PORT, index_reference
from emulator.validation.quantities import parse_quantity

Data = Mapping[str, Any]
RENDEZVOUS = ("PET_MASTER_ADDR", "PET_MASTER_PORT")
"""Variables of `torch` that a `tune run` has not: it gets the endpoint as an argument."""
RESERVED: Mapping[str, tuple[str, ...]] = {
    "torch": ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", *RENDEZVOUS),
    "xgboost": ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
    "mpi": (
        *("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames"),
        *("OMPI_MCA_orte_set_default_slots", "OMPI_MCA_plm_rsh_args"),
    ),
}
"""Variables that `spec.trainer.env` may not have; those of `jax` may be there, and count."""
HOSTFILE_FOLDER, HOSTFILE = "/etc/mpi", "hostfile"
"""Where the launcher has the list of hosts, with the slots of each."""
SOURCES = ("torch", "mpi", "jax", "xgboost", "flux")
"""The policies, of which a runtime has one at most."""


@dataclass(frozen=True)
class Nodes:
    """What the variables depend on."""

    job: str
    """The name of the TrainJob."""
    count: int
    processes: int | str | None
    """Of each node, as the TrainJob or its runtime says; None: neither does."""
    resources: Data
    """Of each node, as the TrainJob says; if it says nothing, as its runtime does."""

    @property
    def first(self) -> str:
        """The host of the first: its name says `node`, whatever the replicated job is called."""
        return f"{self.job}-{NODE}-0-0.{self.job}"


def variables(policy: str, nodes: Nodes) -> list[dict[str, Any]]:
    """Return the entries of `env` that a policy adds; those of `mpi` are the launcher's."""
    index = index_reference()
    match policy:
        case "torch":
            return [
                _plain("PET_NNODES", nodes.count),
                _plain("PET_NPROC_PER_NODE", torch_processes(nodes)),
                {"name": "PET_NODE_RANK", **index},
                _plain("PET_MASTER_ADDR", nodes.first),
                _plain("PET_MASTER_PORT", PORT),
            ]
        case "jax":
            return [
                _plain("JAX_NUM_PROCESSES", nodes.count),
                {"name": "JAX_PROCESS_ID", **index},
                _plain("JAX_COORDINATOR_ADDRESS", f"{nodes.first}:{PORT}"),
            ]
        case "xgboost":
            return [
                _plain("DMLC_TRACKER_URI", nodes.first),
                _plain("DMLC_TRACKER_PORT", PORT),
                {"name": "DMLC_TASK_ID", **index},
                _plain("DMLC_NUM_WORKER", nodes.count * max(gpus(nodes.resources), 1)),
            ]
        case "mpi":
            return [
                _plain("OMPI_MCA_orte_default_hostfile", f"{HOSTFILE_FOLDER}/{HOSTFILE}"),
                _plain("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
                _plain("OMPI_MCA_orte_set_default_slots", mpi_processes(nodes)),
                _plain("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
            ]
    return []


def mpi_processes(nodes: Nodes) -> int:
    """Return the slots of each host: where they are not given, its GPUs."""
    given = nodes.processes
    return given if isinstance(given, int) else max(1, gpus(nodes.resources))


def torch_processes(nodes: Nodes) -> int | str:
    """Return PET_NPROC_PER_NODE: a number, or what torchrun finds out itself.

    `auto` of a node without GPUs is the number of its CPUs, and 1 if it asks for none.
    """
    wanted = nodes.processes or "auto"
    if wanted == "cpu" or (wanted == "auto" and not gpus(nodes.resources)):
        return max(1, math.ceil(_amount(nodes.resources, lambda name: name == "cpu")))
    return wanted


def gpus(resources: Data) -> int:
    """Return the GPUs of a node, of whatever vendor."""
    return int(_amount(resources, lambda name: "gpu" in name.lower()))


def _amount(resources: Data, is_wanted: Any) -> float:  # noqa: ANN401  a predicate
    """Return how much of some resources the requests have, or else the limits."""
    for section in ("requests", "limits"):
        found = sum(
            parse_quantity(quantity)
            for name, quantity in resources.get(section, {}).items()
            if is_wanted(name)
        )
        if found:
            return float(found)
    return 0.0


def _plain(name: str, value: object) -> dict[str, Any]:
    return {"name": name, "value": str(value)}
