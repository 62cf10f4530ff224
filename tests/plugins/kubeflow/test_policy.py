"""What follows from the exit of a pod, as in Kubeflow's training operator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.plugins.kubeflow.kubelet import crashes_after, crashes_of
from emulator.plugins.kubeflow.operator_job import Pods, decide, stops_pods
from emulator.plugins.kubeflow.section import Operator
from emulator.record.events import Restart as RestartEvent
from emulator.record.events import TaskExit, TaskStart
from emulator.record.timeline import Incarnation
from emulator.scenario.restart import Restart
from emulator.supervisor.restart_policy import Decision, Fail, RestartTask, Succeed, Wait

TASKS = ("worker-0", "worker-1", "ps-0")


def operator(kind: str = "TFJob", **changes: Any) -> Operator:
    return Operator.model_validate({"kind": kind, "job": "mnist", **changes})


def outcome(
    task: str,
    code: int,
    job: Operator,
    *,
    exits: dict[str, int] | None = None,
    restarts: dict[str, int] | None = None,
    crashes: int = 0,
    tasks: tuple[str, ...] = TASKS,
    backoff: str | None = None,
    evicted: bool = False,
) -> Decision:
    none: dict[str, int | None] = dict.fromkeys(tasks)
    return decide(
        task,
        code,
        operator=job,
        restart=Restart.model_validate({} if backoff is None else {"backoff": backoff}),
        pods=Pods(none | (exits or {}), dict.fromkeys(tasks, 0) | (restarts or {}), crashes),
        evicted=evicted,
    )


DECISIONS: dict[str, dict[int, type[Decision]]] = {
    "never": {1: Fail, 137: Fail},
    "on-failure": {1: RestartTask, 137: RestartTask, 0: Wait},
    "always": {0: RestartTask, 1: RestartTask},
    "exit-code": {1: Fail, 127: Fail, 128: RestartTask, 137: RestartTask, 139: RestartTask},
}


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [(policy, code, one) for policy, of in DECISIONS.items() for code, one in of.items()],
)
def test_the_policy_of_a_role_decides(policy: str, code: int, expected: type) -> None:
    job = operator(restart={"worker": policy})
    found = outcome("worker-1", code, job)
    assert isinstance(found, expected)
    if expected is RestartTask:  # in a new pod, or in place
        assert found == RestartTask(delay=0.0, number=1, fresh=policy == "exit-code")
    assert outcome("ps-0", 1, job) == Fail("ps-0 failed with exit code 1")  # as its own says


@pytest.mark.parametrize(
    ("crashes", "backoff", "expected"),
    [(0, None, 0), (1, None, 10), (2, None, 20), (5, None, 160), (6, None, 300), (99, None, 300),
     (1, "2s", 2), (3, "2s", 8)],
)  # fmt: skip
def test_the_kubelet_waits_longer_each_time(
    crashes: int, backoff: str | None, expected: float
) -> None:
    job = operator(restart={"worker": "always"})
    made = outcome("worker-1", 1, job, crashes=crashes, backoff=backoff)
    assert made == RestartTask(delay=expected, number=1)


def test_what_the_history_says_of_a_pod() -> None:
    def ran(begin: float, end: float, *, fresh: bool = False) -> Incarnation:
        return Incarnation(
            begin,
            start=TaskStart(fresh=fresh, wall=begin),
            exit=TaskExit(exit_code=1, wall=end),
            restart=RestartEvent(scope="task", number=1, delay=0),
        )

    # One that ran for long is restarted at once again.
    assert [crashes_after(3, seconds) for seconds in (599, 600)] == [3, 0]
    in_place = [ran(0, 1), ran(1, 2), ran(2, 3)]
    assert crashes_of(in_place) == 3
    assert crashes_of([*in_place, ran(3, 700)]) == 1
    assert crashes_of([*in_place, ran(3, 4, fresh=True)]) == 1
    assert crashes_of([]) == 0


# --- Success --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "changes", "exits", "task", "succeeds"),
    [
        ("TFJob", {}, {}, "worker-0", True),
        ("TFJob", {}, {}, "worker-1", False),
        ("TFJob", {"success": "all-workers"}, {}, "worker-0", False),
        ("TFJob", {"success": "all-workers"}, {"worker-1": 0}, "worker-0", True),
        ("TFJob", {}, {"worker-0": 1}, "worker-1", False),
        ("TFJob", {}, {}, "ps-0", False),
        ("PyTorchJob", {}, {}, "worker-0", False),
        ("PyTorchJob", {}, {"worker-0": 0}, "worker-1", True),
        ("PyTorchJob", {"elastic": {}}, {}, "worker-1", True),
    ],
)
def test_success_without_a_chief(
    kind: str, changes: dict[str, Any], exits: dict[str, int], task: str, succeeds: bool
) -> None:
    found = outcome(task, 0, operator(kind, **changes), exits=exits)
    assert isinstance(found, Succeed) == succeeds


@pytest.mark.parametrize("leader", ["chief-0", "master-0"])
@pytest.mark.parametrize("success", ["default", "all-workers"])
def test_a_chief_decides_alone(leader: str, success: str) -> None:
    job = operator(success=success)
    tasks = (leader, "worker-0", "worker-1")
    assert outcome("worker-0", 0, job, exits={"worker-1": 0}, tasks=tasks) == Wait()
    assert isinstance(outcome(leader, 0, job, tasks=tasks), Succeed)
    always = operator(success=success, restart={leader.partition("-")[0]: "always"})
    assert isinstance(outcome(leader, 0, always, tasks=tasks), RestartTask)  # it never succeeds


def test_a_job_of_which_nothing_is_left_would_never_end() -> None:
    job = operator("PyTorchJob", restart={"worker": "never"})
    found = outcome("worker-0", 0, job, tasks=("worker-0", "ps-0"), exits={"ps-0": 0})
    assert isinstance(found, Succeed)
    dynamic = operator(dynamic_worker=True)
    found = outcome("worker-0", 1, dynamic, exits={"worker-1": 0, "ps-0": 0})
    assert isinstance(found, Fail)
    assert found.cause == "stuck"


# --- Failure --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "code", "comes_back"),
    [("never", 143, False), ("on-failure", 143, True), ("always", 42, True),
     ("exit-code", 143, True), ("exit-code", 42, False)],
)  # fmt: skip
def test_a_machine_that_is_taken_away_is_a_failed_pod(
    policy: str, code: int, comes_back: bool
) -> None:
    for limit in (None, 0):  # for which an eviction does not count
        job = operator(restart={"worker": policy}, backoff_limit=limit)
        found = outcome("worker-1", code, job, restarts={"worker-1": 2}, evicted=True)
        if comes_back:
            assert found == RestartTask(delay=0.0, number=2, fresh=True)
        else:
            assert isinstance(found, Fail)


# --- The limit ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "before", "past"),
    [(0, 0, True), (1, 0, True), (2, 0, False), (2, 1, True), (3, 1, False), (None, 99, False)],
)
@pytest.mark.parametrize("policy", ["on-failure", "always", "exit-code"])
def test_the_limit_is_the_sum_of_all_roles(
    policy: str, limit: int | None, before: int, past: bool
) -> None:
    roles = {"worker": policy, "ps": "on-failure"}
    job = operator(restart=roles, backoff_limit=limit)
    found = outcome("worker-1", 137, job, restarts={"ps-0": before})
    assert isinstance(found, Fail if past else RestartTask)
    if isinstance(found, Fail):
        assert found.cause == "backoff-limit"


# --- The end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clean_pods", "ended", "stops"),
    [
        ("none", "succeeded", False),
        ("none", "failed", False),
        ("running", "succeeded", True),
        ("all", "failed", True),
        ("none", "timeout", True),
        ("none", "interrupted", True),
    ],
)
def test_clean_pod_policy(clean_pods: str, ended: str, stops: bool) -> None:
    assert stops_pods(operator(clean_pods=clean_pods), ended) == stops


# --- Always ---------------------------------------------------------------------------------------

POLICIES = st.sampled_from(["never", "on-failure", "always", "exit-code"])


@given(
    settings=st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["TFJob", "PyTorchJob"]),
            "restart": st.fixed_dictionaries({"worker": POLICIES, "ps": POLICIES}),
            "backoff_limit": st.none() | st.integers(0, 3),
        }
    ),
    code=st.integers(0, 255),
    done=st.dictionaries(st.sampled_from(TASKS[1:]), st.integers(0, 255)),
    evicted=st.booleans(),
)
def test_no_job_waits_for_nothing(
    settings: dict[str, Any], code: int, done: dict[str, int], evicted: bool
) -> None:
    found = outcome("worker-0", code, operator(**settings), exits=done, evicted=evicted)
    if isinstance(found, Wait):
        assert len(done) < len(TASKS) - 1
    if isinstance(found, Succeed):
        assert code == 0
    if settings["restart"]["worker"] == "never":
        assert not isinstance(found, RestartTask)
