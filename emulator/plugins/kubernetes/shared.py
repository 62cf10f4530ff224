"""What /shared is on a cluster: a claim, a folder of the one node, or none (pure).

An API server does not say whether a storage class can be written from several nodes, so this knows
the provisioners that can.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from emulator.errors import Unsupported
from emulator.plugins.kubernetes import names
from emulator.validation.run_id import is_run_id

if TYPE_CHECKING:
    from emulator.plugins.kubernetes.section import Kubernetes, Toleration

Data = Mapping[str, Any]

NODE_FOLDER = "/var/tmp"
"""Of a node: where the folders of runs are without a storage class. They outlive its restart."""
HOSTNAME = "kubernetes.io/hostname"
"""The label of a node with its name."""
DEFAULT = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
"""Annotations of the cluster's default class."""
SHARING = (
    "efs.csi.aws.com", "fsx.csi.aws.com", "file.csi.azure.com", "kubernetes.io/azure-file",
    "filestore.csi.storage.gke.io", "lustre.csi.storage.gke.io", "nfs.csi.k8s.io",
    "*nfs-subdir-external-provisioner*", "*nfs-client-provisioner*", "*.cephfs.csi.ceph.com",
    "cephfs.csi.ceph.com", "kubernetes.io/glusterfs", "kubernetes.io/cephfs", "csi.weka.io",
    "beegfs.csi.netapp.com", "spectrumscale.csi.ibm.com", "csi.juicefs.com", "csi.vastdata.com",
    "driver.longhorn.io", "smb.csi.k8s.io",
    "*.manila.csi.openstack.org",
)  # fmt: skip
"""Provisioners of file systems that several nodes mount at once (ReadWriteMany)."""
SINGLE = (
    "ebs.csi.aws.com", "kubernetes.io/aws-ebs", "pd.csi.storage.gke.io", "kubernetes.io/gce-pd",
    "disk.csi.azure.com", "kubernetes.io/azure-disk", "cinder.csi.openstack.org",
    "kubernetes.io/cinder", "rancher.io/local-path", "*/local-path", "k8s.io/minikube-hostpath",
    "docker.io/hostpath", "hostpath.csi.k8s.io", "kubernetes.io/host-path",
    "microk8s.io/hostpath", "openebs.io/local", "topolvm.io", "topolvm.cybozu.com",
    "local.csi.openebs.io", "csi.hetzner.cloud", "dobs.csi.digitalocean.com",
    "linodebs.csi.linode.com", "kubernetes.io/vsphere-volume", "*.rbd.csi.ceph.com",
)  # fmt: skip
"""Provisioners of disks, and of folders of one node."""


CLAIMED = 2**30
"""Bytes that a claim asks for where the scenario names no size."""


@dataclass(frozen=True)
class Shared:
    """What /shared is in every Pod of a run."""

    kind: Literal["claim", "host-path", "none"]
    mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    """Of the claim."""
    storage_class: str | None = None
    """Of the claim; None: the cluster's default."""
    node: str = ""
    """Its name in the label of `HOSTNAME`: where all Pods must run."""
    note: str = ""
    """For the user."""

    def claim(
        self, resources: str, common: names.Common, size: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the claim, if there is one, which asks for a size in bytes; None: the default."""
        if self.kind != "claim":
            return []
        spec: dict[str, Any] = {
            "accessModes": [self.mode],
            "resources": {"requests": {"storage": str(size or CLAIMED)}},
        }
        if self.storage_class is not None:
            spec["storageClassName"] = self.storage_class
        return [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": common.metadata(names.claim(resources)),
                "spec": spec,
            }
        ]

    def volume(self, resources: str) -> dict[str, Any]:
        """Return the source of the volume in a Pod."""
        if self.kind == "claim":
            return {"persistentVolumeClaim": {"claimName": names.claim(resources)}}
        if self.kind == "host-path":
            path = f"{NODE_FOLDER}/{_folder(resources)}"
            return {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        return {"emptyDir": {}}


def _folder(resources: str) -> str:
    return f"emulator-{resources}"


def decide(
    options: Kubernetes, nodes: Sequence[Data] | None, classes: Sequence[Data] | None
) -> Shared:
    """Return what /shared is.

    `nodes` and `classes` are all of the cluster, as its API has them; None: we may not list them.
    Raises Unsupported where Pods may land on several nodes and nothing can be shared by these.
    """
    if options.shared == "none":
        note = "/shared is not shared: each Pod begins with an empty one (kubernetes.shared: none)"
        return Shared("none", note=note)
    usable = None if nodes is None else [one for one in nodes if is_usable(one, options)]
    single = usable is not None and len(usable) <= 1
    if options.shared == "host-path":
        return _folder_of_a_node(usable, options)
    known = {one["metadata"]["name"]: one for one in classes or ()}
    chosen = options.storage_class or _default(classes or ())
    if options.storage_class and classes is not None and options.storage_class not in known:
        raise Unsupported(
            f"The cluster has no storage class {options.storage_class}.",
            f"It has {', '.join(sorted(known)) or 'none'}; set kubernetes.storage_class.",
        )
    if single and (chosen or options.shared == "claim"):
        return Shared("claim", "ReadWriteOnce", chosen)
    if single and classes is not None:
        return _folder_of_a_node(usable, options)
    if classes is None:  # all that we know is what the scenario says
        named = f"storage class {chosen}" if chosen else "default storage class"
        note = f"/shared is a claim: whether the {named} can be shared by nodes is not known"
        return Shared("claim", "ReadWriteMany", chosen, note=note)
    return _among_nodes(options, known, chosen, usable)


def _among_nodes(
    options: Kubernetes,
    known: Mapping[str, Data],
    chosen: str | None,
    usable: Sequence[Data] | None,
) -> Shared:
    """Return the claim that several nodes can share. Raises Unsupported."""
    if chosen and shares(known[chosen]) is not False and options.storage_class:
        return Shared("claim", "ReadWriteMany", chosen)
    if chosen and shares(known[chosen]):
        return Shared("claim", "ReadWriteMany", chosen)
    able = sorted(name for name, one in known.items() if shares(one))
    if able and not options.storage_class:
        note = f"/shared is a claim of the storage class {able[0]}, which nodes can share"
        return Shared("claim", "ReadWriteMany", able[0], note=note)
    where = "several nodes" if usable is None else f"any of {len(usable)} nodes"
    what = (
        f"the storage class {chosen} can't be written from more than one"
        if chosen
        else "no storage class is known to be shared by nodes"
    )
    raise Unsupported(
        f"Tasks may land on {where}, and {what}: /shared can't be the same for all of them.",
        "Name a class of a shared file system in kubernetes.storage_class, choose one node with "
        f'kubernetes.node_selector: {{"{HOSTNAME}": NODE}}, or write kubernetes.shared: none if '
        "the program does not use /shared.",
    )


def _folder_of_a_node(usable: Sequence[Data] | None, options: Kubernetes) -> Shared:
    """Return a folder of the node on which all tasks run. Raises Unsupported."""
    chosen = options.node_selector.get(HOSTNAME, "")
    if usable is not None and len(usable) == 1:
        labels = usable[0]["metadata"].get("labels", {})
        chosen = str(labels.get(HOSTNAME, usable[0]["metadata"]["name"]))
    if not chosen or (usable is not None and len(usable) > 1):
        many = f"any of {len(usable)} nodes" if usable else "any node"
        raise Unsupported(
            f"Tasks may land on {many}, and a folder of one node is not on the others.",
            f'Choose a node with kubernetes.node_selector: {{"{HOSTNAME}": NODE}}, or write '
            "kubernetes.shared: claim.",
        )
    note = f"/shared is a folder of the node {chosen}, on which all tasks run"
    return Shared("host-path", node=chosen, note=note)


# --- Nodes and storage classes --------------------------------------------------------------------


def shares(storage_class: Data) -> bool | None:
    """Say whether several nodes can write to volumes of a class; None: not known."""
    provisioner = str(storage_class.get("provisioner", ""))
    for able, patterns in ((True, SHARING), (False, SINGLE)):
        if any(fnmatch.fnmatchcase(provisioner, pattern) for pattern in patterns):
            return able
    return None


def _default(classes: Sequence[Data]) -> str | None:
    """Return the cluster's default class; of several the newest, as the API server does."""
    found = [
        one["metadata"]
        for one in classes
        if any(one["metadata"].get("annotations", {}).get(key) == "true" for key in DEFAULT)
    ]
    newest = max(found, key=lambda one: str(one.get("creationTimestamp", "")), default=None)
    return None if newest is None else str(newest["name"])


def is_usable(node: Data, options: Kubernetes) -> bool:
    """Say whether the run's Pods may land on a node: selector, taints, cordon, readiness."""
    spec, labels = node.get("spec", {}), node["metadata"].get("labels", {})
    conditions = {
        one["type"]: one["status"] for one in node.get("status", {}).get("conditions", ())
    }
    return (
        not spec.get("unschedulable")
        and conditions.get("Ready") == "True"
        and all(labels.get(key) == value for key, value in options.node_selector.items())
        and all(
            any(tolerates(one, taint) for one in options.tolerations)
            for taint in spec.get("taints", ())
            if taint["effect"] != "PreferNoSchedule"
        )
    )


def tolerates(toleration: Toleration, taint: Data) -> bool:
    """Say whether a toleration covers a taint, as the scheduler sees it."""
    return (
        toleration.effect in (None, taint["effect"])
        and toleration.key in (None, taint["key"])
        and (toleration.tolerates_any_value or (toleration.value or "") == taint.get("value", ""))
    )


# --- Afterwards -----------------------------------------------------------------------------------


def cleaner(service: Data) -> dict[str, Any] | None:
    """Return the Pod that removes what a run has left on a node; None: it has left nothing.

    It follows from the run's Service, which is the last to be removed. The folder is named by a
    valid run id, and by nothing else that a label or an annotation says.
    """
    metadata = service["metadata"]
    notes, run = metadata.get("annotations", {}), metadata.get("labels", {}).get(names.RUN, "")
    node, image = notes.get(names.NODE), notes.get(names.IMAGE)
    if not (node and image and is_run_id(run) and notes.get(names.HOST_PATH) == "true"):
        return None
    secret = notes.get(names.SECRET)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.pod(run, "cleaner"),
            "namespace": metadata["namespace"],
            "labels": {**metadata["labels"], names.CLEANER: "true"},
            "annotations": notes,
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": {HOSTNAME: node},
            # Its node may be cordoned by a fault meanwhile.
            "tolerations": [{"operator": "Exists"}],
            **({"imagePullSecrets": [{"name": secret}]} if secret else {}),
            "containers": [
                {
                    "name": names.MAIN,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["rm", "-rf", "--", f"/nodes/{_folder(run)}"],
                    "volumeMounts": [{"name": "nodes", "mountPath": "/nodes"}],
                    "securityContext": {
                        "runAsUser": 0,
                        "allowPrivilegeEscalation": False,
                        # Programs may have made folders as other users.
                        "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "FOWNER"]},
                    },
                }
            ],
            "volumes": [{"name": "nodes", "hostPath": {"path": NODE_FOLDER}}],
        },
    }


def folder_of(request: Data) -> str:
    """Return the folder that such a Pod removes."""
    name = str(request["spec"]["containers"][0]["command"][-1]).rpartition("/")[2]
    return f"{NODE_FOLDER}/{name}"


def node_of(request: Data) -> str:
    """Return the node on which it does."""
    return str(request["spec"]["nodeSelector"][HOSTNAME])
