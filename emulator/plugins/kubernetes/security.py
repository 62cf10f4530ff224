"""The security contexts of our Pods (pure): they fulfil the level `restricted` with `run_as`.

https://kubernetes.io/docs/concepts/security/pod-security-standards/ as of Kubernetes 1.31. Our
containers with Docker have the same. Whether a namespace takes such a Pod is the cluster's to say:
`emulate doctor` asks it (a dry run).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.plugins.kubernetes.section import Kubernetes

RESTRICTED: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""Of every container."""
SECCOMP: Mapping[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}


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
