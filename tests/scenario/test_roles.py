"""Roles: which train, and which task leads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emulator.scenario.frameworks.spec import Framework, FrameworkName, role_of
from emulator.scenario.frameworks.table import FRAMEWORKS


@pytest.mark.parametrize(
    ("framework", "tasks", "leader"),
    [
        ("tensorflow", ("worker-0", "chief-0"), "chief-0"),
        ("pytorch", ("worker-0", "master-0"), "master-0"),
        ("none", ("worker-0", "master-0"), "master-0"),
        ("none", ("worker-0", "chief-0"), "chief-0"),
        ("jax", ("worker-1", "worker-0"), "worker-0"),
        ("mpi", ("worker-0", "launcher-0"), "launcher-0"),
        ("ray", ("worker-0", "head-0"), "head-0"),
        ("none", ("worker-0", "launcher-0", "head-0"), "worker-0"),
        ("tensorflow", ("ps-0", "worker-1", "worker-0"), "worker-0"),
        ("tensorflow", ("ps-0", "worker-1"), ""),
        ("tensorflow", (), ""),
    ],
)
def test_the_chief_leads_else_worker_0(
    framework: FrameworkName, tasks: Sequence[str], leader: str
) -> None:
    assert FRAMEWORKS[framework].roles.leader(tasks) == leader


def test_who_ends_the_job_is_the_rules_else_the_leaders_else_everybodys_matter() -> None:
    roles = FRAMEWORKS["tensorflow"].roles
    for rule, tasks, deciding in [
        ("all-workers", ["chief-0", "worker-0", "worker-1"], ["worker-0", "worker-1"]),
        ("auto", ["chief-0", "worker-0", "worker-1"], ["chief-0"]),
        ("auto", ["ps-0", "worker-0", "worker-1"], ["worker-0"]),
        ("auto", ["ps-0", "evaluator-0"], ["ps-0", "evaluator-0"]),
    ]:
        assert roles.deciding(rule, tasks) == deciding


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_every_role_that_leads_is_a_role_of_its_framework_and_trains(
    framework: Framework,
) -> None:
    roles = framework.roles
    assert all(roles.trains(role) != (role in roles.idle) for role in (*roles.leaders, "worker"))
    if roles.names:
        assert {*roles.leaders, "worker"} <= {*roles.names}


def test_some_roles_do_not_train() -> None:
    roles = FRAMEWORKS["tensorflow"].roles
    assert [role for role in roles.names if not roles.trains(role)] == ["ps", "evaluator"]


@pytest.mark.parametrize(
    ("framework", "tasks", "endless"),
    [
        ("tensorflow", ("chief-0", "worker-0", "ps-0"), True),
        ("tensorflow", ("chief-0", "worker-0"), False),
        ("mpi", ("launcher-0", "worker-0"), True),
        ("ray", ("head-0", "worker-0"), True),
    ],
)
def test_servers_never_end(framework: FrameworkName, tasks: Sequence[str], endless: bool) -> None:
    assert FRAMEWORKS[framework].roles.endless(tasks) == endless


def test_the_role_of_a_task_may_have_dashes() -> None:
    assert [role_of(task) for task in ("worker-10", "data-loader-0")] == ["worker", "data-loader"]
