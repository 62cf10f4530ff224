"""The fields of TFJobs and PyTorchJobs with those of their pods, and what is made of each.

They are those of kubeflow/training-operator v1.9.0. The table in docs/kubeflow.md is checked
against this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from emulator.manifests import kubernetes_fields
from emulator.manifests.fields import Field, Fields
from emulator.manifests.kubernetes_fields import (
    IN_ORDER,
    METADATA,
    approximated,
    honoured,
    ignored,
    number,
    port,
    required,
)

GROUP = "kubeflow.org/v1"
_JOB: Fields = {
    "apiVersion": required("text", f"`{GROUP}`"),
    "kind": required("text"),
    "metadata": required("JobMetadata"),
    "status": Field("anything", "ignored", "the state of a job elsewhere", quiet=True),
}

OBJECTS: Mapping[str, Fields] = MappingProxyType(
    {
        **kubernetes_fields.OBJECTS,
        "ContainerPort": {
            **kubernetes_fields.OBJECTS["ContainerPort"],
            "name": honoured("text", "`tfjob-port` or `pytorchjob-port` is that of the rendezvous"),
        },
        "TFJob": {**_JOB, "spec": required("TFJobSpec")},
        "PyTorchJob": {**_JOB, "spec": required("PyTorchJobSpec")},
        "JobMetadata": {
            **METADATA,
            "name": honoured("text", "of the job, its pods and their services"),
            "generateName": approximated("text", "the name is this one, without random letters"),
            "namespace": honoured("text", "part of the names on the network"),
            "labels": honoured("{text}", "kept with the scenario"),
            "annotations": honoured("{text}", "kept with the scenario"),
        },
        "TFJobSpec": {
            "runPolicy": honoured("RunPolicy"),
            "successPolicy": honoured("text", options=("", "AllWorkers")),
            "enableDynamicWorker": honoured("boolean", "the sparse TF_CONFIG"),
            "tfReplicaSpecs": required("{ReplicaSpec}", "PS, Worker, Chief, Master, Evaluator"),
        },
        "PyTorchJobSpec": {
            "runPolicy": honoured("RunPolicy"),
            "elasticPolicy": honoured("ElasticPolicy"),
            "nprocPerNode": honoured("text", "auto, cpu, gpu or a number, as text"),
            "pytorchReplicaSpecs": required("{ReplicaSpec}", "Master, Worker"),
        },
        "RunPolicy": {
            "cleanPodPolicy": honoured("text", options=("", "None", "Running", "All")),
            "ttlSecondsAfterFinished": number(),
            "activeDeadlineSeconds": number(),
            "backoffLimit": number(),
            "suspend": honoured("boolean"),
            "schedulingPolicy": ignored("SchedulingPolicy", IN_ORDER),
            "managedBy": Field(
                "text",
                "ignored",
                "the emulator is the controller",
                options=(
                    "kubeflow.org/training-operator",
                    "kueue.x-k8s.io/multikueue",
                ),
                harmless=("kubeflow.org/training-operator",),
            ),
        },
        "SchedulingPolicy": {
            "minAvailable": Field("integer", "ignored", IN_ORDER, quiet=True),
            "queue": Field("text", "ignored", IN_ORDER, quiet=True),
            "minResources": Field("{quantity}", "ignored", IN_ORDER, quiet=True),
            "priorityClass": Field("text", "ignored", IN_ORDER, quiet=True),
            "scheduleTimeoutSeconds": Field("integer", "ignored", IN_ORDER, quiet=True),
        },
        "ElasticPolicy": {
            "minReplicas": number(least=1),
            "maxReplicas": number(least=1),
            "rdzvBackend": honoured("text", options=("c10d", "etcd", "etcd-v2")),
            "rdzvPort": port(),
            "rdzvHost": honoured("text"),
            "rdzvId": honoured("text"),
            "rdzvConf": honoured("[RdzvConf]"),
            "standalone": honoured("boolean"),
            "nProcPerNode": number(least=1),
            "maxRestarts": number(),
            "metrics": ignored("anything", "the number of tasks is that of replicas"),
        },
        "RdzvConf": {"key": honoured("text"), "value": honoured("text")},
        "ReplicaSpec": {
            "replicas": number(),
            "restartPolicy": honoured(
                "text", options=("", "Never", "OnFailure", "Always", "ExitCode")
            ),
            "template": honoured("PodTemplate"),
        },
    }
)
"""The fields by object."""

MOVED: Mapping[str, str] = {
    **kubernetes_fields.MOVED,
    **{
        f"{spec}.{field}": "spec.runPolicy"
        for spec in ("TFJobSpec", "PyTorchJobSpec")
        for field in OBJECTS["RunPolicy"]
    },
    "ReplicaSpec.spec": "template",
    "ReplicaSpec.containers": "template.spec",
    "RunPolicy.successPolicy": "spec",
}
"""Unknown fields that are known elsewhere: the older versions had some of them there."""
