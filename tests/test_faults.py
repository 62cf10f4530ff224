"""The timeline of faults, before anything starts."""

from __future__ import annotations

import math

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import ScenarioError, UsageError
from emulator.faults import PlannedFault, fires, needs, timeline
from emulator.plan import Plan
from emulator.reading import parse
from emulator.scenario import Scenario, json_schema
from emulator.strikes import Trigger

BASE = (
    "name: t\nframework: none\nprogram: {command: ['true']}\ncluster: {worker: 3, ps: 1}\nfaults:\n"
)
TASKS = ["worker-0", "worker-1", "worker-2", "ps-0"]


def scenario(*faults: str) -> Scenario:
    return parse(BASE + "".join(f"  - {{{fault}}}\n" for fault in faults))


def planned(*faults: str) -> tuple[PlannedFault, ...]:
    return timeline(scenario(*faults), TASKS)


def test_a_preemption_with_all_it_says() -> None:
    (fault,) = planned("preempt: worker-1, at: {step: 120}, grace: 5s, down: forever")
    assert fault == PlannedFault(
        "0", "preempt", "worker-1", Trigger(step=120), grace=5.0, down=math.inf
    )


def test_what_a_preemption_leaves_out_is_what_clouds_do() -> None:
    (fault,) = planned("preempt: ps-0, at: 1m")
    assert (fault.trigger.time, fault.grace, fault.down) == (60, 30, 10)


def test_a_glob_strikes_all_it_matches() -> None:
    assert [(f.id, f.target) for f in planned("pause: 'worker-*', at: 5s, for: 1s")] == [
        ("0:worker-0", "worker-0"),
        ("0:worker-1", "worker-1"),
        ("0:worker-2", "worker-2"),
    ]


def test_faults_ask_the_engine_for_what_they_take() -> None:
    asked = scenario(
        "preempt: ps-0, at: 1s",
        "kill: ps-0, at: 1s",
        "pause: ps-0, at: 1s, for: 1s",
        "throttle: ps-0, at: 1s, for: 1s, cpus: 0.1",
    )
    assert [capability for _, capability in needs(asked)] == ["replace", "pause", "throttle"]


def test_random_strikes_keep_their_distance_and_spare_who_is_away() -> None:
    faults = planned(
        "random: {preempt: 'worker-*', grace: 2s, down: 8s}, every: 6s, jitter: 1s, max: 9, seed: 3"
    )
    assert len(faults) == 9
    for number, fault in enumerate(faults):
        later = [f for f in faults[number + 1 :] if f.target == fault.target]
        assert all((f.trigger.time or 0) - (fault.trigger.time or 0) >= 10 for f in later)
    assert {fault.target for fault in faults} == {"worker-0", "worker-1", "worker-2"}


def test_random_strikes_end_when_nobody_is_left() -> None:
    faults = planned("random: {preempt: 'worker-*', down: forever}, every: 1s, max: 50")
    assert sorted(fault.target for fault in faults) == ["worker-0", "worker-1", "worker-2"]


@given(seed=st.integers(0, 10_000))
def test_the_seed_decides(seed: int) -> None:
    fault = f"random: {{kill: 'worker-*'}}, every: 10s, jitter: 3s, max: 4, seed: {seed}"
    assert planned(fault) == planned(fault)
    times = [f.trigger.time or 0 for f in planned(fault)]
    assert times == sorted(times)


def test_a_plan_with_faults_is_read_back_as_it_was() -> None:
    asked = scenario("preempt: worker-1, at: 90s, down: forever", "pause: ps-0, at: 1s, for: 100ms")
    plan = Plan(
        run_id="r", engine="memory", scenario=asked, tasks=(), faults=timeline(asked, TASKS)
    )
    again = Plan.model_validate_json(plan.model_dump_json(), context={"stored": True})
    assert again == plan


def test_a_target_that_is_nobody_is_refused_here_too() -> None:
    with pytest.raises(UsageError, match="no task is called 'worker-1'"):
        timeline(scenario("kill: worker-1, at: 1s"), ["worker-0"])


@pytest.mark.parametrize(
    ("trigger", "task", "event", "data", "line", "expected"),
    [
        (Trigger(step=10), "a-0", "step", {"step": 10}, "", True),
        (Trigger(step=10), "a-0", "step", {"step": 11}, "", True),
        (Trigger(step=10), "a-0", "step", {"step": 9}, "", False),
        (Trigger(step=10), "a-0", "phase", {"phase": "eval", "step": 10}, "", False),
        (Trigger(step=10, task="b-*"), "a-0", "step", {"step": 10}, "", False),
        (Trigger(log="sav(ed|ing)"), "a-0", "", {}, "now saving it", True),
        (Trigger(log="saved$"), "a-0", "", {}, "saved it", False),
        (Trigger(phase="eval"), "a-0", "phase", {"phase": "eval", "state": "begin"}, "", True),
        (Trigger(phase="eval"), "a-0", "phase", {"phase": "eval", "state": "end"}, "", False),
        (Trigger.model_validate({"time": "3s"}), "a-0", "step", {"step": 3}, "3s", False),
    ],
)
def test_what_a_line_triggers(
    trigger: Trigger, task: str, event: str, data: dict[str, object], line: str, expected: bool
) -> None:
    assert fires(trigger, task, event=event, data=data, line=line) is expected


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (
            "preempt: worker-9, at: 1s",
            "faults.0.preempt: no task is called 'worker-9' (did you mean",
        ),
        ("kill: ps-0, at: {step: 1, task: boss}", "faults.0.at.task: no task is called 'boss'"),
        ("random: {kill: 'x-*'}, every: 1s", "faults.0.random.kill: no task is called 'x-*'"),
        ("kill: ps-0", "faults.0: when? `at: 40s`"),
        (
            "at: 5s",
            "faults.0: a fault is one of preempt, kill, terminate, restart, oom, pause",
        ),
        ("kill: ps-0, pause: ps-0, at: 5s, for: 1s", "faults.0: kill and pause in one entry"),
        ("kill: ps-0, at: 5s, grace: 3s", "faults.0: `grace` is an option of preempt"),
        ("pause: ps-0, at: 5s", "faults.0: `pause` needs `for`"),
        ("throttle: ps-0, at: 5s, cpus: 0.1", "faults.0: `throttle` needs `for`"),
        ("throttle: ps-0, at: 5s, for: 3s", "faults.0: `throttle` needs `cpus`"),
        ("kill: ps-0, at: 5s, for: 3s", "faults.0: `for` is an option of pause and throttle"),
        ("kill: ps-0, at: 5", "faults.0.at: '5' is not a duration; write '5s'"),
        ("kill: ps-0, at: {step: 5, log: x}", "faults.0.at: a fault has one trigger"),
        ("kill: ps-0, at: {}", "faults.0.at: a fault has one trigger"),
        ("kill: ps-0, at: {log: '('}", "faults.0.at.log: '(' is not a regular expression"),
        ("kill: ps-0, at: {phase: lunch}", "faults.0.at.phase: 'lunch' is not allowed"),
        ("random: {kill: ps-0}", "faults.0: `random` needs `every`"),
        ("random: {kill: ps-0}, every: 1s, at: 3s", "faults.0: `random` has its strike inside"),
        ("random: {grace: 1s}, every: 1s", "faults.0: `random` needs one of preempt"),
        ("kil: ps-0, at: 1s", "faults.0.kil: unknown key (did you mean 'kill'?)"),
        ("preempt: ps-0, at: 1s, fro: 1s", "faults.0.fro: unknown key (did you mean 'for'?)"),
    ],
)
def test_a_wrong_fault_is_told_with_its_line(fault: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario(fault)
    (found,) = map(str, refused.value.problems)
    assert found.startswith(f"scenario.yaml:6: {problem}"), found


def test_the_schema_knows_what_the_models_know() -> None:
    for fault in ({"kill": "ps-0", "at": "5s"}, {"pause": "ps-0", "at": {"step": 3}, "for": "1s"}):
        document = {
            "name": "t",
            "program": {"command": ["true"]},
            "cluster": {"worker": 1, "ps": 1},
            "faults": [fault],
        }
        Scenario.model_validate(document)
        jsonschema.validate(document, json_schema())
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(
                {**document, "faults": [{**fault, "gracious": "1s"}]}, json_schema()
            )
