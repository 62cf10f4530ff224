"""The variables that Kubeflow's training operator gives to each pod (pure).

Byte for byte those of kubeflow/training-operator v1.9.0. The variables of other frameworks' files
are for everyone else; these are for a scenario with `operator`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from emulator.scenario.frameworks.pytorch import in_conf, shared_address
from emulator.scenario.frameworks.spec import WORKER, Member

if TYPE_CHECKING:
    from emulator.kubeflow.section import Operator, OperatorElastic

PS, MASTER = "ps", "master"


def environment(operator: Operator, member: Member, members: Sequence[Member]) -> Mapping[str, str]:
    """Return the variables that the operator appends to those of the pod's container."""
    make = _tfjob if operator.kind == "TFJob" else _pytorchjob
    return make(operator, member, members)


# --- TFJob ----------------------------------------------------------------------------------------


def _tfjob(operator: Operator, member: Member, members: Sequence[Member]) -> Mapping[str, str]:
    """Return TF_CONFIG, unless the job is a single replica.

    Source: pkg/controller.v1/tensorflow/tensorflow.go, and `isDistributed` of util.go.
    """
    if len(members) == 1:
        return {}
    make = _sparse if operator.dynamic_worker else _dense
    # As Go's json.Marshal writes it: no spaces, and struct fields in the order of the type.
    return {"TF_CONFIG": json.dumps(make(member, members), separators=(",", ":"))}


def _cluster(members: Sequence[Member]) -> dict[str, list[str]]:
    """Return the addresses of every type in its order, evaluator and master included.

    The operator's is a map, whose keys Go sorts.
    """
    cluster: dict[str, list[str]] = {}
    for member in sorted(members, key=lambda m: (m.role, m.index)):
        cluster.setdefault(member.role, []).append(member.address)
    return cluster


def _task(member: Member) -> dict[str, object]:
    return {"type": member.role, "index": member.index}


def _dense(member: Member, members: Sequence[Member]) -> dict[str, object]:
    return {"cluster": _cluster(members), "task": _task(member), "environment": "cloud"}


def _sparse(member: Member, members: Sequence[Member]) -> dict[str, object]:
    """Return what a job with enableDynamicWorker has: workers do not know each other.

    A parameter server knows only itself, and keeps its index. Without parameter servers, a worker
    has `null` for them: the missing entry of a Go map.
    """
    workers: dict[str, str] = {}
    servers: list[str] | None = []
    if member.role == PS:
        servers = [member.address]
    elif member.role == WORKER:
        workers = {str(member.index): member.address}
        servers = _cluster(members).get(PS)
    return {"cluster": {"worker": workers, "ps": servers}, "task": _task(member)}


# --- PyTorchJob -----------------------------------------------------------------------------------


def _pytorchjob(operator: Operator, member: Member, members: Sequence[Member]) -> Mapping[str, str]:
    """Return the variables of a PyTorchJob; where it sets one twice, the second.

    RANK is the rank of the pod, also where it runs several processes.
    Source: pkg/controller.v1/pytorch/envvar.go, master.go, elastic.go; pytorch_defaults.go.
    """
    processes = operator.nproc_per_node
    variables = {"PYTHONUNBUFFERED": "1"}
    master = next((other for other in members if other.role == MASTER), None)
    if master is not None:
        rank = member.index + (1 if member.role == WORKER else 0)
        count = len(members) * (processes if isinstance(processes, int) else 1)
        variables |= {
            "MASTER_PORT": str(master.port),
            "PET_MASTER_PORT": str(master.port),
            "MASTER_ADDR": master.bare,
            "PET_MASTER_ADDR": master.bare,
            "WORLD_SIZE": str(count),
            "RANK": str(rank),
            "PET_NODE_RANK": str(rank),
        }
    variables["PET_NPROC_PER_NODE"] = str(processes)
    if operator.elastic is None:
        return {**variables, "PET_NNODES": str(len(members))}
    return {**variables, **_elastic(member, members, operator.elastic)}


def _elastic(
    member: Member, members: Sequence[Member], elastic: OperatorElastic
) -> Mapping[str, str]:
    """Return what elasticPolicy adds, with the operator's defaults."""
    workers = [other for other in members if other.role == WORKER] or list(members)
    wanted = elastic.rdzv_host
    least = elastic.min or elastic.max or len(workers)
    most = elastic.max or elastic.min or len(workers)
    named = (wanted or workers[0].pod).partition(".")[0]
    holder = next((other for other in members if other.pod == named), None)
    # A name that is given remains as it is, unless the engine has no such names.
    host = wanted if wanted and (holder is None or holder.has_name) else (holder or member).bare
    local, said = shared_address(member, members, holder)
    given = {
        "PET_RDZV_ENDPOINT": f"{host}:{elastic.rdzv_port or workers[0].port}",
        "PET_RDZV_BACKEND": elastic.rdzv_backend,
        "PET_NNODES": f"{least}:{most}",
        "PET_MAX_RESTARTS": elastic.max_restarts,
        "PET_NPROC_PER_NODE": elastic.nproc_per_node,
        "PET_RDZV_ID": elastic.rdzv_id,
        "PET_RDZV_CONF": in_conf({**said, **elastic.rdzv_conf}) or None,
        "PET_STANDALONE": "" if elastic.standalone else None,
    }
    return {**{name: str(value) for name, value in given.items() if value is not None}, **local}
