"""A scenario as plain Kubernetes objects: a headless service, indexed Jobs, StatefulSets (pure).

Parameter servers never end, so they are a StatefulSet; the tasks of other roles are an indexed Job.
A pod's host name is `<object>-<index>` in both, which the service makes resolvable.
Source: the reference of the Kubernetes API, Service v1, Job v1, StatefulSet v1.
"""

from __future__ import annotations

from typing import Any

from emulator.plugins.kubeflow.manifests.out.deployment import (
    DEFAULT_LIMIT,
    Deployment,
    Draft,
    ExportFormat,
    Group,
    limit,
    seconds,
)
from emulator.plugins.kubeflow.manifests.out.pods import (
    JOB,
    ROLE,
    ClusterDefaults,
    Kind,
    dns_label,
    headless_service,
    kubernetes_object,
    pod_template,
)
from emulator.scenario.schema import Scenario

ORDINAL = "metadata.labels['apps.kubernetes.io/pod-index']"
"""The field of a pod of a StatefulSet with its index."""

COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""The field of a pod with its index in an indexed Job."""

Data = dict[str, Any]


def host(scenario: Scenario, role: str, index: int) -> str:
    """Return the name of a task's pod below the headless service, or of a helper's service."""
    name = f"{scenario.job_name}-{role}"
    return name if index < 0 else f"{name}-{index}.{scenario.job_name}"


def _kubernetes(deployment: Deployment) -> Draft:
    cluster = ClusterDefaults(deployment)
    name = dns_label(deployment.name)
    before = [_job(group, cluster) for group in deployment.before]
    training = [
        _stateful_set(group, cluster) if deployment.is_endless(group) else _job(group, cluster)
        for group in deployment.training
    ]
    helpers = [one for group in deployment.helpers for one in _helper(group, cluster)]
    metadata = {**cluster.metadata(name), "labels": {JOB: name}}
    service = headless_service(metadata, {JOB: name})
    if before:
        jobs = " ".join(f"job/{one['metadata']['name']}" for one in before)
        cluster.note(
            f"{jobs} must end before training: apply it alone first, then "
            f"`kubectl wait --for=condition=complete --timeout=-1s {jobs}`, then the rest"
        )
    leader = f"{name}-{deployment.leader.name}"
    for group in _waiting(deployment):
        cluster.note(
            f"job/{name}-{group.name} need not end: its tasks may wait for more work when "
            f"job/{leader} is complete, whose end is that of the training; delete it then"
        )
    usage = (
        "kubectl apply --server-side -f FILE",
        f"kubectl wait --for=condition=complete --timeout=-1s job/{leader}",
        "kubectl delete -f FILE",
    )
    documents = [service, *cluster.documents, *before, *helpers, *training]
    return Draft(documents, tuple(cluster.notes), usage)


def _waiting(deployment: Deployment) -> list[Group]:
    """Return the roles of Jobs that wait for work of parameter servers when the leader has ended.

    Workers of a ParameterServerStrategy serve their chief as the parameter servers do (pure).
    """
    serving = [one for one in deployment.training if deployment.is_endless(one)]
    if not serving or deployment.leader in serving:
        return []
    return [one for one in deployment.training if one not in (*deployment.deciding, *serving)]


def _metadata(group: Group, cluster: ClusterDefaults) -> Data:
    return {
        **cluster.metadata(f"{cluster.deployment.name}-{group.name}"),
        "labels": _labels(group, cluster),
    }


def _labels(group: Group, cluster: ClusterDefaults) -> Data:
    return {JOB: dns_label(cluster.deployment.name), ROLE: group.name}


def _labelled(template: Data, group: Group, cluster: ClusterDefaults) -> Data:
    return {"metadata": {"labels": _labels(group, cluster)}, **template}


def _job(group: Group, cluster: ClusterDefaults) -> Data:
    kind = Kind(container=group.name, index=COMPLETION_INDEX)
    subdomain = dns_label(cluster.deployment.name)
    spec = job_spec(group, cluster, kind, subdomain=subdomain)
    spec["template"] = _labelled(spec["template"], group, cluster)
    return kubernetes_object("Job", _metadata(group, cluster), api="batch/v1", spec=spec)


def _stateful_set(group: Group, cluster: ClusterDefaults) -> Data:
    kind = Kind(container=group.name, index=ORDINAL)
    cluster.note(f"{group.name} never ends: delete it when the training has ended")
    spec = {
        "serviceName": dns_label(cluster.deployment.name),
        "replicas": group.replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": _labels(group, cluster)},
        "template": _labelled(pod_template(group, cluster, kind), group, cluster),
    }
    return kubernetes_object("StatefulSet", _metadata(group, cluster), api="apps/v1", spec=spec)


def _helper(group: Group, cluster: ClusterDefaults) -> list[Data]:
    """Return a helper's Deployment, and the service by whose name tasks reach it."""
    metadata, labels = _metadata(group, cluster), _labels(group, cluster)
    template = pod_template(group, cluster, Kind(container=group.name))
    deployment = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": _labelled(template, group, cluster),
    }
    service: Data = {"selector": labels, "clusterIP": "None"}
    if group.ports:
        numbers = [port.port for port in group.ports]
        service["ports"] = [{"name": f"port-{port}", "port": port} for port in numbers]
    return [
        kubernetes_object("Deployment", metadata, api="apps/v1", spec=deployment),
        kubernetes_object("Service", metadata, spec=service),
    ]


# --- Indexed Jobs: the tasks of a role as pods that end -------------------------------------------


def job_spec(group: Group, cluster: ClusterDefaults, kind: Kind, **pod: Any) -> Data:  # noqa: ANN401
    """Return the specification of a role's Job; `pod` are further fields of its pods.

    Each pod has its own number of restarts, as each task has.
    """
    scenario = cluster.deployment.scenario
    spec: Data = {
        "completions": group.replicas,
        "parallelism": group.replicas,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": _restarts(scenario, cluster),
    }
    if scenario.timeout is not None:
        spec["activeDeadlineSeconds"] = seconds(scenario.timeout)
    return {**spec, "template": pod_template(group, cluster, kind, restartPolicy="Never", **pod)}


def _restarts(scenario: Scenario, cluster: ClusterDefaults) -> int:
    """Return how often a task may be restarted; note what Jobs do in another way."""
    operator = scenario.operator
    if operator is not None:
        cluster.note("a Job restarts pods that fail, whatever the restart policies of the operator")
        policies = {operator.policy_of(role) for role in scenario.in_training}
        most = DEFAULT_LIMIT if operator.backoff_limit is None else operator.backoff_limit
        return 0 if policies == {"never"} else most
    if scenario.restart.policy == "always":
        cluster.note("a Job does not restart pods that have succeeded (restart.policy: always)")
    if scenario.restart.policy == "exit-code":
        cluster.note("a Job restarts pods whatever their exit code (restart.policy: exit-code)")
    return limit(scenario)


KUBERNETES = ExportFormat(
    name="kubernetes",
    about="plain Kubernetes: a headless service, indexed Jobs and StatefulSets",
    draft=_kubernetes,
    host=host,
)
