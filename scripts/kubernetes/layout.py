"""Where the cluster's things are on this machine, and on which ports it listens."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

API_PORT = 16443
ETCD_PORT, ETCD_PEER_PORT = 12379, 12380
KUBELET_PORT, KUBELET_HEALTH_PORT = 10250, 10248
PORTS = (API_PORT, ETCD_PORT, ETCD_PEER_PORT, KUBELET_PORT, KUBELET_HEALTH_PORT)
"""All on the loopback: nobody else on the network reaches the cluster."""

SERVICE_RANGE = "10.96.0.0/24"
API_SERVICE_IP = "10.96.0.1"
"""The first address of the range: the service `kubernetes`, by which Pods call the API."""
CLUSTER_DOMAIN = "cluster.local"
ISSUER = "https://kubernetes.default.svc"

NODE = "localhost"
"""The node's name: the API server reaches the kubelet by it, on the loopback."""
PAUSE_IMAGE = "emulator-kubernetes/pause:3.2"
STORAGE_CLASS = "host-path"
PROVISIONED = Path("/tmp/hostpath_pv")
"""Where the controller manager's provisioner makes volumes; the place is in its source."""

KUBELET_PLACES = tuple(
    map(
        Path,
        (
            "/var/lib/kubelet",
            "/var/lib/dockershim",
            "/var/log/pods",
            "/var/log/containers",
            "/usr/libexec/kubernetes",
        ),
    )
)
"""What a kubelet makes outside its root folder, wherever that is."""


@dataclass(frozen=True)
class Layout:
    """The folders of one cluster."""

    state: Path

    @property
    def binaries(self) -> Path:
        """A link to the binaries that it was started with: the recipe may have changed since."""
        return self.state / "binaries"

    @property
    def pki(self) -> Path:
        """Keys and certificates; only the owner may read it."""
        return self.state / "pki"

    @property
    def admin(self) -> Path:
        """The kubeconfig of the administrator; complete in itself, so that it may be copied."""
        return self.state / "admin.kubeconfig"

    @property
    def kubelet_root(self) -> Path:
        """The kubelet's own folder: volumes of Pods are mounted there."""
        return self.state / "kubelet"

    @property
    def audit_log(self) -> Path:
        """One JSON object a request of anybody but the cluster's own parts."""
        return self.state / "audit.log"

    def kubeconfig(self, name: str) -> Path:
        """Return where the kubeconfig of a user of `pki.USERS` is."""
        return self.state / f"{name}.kubeconfig"


def cache_folder() -> Path:
    """Return where binaries and the cluster are kept, outside every checkout."""
    if given := os.environ.get("EMULATOR_KUBERNETES_CACHE"):
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "emulator" / "kubernetes"


def state_folder() -> Path:
    """Return the folder of the machine's one cluster: there can be only one kubelet an engine."""
    return cache_folder() / "cluster"
