"""The parts of the cluster: their command lines and configuration, as data (pure)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.kubernetes.layout import (
    API_PORT,
    CLUSTER_DOMAIN,
    ETCD_PEER_PORT,
    ETCD_PORT,
    ISSUER,
    KUBELET_HEALTH_PORT,
    KUBELET_PORT,
    NODE,
    PAUSE_IMAGE,
    SERVICE_RANGE,
    STORAGE_CLASS,
    Layout,
)
from scripts.kubernetes.processes import Process

MAX_PODS = 250
NODE_LOST_AFTER = "16s"
"""How long a node may be silent; four times what the kubelet takes between two reports."""
CHECKOUT = Path(__file__).resolve().parents[2]
ORDER = ("etcd", "api-server", "controllers", "scheduler", "node-services", "kubelet")
"""In this order they start, and in the opposite one they end."""


def etcd(layout: Layout) -> Process:
    """Return the cluster's memory."""
    client, peer = (f"http://127.0.0.1:{port}" for port in (ETCD_PORT, ETCD_PEER_PORT))
    options = {
        "data-dir": layout.state / "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
    }
    # What it holds is not worth a wait for the disk: it is removed with the cluster.
    return Process("etcd", _command(layout, "etcd", options, "unsafe-no-fsync"))


def api_server(layout: Layout, node_ip: str) -> Process:
    """Return the API server."""
    pki = layout.pki
    options = {
        "etcd-servers": f"http://127.0.0.1:{ETCD_PORT}",
        "bind-address": "127.0.0.1",
        "secure-port": API_PORT,
        # An address of the loopback is refused here, and nothing uses it: see `node_services`.
        "advertise-address": node_ip,
        "endpoint-reconciler-type": "none",
        "tls-cert-file": pki / "api-server.crt",
        "tls-private-key-file": pki / "api-server.key",
        "client-ca-file": pki / "ca.crt",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "service-account-key-file": pki / "service-accounts.pub",
        "service-account-signing-key-file": pki / "service-accounts.key",
        "service-account-issuer": ISSUER,
        "service-cluster-ip-range": SERVICE_RANGE,
        "kubelet-client-certificate": pki / "admin.crt",
        "kubelet-client-key": pki / "admin.key",
        "kubelet-preferred-address-types": "Hostname",
        "allow-privileged": "true",
        "audit-policy-file": layout.state / "audit-policy.json",
        "audit-log-path": layout.audit_log,
        "audit-log-mode": "batch",
        "audit-log-batch-max-wait": "1s",
        "audit-log-maxsize": 200,
        "audit-log-maxbackup": 1,
    }
    return Process("api-server", _command(layout, "kube-apiserver", options))


def controllers(layout: Layout) -> Process:
    """Return the controller manager; it makes the volumes of claims, too."""
    options = {
        "kubeconfig": layout.kubeconfig("controllers"),
        "bind-address": "127.0.0.1",
        "port": 0,
        "secure-port": 0,
        "leader-elect": "false",
        "service-account-private-key-file": layout.pki / "service-accounts.key",
        "root-ca-file": layout.pki / "ca.crt",
        "node-monitor-grace-period": NODE_LOST_AFTER,
    }
    command = _command(layout, "kube-controller-manager", options, "enable-hostpath-provisioner")
    # Volumes are for tasks of every user.
    return Process("controllers", command, umask=0)


def scheduler(layout: Layout) -> Process:
    """Return the scheduler."""
    options = {
        "kubeconfig": layout.kubeconfig("scheduler"),
        "bind-address": "127.0.0.1",
        "port": 0,
        "secure-port": 0,
        "leader-elect": "false",
    }
    return Process("scheduler", _command(layout, "kube-scheduler", options))


def kubelet(layout: Layout, node_ip: str) -> Process:
    """Return the node's agent; it runs Pods on the machine's Docker engine."""
    options = {
        "kubeconfig": layout.kubeconfig("kubelet"),
        "config": layout.state / "kubelet.json",
        "root-dir": layout.kubelet_root,
        "hostname-override": NODE,
        "node-ip": node_ip,
        "pod-infra-container-image": PAUSE_IMAGE,
        "cert-dir": layout.state / "kubelet-pki",
        "v": 1,
    }
    return Process("kubelet", _command(layout, "kubelet", options))


def node_services(layout: Layout, node_ip: str) -> Process:
    """Return what a cluster's add-ons do elsewhere: names, and the way from Pods to the API."""
    module = "scripts.kubernetes.node_services"
    return Process(
        "node-services",
        [sys.executable, "-m", module, str(layout.pki), node_ip],
        {"PYTHONPATH": str(CHECKOUT)},
    )


def kubelet_configuration(layout: Layout, node_ip: str, driver: str) -> dict[str, Any]:
    """Return the kubelet's configuration for a machine that others use as well.

    `driver` is what the engine manages cgroups with: kubelet and engine must agree. The kubelet
    changes nothing of the machine: no cgroups of its own, no iptables, no OOM scores below 0,
    and it never removes an image of the shared engine to make room.
    """
    return {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "address": "127.0.0.1",
        "port": KUBELET_PORT,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": KUBELET_HEALTH_PORT,
        "authorization": {"mode": "AlwaysAllow"},
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "cgroupDriver": driver,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "0%",
            "imagefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [node_ip],
        "nodeStatusUpdateFrequency": "4s",
        "syncFrequency": "10s",
        "maxPods": MAX_PODS,
        # By default it would ask for five a second: 100 Pods would wait for their status.
        "kubeAPIQPS": 50,
        "kubeAPIBurst": 100,
        "eventRecordQPS": 50,
        "registryPullQPS": 0,
        # Many images are here already, and pulls of others don't wait for one another.
        "serializeImagePulls": False,
    }


def audit_policy() -> dict[str, Any]:
    """Return what the API server notes: each request of users, none of the cluster's parts."""
    groups = ["system:nodes", "system:serviceaccounts:kube-system", "system:unauthenticated"]
    users = ["system:kube-scheduler", "system:kube-controller-manager", "system:apiserver"]
    return {
        "kind": "Policy",
        "apiVersion": "audit.k8s.io/v1",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "userGroups": groups},
            {"level": "None", "users": [*users, "system:node-services"]},
            {"level": "Metadata"},
        ],
    }


def storage_class() -> dict[str, Any]:
    """Return the default class: folders of the node, gone with their claims."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/host-path",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def _command(layout: Layout, binary: str, options: dict[str, Any], *switches: str) -> Sequence[str]:
    given = [f"--{name}={value}" for name, value in options.items()]
    return [str(layout.binaries / binary), *given, *(f"--{name}" for name in switches)]
