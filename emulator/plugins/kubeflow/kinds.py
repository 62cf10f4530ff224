"""TFJobs and PyTorchJobs: their fields with those of their pods, containers, variables (pure).

They are those of kubeflow/training-operator v1.9.0. The table in
docs/reference/manifests.md is checked against the one here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from emulator.plugins.kubeflow.manifests import kubernetes_fields
from emulator.plugins.kubeflow.manifests.fields import Field, Fields, Findings
from emulator.plugins.kubeflow.manifests.kubernetes_fields import (
    IN_ORDER,
    METADATA,
    STARTS,
    approximated,
    honoured,
    ignored,
    number,
    port,
    required,
)
from emulator.plugins.kubeflow.section import LEADERS, CleanPods, JobKind
from emulator.scenario.restart import RestartPolicy

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
            "suspend": ignored("boolean", STARTS),
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

# --- Kinds of jobs --------------------------------------------------------------------------------

POLICIES: Mapping[str, RestartPolicy] = {
    "Never": "never",
    "OnFailure": "on-failure",
    "Always": "always",
    "ExitCode": "exit-code",
}
CLEAN: Mapping[str, CleanPods] = {"None": "none", "Running": "running", "All": "all"}

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """A kind of job."""

    kind: JobKind
    replica_specs: str
    """The field with the replica types."""
    types: tuple[str, ...]
    folds_case: bool
    """Whether a type may be written in any case; else the operator's webhook refuses it."""
    container: str
    """The container that the operator gives its variables."""
    port: str
    """The name of the port at which the tasks find each other."""
    variables: Callable[[Spec], frozenset[str]]
    """The names of the variables that the operator sets, from the spec of the job."""
    operator: Callable[[Findings, Spec], dict[str, Any]]
    """What the section `operator` has of this kind alone; adds mistakes."""

    def port_of(self, pod: Spec, container: str = "") -> int | None:
        """Return the port at which pods meet, if their container names one."""
        ports = [
            port["containerPort"]
            for one in pod.get("containers", [])
            if one["name"] == (container or self.container)
            for port in one.get("ports", [])
            if port.get("name") == self.port
        ]
        return ports[0] if ports else None


# --- TFJob: pkg/webhooks/tensorflow, pkg/controller.v1/tensorflow ---------------------------------


def _variables_of_tfjob(spec: Spec) -> frozenset[str]:
    """Return TF_CONFIG, unless the job is a single replica."""
    specs = spec.get("tfReplicaSpecs", {}).values()
    replicas = sum(one.get("replicas", 1) for one in specs)
    return frozenset() if replicas == 1 else frozenset({"TF_CONFIG"})


def _tfjob_fields(findings: Findings, spec: Spec) -> dict[str, Any]:
    leaders = [key for key in spec.get("tfReplicaSpecs", {}) if key.lower() in LEADERS]
    if len(leaders) > 1:
        path = ("spec", "tfReplicaSpecs", leaders[1])
        findings.mistake(path, f"there is {leaders[0]} already", "a TFJob has one of them")
    return {"dynamic_worker": True} if spec.get("enableDynamicWorker") else {}


_TFJOB = Job(
    kind="TFJob",
    replica_specs="tfReplicaSpecs",
    types=("PS", "Worker", "Chief", "Master", "Evaluator"),
    folds_case=True,
    container="tensorflow",
    port="tfjob-port",
    variables=_variables_of_tfjob,
    operator=_tfjob_fields,
)


# --- PyTorchJob: pkg/webhooks/pytorch, pkg/controller.v1/pytorch ----------------------------------

OF_PYTORCHJOB = ("PYTHONUNBUFFERED", "PET_NNODES", "PET_NPROC_PER_NODE")
OF_RENDEZVOUS = ("PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND")
OF_MASTER = (
    "MASTER_PORT", "PET_MASTER_PORT", "MASTER_ADDR", "PET_MASTER_ADDR", "WORLD_SIZE", "RANK",
    "PET_NODE_RANK",
)  # fmt: skip
OF_ELASTIC = {
    "maxRestarts": "PET_MAX_RESTARTS",
    "rdzvId": "PET_RDZV_ID",
    "rdzvConf": "PET_RDZV_CONF",
    "standalone": "PET_STANDALONE",
}
"""Those of elasticPolicy that depend on one of its fields."""
_ELASTIC = ("spec", "elasticPolicy")


def _variables_of_pytorchjob(spec: Spec) -> frozenset[str]:
    names = [*OF_PYTORCHJOB]
    if "Master" in spec.get("pytorchReplicaSpecs", {}):
        names += OF_MASTER
    if (elastic := spec.get("elasticPolicy")) is not None:
        names += OF_RENDEZVOUS
        names += [name for field, name in OF_ELASTIC.items() if elastic.get(field)]
    return frozenset(names)


def _pytorchjob_fields(findings: Findings, spec: Spec) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if (processes := spec.get("nprocPerNode")) is not None:
        made["nproc_per_node"] = _processes(findings, processes)
    if (elastic := spec.get("elasticPolicy")) is not None:
        made["elastic"] = _elastic(findings, elastic)
        if "Worker" not in spec.get("pytorchReplicaSpecs", {}):
            path = ("spec", "pytorchReplicaSpecs", "Worker")
            findings.mistake(path, "is missing", "an elasticPolicy is about the workers")
        if "nProcPerNode" in elastic and processes is not None:
            message = "must not be used with spec.nprocPerNode"
            findings.mistake((*_ELASTIC, "nProcPerNode"), message, "leave it out")
    return made


def _processes(findings: Findings, text: str) -> int | str | None:
    if text in ("auto", "cpu", "gpu"):
        return text
    # torchrun would refuse it; as a number the operator takes what strconv.Atoi does.
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= 1:
        return int(text)
    hint = "auto, cpu, gpu or a number in quotes"
    findings.mistake(("spec", "nprocPerNode"), f"{text!r} is no number of processes", hint)
    return None


def _elastic(findings: Findings, elastic: Spec) -> dict[str, Any]:
    """Return the section; of the two bounds, one that is left out is the other."""
    least, most = elastic.get("minReplicas"), elastic.get("maxReplicas")
    if least is not None and most is not None and least > most:
        findings.mistake((*_ELASTIC, "minReplicas"), f"{least} is more than maxReplicas, {most}")
    given = {
        "min": most if least is None else least,
        "max": least if most is None else most,
        "rdzv_host": elastic.get("rdzvHost"),
        "rdzv_port": elastic.get("rdzvPort"),
        "rdzv_backend": elastic.get("rdzvBackend"),
        "rdzv_id": elastic.get("rdzvId"),
        "rdzv_conf": {one.get("key", ""): one.get("value", "") for one in elastic["rdzvConf"]}
        if elastic.get("rdzvConf")
        else None,
        "max_restarts": elastic.get("maxRestarts"),
        "standalone": elastic.get("standalone") or None,
        "nproc_per_node": elastic.get("nProcPerNode"),
    }
    return {key: value for key, value in given.items() if value is not None}


_PYTORCHJOB = Job(
    kind="PyTorchJob",
    replica_specs="pytorchReplicaSpecs",
    types=("Master", "Worker"),
    folds_case=False,
    container="pytorch",
    port="pytorchjob-port",
    variables=_variables_of_pytorchjob,
    operator=_pytorchjob_fields,
)

JOBS: Mapping[JobKind, Job] = {job.kind: job for job in (_TFJOB, _PYTORCHJOB)}
