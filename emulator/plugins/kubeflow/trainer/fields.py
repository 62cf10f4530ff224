"""The fields of TrainJobs, runtimes, JobSets and indexed Jobs, and what is made of each (pure).

They are those of kubeflow/trainer 2.0 to 2.3, kubernetes-sigs/jobset 0.12 and Kubernetes 1.31.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from emulator.plugins.kubeflow.manifests import kubernetes_fields
from emulator.plugins.kubeflow.manifests.fields import Field, Fields
from emulator.plugins.kubeflow.manifests.kubernetes_fields import (
    IN_ORDER,
    METADATA,
    STARTS,
    approximated,
    honoured,
    ignored,
    number,
    required,
    said,
    server,
)
from emulator.validation.limits import TASKS

TRAINER = "trainer.kubeflow.org/v1alpha1"
JOBSET = "jobset.x-k8s.io/v1alpha2"
BATCH = "batch/v1"
REASONS = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
"""Why a Job may have failed, for rules of a JobSet."""
GROUP_POLICY = "all tasks start together, as a gang"
_STATUS = Field("anything", "ignored", "the state of a job elsewhere", quiet=True)


def _one_of(*options: str) -> Field:
    return Field("text", "honoured", "", required=True, options=options)


_HEAD: Fields = {
    "apiVersion": required("text"),
    "kind": required("text"),
    "metadata": required("TrainMetadata"),
    "status": _STATUS,
}
_PODS = kubernetes_fields.OBJECTS
_CONTAINER_PATCH: Fields = {
    **_PODS["Container"],
    "name": required("text", "of a container of the runtime"),
}
_POD_PATCH: Fields = {
    **_PODS["PodSpec"],
    "containers": honoured("[ContainerPatch]"),
    "initContainers": honoured("[ContainerPatch]"),
}

OBJECTS: Mapping[str, Fields] = MappingProxyType(
    {
        **_PODS,
        "PodSpec": {
            **_PODS["PodSpec"],
            "restartPolicy": honoured("text", options=("", "Never", "OnFailure", "Always")),
            "activeDeadlineSeconds": ignored("integer", "that of the job counts"),
            "hostname": ignored("text", "it is the name of the pod, without its random letters"),
            "subdomain": honoured("text", "of a bare Job: the name of its service"),
            "hostAliases": ignored("[object]", "names are those of the job's service"),
            "dnsConfig": ignored("object", "names are those of the job's service"),
        },
        "Container": {**_PODS["Container"], "name": required("text")},
        "TrainMetadata": {
            **METADATA,
            "name": honoured("text", "of the job, its pods and their service"),
            "generateName": approximated("text", "the name is this one, without random letters"),
            "namespace": honoured("text", "of its ConfigMaps, Secrets and claims"),
            "labels": Field("{text}", "ignored", "nothing selects by them", quiet=True),
            "annotations": Field("{text}", "ignored", "nothing reads them", quiet=True),
        },
        # --- TrainJob: pkg/apis/trainer/v1alpha1/trainjob_types.go
        "TrainJob": {**_HEAD, "spec": required("TrainJobSpec")},
        "TrainJobSpec": {
            "runtimeRef": required("RuntimeRef"),
            "initializer": honoured("Initializer"),
            "trainer": honoured("Trainer", "without it a runtime sets no variables"),
            "labels": Field("{text}", "ignored", "nothing selects by them", quiet=True),
            "annotations": Field("{text}", "ignored", "nothing reads them", quiet=True),
            "podSpecOverrides": honoured("[PodSpecOverride]", "as of Trainer 2.0"),
            "podTemplateOverrides": honoured("[PodTemplateOverride]", "as of Trainer 2.1"),
            "runtimePatches": honoured("[RuntimePatch]", "as of Trainer 2.2"),
            "suspend": ignored("boolean", STARTS),
            "activeDeadlineSeconds": number(least=1),
            "managedBy": Field("text", "ignored", "the emulator is the controller", quiet=True),
        },
        "RuntimeRef": {
            "name": required("text", "of a built-in runtime, or of one in the files"),
            "apiGroup": honoured("text", options=("trainer.kubeflow.org",)),
            "kind": honoured("text", options=("ClusterTrainingRuntime", "TrainingRuntime")),
        },
        "Initializer": {"dataset": honoured("Source"), "model": honoured("Source")},
        "Source": {
            "storageUri": honoured("text", "STORAGE_URI of the initializer"),
            "env": honoured("[EnvVar]"),
            "secretRef": honoured("NameRef", "its values are variables of the initializer"),
        },
        "NameRef": {"name": required("text")},
        "Trainer": {
            "image": honoured("text"),
            "command": honoured("[text]"),
            "args": honoured("[text]"),
            "env": honoured("[EnvVar]"),
            "numNodes": number(most=TASKS),
            "resourcesPerNode": honoured("Resources"),
            "numProcPerNode": honoured("anything", "a number, or auto, cpu or gpu as of 2.0"),
        },
        "PodSpecOverride": {
            **_POD_PATCH,
            "targetJobs": required("[NameRef]"),
        },
        "PodTemplateOverride": {
            "targetJobs": required("[NameRef]"),
            "metadata": honoured("PodMetadata"),
            "spec": honoured("PodPatch"),
        },
        "PodPatch": _POD_PATCH,
        "ContainerPatch": _CONTAINER_PATCH,
        "RuntimePatch": {
            "manager": honoured("text"),
            "time": server("text"),
            "trainingRuntimeSpec": honoured("RuntimeSpecPatch"),
        },
        "RuntimeSpecPatch": {"template": honoured("JobSetPatch")},
        "JobSetPatch": {
            "metadata": Field("anything", "ignored", "nothing selects by it", quiet=True),
            "spec": honoured("JobSetSpecPatch"),
        },
        "JobSetSpecPatch": {"replicatedJobs": honoured("[ReplicatedJobPatch]")},
        "ReplicatedJobPatch": {"name": required("text"), "template": honoured("JobPatch")},
        "JobPatch": {
            "metadata": Field("anything", "ignored", "nothing selects by it", quiet=True),
            "spec": honoured("JobSpecPatch"),
        },
        "JobSpecPatch": {"template": honoured("PodTemplatePatch")},
        "PodTemplatePatch": {"metadata": honoured("PodMetadata"), "spec": honoured("PodPatch")},
        # --- Runtimes: pkg/apis/trainer/v1alpha1/trainingruntime_types.go
        "TrainingRuntime": {**_HEAD, "spec": required("RuntimeSpec")},
        "ClusterTrainingRuntime": {**_HEAD, "spec": required("RuntimeSpec")},
        "RuntimeSpec": {
            "mlPolicy": honoured("Policy"),
            "podGroupPolicy": ignored("object", GROUP_POLICY),
            "template": required("JobSetTemplate"),
        },
        "Policy": {
            "numNodes": number(most=TASKS),
            "torch": honoured("Torch"),
            "mpi": honoured("Mpi"),
            "jax": honoured("object"),
            "xgboost": honoured("object"),
            "flux": honoured("object", "is refused"),
        },
        "Torch": {
            "numProcPerNode": honoured("anything", "as of Trainer 2.0 and 2.1"),
            "elasticPolicy": ignored("object", "the number of nodes is numNodes, as in 2.2"),
            "envInjection": honoured("EnvInjection", "as of Trainer 2.3"),
        },
        "EnvInjection": {"targets": honoured("[EnvInjectionTarget]")},
        "EnvInjectionTarget": {
            "jobName": required("text"),
            "containerNames": required("[text]", "beside node, which has the variables anyway"),
        },
        "Mpi": {
            "numProcPerNode": number(least=1),
            "mpiImplementation": honoured("text", options=("OpenMPI",)),
            "sshAuthMountPath": honoured("text"),
            "runLauncherAsNode": honoured("boolean"),
        },
        "JobSetTemplate": {
            "metadata": Field("anything", "ignored", "nothing selects by it", quiet=True),
            "spec": required("JobSetSpec"),
        },
        # --- JobSet: api/jobset/v1alpha2/jobset_types.go
        "JobSet": {**_HEAD, "spec": required("JobSetSpec")},
        "JobSetSpec": {
            "replicatedJobs": required("[ReplicatedJob]"),
            "network": honoured("Network"),
            "successPolicy": honoured("SuccessPolicy"),
            "failurePolicy": honoured("FailurePolicy"),
            "startupPolicy": ignored("object", IN_ORDER),
            "suspend": ignored("boolean", STARTS),
            "coordinator": ignored("object", "nothing reads its label"),
            "managedBy": Field("text", "ignored", "the emulator is the controller", quiet=True),
            "ttlSecondsAfterFinished": Field(
                "integer", "ignored", "the run folder stays", quiet=True
            ),
            "volumeClaimPolicies": honoured("[ClaimPolicy]"),
        },
        "ReplicatedJob": {
            "name": required("text"),
            "groupName": Field("text", "ignored", "nothing selects by it", quiet=True),
            "template": required("JobTemplate"),
            "replicas": number(most=TASKS),
            "dependsOn": honoured("[DependsOn]"),
        },
        "DependsOn": {
            "name": required("text"),
            "status": Field("text", "honoured", "", required=True, options=("Ready", "Complete")),
        },
        "JobTemplate": {"metadata": honoured("PodMetadata"), "spec": required("JobSpec")},
        "Network": {
            "enableDNSHostnames": ignored("boolean", "tasks have their names", harmless=(True,)),
            "subdomain": honoured("text", "the name of the service"),
            "publishNotReadyAddresses": Field(
                "boolean", "ignored", "names are there from the start", quiet=True
            ),
        },
        "SuccessPolicy": {
            "operator": honoured("text", options=("All", "Any")),
            "targetReplicatedJobs": honoured("[text]"),
        },
        "FailurePolicy": {
            "maxRestarts": number(),
            "restartStrategy": ignored(
                "text", "all tasks end before they start again", harmless=("BlockingRecreate",)
            ),
            "rules": honoured("[FailureRule]"),
        },
        "FailureRule": {
            "name": Field("text", "ignored", "nothing refers to it", quiet=True),
            "action": _one_of(
                "FailJobSet",
                "RestartJobSet",
                "RestartJobSetAndIgnoreMaxRestarts",
                "RestartJob",
                "RestartJobAndIgnoreMaxRestarts",
            ),
            "onJobFailureReasons": honoured("[text]", options=REASONS),
            "onJobFailureMessagePatterns": approximated(
                "[text]", "the message has the name of the task in place of that of its Pod"
            ),
            "targetReplicatedJobs": honoured("[text]"),
        },
        "ClaimPolicy": {
            "templates": honoured("[ClaimTemplate]"),
            "retentionPolicy": Field("object", "ignored", "the volume stays", quiet=True),
        },
        "ClaimTemplate": {
            "apiVersion": Field("text", "ignored", "there is one", quiet=True),
            "kind": Field("text", "ignored", "there is one", quiet=True),
            "metadata": required("ObjectMetadata"),
            "spec": said("object", "a volume of the engine, whatever its size and its class"),
            "status": _STATUS,
        },
        # --- Job: k8s.io/api/batch/v1
        "Job": {**_HEAD, "spec": required("JobSpec")},
        "JobSpec": {
            "parallelism": number(most=TASKS),
            "completions": number(most=TASKS),
            "completionMode": honoured("text", options=("Indexed", "NonIndexed")),
            "backoffLimit": number(),
            "backoffLimitPerIndex": number(),
            "maxFailedIndexes": number(),
            "activeDeadlineSeconds": number(least=1),
            "ttlSecondsAfterFinished": Field(
                "integer", "ignored", "the run folder stays", quiet=True
            ),
            "suspend": ignored("boolean", STARTS),
            "podFailurePolicy": honoured("PodFailurePolicy"),
            "podReplacementPolicy": honoured("text", options=("TerminatingOrFailed", "Failed")),
            "successPolicy": honoured("JobSuccessPolicy"),
            "selector": server("object"),
            "manualSelector": server("boolean"),
            "managedBy": Field("text", "ignored", "the emulator is the controller", quiet=True),
            "template": required("PodTemplate"),
        },
        "PodFailurePolicy": {"rules": required("[PodFailureRule]")},
        "PodFailureRule": {
            "action": _one_of("FailJob", "FailIndex", "Ignore", "Count"),
            "onExitCodes": honoured("OnExitCodes"),
            "onPodConditions": honoured("[OnPodCondition]"),
        },
        "OnExitCodes": {
            "containerName": honoured("text"),
            "operator": _one_of("In", "NotIn"),
            "values": required("[integer]"),
        },
        "OnPodCondition": {
            "type": required("text"),
            "status": honoured("text", options=("True", "False", "Unknown")),
        },
        "JobSuccessPolicy": {"rules": required("[JobSuccessRule]")},
        "JobSuccessRule": {
            "succeededIndexes": honoured("text"),
            "succeededCount": number(least=1),
        },
    }
)
"""The fields by object."""

MOVED: Mapping[str, str] = {
    **kubernetes_fields.MOVED,
    "TrainJobSpec.numNodes": "spec.trainer",
    "TrainJobSpec.image": "spec.trainer",
    "TrainJobSpec.command": "spec.trainer",
    "TrainJobSpec.env": "spec.trainer",
    "Trainer.podTemplateOverrides": "spec",
    "Trainer.podSpecOverrides": "spec",
    "Trainer.resources": "resourcesPerNode",
    "RuntimeSpec.replicatedJobs": "template.spec",
    "Torch.numNodes": "spec.mlPolicy",
}
"""Unknown fields that are known elsewhere."""
