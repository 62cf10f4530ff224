"""The security contexts of our Pods, and what a level of Pod security refuses (pure).

https://kubernetes.io/docs/concepts/security/pod-security-standards/ as of Kubernetes 1.31, for what
a Pod of ours may have. They are what our containers with Docker have too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from emulator.plugins.kubernetes.section import Kubernetes

Level = Literal["privileged", "baseline", "restricted"]
RESTRICTED: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""Of every container."""
SECCOMP: Mapping[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"}
    | {"projected", "secret"}
)
"""What `restricted` allows."""
_ADDED = {"restricted": frozenset({"NET_BIND_SERVICE"}), "baseline": frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"}
    | {"NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
)}  # fmt: skip
"""Capabilities that a container may add."""


def pod_security_context(options: Kubernetes) -> dict[str, Any]:
    """Return the security context of a Pod."""
    if options.run_as is None:
        return dict(SECCOMP)
    return {
        **SECCOMP,
        "runAsNonRoot": True,
        "runAsUser": options.run_as,
        "runAsGroup": options.run_as,
        # Volumes of most storage classes are writable by this group.
        "fsGroup": options.run_as,
        "fsGroupChangePolicy": "OnRootMismatch",
    }


def obstacles(pod: Mapping[str, Any], level: Level) -> list[str]:
    """Return what in a Pod a namespace of this level refuses, each with what to do about it."""
    if level == "privileged":
        return []
    found = [
        *_baseline_violations(pod),
        *(_restricted_violations(pod) if level == "restricted" else ()),
    ]
    return list(dict.fromkeys(found))


def _containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from pod["spec"].get("initContainers", ())
    yield from pod["spec"]["containers"]


def _baseline_violations(pod: Mapping[str, Any]) -> Iterator[str]:
    spec = pod["spec"]
    for volume in spec.get("volumes", ()):
        if "hostPath" in volume:
            yield (
                f"the volume {volume['name']} is a folder of the node; "
                "set kubernetes.shared: claim or none"
            )
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield f"{key} is set"
    for one in _containers(pod):
        context = one.get("securityContext", {})
        if context.get("privileged"):
            yield f"the container {one['name']} is privileged"
        yield from _capabilities(one, "baseline")


def _restricted_violations(pod: Mapping[str, Any]) -> Iterator[str]:
    spec = pod["spec"]
    for volume in spec.get("volumes", ()):
        kinds = set(volume) - {"name"}
        if not kinds & (_VOLUMES | {"hostPath"}):  # hostPath: see the level below
            yield f"the volume {volume['name']} is of the kind {', '.join(sorted(kinds))}"
    for one in _containers(pod):
        whole, own = spec.get("securityContext", {}), one.get("securityContext", {})
        context = {**whole, **own}
        name = one["name"]
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"the container {name} may gain privileges"
        if "ALL" not in own.get("capabilities", {}).get("drop", ()):
            yield f"the container {name} keeps capabilities"
        if context.get("runAsUser") == 0:
            yield f"the container {name} runs as root"
        elif context.get("runAsNonRoot") is not True:
            yield (
                "nothing says that the images do not run as root; set kubernetes.run_as to the id "
                "of a user, such as 1000"
            )
        if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"the container {name} has no seccomp profile"
        yield from _capabilities(one, "restricted")


def _capabilities(
    container: Mapping[str, Any], level: Literal["baseline", "restricted"]
) -> Iterator[str]:
    added = container.get("securityContext", {}).get("capabilities", {}).get("add", ())
    if more := sorted(set(added) - _ADDED[level]):
        yield f"the container {container['name']} adds {', '.join(more)}"
