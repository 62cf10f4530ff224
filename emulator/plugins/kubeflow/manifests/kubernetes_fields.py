"""The fields of pods, ConfigMaps and Secrets, and what is made of each.

They are those of Kubernetes 1.31. The table in docs/reference/manifests.md is
checked against this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from emulator.plugins.kubeflow.manifests.fields import Field, Fields


def honoured(shape: str, text: str = "", *, options: tuple[str, ...] = ()) -> Field:
    """Return a field that becomes part of the scenario."""
    return Field(shape, "honoured", text, options=options)


def required(shape: str, text: str = "") -> Field:
    """Return one that has to be there."""
    return Field(shape, "honoured", text, required=True)


def number(text: str = "", *, least: int = 0, most: int = 2**31 - 1) -> Field:
    """Return one with a number."""
    return Field("integer", "honoured", text, least=least, most=most)


def port(text: str = "", *, required: bool = False) -> Field:
    """Return one with the number of a port."""
    return Field("integer", "honoured", text, least=1, most=65535, required=required)


def approximated(shape: str, text: str, *, harmless: tuple[object, ...] = ()) -> Field:
    """Return a field of which something similar is made."""
    return Field(shape, "approximated", text, harmless=harmless)


def said(shape: str, text: str) -> Field:
    """Return a field that is approximated, of which the reader of a job says nothing by itself."""
    return Field(shape, "approximated", text, quiet=True)


def ignored(shape: str, text: str, *, harmless: tuple[object, ...] = ()) -> Field:
    """Return a field that changes nothing here."""
    return Field(shape, "ignored", text, harmless=harmless)


def server(shape: str = "anything") -> Field:
    """Return a field that a server sets, which is passed over in silence."""
    return Field(shape, "ignored", "a server sets it", quiet=True)


ONE_MACHINE = "all tasks run on this machine"
NO_SERVER = "there is no API server"
IN_ORDER = "tasks start together, and no queue holds them back"
STARTS = "nothing would resume it here: the run starts at once"
USER = "the user, groups and privileges are those of the emulator's containers"
PROBES = "no probe runs: a task is up when it runs"
_SECCOMP = {"seccompProfile": {"type": "RuntimeDefault"}}
_RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""What every pod and every container of ours has too: nothing is said of it."""

METADATA: Fields = {
    "uid": server(),
    "resourceVersion": server(),
    "generation": server(),
    "creationTimestamp": server(),
    "deletionTimestamp": server(),
    "deletionGracePeriodSeconds": server(),
    "managedFields": server(),
    "selfLink": server(),
    "ownerReferences": ignored("anything", NO_SERVER),
    "finalizers": ignored("[text]", NO_SERVER),
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
        "PodTemplate": {
            "metadata": honoured("PodMetadata"),
            "spec": honoured("PodSpec"),
        },
        "PodMetadata": {
            "creationTimestamp": server(),
            "finalizers": ignored("[text]", NO_SERVER),
            "name": ignored("text", "a pod is `<job>-<type>-<index>`"),
            "namespace": ignored("text", "it is that of the job"),
            "labels": said("{text}", "a variable can have them; nothing selects by them"),
            "annotations": said("{text}", "a variable can have them; nothing reads them"),
        },
        "PodSpec": {
            "containers": required("[Container]"),
            "initContainers": honoured("[InitContainer]", "run before each start on a new disk"),
            "volumes": honoured("[Volume]"),
            "restartPolicy": ignored("text", "the operator replaces it by that of the replica"),
            "terminationGracePeriodSeconds": ignored(
                "integer", "a fault has its own `grace`", harmless=(30,)
            ),
            "activeDeadlineSeconds": ignored("integer", "that of runPolicy counts"),
            "affinity": ignored("object", ONE_MACHINE),
            "nodeSelector": ignored("{text}", ONE_MACHINE),
            "nodeName": ignored("text", ONE_MACHINE),
            "tolerations": ignored("[object]", ONE_MACHINE),
            "topologySpreadConstraints": ignored("[object]", ONE_MACHINE),
            "schedulerName": ignored("text", IN_ORDER, harmless=("default-scheduler",)),
            "schedulingGates": ignored("[object]", IN_ORDER),
            "priority": ignored("integer", IN_ORDER),
            "priorityClassName": ignored("text", IN_ORDER),
            "preemptionPolicy": ignored("text", IN_ORDER),
            "readinessGates": ignored("[object]", PROBES),
            "resourceClaims": ignored("[object]", "devices are those of nvidia.com/gpu"),
            "overhead": ignored("{quantity}", "limits are those of the containers"),
            "runtimeClassName": ignored("text", "the runtime is the engine's"),
            "os": ignored("object", "containers run Linux", harmless=({"name": "linux"},)),
            "serviceAccountName": ignored("text", NO_SERVER, harmless=("default",)),
            "serviceAccount": ignored("text", NO_SERVER, harmless=("default",)),
            "automountServiceAccountToken": Field("boolean", "ignored", NO_SERVER, quiet=True),
            "imagePullSecrets": ignored("[object]", "the engine has its own credentials"),
            "enableServiceLinks": Field("boolean", "ignored", "services have no IP", quiet=True),
            "hostNetwork": ignored("boolean", "the tasks have a network of their own"),
            "hostPID": ignored("boolean", "a task sees its own processes"),
            "hostIPC": ignored("boolean", "a task has its own shared memory"),
            "hostUsers": ignored("boolean", USER, harmless=(True,)),
            "hostname": ignored("text", "it is the name of the pod"),
            "subdomain": ignored("text", "the operator's service is the pod's own"),
            "setHostnameAsFQDN": ignored("boolean", "it is the name of the pod"),
            "hostAliases": ignored("[object]", "names are those of the operator's services"),
            "dnsConfig": ignored("object", "names are those of the operator's services"),
            "dnsPolicy": ignored(
                "text", "names are those of the operator's services", harmless=("ClusterFirst",)
            ),
            "shareProcessNamespace": ignored("boolean", "a container sees its own processes"),
            "securityContext": ignored("object", USER, harmless=(_SECCOMP,)),
            "ephemeralContainers": ignored("[object]", "`docker exec` opens a shell in a task"),
        },
        "Container": {
            "name": required("text", "`tensorflow` or `pytorch`; side-cars are ignored"),
            "image": honoured("text", "`--image NAME=REF` replaces it"),
            "imagePullPolicy": ignored(
                "text", "an image that is here is not pulled", harmless=("IfNotPresent", "Never")
            ),
            "command": honoured("[text]", "replaces the image's entry point"),
            "args": honoured("[text]", "replace the image's command"),
            "workingDir": honoured("text"),
            "env": honoured("[EnvVar]"),
            "envFrom": honoured("[EnvFrom]"),
            "ports": honoured("[ContainerPort]"),
            "resources": honoured("Resources"),
            "volumeMounts": honoured("[VolumeMount]"),
            "volumeDevices": ignored("[object]", "there are no block devices"),
            "resizePolicy": ignored("[object]", "limits stay as they are"),
            "restartPolicy": honoured("text", "`Always` of an init container: a side-car, ignored"),
            "livenessProbe": ignored("object", PROBES),
            "readinessProbe": ignored("object", PROBES),
            "startupProbe": ignored("object", PROBES),
            "lifecycle": ignored("object", "no hook runs; a program gets SIGTERM"),
            "securityContext": ignored("object", USER, harmless=(_RESTRICTED,)),
            "terminationMessagePath": Field("text", "ignored", "logs have it all", quiet=True),
            "terminationMessagePolicy": Field("text", "ignored", "logs have it all", quiet=True),
            "stdin": ignored("boolean", "a task has no input"),
            "stdinOnce": ignored("boolean", "a task has no input"),
            "tty": ignored("boolean", "a task has no terminal"),
        },
        "EnvVar": {
            "name": required("text"),
            "value": honoured("text", "with `$(NAME)` replaced"),
            "valueFrom": honoured("EnvVarSource"),
        },
        "EnvVarSource": {
            "configMapKeyRef": honoured("KeyRef"),
            "secretKeyRef": honoured("KeyRef"),
            "fieldRef": honoured("FieldRef"),
            "resourceFieldRef": honoured("ResourceFieldRef"),
        },
        "KeyRef": {
            "name": required("text", "of a document in the file, or of `--configmap`"),
            "key": required("text"),
            "optional": honoured("boolean"),
        },
        "FieldRef": {
            "fieldPath": required("text", "names, labels and annotations; the host for an IP"),
            "apiVersion": Field("text", "ignored", "there is one", quiet=True),
        },
        "ResourceFieldRef": {
            "resource": required("text", "limits and requests of cpu and memory"),
            "containerName": honoured("text"),
            "divisor": honoured("quantity"),
        },
        "EnvFrom": {
            "prefix": honoured("text"),
            "configMapRef": honoured("ObjectRef"),
            "secretRef": honoured("ObjectRef"),
        },
        "ObjectRef": {"name": required("text"), "optional": honoured("boolean")},
        "ContainerPort": {
            "name": honoured("text", "the operator's is that of the rendezvous"),
            "containerPort": port("reached by the other tasks", required=True),
            "protocol": honoured("text", options=("TCP", "UDP", "SCTP")),
            "hostPort": ignored("integer", "a scenario's `ports:` publish them"),
            "hostIP": ignored("text", "a scenario's `ports:` publish them"),
        },
        "Resources": {
            "limits": honoured("{quantity}", "cpu, memory and nvidia.com/gpu"),
            "requests": said("{quantity}", "nothing is reserved; limits count"),
            "claims": ignored("[object]", "devices are those of nvidia.com/gpu"),
        },
        "VolumeMount": {
            "name": required("text"),
            "mountPath": required("text"),
            "readOnly": honoured("boolean"),
            "subPath": said(
                "text", "of a ConfigMap or a Secret a file; else a volume of its own for each"
            ),
            "subPathExpr": ignored("text", "it is left out, and the whole volume is mounted"),
            "mountPropagation": ignored("text", "mounts stay their own", harmless=("None",)),
            "recursiveReadOnly": ignored("text", "readOnly counts", harmless=("Disabled",)),
        },
        "Volume": {
            "name": required("text"),
            "emptyDir": honoured("EmptyDir", "kept by a restart in place"),
            "persistentVolumeClaim": honoured(
                "Claim", "the engine's `pvc-<namespace>-<claim>`, kept"
            ),
            "configMap": honoured("ConfigMapVolume", "files in the container"),
            "secret": honoured("SecretVolume", "files in the container"),
            "projected": honoured("Projected"),
            "hostPath": approximated("object", _OWN_DISK),
            "ephemeral": approximated("object", _OWN_DISK),
            "gitRepo": approximated("object", _OWN_DISK),
            "image": approximated("object", _OWN_DISK),
            "downwardAPI": approximated("object", _OWN_DISK),
            **{name: approximated("object", _DISK) for name in _DISKS},
        },
        "EmptyDir": {
            "medium": honoured("text", "in memory for the task alone; at /dev/shm, its size"),
            "sizeLimit": honoured("quantity", "of what is in memory"),
        },
        "Claim": {"claimName": required("text"), "readOnly": honoured("boolean")},
        "ConfigMapVolume": {
            "name": required("text", "of a document in the file, or of `--configmap`"),
            "items": honoured("[KeyToPath]"),
            "defaultMode": number(most=0o777),
            "optional": honoured("boolean"),
        },
        "SecretVolume": {
            "secretName": required("text", "of a document in the file, or of `--configmap`"),
            "items": honoured("[KeyToPath]"),
            "defaultMode": number(most=0o777),
            "optional": honoured("boolean"),
        },
        "KeyToPath": {
            "key": required("text"),
            "path": required("text"),
            "mode": number(most=0o777),
        },
        "Projected": {
            "sources": honoured("[Projection]"),
            "defaultMode": number(most=0o777),
        },
        "Projection": {
            "configMap": honoured("ProjectedMap"),
            "secret": honoured("ProjectedMap"),
            "downwardAPI": ignored("object", "it is left out"),
            "serviceAccountToken": ignored("object", NO_SERVER),
            "clusterTrustBundle": ignored("object", NO_SERVER),
        },
        "ProjectedMap": {
            "name": required("text"),
            "items": honoured("[KeyToPath]"),
            "optional": honoured("boolean"),
        },
        "ConfigMap": {
            "apiVersion": required("text"),
            "kind": required("text"),
            "metadata": required("ObjectMetadata"),
            "data": honoured("{text}"),
            "binaryData": honoured("{text}"),
            "immutable": Field("boolean", "ignored", "it is read once", quiet=True),
        },
        "Secret": {
            "apiVersion": required("text"),
            "kind": required("text"),
            "metadata": required("ObjectMetadata"),
            "data": honoured("{text}"),
            "stringData": honoured("{text}"),
            "type": Field("text", "ignored", "all are alike", quiet=True),
            "immutable": Field("boolean", "ignored", "it is read once", quiet=True),
        },
        "ObjectMetadata": {
            **METADATA,
            "name": required("text"),
            "namespace": honoured("text"),
            "labels": Field("{text}", "ignored", "nothing selects by them", quiet=True),
            "annotations": Field("{text}", "ignored", "nothing reads them", quiet=True),
        },
    }
)
"""The fields by object."""

OBJECTS = MappingProxyType({**OBJECTS, "InitContainer": OBJECTS["Container"]})

MOVED: Mapping[str, str] = {
    "PodTemplate.containers": "spec",
    "Container.limits": "resources",
    "Container.requests": "resources",
}
"""Unknown fields that are known elsewhere."""
