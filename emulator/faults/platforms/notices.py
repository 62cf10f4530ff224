"""Notices: what a platform tells a machine before it takes it away (values and a protocol)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Notice:
    """What one task is told of what will happen to its machine."""

    platform: str
    """Whose metadata server says it: a key of `ACTIONS`."""
    action: str
    """What will happen, in the word of `ACTIONS`."""
    task: str
    announced: float
    """When it is told (seconds since 1970)."""
    deadline: float
    """When it will happen (seconds since 1970); fixed when it is told."""


@runtime_checkable
class Announcing(Protocol):
    """Capability `notices`: an engine whose tasks have the metadata server of a platform."""

    def announce(self, notice: Notice) -> None:
        """Have the metadata server tell a task; blocks; the same notice again changes nothing.

        Raises NotRunning where the task does not run, EngineError.
        """

    def withdraw(self, task: str) -> None:
        """Take back what a task was told: it is over, or the task is a new machine now.

        Nothing happens if it was told nothing. Raises EngineError.
        """


ACTIONS: Mapping[str, tuple[str, ...]] = {
    "gce": ("preempt", "terminate", "maintenance", "freeze"),
    "ec2": ("terminate", "stop", "hibernate", "rebalance"),
    "azure": ("preempt", "terminate", "reboot", "redeploy", "freeze"),
}
"""The platforms whose metadata can be served, and what each announces.

GCE: `preempt` is the key `preempted`; `terminate` and `maintenance` are the maintenance event
`TERMINATE_ON_HOST_MAINTENANCE`, `freeze` is `MIGRATE_ON_HOST_MAINTENANCE`.
"""


def asked_of_engine(platform: str, target: str) -> Iterator[tuple[str, str]]:
    """Yield what a notice of a platform needs of the engine, with the capability (pure)."""
    yield f"a notice of {platform} for {target}", "notices"
    if platform == "azure":
        # No variable names its address, so that tasks need one of their own.
        yield "the fixed address of Azure's scheduled events", "isolation"


def variables_at(host_port: str) -> Mapping[str, str]:
    """Return the variables by which clients find metadata elsewhere than at 169.254.169.254.

    The first two are of Google's clients (with a port they need no other form), the third of
    Amazon's, the last of its handler of terminations for Kubernetes.
    """
    return {
        "GCE_METADATA_HOST": host_port,
        "GCE_METADATA_IP": host_port,
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{host_port}/",
        "INSTANCE_METADATA_URL": f"http://{host_port}",
    }
