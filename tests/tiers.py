"""Which tests `make quick` and `make test` run; `make test-all` runs all.

- quick: what starts nothing outside pytest's own process.
- basic: the contract of the engines that a laptop has, and one training of each kind.
"""

from __future__ import annotations

import pytest

OUTSIDE = {
    *("docker_engine", "docker_or_why", "tiny_image", "browser", "host_tensorflow"),
    *("fake_node", "kubeconfig_or_why", "kubernetes_alone", "kubernetes_cluster"),
    *("kubernetes_user", "closed_registry", "registry"),
    *("emulate", "pytester", "emulator"),
}
"""Fixtures that are an engine, a cluster, a registry, a browser or a command."""
STARTS = ("subprocess", "multiprocessing", "ProcessEngine")
"""What a module of tests has that starts processes itself."""
NOT_QUICK = {
    *("docker", "kubernetes", "tensorflow", "gallery", "campaign", "programs", "long", "slow"),
}
BASIC = (
    "tests/engines/test_contract.py::",
    "scenarios/strategies/quickstart.yaml::",
    "scenarios/faults/mwms-preemption.yaml::",
    "scenarios/faults/ps-worker-preemption.yaml::ps-worker-preemption[faults.0.address=same]",
    "scenarios/pytorch/ddp-preemption.yaml::",
    "scenarios/jax/jax.yaml::",
)
"""How the names of basic tests begin: synchronous and asynchronous training, PyTorch, JAX."""


def is_quick(item: pytest.Item) -> bool:
    """Return whether a test starts nothing outside pytest's own process."""
    module = getattr(item, "module", None)
    return (
        OUTSIDE.isdisjoint(getattr(item, "fixturenames", ()))
        and not any(hasattr(module, name) for name in STARTS)
        and NOT_QUICK.isdisjoint(mark.name for mark in item.iter_markers())
    )


def is_basic(item: pytest.Item) -> bool:
    """Return whether a test that is not quick is part of `make test`."""
    return item.nodeid.startswith(BASIC) and item.get_closest_marker("kubernetes") is None


def mark(items: list[pytest.Item]) -> None:
    """Give each test the mark of its tier."""
    for item in items:
        if is_quick(item):
            item.add_marker("quick")
        elif is_basic(item):
            item.add_marker("basic")
        if item.path.name.startswith("test_fuzz"):
            item.add_marker("fuzz")
