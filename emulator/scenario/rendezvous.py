"""Rendezvous: the environment by which the tasks of a framework find each other (pure)."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from emulator.scenario.roles import EVALUATOR

PREFIX = "EMULATOR_"
"""Prefix of the variables that identify a task and its run."""
INSTEAD: Mapping[str, str] = {"EMULATOR_SEED": "write `seed: 1` in the scenario, or --seed 1"}
OVERRIDABLE = frozenset({"PET_NPROC_PER_NODE"})
"""Variables of `environment` that the user may set."""


@dataclass(frozen=True)
class Member:
    """One task as the others see it."""

    role: str
    index: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"


def reserved(name: str, framework: str) -> str:
    """Return what to write instead of a variable that is reserved; empty if it is not."""
    if name.startswith(PREFIX):
        return INSTEAD.get(name, f"give it another name, which does not begin with {PREFIX}")
    if name in _reserved(framework):
        return "it is made from `cluster:`; a program that makes its own has `framework: none`"
    return ""


@functools.cache
def _reserved(framework: str) -> frozenset[str]:
    """Return the variables of a framework that only the emulator sets."""
    members = [Member("worker", index, "host", 1) for index in range(2)]
    return frozenset(environment(framework, members[0], members)) - OVERRIDABLE


def environment(framework: str, member: Member, members: Sequence[Member]) -> dict[str, str]:
    """Return the rendezvous variables of `member` under `framework`."""
    return dict(_BY_FRAMEWORK.get(framework, _addresses)(member, members))


def tf_config(member: Member, members: Sequence[Member]) -> dict[str, object]:
    """Return TF_CONFIG as data, with keys in the order of Kubeflow's operator.

    The evaluator is not part of the cluster: a ParameterServerStrategy chief hangs if it is.
    Source: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
    """
    cluster: dict[str, list[str]] = {}
    for other in sorted(members, key=lambda m: (m.role, m.index)):
        if other.role != EVALUATOR:
            cluster.setdefault(other.role, []).append(other.address)
    return {
        "cluster": cluster,
        "task": {"type": member.role, "index": member.index},
        "environment": "cloud",
    }


def _tensorflow(member: Member, members: Sequence[Member]) -> Mapping[str, str]:
    # A single task trains locally; Kubeflow's operator sets no TF_CONFIG for it either.
    if len(members) == 1:
        return {}
    return {"TF_CONFIG": json.dumps(tf_config(member, members))}


def _pytorch(member: Member, members: Sequence[Member]) -> Mapping[str, str]:
    """Return torch.distributed's `env://` variables and torchrun's PET_*.

    The master (else worker 0) has rank 0, as with Kubeflow's PyTorchJob.
    """
    ranked = sorted(members, key=lambda m: (m.role != "master", m.index))
    first, rank, size = ranked[0], str(ranked.index(member)), str(len(ranked))
    return {
        "MASTER_ADDR": first.host,
        "MASTER_PORT": str(first.port),
        "WORLD_SIZE": size,
        "RANK": rank,
        "PET_MASTER_ADDR": first.host,
        "PET_MASTER_PORT": str(first.port),
        "PET_NNODES": size,
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": "1",
    }


def _addresses(member: Member, members: Sequence[Member]) -> Mapping[str, str]:
    """Return all addresses by role, for programs with a rendezvous of their own."""
    cluster: dict[str, list[str]] = {}
    for other in members:
        cluster.setdefault(other.role, []).append(other.address)
    return {"EMULATOR_CLUSTER": json.dumps(cluster)}


_BY_FRAMEWORK: Mapping[str, Callable[[Member, Sequence[Member]], Mapping[str, str]]] = {
    "tensorflow": _tensorflow,
    "pytorch": _pytorch,
}
