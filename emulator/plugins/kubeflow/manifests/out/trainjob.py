"""A scenario as a TrainJob of Kubeflow's Trainer v2, with a runtime of its own (pure).

Trainer v2 carries on no TFJob and makes no TF_CONFIG. So the variables by which tasks find each
other are in a TrainingRuntime, which has a replicated job for each role; the TrainJob runs it. A
pod's host name is `<TrainJob>-<role>-0-<index>` below a service with the TrainJob's name.
Source: kubeflow/trainer v2.3.0, pkg/apis/trainer/v1alpha1, pkg/runtime/framework/plugins/jobset.
"""

from __future__ import annotations

from typing import Any

from emulator.plugins.kubeflow.manifests.out.deployment import (
    Deployment,
    Draft,
    ExportFormat,
    Group,
    limit,
    seconds,
)
from emulator.plugins.kubeflow.manifests.out.kubernetes import COMPLETION_INDEX, job_spec
from emulator.plugins.kubeflow.manifests.out.pods import (
    ClusterDefaults,
    Kind,
    dns_label,
    kubernetes_object,
)
from emulator.scenario.schema import Scenario

API = "trainer.kubeflow.org/v1alpha1"
CONTAINER = "node"
"""The name of the container of the program, as the runtimes of Trainer have it."""
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"

Data = dict[str, Any]


def host(scenario: Scenario, role: str, index: int) -> str:
    """Return the name of a task's pod below the service of the JobSet."""
    base = scenario.job_name
    return f"{base}-{role}-0-{max(index, 0)}.{base}"


def _trainjob(deployment: Deployment) -> Draft:
    cluster = ClusterDefaults(deployment)
    name = dns_label(deployment.name)
    before = [group.name for group in deployment.before]
    jobs = [_replicated(group, cluster, before) for group in deployment.groups]
    scenario = deployment.scenario
    job_set: Data = {"replicatedJobs": jobs}
    if any(map(deployment.is_endless, deployment.training)) or deployment.helpers:
        # The others never end: the job is done when these are.
        job_set["successPolicy"] = {
            "operator": "All",
            "targetReplicatedJobs": [
                one.name for one in deployment.deciding or deployment.training[:1]
            ],
        }
    if scenario.restart.scope == "job" and scenario.restart.policy != "never":
        job_set["failurePolicy"] = {"maxRestarts": limit(scenario)}
    template: Data = {"template": {"spec": job_set}}
    metadata = cluster.metadata(name)
    runtime = kubernetes_object("TrainingRuntime", metadata, api=API, spec=template)
    spec: Data = {
        "runtimeRef": {"apiGroup": API.partition("/")[0], "kind": "TrainingRuntime", "name": name}
    }
    if scenario.timeout is not None:
        spec["activeDeadlineSeconds"] = seconds(scenario.timeout)
    train_job = kubernetes_object("TrainJob", metadata, api=API, spec=spec)
    cluster.note(
        "the variables by which tasks find each other have the numbers of tasks in them: after a "
        "change of a number, export again"
    )
    usage = ("kubectl apply --server-side -f FILE", f"kubectl get trainjob {name} -o yaml")
    return Draft([*cluster.documents, runtime, train_job], tuple(cluster.notes), usage)


def _replicated(group: Group, cluster: ClusterDefaults, before: list[str]) -> Data:
    """Return the job of a role in the JobSet; it waits for those before training."""
    job: Data = {"name": group.name, "replicas": 1}
    if before and not group.is_before and not group.is_helper:
        job["dependsOn"] = [{"name": name, "status": "Complete"} for name in before]
    template: Data = {"spec": job_spec(group, cluster, Kind(CONTAINER, COMPLETION_INDEX))}
    if group.name == cluster.deployment.leader.name:
        template["metadata"] = {"labels": {STEP: "trainer"}}
    return {**job, "template": template}


TRAINJOB = ExportFormat(
    name="trainjob",
    about="a TrainJob of Kubeflow's Trainer v2, with its TrainingRuntime",
    draft=_trainjob,
    host=host,
)
