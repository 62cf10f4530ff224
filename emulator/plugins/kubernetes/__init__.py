"""The Kubernetes engine: one Pod a task, in a namespace of a cluster."""

from __future__ import annotations

from emulator.plugins.kubernetes.engine import KubernetesEngine

__all__ = ["KubernetesEngine"]
