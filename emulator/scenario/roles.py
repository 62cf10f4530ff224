"""What the roles of tasks mean: which of them train, which is the chief (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

ROLES: Mapping[str, tuple[str, ...]] = {
    "tensorflow": ("chief", "worker", "ps", "evaluator"),
    "pytorch": ("master", "worker"),
}
"""Roles by framework; with `none` a role is any valid part of a host name."""
CHIEFS = ("chief", "master")
"""Roles of which a cluster has at most one task, which leads the others."""
TRAINING = (*CHIEFS, "worker")
"""Roles that do the work that is scaled; parameter servers and evaluators don't."""
EVALUATOR = "evaluator"
"""A role that is not part of the cluster, and only reads checkpoints."""


def role_of(task: str) -> str:
    """Return the role of a task from its name, `<role>-<index>`."""
    return task.rpartition("-")[0]


def chief(tasks: Collection[str]) -> str:
    """Return the name of the task that leads: the chief, else worker 0 (TF2), else empty."""
    return next((name for role in TRAINING if (name := f"{role}-0") in tasks), "")
