"""What follows from a task's end: every policy, scope, exit code and success rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.scenario.frameworks.registry import FRAMEWORKS
from emulator.scenario.restart import Restart, RestartPolicy, RestartScope
from emulator.scenario.schema import SuccessRule
from emulator.supervisor.restart_policy import (
    BACKOFF_CEILING,
    Decision,
    Fail,
    RestartJob,
    RestartTask,
    Succeed,
    Wait,
    decide,
)

POLICIES = get_args(RestartPolicy)
SCOPES = get_args(RestartScope)
RULES = get_args(SuccessRule)
RUNNING: Mapping[str, int | None] = {"chief-0": None, "worker-0": None, "worker-1": None}


def after(
    task: str,
    exit_code: int,
    *,
    policy: RestartPolicy = "never",
    scope: RestartScope = "task",
    success: SuccessRule = "auto",
    exits: Mapping[str, int | None] = RUNNING,
    restarts: int = 0,
    limit: int = 5,
    backoff: str = "1s",
) -> Decision:
    restart = Restart.model_validate(
        {"policy": policy, "scope": scope, "limit": limit, "backoff": backoff}
    )
    return decide(
        task,
        exit_code,
        restart=restart,
        success=success,
        roles=FRAMEWORKS["none"].roles,
        exits=exits,
        restarts=restarts,
    )


RESTARTS: Mapping[RestartPolicy, Mapping[int, bool]] = {
    "never": {1: False, 42: False, 137: False},
    "on-failure": {1: True, 42: True, 137: True},
    "always": {1: True, 42: True, 137: True},
    # Kubeflow's ExitCode: below 128 is permanent, a signal is not.
    "exit-code": {1: False, 42: False, 127: False, 128: True, 137: True, 143: True},
}


@pytest.mark.parametrize("success", RULES)
@pytest.mark.parametrize(("scope", "kind"), [("task", RestartTask), ("job", RestartJob)])
@pytest.mark.parametrize(
    ("policy", "exit_code", "again"),
    [(policy, code, again) for policy, of in RESTARTS.items() for code, again in of.items()],
)
def test_a_failure_restarts_the_task_or_the_job_or_ends_it(
    policy: RestartPolicy,
    exit_code: int,
    again: bool,
    scope: RestartScope,
    kind: type[RestartTask | RestartJob],
    success: SuccessRule,
) -> None:
    found = after("worker-1", exit_code, policy=policy, scope=scope, success=success)
    if again:
        assert found == kind(delay=1.0, number=1)
    else:
        permanent = ", which exit-code takes for permanent (below 128)"
        why = permanent if policy == "exit-code" else ""
        assert found == Fail(f"worker-1 failed with exit code {exit_code}{why}")


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_good_end_that_decides_nothing_restarts_only_under_always(
    policy: RestartPolicy, scope: RestartScope
) -> None:
    found = after("worker-1", 0, policy=policy, scope=scope, exits={**RUNNING, "worker-1": 0})
    if (policy, scope) == ("always", "task"):
        assert found == RestartTask(delay=1.0, number=1)
    else:
        assert found == Wait()


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("success", "ended", "others", "reason"),
    [
        ("auto", "chief-0", {"worker-0": None}, "chief-0 finished"),
        ("auto", "worker-0", {"chief-0": None}, ""),
        ("auto", "master-0", {"worker-0": None}, "master-0 finished"),
        ("auto", "worker-0", {"worker-1": None}, "worker-0 finished"),
        ("auto", "worker-1", {"worker-0": None}, ""),
        ("auto", "node-0", {"node-1": 0}, "all tasks that count finished"),
        ("auto", "node-0", {"node-1": None}, ""),
        ("chief", "chief-0", {"worker-0": None}, "chief-0 finished"),
        ("chief", "worker-0", {"chief-0": None}, ""),
        ("all-workers", "worker-0", {"worker-1": 0}, "all tasks that count finished"),
        ("all-workers", "worker-0", {"worker-1": None}, ""),
        ("all-workers", "worker-0", {"worker-1": 1}, ""),
        ("all-workers", "worker-0", {"chief-0": None}, "worker-0 finished"),
        ("all-workers", "chief-0", {"worker-0": None}, ""),
        ("all-workers", "worker-0", {"worker-1": 0, "my-worker-0": None}, "all tasks that"),
    ],
)
def test_which_tasks_have_to_finish_for_the_job_to_succeed(
    success: SuccessRule,
    ended: str,
    others: Mapping[str, int | None],
    reason: str,
    policy: RestartPolicy,
    scope: RestartScope,
) -> None:
    found = after(ended, 0, policy=policy, scope=scope, success=success, exits={ended: 0, **others})
    if reason:
        assert isinstance(found, Succeed)
        assert found.reason.startswith(reason)
    else:
        assert not isinstance(found, Succeed | Fail)


def test_success_needs_no_restarts_that_are_left() -> None:
    found = after("chief-0", 0, policy="always", restarts=5, exits={"chief-0": 0})
    assert isinstance(found, Succeed)


@pytest.mark.parametrize(("others", "drain"), [({"worker-0": None}, True), ({"ps-0": None}, False)])
def test_other_workers_may_finish_but_servers_never_would(
    others: Mapping[str, int | None], drain: bool
) -> None:
    found = after("chief-0", 0, exits={"chief-0": 0, **others})
    assert found == Succeed("chief-0 finished", drain=drain)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ("1s", [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        ("90s", [90, 180, 300, 300]),
        ("10m", [300, 300]),
        ("0", [0, 0, 0]),
    ],
)
def test_the_backoff_doubles_up_to_its_ceiling(backoff: str, delays: list[float]) -> None:
    assert BACKOFF_CEILING == 300
    for restarts, delay in enumerate(delays):
        found = after("ps-0", 1, policy="on-failure", restarts=restarts, limit=20, backoff=backoff)
        assert found == RestartTask(delay=delay, number=restarts + 1)


@pytest.mark.parametrize(("scope", "whose"), [("task", "worker-1"), ("job", "the job")])
def test_the_limit_ends_the_restarts(scope: RestartScope, whose: str) -> None:
    last = after("worker-1", 7, policy="on-failure", scope=scope, restarts=4)
    assert isinstance(last, RestartTask | RestartJob)
    over = after("worker-1", 7, policy="on-failure", scope=scope, restarts=5)
    assert over == Fail(f"{whose} had its 5 restarts and ended again, with exit code 7")


codes = st.integers(0, 255)
counts = st.integers(0, 10_000)


@given(
    scope=st.sampled_from(SCOPES),
    restarts=counts,
    rules=st.fixed_dictionaries(
        {
            "policy": st.sampled_from(POLICIES),
            "limit": counts,
            "backoff": st.floats(0, 1e6).map(lambda seconds: f"{seconds:.6f}s"),
        }
    ),
    exit_code=codes,
)
def test_a_restart_is_counted_within_the_limit_and_delayed_within_the_ceiling(
    scope: RestartScope, restarts: int, rules: dict[str, Any], exit_code: int
) -> None:
    found = after("worker-1", exit_code, scope=scope, restarts=restarts, **rules)
    if isinstance(found, RestartTask | RestartJob):
        assert rules["policy"] != "never"
        assert found.number == restarts + 1 <= rules["limit"]
        assert 0 <= found.delay <= BACKOFF_CEILING
        assert isinstance(found, RestartTask) == (scope == "task")


@given(
    exits=st.dictionaries(
        st.sampled_from(["chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0"]),
        st.none() | codes,
        min_size=1,
    ),
    success=st.sampled_from(RULES),
    policy=st.sampled_from(POLICIES),
    data=st.data(),
)
def test_a_job_never_succeeds_by_a_failed_task_nor_fails_by_a_good_end(
    exits: dict[str, int | None], success: SuccessRule, policy: RestartPolicy, data: st.DataObject
) -> None:
    task = data.draw(st.sampled_from(sorted(exits)))
    exit_code = data.draw(codes)
    found = after(task, exit_code, policy=policy, success=success, exits={**exits, task: exit_code})
    assert not isinstance(found, Fail if exit_code == 0 else Succeed)
