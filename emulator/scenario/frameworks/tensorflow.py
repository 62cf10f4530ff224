"""TensorFlow: TF_CONFIG, or the older CLUSTER_CONFIG and POD_NAME (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from emulator.scenario.frameworks.spec import WORKER, Framework, Job, Member, Roles

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

EVALUATOR = "evaluator"
"""A role that is not part of the cluster, and only reads checkpoints."""


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


def _environment(member: Member, members: Sequence[Member], job: Job) -> Mapping[str, str]:
    # A single task trains locally; Kubeflow's operator sets no TF_CONFIG for it either.
    if len(members) == 1:
        return {}
    return {"TF_CONFIG": json.dumps(tf_config(member, members))}


def _cluster_config(member: Member, members: Sequence[Member], job: Job) -> Mapping[str, str]:
    """Return the same in the form of programs from before TF_CONFIG, which split the task's name.

    The name is that of a pod: `<role>-<index>`. A chart, which names its pods, sets both for a
    single one too.
    """
    if len(members) == 1 and job.scenario.addresses is None:
        return {}
    return {
        "CLUSTER_CONFIG": json.dumps(tf_config(member, members)["cluster"]),
        "POD_NAME": f"{member.role}-{member.index}",
    }


def _role_hint(role: str) -> str:
    return "TF2 rejects 'master'; write 'chief'" if role == "master" else ""


def _warnings(scenario: Scenario) -> Iterator[str]:
    roles = scenario.in_training
    older = scenario.rendezvous == "cluster-config"
    alone = sum(spec.replicas for spec in roles.values()) == 1
    is_set = older and scenario.addresses
    # Of the rules of an operator, other warnings say it.
    if alone and not (is_set or scenario.rules):
        unset = "no CLUSTER_CONFIG is set" if older else "no TF_CONFIG is set, as with Kubeflow"
        yield f"a single task: {unset}"
    # Programs from before TF_CONFIG have no strategy: worker 0 is their chief.
    if "ps" in roles and "chief" not in roles and not older:
        yield (
            "parameter servers without a chief: ParameterServerStrategy needs one, programs of "
            "TensorFlow 1 do not"
        )
    if "ps" in roles and WORKER not in roles:
        yield "parameter servers without workers: no task would compute gradients"
    if roles.keys() == {EVALUATOR}:
        yield "an evaluator alone has nothing to evaluate"


TENSORFLOW = Framework(
    "tensorflow",
    _environment,
    forms={"tf-config": _environment, "cluster-config": _cluster_config},
    roles=Roles(names=("chief", WORKER, "ps", EVALUATOR), leaders=("chief",), outside=(EVALUATOR,)),
    preload=("tensorflow", "tf_keras"),
    role_hint=_role_hint,
    warnings=_warnings,
)
