"""The fields of TFJobs, PyTorchJobs, pods, ConfigMaps and Secrets, and what is made of each.

They are those of kubeflow/training-operator v1.9.0, whose pod templates are those of Kubernetes
1.31. The table in docs/kubeflow.md is checked against this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from emulator.manifests.fields import Field, Fields


def _honoured(shape: str, text: str = "", *, options: tuple[str, ...] = ()) -> Field:
    return Field(shape, "honoured", text, options=options)


def _required(shape: str, text: str = "") -> Field:
    return Field(shape, "honoured", text, required=True)


def _number(text: str = "", *, least: int = 0, most: int = 2**31 - 1) -> Field:
    return Field("integer", "honoured", text, least=least, most=most)


def _port(text: str = "", *, required: bool = False) -> Field:
    return Field("integer", "honoured", text, least=1, most=65535, required=required)


def _approximated(shape: str, text: str, *, harmless: tuple[object, ...] = ()) -> Field:
    return Field(shape, "approximated", text, harmless=harmless)


def _said(shape: str, text: str) -> Field:
    """Return a field that is approximated, of which the reader of a job says nothing by itself."""
    return Field(shape, "approximated", text, quiet=True)


def _ignored(shape: str, text: str, *, harmless: tuple[object, ...] = ()) -> Field:
    return Field(shape, "ignored", text, harmless=harmless)


def _server(shape: str = "anything") -> Field:
    return Field(shape, "ignored", "a server sets it", quiet=True)


ONE_MACHINE = "all tasks run on this machine"
NO_SERVER = "there is no API server"
IN_ORDER = "tasks start together, and no queue holds them back"
USER = "the user, groups and privileges are those of the emulator's containers"
PROBES = "no probe runs: a task is up when it runs"
GROUP = "kubeflow.org/v1"

_METADATA: Fields = {
    "uid": _server(),
    "resourceVersion": _server(),
    "generation": _server(),
    "creationTimestamp": _server(),
    "deletionTimestamp": _server(),
    "deletionGracePeriodSeconds": _server(),
    "managedFields": _server(),
    "selfLink": _server(),
    "ownerReferences": _ignored("anything", NO_SERVER),
    "finalizers": _ignored("[text]", NO_SERVER),
}
_JOB: Fields = {
    "apiVersion": _required("text", f"`{GROUP}`"),
    "kind": _required("text"),
    "metadata": _required("JobMetadata"),
    "status": Field("anything", "ignored", "the state of a job elsewhere", quiet=True),
}
_DISK = "an empty volume of the engine in its place, which the tasks of all runs share"
_OWN_DISK = "an empty volume of each task in its place"

_DISKS = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume",
    "flocker", "gcePersistentDisk", "glusterfs", "iscsi", "nfs", "photonPersistentDisk",
    "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
)  # fmt: skip
"""Volumes on disks or servers elsewhere."""

OBJECTS: Mapping[str, Fields] = MappingProxyType(
    {
        "TFJob": {**_JOB, "spec": _required("TFJobSpec")},
        "PyTorchJob": {**_JOB, "spec": _required("PyTorchJobSpec")},
        "JobMetadata": {
            **_METADATA,
            "name": _honoured("text", "of the job, its pods and their services"),
            "generateName": _approximated("text", "the name is this one, without random letters"),
            "namespace": _honoured("text", "part of the names on the network"),
            "labels": _honoured("{text}", "kept with the scenario"),
            "annotations": _honoured("{text}", "kept with the scenario"),
        },
        "TFJobSpec": {
            "runPolicy": _honoured("RunPolicy"),
            "successPolicy": _honoured("text", options=("", "AllWorkers")),
            "enableDynamicWorker": _honoured("boolean", "the sparse TF_CONFIG"),
            "tfReplicaSpecs": _required("{ReplicaSpec}", "PS, Worker, Chief, Master, Evaluator"),
        },
        "PyTorchJobSpec": {
            "runPolicy": _honoured("RunPolicy"),
            "elasticPolicy": _honoured("ElasticPolicy"),
            "nprocPerNode": _honoured("text", "auto, cpu, gpu or a number, as text"),
            "pytorchReplicaSpecs": _required("{ReplicaSpec}", "Master, Worker"),
        },
        "RunPolicy": {
            "cleanPodPolicy": _honoured("text", options=("", "None", "Running", "All")),
            "ttlSecondsAfterFinished": _number(),
            "activeDeadlineSeconds": _number(),
            "backoffLimit": _number(),
            "suspend": _honoured("boolean"),
            "schedulingPolicy": _ignored("SchedulingPolicy", IN_ORDER),
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
            "minReplicas": _number(least=1),
            "maxReplicas": _number(least=1),
            "rdzvBackend": _honoured("text", options=("c10d", "etcd", "etcd-v2")),
            "rdzvPort": _port(),
            "rdzvHost": _honoured("text"),
            "rdzvId": _honoured("text"),
            "rdzvConf": _honoured("[RdzvConf]"),
            "standalone": _honoured("boolean"),
            "nProcPerNode": _number(least=1),
            "maxRestarts": _number(),
            "metrics": _ignored("anything", "the number of tasks is that of replicas"),
        },
        "RdzvConf": {"key": _honoured("text"), "value": _honoured("text")},
        "ReplicaSpec": {
            "replicas": _number(),
            "restartPolicy": _honoured(
                "text", options=("", "Never", "OnFailure", "Always", "ExitCode")
            ),
            "template": _honoured("PodTemplate"),
        },
        "PodTemplate": {
            "metadata": _honoured("PodMetadata"),
            "spec": _honoured("PodSpec"),
        },
        "PodMetadata": {
            "creationTimestamp": _server(),
            "finalizers": _ignored("[text]", NO_SERVER),
            "name": _ignored("text", "a pod is `<job>-<type>-<index>`"),
            "namespace": _ignored("text", "it is that of the job"),
            "labels": _said("{text}", "a variable can have them; nothing selects by them"),
            "annotations": _said("{text}", "a variable can have them; nothing reads them"),
        },
        "PodSpec": {
            "containers": _required("[Container]"),
            "initContainers": _honoured("[InitContainer]", "run before each start on a new disk"),
            "volumes": _honoured("[Volume]"),
            "restartPolicy": _ignored("text", "the operator replaces it by that of the replica"),
            "terminationGracePeriodSeconds": _ignored(
                "integer", "a fault has its own `grace`", harmless=(30,)
            ),
            "activeDeadlineSeconds": _ignored("integer", "that of runPolicy counts"),
            "affinity": _ignored("object", ONE_MACHINE),
            "nodeSelector": _ignored("{text}", ONE_MACHINE),
            "nodeName": _ignored("text", ONE_MACHINE),
            "tolerations": _ignored("[object]", ONE_MACHINE),
            "topologySpreadConstraints": _ignored("[object]", ONE_MACHINE),
            "schedulerName": _ignored("text", IN_ORDER, harmless=("default-scheduler",)),
            "schedulingGates": _ignored("[object]", IN_ORDER),
            "priority": _ignored("integer", IN_ORDER),
            "priorityClassName": _ignored("text", IN_ORDER),
            "preemptionPolicy": _ignored("text", IN_ORDER),
            "readinessGates": _ignored("[object]", PROBES),
            "resourceClaims": _ignored("[object]", "devices are those of nvidia.com/gpu"),
            "overhead": _ignored("{quantity}", "limits are those of the containers"),
            "runtimeClassName": _ignored("text", "the runtime is the engine's"),
            "os": _ignored("object", "containers run Linux", harmless=({"name": "linux"},)),
            "serviceAccountName": _ignored("text", NO_SERVER, harmless=("default",)),
            "serviceAccount": _ignored("text", NO_SERVER, harmless=("default",)),
            "automountServiceAccountToken": Field("boolean", "ignored", NO_SERVER, quiet=True),
            "imagePullSecrets": _ignored("[object]", "the engine has its own credentials"),
            "enableServiceLinks": Field("boolean", "ignored", "services have no IP", quiet=True),
            "hostNetwork": _ignored("boolean", "the tasks have a network of their own"),
            "hostPID": _ignored("boolean", "a task sees its own processes"),
            "hostIPC": _ignored("boolean", "a task has its own shared memory"),
            "hostUsers": _ignored("boolean", USER, harmless=(True,)),
            "hostname": _ignored("text", "it is the name of the pod"),
            "subdomain": _ignored("text", "the operator's service is the pod's own"),
            "setHostnameAsFQDN": _ignored("boolean", "it is the name of the pod"),
            "hostAliases": _ignored("[object]", "names are those of the operator's services"),
            "dnsConfig": _ignored("object", "names are those of the operator's services"),
            "dnsPolicy": _ignored(
                "text", "names are those of the operator's services", harmless=("ClusterFirst",)
            ),
            "shareProcessNamespace": _ignored("boolean", "a container sees its own processes"),
            "securityContext": _ignored("object", USER),
            "ephemeralContainers": _ignored("[object]", "`docker exec` opens a shell in a task"),
        },
        "Container": {
            "name": _required("text", "`tensorflow` or `pytorch`; others run beside it"),
            "image": _honoured("text", "`--image NAME=REF` replaces it"),
            "imagePullPolicy": _ignored(
                "text", "an image that is here is not pulled", harmless=("IfNotPresent", "Never")
            ),
            "command": _honoured("[text]", "replaces the image's entry point"),
            "args": _honoured("[text]", "replace the image's command"),
            "workingDir": _honoured("text"),
            "env": _honoured("[EnvVar]"),
            "envFrom": _honoured("[EnvFrom]"),
            "ports": _honoured("[ContainerPort]"),
            "resources": _honoured("Resources"),
            "volumeMounts": _honoured("[VolumeMount]"),
            "volumeDevices": _ignored("[object]", "there are no block devices"),
            "resizePolicy": _ignored("[object]", "limits stay as they are"),
            "restartPolicy": _honoured("text", "`Always` of an init container: it runs beside"),
            "livenessProbe": _ignored("object", PROBES),
            "readinessProbe": _ignored("object", PROBES),
            "startupProbe": _ignored("object", PROBES),
            "lifecycle": _ignored("object", "no hook runs; a program gets SIGTERM"),
            "securityContext": _ignored("object", USER),
            "terminationMessagePath": Field("text", "ignored", "logs have it all", quiet=True),
            "terminationMessagePolicy": Field("text", "ignored", "logs have it all", quiet=True),
            "stdin": _ignored("boolean", "a task has no input"),
            "stdinOnce": _ignored("boolean", "a task has no input"),
            "tty": _ignored("boolean", "a task has no terminal"),
        },
        "EnvVar": {
            "name": _required("text"),
            "value": _honoured("text", "with `$(NAME)` replaced"),
            "valueFrom": _honoured("EnvVarSource"),
        },
        "EnvVarSource": {
            "configMapKeyRef": _honoured("KeyRef"),
            "secretKeyRef": _honoured("KeyRef"),
            "fieldRef": _honoured("FieldRef"),
            "resourceFieldRef": _honoured("ResourceFieldRef"),
        },
        "KeyRef": {
            "name": _required("text", "of a document in the file, or of `--configmap`"),
            "key": _required("text"),
            "optional": _honoured("boolean"),
        },
        "FieldRef": {
            "fieldPath": _required("text", "names, labels and annotations; the host for an IP"),
            "apiVersion": Field("text", "ignored", "there is one", quiet=True),
        },
        "ResourceFieldRef": {
            "resource": _required("text", "limits and requests of cpu and memory"),
            "containerName": _honoured("text"),
            "divisor": _honoured("quantity"),
        },
        "EnvFrom": {
            "prefix": _honoured("text"),
            "configMapRef": _honoured("ObjectRef"),
            "secretRef": _honoured("ObjectRef"),
        },
        "ObjectRef": {"name": _required("text"), "optional": _honoured("boolean")},
        "ContainerPort": {
            "name": _honoured(
                "text", "`tfjob-port` or `pytorchjob-port` is that of the rendezvous"
            ),
            "containerPort": _port("reached by the other tasks", required=True),
            "protocol": _honoured("text", options=("TCP", "UDP", "SCTP")),
            "hostPort": _ignored("integer", "a scenario's `ports:` publish them"),
            "hostIP": _ignored("text", "a scenario's `ports:` publish them"),
        },
        "Resources": {
            "limits": _honoured("{quantity}", "cpu, memory and nvidia.com/gpu"),
            "requests": _said("{quantity}", "nothing is reserved; limits count"),
            "claims": _ignored("[object]", "devices are those of nvidia.com/gpu"),
        },
        "VolumeMount": {
            "name": _required("text"),
            "mountPath": _required("text"),
            "readOnly": _honoured("boolean"),
            "subPath": _said(
                "text", "of a ConfigMap or a Secret a file; else a volume of its own for each"
            ),
            "subPathExpr": _ignored("text", "it is left out, and the whole volume is mounted"),
            "mountPropagation": _ignored("text", "mounts stay their own", harmless=("None",)),
            "recursiveReadOnly": _ignored("text", "readOnly counts", harmless=("Disabled",)),
        },
        "Volume": {
            "name": _required("text"),
            "emptyDir": _honoured("EmptyDir", "kept by a restart in place"),
            "persistentVolumeClaim": _honoured(
                "Claim", "the engine's `pvc-<namespace>-<claim>`, kept"
            ),
            "configMap": _honoured("ConfigMapVolume", "files in the container"),
            "secret": _honoured("SecretVolume", "files in the container"),
            "projected": _honoured("Projected"),
            "hostPath": _approximated("object", _OWN_DISK),
            "ephemeral": _approximated("object", _OWN_DISK),
            "gitRepo": _approximated("object", _OWN_DISK),
            "image": _approximated("object", _OWN_DISK),
            "downwardAPI": _approximated("object", _OWN_DISK),
            **{name: _approximated("object", _DISK) for name in _DISKS},
        },
        "EmptyDir": {
            "medium": _honoured("text", "in memory for the task alone; at /dev/shm, its size"),
            "sizeLimit": _honoured("quantity", "of what is in memory"),
        },
        "Claim": {"claimName": _required("text"), "readOnly": _honoured("boolean")},
        "ConfigMapVolume": {
            "name": _required("text", "of a document in the file, or of `--configmap`"),
            "items": _honoured("[KeyToPath]"),
            "defaultMode": _number(most=0o777),
            "optional": _honoured("boolean"),
        },
        "SecretVolume": {
            "secretName": _required("text", "of a document in the file, or of `--configmap`"),
            "items": _honoured("[KeyToPath]"),
            "defaultMode": _number(most=0o777),
            "optional": _honoured("boolean"),
        },
        "KeyToPath": {
            "key": _required("text"),
            "path": _required("text"),
            "mode": _number(most=0o777),
        },
        "Projected": {
            "sources": _honoured("[Projection]"),
            "defaultMode": _number(most=0o777),
        },
        "Projection": {
            "configMap": _honoured("ProjectedMap"),
            "secret": _honoured("ProjectedMap"),
            "downwardAPI": _ignored("object", "it is left out"),
            "serviceAccountToken": _ignored("object", NO_SERVER),
            "clusterTrustBundle": _ignored("object", NO_SERVER),
        },
        "ProjectedMap": {
            "name": _required("text"),
            "items": _honoured("[KeyToPath]"),
            "optional": _honoured("boolean"),
        },
        "ConfigMap": {
            "apiVersion": _required("text"),
            "kind": _required("text"),
            "metadata": _required("ObjectMetadata"),
            "data": _honoured("{text}"),
            "binaryData": _honoured("{text}"),
            "immutable": Field("boolean", "ignored", "it is read once", quiet=True),
        },
        "Secret": {
            "apiVersion": _required("text"),
            "kind": _required("text"),
            "metadata": _required("ObjectMetadata"),
            "data": _honoured("{text}"),
            "stringData": _honoured("{text}"),
            "type": Field("text", "ignored", "all are alike", quiet=True),
            "immutable": Field("boolean", "ignored", "it is read once", quiet=True),
        },
        "ObjectMetadata": {
            **_METADATA,
            "name": _required("text"),
            "namespace": _honoured("text"),
            "labels": Field("{text}", "ignored", "nothing selects by them", quiet=True),
            "annotations": Field("{text}", "ignored", "nothing reads them", quiet=True),
        },
    }
)
"""The fields by object."""

OBJECTS = MappingProxyType({**OBJECTS, "InitContainer": OBJECTS["Container"]})

MOVED: Mapping[str, str] = {
    f"{spec}.{field}": "spec.runPolicy"
    for spec in ("TFJobSpec", "PyTorchJobSpec")
    for field in OBJECTS["RunPolicy"]
} | {
    "ReplicaSpec.spec": "template",
    "ReplicaSpec.containers": "template.spec",
    "PodTemplate.containers": "spec",
    "Container.limits": "resources",
    "Container.requests": "resources",
    "RunPolicy.successPolicy": "spec",
}
"""Unknown fields that are known elsewhere: the older versions had some of them there."""
