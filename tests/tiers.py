"""Which tests `make quick` and `make test` run; `make test-rest` runs the others.

- quick: what starts nothing outside pytest's own process.
- basic: the contract of the engines that a laptop has, and one training of each kind.
- long: trainings of minutes whose way another one takes as well; `make long` runs those.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType

import pytest

OUTSIDE = {
    *("docker_engine", "docker_or_why", "tiny_image", "browser", "host_tensorflow"),
    *("fake_node", "kubeconfig_or_why", "kubernetes_alone", "kubernetes_cluster"),
    *("kubernetes_user", "closed_registry", "registry", "slurm"),
    *("emulate", "pytester", "emulator"),
}
"""Fixtures that are an engine, a cluster, a scheduler, a registry, a browser or a command."""
STARTS = {"subprocess", "multiprocessing", "ProcessEngine", "ENGINES"}
"""What starts processes; a test that uses one, itself or through what it calls, is not quick."""
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

LONG = {
    # The preemptions of spot-trace and spot-machines:
    "scenarios/faults/spot-market.yaml::spot-market",
    # The trainings of mwms and of straggler:
    "scenarios/strategies/mwms-ring.yaml::mwms-ring",
    "scenarios/faults/straggler-async.yaml::straggler-async",
    # Other sizes of a training that runs in another one:
    "scenarios/model-parallel/dtensor.yaml::dtensor[program.env.MODEL=1]",
    "scenarios/model-parallel/pipeline-1f1b.yaml::pipeline-1f1b[cluster.worker=4]",
    # The training of elastic-torchrun; the verdicts of ddp-preemption and of one worker:
    "tests/plugins/kubeflow/test_jobs.py::test_a_manifest_runs_to_its_end[elastic]",
    "tests/test_scenarios.py::test_a_cluster_gives_the_verdicts_that_docker_gives[mwms-preemption-2]",
}
"""Tests of minutes that are not part of `make test-rest`."""


def is_quick(item: pytest.Item) -> bool:
    """Return whether a test starts nothing outside pytest's own process."""
    return (
        OUTSIDE.isdisjoint(getattr(item, "fixturenames", ()))
        and NOT_QUICK.isdisjoint(mark.name for mark in item.iter_markers())
        and not any(map(_starts, _parts(item)))
    )


def _parts(item: pytest.Item) -> Iterator[object]:
    """Yield what a test consists of: its function, its fixtures' functions, its parameters."""
    if isinstance(item, pytest.Function):
        yield item.function
        yield from (
            fixture.func
            for fixtures in item._fixtureinfo.name2fixturedefs.values()
            for fixture in fixtures
        )
        yield from item.callspec.params.values() if hasattr(item, "callspec") else ()


def is_basic(item: pytest.Item) -> bool:
    """Return whether a test is one of those that `make test` adds to the quick ones."""
    return item.nodeid.startswith(BASIC) and item.get_closest_marker("kubernetes") is None


def mark(items: list[pytest.Item]) -> None:
    """Give each test the mark of its tier."""
    for item in items:
        if item.nodeid in LONG:
            item.add_marker("long")
        if is_basic(item):
            item.add_marker("basic")
        elif is_quick(item):
            item.add_marker("quick")
        if item.path.name.startswith("test_fuzz"):
            item.add_marker("fuzz")


_known: dict[object, bool] = {}


def _starts(part: object) -> bool:
    """Return whether a function or class of the tests uses what starts processes."""
    if not isinstance(part, FunctionType | type):
        return False
    if part not in _known:
        _known[part] = False  # while it is looked at: functions may call each other
        _known[part] = any(
            name in STARTS or (_is_ours(value) and _starts(value)) for name, value in _used(part)
        )
    return _known[part]


def _is_ours(value: object) -> bool:
    return (getattr(value, "__module__", None) or "").split(".")[0] == "tests"


def _used(part: FunctionType | type) -> Iterator[tuple[str, object]]:
    """Yield the global names that a function, or the methods of a class, use, with their values."""
    members = list(vars(part).values()) if isinstance(part, type) else [inspect.unwrap(part)]
    for member in members:
        function = getattr(member, "__func__", getattr(member, "fget", member))
        codes = [function.__code__] if isinstance(function, FunctionType) else []
        while codes:
            code = codes.pop()
            codes += (one for one in code.co_consts if isinstance(one, CodeType))
            yield from ((name, function.__globals__.get(name)) for name in code.co_names)
