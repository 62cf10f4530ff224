"""Indexed Jobs: the tasks of a role as pods that end (pure).

Source: the reference of the Kubernetes API, Job v1 (completionMode, backoffLimitPerIndex).
"""

from __future__ import annotations

from typing import Any

from emulator.manifests.out.deployment import Group, limit, seconds
from emulator.manifests.out.pods import ClusterDefaults, Kind, pod_template
from emulator.scenario.schema import Scenario

COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""The field of a pod with its index in an indexed Job."""

DEFAULT_LIMIT = 6
"""Restarts that a Job allows where nothing is said (backoffLimit)."""

Data = dict[str, Any]


def job_spec(group: Group, cluster: ClusterDefaults, kind: Kind, **pod: Any) -> Data:  # noqa: ANN401
    """Return the specification of a role's Job; `pod` are further fields of its pods.

    Each pod has its own number of restarts, as each task has.
    """
    scenario = cluster.deployment.scenario
    spec: Data = {
        "completions": group.replicas,
        "parallelism": group.replicas,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": restarts(scenario, cluster),
    }
    if scenario.timeout is not None:
        spec["activeDeadlineSeconds"] = seconds(scenario.timeout)
    return {**spec, "template": pod_template(group, cluster, kind, restartPolicy="Never", **pod)}


def restarts(scenario: Scenario, cluster: ClusterDefaults) -> int:
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
