"""What follows from the exits of the Pods of a JobSet, held against a model that counts again.

The decisions are those of the sources of Kubernetes 1.34 and JobSet 0.12 that `ladder.py` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.plugins.kubeflow.trainer.ladder import Ladder, PodEnd, Status
from emulator.plugins.kubeflow.trainer.section import JobSet, KubernetesJob
from emulator.scenario.frameworks.spec import role_of
from emulator.supervisor.restart_policy import (
    BeginTraining,
    Decision,
    Fail,
    RestartJob,
    RestartTask,
    Succeed,
    Wait,
)

TASKS = {"a": ("a-0", "a-1"), "b": ("b-0", "b-1")}
DISRUPTED = [{"action": "fail-job", "on_conditions": ["DisruptionTarget"]}]
NEVER: dict[str, Any] = {"restart": "never"}
Event = tuple[str, int, bool]
"""A task, its exit code, and whether it was evicted."""


def ladder(job: dict[str, Any], **rules: Any) -> Ladder:
    """Return the rules of a JobSet whose Jobs are all alike."""
    rules = {"jobs": dict.fromkeys(TASKS, job), **rules}
    return Ladder(JobSet.model_validate(rules), TASKS)


def decisions(of: Ladder, *events: Event) -> list[Decision]:
    status, found = of.begin(), []
    for task, code, evicted in events:
        status, decision = of.after(status, PodEnd(task, code, evicted=evicted))
        found.append(decision)
    return found


def fails(task: str, code: int = 1) -> Event:
    return task, code, False


def evicted(task: str, code: int = 143) -> Event:
    return task, code, True


def last(of: Ladder, *events: Event) -> Decision:
    return decisions(of, *events)[-1]


def test_a_container_restarts_in_its_pod_until_the_active_pods_reach_the_limit() -> None:
    of = ladder({"backoff_limit": 3})
    *first, third = decisions(of, fails("a-0"), fails("a-1"), fails("a-0"))
    assert first == [RestartTask(0.0, 1, level="container")] * 2
    assert isinstance(third, Fail)
    assert third.cause == "backoff-limit"
    assert "a-0 ended with exit code 1, and the restart of its container" in third.reason
    # A Pod that has succeeded, or was replaced, takes its restarts with it.
    for gone in (fails("a-0", 0), evicted("a-0")):
        again = [fails("a-0"), fails("a-0"), gone, fails("a-1")]
        assert last(of, *again) == RestartTask(0.0, 1, level="container")
    assert isinstance(last(ladder({"backoff_limit": 0}), fails("a-0")), Fail)
    assert isinstance(last(ladder({"backoff_limit": 1}), fails("a-0")), Fail)
    status, crashed = of.begin(), PodEnd("a-0", 1, crashes=2, restarts=2)
    assert of.after(status, crashed)[1] == RestartTask(20.0, 3, level="container")


def test_new_pods_of_a_job_wait_for_the_back_off_of_its_last_failure() -> None:
    failures = [fails("a-0")] * 4 + [fails("a-1")] * 4
    found = decisions(ladder({**NEVER, "backoff_limit": 9}), *failures)
    assert [one.delay for one in found if isinstance(one, RestartTask)] == [
        *(10, 20, 40, 80, 160, 320),
        *(600, 600),
    ]
    assert [one.holds for one in found if isinstance(one, RestartTask)][3:5] == [(), ("a-0",)]
    again = [fails("a-0"), fails("a-0"), fails("a-1", 0), fails("a-0")]
    assert last(ladder(NEVER), *again) == RestartTask(10.0, 1, fresh=True, level="pod")


def test_the_seventh_failed_pod_is_above_the_default_limit() -> None:
    *found, end = decisions(ladder(NEVER), *[fails("a-0"), fails("a-1")] * 3, evicted("a-0"))
    assert all(isinstance(one, RestartTask) for one in found)
    assert isinstance(end, Fail)
    assert "7 Pods have failed, above the backoffLimit of 6" in end.reason


def test_an_evicted_pod_is_replaced_alone_and_counts_whatever_its_restart_policy() -> None:
    for job in ({}, NEVER):
        assert last(ladder(job), evicted("a-0")) == RestartTask(10.0, 1, fresh=True, level="pod")
        assert isinstance(last(ladder({**job, "backoff_limit": 0}), evicted("a-0")), Fail)


def test_the_back_off_of_a_deleted_pod_begins_as_it_is_deleted_or_once_it_has_ended() -> None:
    for job, delay in (({}, 6.0), ({"pod_replacement": "failed"}, 10.0)):
        of = ladder({**NEVER, **job})
        _, found = of.after(of.begin(), PodEnd("a-0", 143, evicted=True, leaving=4.0))
        assert found == RestartTask(delay, 1, fresh=True, level="pod")
    _, late = ladder({}).after(of.begin(), PodEnd("a-0", 137, evicted=True, leaving=30.0))
    assert late == RestartTask(0.0, 1, fresh=True, level="pod")


def test_a_pod_that_saves_and_ends_well_has_failed_only_if_deleted_ones_have() -> None:
    code_0 = evicted("a-0", 0)
    assert isinstance(last(ladder(NEVER), code_0), RestartTask)
    assert last(ladder({**NEVER, "pod_replacement": "failed"}), code_0) == Wait()
    assert last(ladder({**NEVER, "pod_failure": DISRUPTED}), code_0) == Wait()  # done, it seems


@pytest.mark.parametrize(
    ("rules", "event", "what"),
    [
        (DISRUPTED, evicted("a-0"), "PodFailurePolicy"),
        (DISRUPTED, fails("a-0"), ""),
        ([{"action": "fail-job", "on_exit_codes": {"operator": "in", "values": [42]}}],
         fails("a-0", 42), "PodFailurePolicy"),
        ([{"action": "fail-job", "on_exit_codes": {"operator": "not-in", "values": [42]}}],
         fails("a-0", 42), ""),
        ([{"action": "count", "on_exit_codes": {"operator": "in", "values": [143]}}, *DISRUPTED],
         evicted("a-0"), ""),
    ],
)  # fmt: skip
def test_the_first_rule_about_a_failed_pod_counts(
    rules: list[dict[str, Any]], event: Event, what: str
) -> None:
    found = last(ladder({**NEVER, "pod_failure": rules}), event)
    assert isinstance(found, Fail if what else RestartTask)
    assert what in getattr(found, "reason", "")


def test_an_ignored_failure_does_not_count_and_backs_off_all_the_same() -> None:
    ignore = {"action": "ignore", "on_conditions": ["DisruptionTarget"]}
    of = ladder({**NEVER, "backoff_limit": 0, "pod_failure": [ignore]})
    found = decisions(of, *[evicted("a-0")] * 3)
    assert [one.delay for one in found if isinstance(one, RestartTask)] == [10, 20, 40]
    assert isinstance(last(of, fails("a-0")), Fail)


def test_an_index_has_a_limit_and_a_back_off_of_its_own() -> None:
    of = ladder({**NEVER, "backoff_limit_per_index": 1})
    failures = [fails("a-0"), fails("a-1"), fails("a-0"), fails("a-1", 0)]
    first, second, third, end = decisions(of, *failures)
    pod = RestartTask(10.0, 1, fresh=True, level="pod")
    assert (first, second, third) == (pod, pod, Wait())
    assert isinstance(end, Fail)
    assert "a-0 failed, and the others have succeeded: the Job a has failed (F" in end.reason
    at_once = ladder({**NEVER, "backoff_limit_per_index": 1, "max_failed_indexes": 0})
    assert "(MaxFailedIndexesExceeded)" in str(last(at_once, *failures[:3]))
    rule = {"action": "fail-index", "on_exit_codes": {"operator": "in", "values": [3]}}
    of = ladder({**NEVER, "backoff_limit_per_index": 5, "pod_failure": [rule]})
    assert decisions(of, fails("a-0", 3), fails("a-1", 3))[0] == Wait()
    assert "every index failed" in str(last(of, fails("a-0", 3), fails("a-1", 3)))


def test_a_jobset_restarts_until_its_counted_restarts_are_used_up() -> None:
    rule = {"action": "restart-jobset-and-ignore-max-restarts", "reasons": ["PodFailurePolicy"]}
    job = {**NEVER, "backoff_limit": 0, "pod_failure": DISRUPTED}
    of = ladder(job, failure={"max_restarts": 1, "rules": [rule]})
    found = decisions(of, evicted("a-0"), fails("b-0"), evicted("b-1"), fails("a-1"))
    assert found[:3] == [RestartJob(0.0, 1), RestartJob(0.0, 2), RestartJob(0.0, 3)]
    assert "the maxRestarts of 1 are used up" in str(found[3])


@pytest.mark.parametrize(
    ("rule", "restarts"),
    [
        ({"jobs": ["b"]}, True),
        ({"jobs": ["a"]}, False),
        ({"reasons": ["DeadlineExceeded"]}, True),
        ({"reasons": ["PodFailurePolicy"]}, False),
        ({"messages": ["exit code 1 matching"]}, True),
        ({"messages": ["^nothing", "DisruptionTarget matching FailJob rule at index 0$"]}, False),
    ],
)
def test_the_first_rule_about_a_failed_job_counts(rule: dict[str, Any], restarts: bool) -> None:
    job = {**NEVER, "pod_failure": DISRUPTED}
    failure = {"max_restarts": 1, "rules": [{"action": "fail-jobset", **rule}]}
    found = last(ladder(job, failure=failure), evicted("a-0"))
    assert isinstance(found, RestartJob if restarts else Fail)


def test_a_deadline_is_a_failure_of_its_job() -> None:
    of = ladder({"active_deadline": 5.0}, failure={"max_restarts": 1})
    status, first = of.after_deadline(of.begin(), "b")
    _, second = of.after_deadline(status, "b")
    assert first == RestartJob(0.0, 1)
    assert isinstance(second, Fail)
    assert second.cause == "deadline"


@pytest.mark.parametrize(
    ("job", "success", "ends"),
    [
        ({}, {}, ["a-0", "b-0", "a-1", "b-1"]),
        ({}, {"operator": "any"}, ["a-0", "b-0", "a-1"]),
        ({}, {"jobs": ["b"]}, ["b-0", "a-0", "b-1"]),
        ({"success": [{"indexes": "0"}]}, {"jobs": ["a"]}, ["a-1", "a-0"]),
        ({"success": [{"count": 1}]}, {}, ["a-1", "b-1"]),
        ({"success": [{"indexes": "0-1", "count": 2}]}, {"jobs": ["a"]}, ["a-1", "a-0"]),
    ],
)
def test_success_is_that_of_the_jobs_and_of_the_set(
    job: dict[str, Any], success: dict[str, Any], ends: Sequence[str]
) -> None:
    *others, done = decisions(ladder(job, success=success), *[fails(task, 0) for task in ends])
    assert set(others) == {Wait()}
    assert isinstance(done, Succeed)


def test_jobs_before_training_are_made_again_only_until_they_are_complete() -> None:
    of = replace(
        ladder({**NEVER, "backoff_limit": 0}, failure={"max_restarts": 9}), before=frozenset("a")
    )
    *_, begins = decisions(of, fails("a-0"), fails("a-0", 0), fails("a-1", 0))
    assert begins == BeginTraining()
    done = [fails("a-0", 0), fails("a-1", 0), fails("b-0"), fails("b-0", 0), fails("b-1", 0)]
    assert isinstance(last(of, *done), Succeed)


# --- A model that counts all that has happened again after each exit ------------------------------


class Recounted:
    """The same rules without a state: everything is counted again from the exits of a Job."""

    def __init__(self, rules: JobSet) -> None:
        self.rules, self.counted = rules, 0
        self.exits: list[Event] = []
        """Since all Jobs were made."""

    def decision(self, event: Event) -> tuple[Any, ...]:
        task, _, gone = event
        role = role_of(task)
        job, policy = self.rules.job(role), self.rules.failure
        if not self.is_active(task):
            return ("wait",)
        self.exits.append(event)
        reason = self.failure(role, job, event)
        if reason and (policy is None or self.counted >= policy.max_restarts):
            return ("fail", reason)
        if reason:
            self.counted, self.exits = self.counted + 1, []
            return ("gang",)
        if all(self.is_complete(one) for one in TASKS):
            return ("succeed",)
        if not self.is_active(task):
            return ("wait",)
        if job.restart == "on-failure" and not gone:
            return ("container",)
        mine = self.of(role)
        if job.backoff_limit_per_index is not None:
            mine = [one for one in mine if one[0] == task]
        row = 0
        for one in mine:
            row = 0 if self.is_success(one) else row + self.ends_pod(one)
        return ("pod", min(10.0 * 2 ** (row - 1), 600.0))

    def of(self, role: str) -> list[Event]:
        return [one for one in self.exits if role_of(one[0]) == role]

    def is_success(self, event: Event) -> bool:
        job = self.rules.job(role_of(event[0]))
        deleted = job.pod_replacement != "failed" and not job.pod_failure and event[2]
        return event[1] == 0 and not deleted

    def ends_pod(self, event: Event) -> bool:
        never = self.rules.job(role_of(event[0])).restart == "never"
        return not self.is_success(event) and (never or event[2])

    def action(self, event: Event) -> str:
        for rule in self.rules.job(role_of(event[0])).pod_failure:
            codes = rule.on_exit_codes
            if codes is None and event[2]:
                return rule.action
            if codes and event[1] and (event[1] in codes.values) is (codes.operator == "in"):
                return rule.action
        return "count"

    def failed_indexes(self, role: str) -> set[str]:
        most = self.rules.job(role).backoff_limit_per_index
        if most is None:
            return set()
        ended = [one for one in self.of(role) if self.ends_pod(one)]
        counts = [one[0] for one in ended if self.action(one) != "ignore"]
        by_rule = {one[0] for one in ended if self.action(one) == "fail-index"}
        return by_rule | {task for task in TASKS[role] if counts.count(task) > most}

    def is_complete(self, role: str) -> bool:
        return {one[0] for one in self.of(role) if self.is_success(one)} == {*TASKS[role]}

    def is_active(self, task: str) -> bool:
        role = role_of(task)
        succeeded = {one[0] for one in self.of(role) if self.is_success(one)}
        return task not in succeeded | self.failed_indexes(role)

    def failure(self, role: str, job: KubernetesJob, event: Event) -> str:
        mine = self.of(role)
        failed = [one for one in mine if self.ends_pod(one)]
        counts = [one for one in failed if self.action(one) != "ignore"]
        default = 6 if job.backoff_limit_per_index is None else 2**31
        limit = default if job.backoff_limit is None else job.backoff_limit
        if event in failed and self.action(event) == "fail-job":
            return "PodFailurePolicy"
        if event in counts and len(counts) > limit:
            return "BackoffLimitExceeded"
        restarts = 0
        for task in TASKS[role]:
            own = [one for one in mine if one[0] == task]
            since = max((n + 1 for n, one in enumerate(own) if self.ends_pod(one)), default=0)
            restarts += len(own[since:]) if self.is_active(task) else 0
        if job.restart == "on-failure" and not self.ends_pod(event) and not self.is_success(event):
            return "BackoffLimitExceeded" if restarts >= max(1, limit) else ""
        gone = self.failed_indexes(role)
        if job.max_failed_indexes is not None and len(gone) > job.max_failed_indexes:
            return "MaxFailedIndexesExceeded"
        return "FailedIndexes" if gone and not any(map(self.is_active, TASKS[role])) else ""


def in_short(decision: Decision) -> tuple[Any, ...]:
    match decision:
        case RestartTask(level="pod", delay=delay):
            return ("pod", delay)
        case RestartTask(level=level):
            return (level,)
        case RestartJob():
            return ("gang",)
        case Succeed():
            return ("succeed",)
        case Fail(reason=reason):
            return ("fail", reason.rpartition("(")[2].partition(")")[0])
    return ("wait",)


CODES = st.sampled_from([0, 1, 42, 143])
RULES = st.one_of(
    st.builds(
        lambda action: {"action": action, "on_conditions": ["DisruptionTarget"]},
        st.sampled_from(["fail-job", "ignore", "count"]),
    ),
    st.builds(
        lambda action, operator, values: {
            "action": action,
            "on_exit_codes": {"operator": operator, "values": values},
        },
        st.sampled_from(["fail-job", "ignore", "count", "fail-index"]),
        st.sampled_from(["in", "not-in"]),
        st.lists(CODES.filter(bool), min_size=1, max_size=2),
    ),
)
LIMITS = st.none() | st.integers(0, 4)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        job: dict[str, Any] = {"restart": "on-failure"}
    else:
        job = {**NEVER, "backoff_limit_per_index": draw(st.none() | st.integers(0, 2))}
        rules = draw(st.lists(RULES, max_size=3))
        if job["backoff_limit_per_index"] is None:
            rules = [one for one in rules if one["action"] != "fail-index"]
        else:
            job["max_failed_indexes"] = draw(st.none() | st.integers(0, 1))
        job["pod_failure"] = rules
    job["backoff_limit"] = draw(LIMITS)
    if not job.get("pod_failure") and draw(st.booleans()):
        job["pod_replacement"] = "failed"
    return job


EXITS = st.tuples(st.sampled_from([*TASKS["a"], *TASKS["b"]]), CODES, st.booleans())


@given(
    st.fixed_dictionaries({"a": jobs(), "b": jobs()}),
    st.none() | st.builds(lambda most: {"max_restarts": most}, st.integers(0, 2)),
    st.lists(EXITS, max_size=30),
)
def test_the_ladder_counts_as_the_model_does(
    made: dict[str, Any], failure: dict[str, Any] | None, exits: list[Event]
) -> None:
    rules = JobSet.model_validate({"jobs": made, "failure": failure})
    of, model = Ladder(rules, TASKS), Recounted(rules)
    status: Status = of.begin()
    for number, event in enumerate(exits):
        task, code, gone = event
        status, decision = of.after(status, PodEnd(task, code, evicted=gone))
        expected = model.decision(event)
        assert in_short(decision) == expected, (number, decision)
        if expected[0] in ("fail", "succeed"):
            break
