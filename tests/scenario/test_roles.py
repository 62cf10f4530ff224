"""Roles: which train, and which task leads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emulator.scenario.roles import CHIEFS, EVALUATOR, ROLES, TRAINING, chief, role_of


@pytest.mark.parametrize(
    ("tasks", "leader"),
    [
        (("worker-0", "chief-0"), "chief-0"),
        (("worker-0", "master-0"), "master-0"),
        (("ps-0", "worker-1", "worker-0"), "worker-0"),
        (("ps-0", "worker-1"), ""),
        ((), ""),
    ],
)
def test_the_chief_leads_else_worker_0(tasks: Sequence[str], leader: str) -> None:
    assert chief(tasks) == leader


def test_every_role_that_trains_is_a_role_of_a_framework() -> None:
    known = {role for roles in ROLES.values() for role in roles}
    assert known - {*TRAINING} == {"ps", EVALUATOR}
    assert {*CHIEFS} < {*TRAINING} < known


def test_the_role_of_a_task_may_have_dashes() -> None:
    assert [role_of(task) for task in ("worker-10", "data-loader-0")] == ["worker", "data-loader"]
