"""A scenario as a job of Kubeflow's training operator v1: TFJob, PyTorchJob (pure).

Source: kubeflow/training-operator v1.9.0, pkg/apis/kubeflow.org/v1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from emulator.plugins.kubeflow.kinds import (
    CLEAN,
    JOBS,
    OF_ELASTIC,
    OF_MASTER,
    OF_PYTORCHJOB,
    OF_RENDEZVOUS,
    POLICIES,
)
from emulator.plugins.kubeflow.manifests.out.deployment import (
    Deployment,
    Draft,
    ExportFormat,
    Group,
    limit,
    seconds,
)
from emulator.plugins.kubeflow.manifests.out.pods import (
    ClusterDefaults,
    Kind,
    kubernetes_object,
    pod_template,
)
from emulator.plugins.kubeflow.section import (
    DEFAULT_PORTS,
    FRAMEWORK_OF,
    PREFIX,
    JobKind,
    Operator,
    operator_of,
)
from emulator.scenario.addresses import naming
from emulator.scenario.schema import Scenario

LABEL = f"metadata.labels['{PREFIX}replica-index']"
"""The field of a pod with its index, which the operator sets."""
_POLICIES = {policy: written for written, policy in POLICIES.items()}
_CLEAN = {pods: written for written, pods in CLEAN.items()}

Data = dict[str, Any]


def host(scenario: Scenario, role: str, index: int) -> str:
    """Return the name of a task's service."""
    if index >= 0 and scenario.operator and (named := naming(scenario)) is not None:
        return named.place(role, index).host
    name = f"{scenario.job_name}-{role}"
    return name if index < 0 else f"{name}-{index}"


def _tfjob(deployment: Deployment) -> Draft:
    scenario = deployment.scenario
    operator = operator_of(scenario)
    # The operator makes TF_CONFIG; it knows no other form.
    makes = frozenset() if scenario.rendezvous == "cluster-config" else frozenset({"TF_CONFIG"})
    draft, notes = _job(deployment, "TFJob", makes)
    spec = draft.documents[-1]["spec"]
    if (operator and operator.success == "all-workers") or scenario.success == "all-workers":
        spec["successPolicy"] = "AllWorkers"
    if operator and operator.dynamic_worker:
        spec["enableDynamicWorker"] = True
    if "evaluator" in scenario.in_training and not operator:
        notes.append(
            "the operator's TF_CONFIG has the evaluator in its cluster, the emulator's has not: "
            "ParameterServerStrategy waits for it there for ever"
        )
    return Draft(draft.documents, tuple(notes), draft.usage)


def _pytorchjob(deployment: Deployment) -> Draft:
    scenario = deployment.scenario
    operator = operator_of(scenario)
    has_master = any(group.name == "master" for group in deployment.training)
    elastic = operator.elastic if operator else scenario.elastic
    makes = {*OF_PYTORCHJOB}
    if has_master:
        makes |= {*OF_MASTER}
    if elastic is not None:
        makes |= {*OF_RENDEZVOUS, *OF_ELASTIC.values()}
    if operator is not None:
        makes |= {name for group in deployment.training for name in group.meeting}
    draft, notes = _job(deployment, "PyTorchJob", frozenset(makes))
    spec = draft.documents[-1]["spec"]
    given = deployment.leader.env[0].get("PET_NPROC_PER_NODE", "1")
    processes = str(operator.nproc_per_node) if operator else given
    if processes != "auto":
        spec["nprocPerNode"] = processes
    if operator and operator.elastic:
        spec["elasticPolicy"] = _elastic_of_operator(operator)
    elif scenario.elastic:
        spec["elasticPolicy"] = _elastic(deployment)
    if not has_master and not elastic:
        notes.append(
            "without a master the operator sets no RANK and MASTER_ADDR: the manifest sets them"
        )
    return Draft(draft.documents, tuple(notes), draft.usage)


def _elastic(deployment: Deployment) -> Data:
    elastic = deployment.scenario.elastic
    assert elastic is not None
    count = sum(group.replicas for group in deployment.training)
    policy: Data = {
        "minReplicas": elastic.min or count,
        "maxReplicas": elastic.max or count,
        "rdzvBackend": elastic.backend,
    }
    if elastic.max_restarts is not None:
        policy["maxRestarts"] = elastic.max_restarts
    if elastic.conf:
        policy["rdzvConf"] = [{"key": key, "value": text} for key, text in elastic.conf.items()]
    return policy


def _elastic_of_operator(operator: Operator) -> Data:
    elastic = operator.elastic
    assert elastic is not None
    policy: Data = {
        "minReplicas": elastic.min,
        "maxReplicas": elastic.max,
        "rdzvBackend": elastic.rdzv_backend,
        "rdzvHost": elastic.rdzv_host,
        "rdzvPort": elastic.rdzv_port,
        "rdzvId": elastic.rdzv_id,
        "rdzvConf": [{"key": key, "value": text} for key, text in elastic.rdzv_conf.items()],
        "maxRestarts": elastic.max_restarts,
        "standalone": elastic.standalone or None,
        "nProcPerNode": elastic.nproc_per_node,
    }
    return {key: value for key, value in policy.items() if value not in (None, [])}


# --- What both kinds have -------------------------------------------------------------------------


def _job(deployment: Deployment, kind: JobKind, makes: frozenset[str]) -> tuple[Draft, list[str]]:
    """Return the documents, the job as the last, and the notes so far."""
    scenario = deployment.scenario
    operator = operator_of(scenario)
    cluster = ClusterDefaults(deployment)
    plural = f"{kind.lower()}s"
    types = {one.lower(): one for one in JOBS[kind].types}
    written = Kind(JOBS[kind].container, LABEL, makes)
    if operator is not None:  # the operator adds its default port itself
        written = replace(written, ports=dict.fromkeys(operator.ports, JOBS[kind].port))
    replicas = {
        types[group.name]: {
            "replicas": group.replicas,
            "restartPolicy": _POLICIES[scenario.policy_of(group.name)],
            "template": pod_template(group, cluster, written),
        }
        for group in deployment.training
    }
    metadata = cluster.metadata(deployment.name)
    if operator and operator.labels:
        metadata["labels"] = dict(operator.labels)
    if operator and operator.annotations:
        metadata["annotations"] = dict(operator.annotations)
    spec = {
        "runPolicy": _operator_fields(operator) if operator else _run_policy(scenario, cluster),
        JOBS[kind].replica_specs: replicas,
    }
    document = kubernetes_object(kind, metadata, api="kubeflow.org/v1", spec=spec)
    _note_missing(deployment.before, "runs before training: run it first, as a Job", cluster)
    _note_missing(deployment.helpers, "is a program next to the job: deploy it yourself", cluster)
    name = metadata["name"]
    usage = ("kubectl apply --server-side -f FILE", f"kubectl get {plural} {name} -o yaml")
    return Draft([*cluster.documents, document], (), usage), list(cluster.notes)


def _operator_fields(operator: Operator) -> Data:
    policy: Data = {
        "cleanPodPolicy": _CLEAN[operator.clean_pods],
        "backoffLimit": operator.backoff_limit,
        "activeDeadlineSeconds": seconds(operator.active_deadline),
        "ttlSecondsAfterFinished": seconds(operator.ttl_after_finished),
    }
    return {key: value for key, value in policy.items() if value is not None}


def _run_policy(scenario: Scenario, cluster: ClusterDefaults) -> Data:
    """Return what comes closest to the restarts of a scenario."""
    # The emulator stops what is left when the job has ended.
    policy: Data = {"cleanPodPolicy": "Running"}
    if scenario.restart.policy != "never":
        policy["backoffLimit"] = limit(scenario)
        cluster.note(
            "backoffLimit counts the restarts of all pods together, restart.limit those of each"
        )
    if scenario.restart.scope == "job" and scenario.restart.policy != "never":
        cluster.note("the operator restarts pods one by one, not the job (restart.scope: job)")
    if scenario.timeout is not None:
        policy["activeDeadlineSeconds"] = seconds(scenario.timeout)
    return policy


def _note_missing(groups: tuple[Group, ...], why: str, cluster: ClusterDefaults) -> None:
    for group in groups:
        cluster.note(f"{group.name} {why}")


_DRAFTS: Mapping[JobKind, Callable[[Deployment], Draft]] = {
    "TFJob": _tfjob,
    "PyTorchJob": _pytorchjob,
}
TARGETS = tuple(
    ExportFormat(
        name=kind.lower(),
        about=f"a {kind} of Kubeflow's training operator v1",
        draft=draft,
        host=host,
        port=DEFAULT_PORTS[kind],
        frameworks=(FRAMEWORK_OF[kind],),
        has_operator=True,
    )
    for kind, draft in _DRAFTS.items()
)
