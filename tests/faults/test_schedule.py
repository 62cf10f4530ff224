"""The timeline of faults, before anything starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from emulator.errors import UsageError
from emulator.faults import kinds as table
from emulator.faults.kinds import OneFault
from emulator.faults.network import Partition, Shape
from emulator.faults.preempt import Kill, Preempt
from emulator.faults.schedule import (
    PlannedFault,
    build_schedule,
    expand_targets,
    from_json,
    to_json,
    trigger_matches,
    why_unfired,
)
from emulator.faults.spec import SETTLED, FaultSpec, Trigger
from emulator.planning.plan import Plan
from emulator.scenario.loader import load, parse
from emulator.scenario.schema import Scenario
from emulator.validation.fields import LONGEST
from tests.scenario.mistakes import only_problem, problems

BASE = (
    "name: t\nframework: none\nprogram: {command: ['true']}\ncluster: {worker: 3, ps: 1}\nfaults:\n"
)
TASKS = ["worker-0", "worker-1", "worker-2", "ps-0"]


def scenario(*faults: str) -> Scenario:
    return parse(BASE + "".join(f"  - {{{fault}}}\n" for fault in faults))


def schedule(asked: Scenario, tasks: Sequence[str] = TASKS) -> tuple[PlannedFault, ...]:
    return build_schedule(asked.faults, asked.seed, tasks)


def planned(*faults: str) -> tuple[PlannedFault, ...]:
    return schedule(scenario(*faults))


def spec(fault: PlannedFault) -> Any:
    """The fault's kind with its options, whichever it is."""
    return fault.spec


def needs(asked: Scenario) -> list[str]:
    return [capability for fault in asked.faults for _, capability in fault.needs()]


def test_a_preemption_has_what_it_says_and_else_what_clouds_do() -> None:
    (fault,) = planned("preempt: worker-1, at: {step: 120}, grace: 5s, down: forever")
    assert isinstance(fault.spec, Preempt)
    assert (fault.id, fault.kind, fault.target) == ("0", "preempt", "worker-1")
    assert (fault.trigger, fault.spec.grace, fault.spec.down) == (Trigger(step=120), 5, math.inf)
    (fault,) = planned("preempt: ps-0, at: 1m")
    assert (fault.trigger.time, spec(fault).grace, spec(fault).down) == (60, 30, 10)


def test_a_glob_faults_all_it_matches() -> None:
    assert [(f.id, f.target) for f in planned("pause: 'worker-*', at: 5s, for: 1s")] == [
        ("0:worker-0", "worker-0"),
        ("0:worker-1", "worker-1"),
        ("0:worker-2", "worker-2"),
    ]


def test_random_faults_that_begin_at_a_step_or_later_keep_their_intervals() -> None:
    fault = "random: {preempt: 'worker-*', down: 1s}, every: 9s, jitter: 2s, max: 3"
    usual = planned(fault)
    times = [one.trigger.time or 0 for one in usual]
    later = planned(f"{fault}, at: 30s")
    assert [one.trigger.time for one in later] == pytest.approx([30 + when for when in times])
    first, *others = after_a_step = planned(f"{fault}, at: {{step: 200}}")
    assert first.trigger.step == 200
    assert {one.trigger.after for one in others} == {first.id}
    intervals = [when - times[0] for when in times[1:]]
    assert [one.trigger.delay for one in others] == pytest.approx(intervals)
    targets = [one.target for one in usual]
    assert targets == [one.target for one in later] == [one.target for one in after_a_step]


def test_random_faults_end_when_no_target_is_left() -> None:
    faults = planned("random: {preempt: 'worker-*', down: forever}, every: 1s, max: 50")
    assert sorted(fault.target for fault in faults) == ["worker-0", "worker-1", "worker-2"]


@given(seed=st.integers(0, 10_000))
def test_the_seed_decides(seed: int) -> None:
    fault = f"random: {{kill: 'worker-*'}}, every: 10s, jitter: 3s, max: 4, seed: {seed}"
    assert planned(fault) == planned(fault)
    times = [f.trigger.time or 0 for f in planned(fault)]
    assert times == sorted(times)


def test_a_series_of_faults_is_the_same_in_every_version() -> None:
    """A seed that somebody has noted brings the same faults back."""
    found = planned("random: {kill: 'worker-*'}, every: 500ms, jitter: 2s, max: 5, seed: 4")
    assert [(fault.target, fault.trigger.time) for fault in found] == [
        ("worker-0", 0.0),
        ("worker-1", 2.252),
        ("worker-2", 1.037),
        ("worker-0", 5.0),
        ("worker-2", 6.037),
    ]


def test_a_fault_waits_for_its_only_target_to_be_back() -> None:
    fault = "random: {preempt: ps-0, grace: 0s, down: 20s}, every: 500ms, max: 3"
    assert [one.trigger.time for one in planned(fault)] == [0.5, 25.5, 50.5]


def refused(*entries: Any, tasks: Sequence[str] = ("ps-0", "ps-1")) -> tuple[str, str]:
    with pytest.raises(UsageError) as error:
        build_schedule(entries, 0, tasks)
    return error.value.message, error.value.hint


def test_what_is_wrong_with_a_scenario_is_refused_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other tasks, or of entries that no scenario had."""
    there = "There are ps-0, ps-1."
    for wrong, path in {
        "kill: worker-1, at: 1s": "kill",
        "kill: ps-0, at: {step: 1, task: worker-1}": "at.task",
        "random: {kill: worker-1}, every: 1s": "random.kill",
        "trace: [{time: 1, target: worker-1, down: 1}]": "trace, row 1",
    }.items():
        why = f"faults.0.{path}: no task is called 'worker-1'."
        assert refused(*scenario(wrong).faults) == (why, there)
    twice = [Kill(kill="ps-0", at="1s", name="x")] * 2
    assert refused(*twice) == ("faults.1.name: another fault is called 'x' already.", "")
    assert refused(Kill(kill="ps-0", at={"after": "x"}), Kill(kill="ps-0", at="1s", name="a")) == (
        "faults.0.at: there is no fault 'x'.",
        "faults are called 0, 1, a; give one a `name:` to refer to it",
    )
    with pytest.raises(TypeError, match=r"Kill\(kill='ps-0'\) is not a validated entry"):
        build_schedule([Kill(kill="ps-0")], 0, ["ps-0"])


def test_a_network_fault_without_links_is_one_of_the_only_task() -> None:
    (shape,) = scenario("shape: 'worker-*', delay: 5ms, at: 1s, for: 1s").faults
    (planned,) = build_schedule([shape], 0, ["worker-0"])
    assert (planned.id, planned.target, planned.tasks) == ("0", "worker-0", ("worker-0",))


def test_a_fault_by_hand_has_no_place_in_the_scenario() -> None:
    cut = {"partition": [["ps-0"], ["*"]], "for": "1s"}
    for fault, *said in (
        ({"kill": "boss"}, "no task is called 'boss'.", "There are ps-0."),
        (cut, "ps-0 is in two groups of the partition.", ""),
    ):
        by_hand = TypeAdapter[FaultSpec](OneFault).validate_python(fault)
        with pytest.raises(UsageError) as error:
            expand_targets("manual-1", by_hand, ["ps-0"], Trigger(step=1))
        assert [error.value.message, error.value.hint] == said


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
        (Trigger(step=10, task="a-*"), "a-0", "step", {"step": 10}, "", True),
        (Trigger(step=10), "a-0", "step", {"step": "10"}, "", False),
        (Trigger(step=10), "a-0", "step", {"step": 10}, None, True),
        (Trigger(log=".*"), "a-0", "step", {"step": 10}, None, False),
        (Trigger.model_validate({"time": "3s"}), "a-0", "step", {"step": 3}, "3s", False),
        (Trigger.model_validate({"time": "3s"}), "a-0", "phase", {"state": "begin"}, "3s", False),
    ],
)
def test_what_a_line_triggers(
    trigger: Trigger, task: str, event: str, data: dict[str, object], line: str, expected: bool
) -> None:
    assert trigger_matches(trigger, task, event=event, data=data, line=line) is expected


SOON = "at: 1s, for: 1s"
TRACE = "trace: [{time: 1, target: ps-0, down: 1}]"
WRONG = """
preempt: worker-9, at: 1s -> .preempt: no task is called 'worker-9' (did you mean
kill: ps-0, at: {step: 1, task: boss} -> .at.task: no task is called 'boss'
random: {kill: 'x-*'}, every: 1s -> .random.kill: no task is called 'x-*'
kill: ps-0 -> : when? `at: 40s`
at: 5s -> : a fault is one of preempt, kill, terminate, restart, oom, pause
kill: ps-0, pause: ps-0, at: 5s, for: 1s -> : kill and pause in one entry
kill: ps-0, at: 5s, grace: 3s -> : `grace` is an option of preempt
pause: ps-0, at: 5s -> .for: is missing (write `for: 5s`)
throttle: ps-0, at: 5s, cpus: 0.1 -> .for: is missing (write `for: 5s`)
throttle: ps-0, at: 5s, for: 3s -> .cpus: is missing (write `cpus: 0.2`)
kill: ps-0, at: 5s, for: 3s -> : `for` is an option of pause and throttle
kill: ps-0, at: 5 -> .at: '5' is not a duration; write '5s'
kill: ps-0, at: {step: 5, log: x} -> .at: a fault has one trigger
kill: ps-0, at: {} -> .at: a fault has one trigger
kill: ps-0, at: {log: '('} -> .at.log: '(' is not a regular expression
kill: ps-0, at: {phase: lunch} -> .at.phase: 'lunch' is not allowed
random: {kill: ps-0} -> .every: is missing (write `every: 30s`)
random: {kill: ps-0}, every: 0 -> .every: 0 should be greater than 0
random: {kill: ps-0}, every: 1s, at: {step: 1, task: x-*} -> .at.task: no task
random: {grace: 1s}, every: 1s -> .random: a fault is one of preempt
kil: ps-0, at: 1s -> .kil: unknown key (did you mean 'kill'?)
random: {oom: ps-0, grce: 1s}, every: 1s -> .random.grce: unknown key (did you mean 'gra
preempt: ps-0, at: 1s, fro: 1s -> .fro: unknown key (did you mean 'for'?)
partition: [[ps-0]], SOON -> .partition: has fewer than 2 entries
partition: [[ps-0], []], SOON -> .partition.1: is empty
partition: [[ps-0], [worker-0, worker-9]], SOON -> \
.partition.1.1: no task is called 'worker-9' (did you mean
partition: [[worker-1], ['worker-*']], SOON -> .partition: worker-1 is in two groups
partition: [[ps-0], [worker-0]], at: 1s -> .for: is missing (write `for: 5s`)
shape: ps-0, SOON -> : `shape` needs `delay`, `loss` or `bandwidth`
shape: ps-0, loss: 1%, jitter: 1ms, SOON -> : `jitter` needs a `delay`
shape: ps-0, delay: 5ms, at: 1s -> .for: is missing (write `for: 5s`)
shape: ps-0, loss: a%, SOON -> .loss: 'a%' is not a share; write 0.
shape: ps-0, loss: 101%, SOON -> .loss: 1.01 should be less than or equal to 1
shape: ps-0, to: boss, delay: 5ms, SOON -> .to: no task is called 'boss'
kill: ps-0, at: 1s, oneway: true -> : `oneway` is an option of partition and shape
kill: ps-0, at: 1s, address: same -> : `address` is an option of preempt
preempt: ps-0, at: 1s, address: old -> .address: 'old' is not allowed
random: {partition: [[ps-0], [worker-0]], for: 1s}, every: 1s -> : `random` has one target each time
kill: ps-0, at: {after: nobody} -> .at: there is no fault 'nobody' (faults are
kill: ps-0, at: {recovery: 0} -> .at: it waits for itself
kill: ps-0, at: {after: 0, task: ps-0} -> .at: `after` belongs to no task
kill: ps-0, at: {step: 3, of: '*'} -> .at: `of` goes with write, truncate, fsync, rename, unlink
kill: ps-0, at: {write: 0} -> .at.write: 0 should be greater than or equal to 1
kill: ps-0, at: {write: 1, task: 'worker-*'} -> .at: a `write` is of one task; name it in `task`
kill: ps-0, at: {write: 1, task: x-1} -> .at.task: no task is called 'x-1'
checkpoint: torn, at: {rename: 1} -> .at: whose rename? Name the task in `task`
kill: ps-0, at: {step: 3, delay: 1s} -> .at: `delay` goes with `after` and
kill: ps-0, at: 1s, speed: 2 -> : `speed` is an option of trace
kill: ps-0, at: 1s, name: 1st -> .name: '1st' is not a valid host name
trace: gone.csv -> .trace: the trace gone.csv can't be read: No such file
TRACE, kill: x -> : kill and trace in one entry; write one entry for each
TRACE, at: {after: 0} -> .at: it waits for itself
TRACE, at: {after: cut} -> .at: there is no fault 'cut'
trace: [{time: 1, target: ps-9, down: 1}] -> .trace: no task is called 'ps-9' (did you mean 'ps-0'?)
preempt: ps-0, loss: silent, grace: 5s, at: 5s -> \
: `loss: silent` comes without notice; leave `grace` out
preempt: ps-0, loss: silent, via: eviction, at: 5s -> : `loss: silent` asks nobody; leave `via` out
preempt: ps-0, loss: 5%, at: 5s -> .loss: '5%' is not allowed (write silent or closed)
trace: [{time: 1, target: ps-0}] -> .trace.0.down: is missing
trace: [{time: -1, target: ps-0, down: 1}] -> .trace.0.time: -1 should be greater
trace: [{time: 1, target: ps-0, down: -1}] -> .trace.0.down: -1 should be greater
trace: [], speed: 0 -> .speed: 0 should be greater than or equal to 0.000001
trace: [], speed: 1000000001 -> .speed: 1000000001 should be less than or equal to
random: {kill: ps-0}, every: 1s, max: 0 -> .max: 0 should be greater than or equal to 1
random: {kill: ps-0}, every: 1s, max: 1001 -> .max: 1001 should be less than or equal
kill: ps-0, at: {step: -1} -> .at.step: -1 should be greater than or equal to 0
partition: [[ps-0], [worker-0]], at: 1s, for: 1s, oneway: 3 -> .oneway: 3 should be
trace: [{time: soon, target: ps-0, down: 1}] -> .trace.0.time: 'soon' should be a number
"""
"""What is wrong, and how its problem begins behind the number of the fault."""


@pytest.mark.parametrize("case", WRONG.strip("\n").split("\n"))
def test_a_wrong_fault_is_reported_with_its_line(case: str) -> None:
    fault, problem = case.split(" -> ")
    for word, meant in {"SOON": SOON, "TRACE": TRACE}.items():
        fault = fault.replace(word, meant)
    found = only_problem(f"{BASE}  - {{{fault}}}\n")
    assert found.startswith(f"s.yaml:6: faults.0{problem}")


def test_what_two_faults_have_wrong_is_reported_with_their_lines() -> None:
    twice = "  - {name: x, kill: ps-0, at: 1s}\n" * 2
    found = only_problem(BASE + twice)
    assert found.startswith("s.yaml:7: faults.1.name: another fault is called 'x'")
    two = "  - {kill: ps-0, name: a, at: {after: b}}\n  - {kill: ps-0, name: b, at: {recovery: a}}"
    assert problems(BASE + two) == [
        "s.yaml:6: faults.0.at: it waits for itself, directly or through other faults",
        "s.yaml:7: faults.1.at: it waits for itself, directly or through other faults",
    ]
    behind = "\n  - {kill: ps-0, at: {after: a}}"  # waits for them, and not for itself
    assert problems(BASE + two + behind) == problems(BASE + two)


# --- New kinds ----------------------------------------------------------------------------------

KINDS = [
    "oom: ps-0, at: 1s",
    "partition: [[worker-0, ps-0], ['worker-[12]']], at: 1s, for: 5s",
    "partition: [[worker-0], [worker-1], [ps-0]], oneway: true, at: {step: 3}, for: forever",
    "shape: 'worker-*', to: ps-0, delay: 20ms, jitter: 5ms, loss: 5%, bandwidth: 10mbit, at: 1s, "
    "for: 1m",
    "restart: 'worker-*', grace: 3s, at: {phase: eval, task: ps-0}",
    "preempt: ps-0, name: first, address: same, at: 2s",
    "kill: ps-0, at: {after: 0, delay: 1500ms}",
    "kill: ps-0, at: {recovery: 0}",
    "trace: [{time: 1.5, target: ps-0, down: 2}, {time: 3, target: worker-1, down: 0}], speed: 2",
    "trace: [{time: 1.5, target: ps-0, down: 2}, {time: 3, target: ps-0, down: 0}], at: {step: 3}",
    "trace: [{time: 1.5, target: ps-0, down: 2}, {time: 3, target: ps-0, down: 0}], "
    "after_recovery: true",
    "random: {oom: 'worker-*'}, every: 10s, jitter: 1s, max: 2, name: chaos",
    "preempt: ps-0, at: 1s, loss: silent, down: forever",
    "pause: ps-0, at: 1s, for: 100ms",
]


@pytest.mark.parametrize("fault", KINDS)
def test_every_kind_is_read_back_from_the_plan_as_it_was(fault: str) -> None:
    asked = scenario("kill: ps-0, at: 9s", fault)
    assert schedule(asked) == schedule(asked)  # of the same seed
    plan = Plan(run_id="r", engine="memory", scenario=asked, tasks=(), faults=schedule(asked))
    again = Plan.model_validate_json(plan.model_dump_json(), context={"stored": True})
    assert again == plan
    assert again.model_dump(mode="json") == plan.model_dump(mode="json")
    assert len(plan.faults) > 1
    assert [from_json(to_json(fault)) for fault in plan.faults] == list(plan.faults)


def links(fault: str) -> set[tuple[str, str]]:
    (found,) = planned(fault)
    assert len(found.links) == len({(link.source, link.target) for link in found.links})
    return {(link.source, link.target) for link in found.links}


def test_each_of_three_groups_is_cut_off_from_the_others() -> None:
    cut = "partition: [[worker-0], [worker-1], [ps-0]], at: 1s, for: 1s"
    assert links(cut) == set(permutations(["worker-0", "worker-1", "ps-0"], 2))
    assert links(f"{cut}, oneway: true") == {("worker-0", "worker-1"), ("worker-0", "ps-0")}


@pytest.mark.parametrize("oneway", [False, True])
def test_links_are_those_between_the_groups_or_of_the_shaped_tasks(oneway: bool) -> None:
    way = {"oneway": oneway, "for_": 1}
    for groups, most in (
        ([["ps-0"], ["worker-0", "worker-[12]"]], (6, 3)),
        ([["worker-*"], ["ps-0"], ["ps-1"]], (14, 6)),
    ):
        cut = Partition(partition=groups, **way)
        assert len(cut.links([*TASKS, "ps-1"])) == most[oneway]
    found = Shape(shape="worker-0", to="ps-0", delay=1, **way).links(TASKS)
    both = [("worker-0", "ps-0"), ("ps-0", "worker-0")]
    assert [(one.source, one.target) for one in found] == both[: 1 if oneway else 2]
    assert Shape(shape="ps-0", delay=60, jitter=60, **way).links(TASKS)
    for late in ({"delay": 60.5}, {"delay": 1, "jitter": 61}):
        with pytest.raises(ValueError, match="a packet can be late by 60s at most"):
            Shape(shape="ps-0", **late, **way)


def test_a_rolling_restart_is_a_chain() -> None:
    found = planned("restart: 'worker-*', at: 5s, grace: 3s")
    after = [Trigger(recovery=f"0:worker-{n}") for n in (0, 1)]
    assert [fault.trigger for fault in found] == [Trigger(time="5s"), *after]
    assert {spec(fault).grace for fault in found} == {3}


def test_a_task_that_is_still_down_in_a_trace_is_preempted_once_it_is_back(tmp_path: Path) -> None:
    (tmp_path / "spot.csv").write_text("# two in a row\ntime,target,down\n10,ps-0,6\n12,ps-0,6\n")
    (tmp_path / "s.yaml").write_text(BASE + "  - {trace: spot.csv, grace: 1s, down: 2s}\n")
    first, second = schedule(load(tmp_path / "s.yaml"))
    assert (spec(first).down, spec(second).down) == (2, 2)  # the fault's own goes before the rows'
    assert (first.trigger.time, second.trigger.time) == (10, 10 + 1 + 2 + SETTLED)


WAITS = "20 ps-0 9; 23 worker-[01] 9; 24 ps-0 9"
THEN = "recovery 0.0, delay 3s; recovery 0.0, delay 3s; recovery 0.1:worker-0, delay 1s"


@pytest.mark.parametrize(
    ("rows", "options", "triggers"),
    [
        # It begins at the time of the fault.
        ("20 ps-0 1; 60 worker-0 1", "speed: 10, grace: 0s", "time 2s; time 6s"),
        ("20 ps-0 1; 60 worker-0 1", "speed: 10, grace: 0s, at: 5s", "time 7s; time 11s"),
        # One that begins at a step keeps its intervals.
        (
            "60 ps-0 1; 20 worker-[01] 1; 40 worker-0 1",
            "speed: 2, grace: 0s, at: {step: 100}",
            "after 0.1:worker-0, delay 20s; step 100; step 100; after 0.1:worker-0, delay 10s",
        ),
        # Where it waits for the job to recover, times are those of training between two
        # preemptions, which are as short as written.
        (WAITS, "after_recovery: true", f"time 20s; {THEN}"),
        (WAITS, "after_recovery: true, at: {step: 9}", f"step 9; {THEN}"),
        # A task that never comes back is not preempted again.
        ("1 ps-0 1; 2 ps-0 1", "after_recovery: true, down: forever", "time 1s"),
    ],
)
def test_the_rows_of_a_trace_have_these_triggers(rows: str, options: str, triggers: str) -> None:
    trace = [
        f"{{time: {time}, target: '{target}', down: {down}}}"
        for time, target, down in map(str.split, rows.split("; "))
    ]
    found = planned(f"trace: [{', '.join(trace)}], {options}")
    assert "; ".join(one.trigger.in_words() for one in found) == triggers


def test_a_trace_begins_at_once_and_its_times_are_rounded_and_bounded() -> None:
    rows = "{time: 0, target: ps-0, down: 10}, {time: 1, target: worker-0, down: 3153600000}"
    first, second = planned(f"trace: [{rows}], speed: 0.3, grace: 0s")
    assert (first.trigger.time, spec(first).down) == (0, 33.333)
    assert (second.trigger.time, spec(second).down) == (3.333, LONGEST)


def test_a_trace_is_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "spot.csv").write_text("time,target,down\n10,worker-1,5\n35.5,worker-*,1\n")
    (tmp_path / "s.yaml").write_text(BASE + "  - {trace: spot.csv, speed: 2, grace: 1s, name: t}\n")
    found = schedule(load(tmp_path / "s.yaml"))
    assert [(f.target, f.trigger.time, spec(f).down, spec(f).grace, f.name) for f in found] == [
        ("worker-1", 5, 2.5, 1, "t"),
        ("worker-0", 17.75, 0.5, 1, "t"),
        ("worker-1", 17.75, 0.5, 1, "t"),
        ("worker-2", 17.75, 0.5, 1, "t"),
    ]
    assert len({fault.id for fault in found}) == 4


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("time,target,down\n1,ps-0,1\nx,ps-0,1\n", "{csv}, line 3: time is invalid"),
        ("time,target,down\n\n-1,ps-0,1\n", "{csv}, line 3: time is invalid"),
        ("time,target\n1,ps-0\n", "{csv}, line 2: down is invalid; a row has"),
        ("time,target,down\n1,ps-0,1,more\n", "{csv}, line 2: "),
        ("time,target,down\n1,boss,1\n", "no task is called 'boss'"),
        ("time,target,down\n1,\xff,1\n", "the trace "),
    ],
)
def test_a_wrong_trace_is_reported_with_the_line_that_names_it(
    tmp_path: Path, rows: str, problem: str
) -> None:
    (tmp_path / "spot.csv").write_bytes(rows.encode("latin-1"))
    found = only_problem(BASE + "  - {trace: spot.csv}\n", folder=tmp_path)
    expected = problem.replace("{csv}", f"the trace {tmp_path / 'spot.csv'}")
    assert found.startswith(f"s.yaml:6: faults.0.trace: {expected}")


def test_a_trace_has_a_limited_number_of_lines_and_comments_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spot.csv").write_text("# a\ntime,target,down\n# b\n1,ps-0,1\n")
    text = BASE + "  - {trace: spot.csv}\n"
    for most, least in ((3, 1), (1, 3)):
        monkeypatch.setattr(table, "TRACE_ROWS", most)
        monkeypatch.setattr(table, "COMMENTS", least)
        assert len(schedule(parse(text, folder=tmp_path))) == 1
    monkeypatch.setattr(table, "TRACE_ROWS", 0)
    assert only_problem(text, folder=tmp_path).endswith("can't be read: it has more than 0 rows")


def test_what_network_faults_ask_of_engine_and_kernel() -> None:
    asked = scenario(*KINDS[:6])
    assert set(needs(asked)) == {"oom", "network", "replace", "same-address"}
    assert scenario(KINDS[1]).network_parts == {"iptables"}
    assert scenario(KINDS[3]).network_parts == {"iptables", "loss", "bandwidth", "delay"}
    assert scenario("preempt: ps-0, at: 1s, loss: silent").network_parts == {"iptables"}
    assert not scenario("preempt: ps-0, at: 1s").network_parts


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        ({"step": 9}, "no task reached step 9, the last step was 7"),
        ({"step": 9, "task": "ps-0"}, "no task ps-0 reached step 9, no step was reported"),
        ({"phase": "checkpoint"}, "no task reported the beginning of a phase checkpoint"),
        ({"log": "saved .*"}, "no task printed a line that matches 'saved .*'"),
        ({"time": "90s"}, "it was due 1m 30s after all tasks ran"),
        ({"after": "a"}, "it was due when fault a took effect"),
        ({"recovery": "a", "delay": "5s"}, "it was due 5.00s after fault a was followed by a step"),
    ],
)
def test_what_a_trigger_waited_for_is_said(at: dict[str, Any], reason: str) -> None:
    trigger = Trigger(**at)
    assert why_unfired(trigger, {"worker-0": 7, "worker-1": 6, "ps-0": None}) == reason


def test_a_step_of_an_evaluator_is_a_trigger_only_where_it_is_named() -> None:
    def fires(at: dict[str, Any], task: str) -> bool:
        seen: dict[str, Any] = {"event": "step", "data": {"step": 1000}, "line": None}
        return trigger_matches(Trigger(**at), task, **seen, evaluators={"evaluator-0"})

    assert fires({"step": 9}, "chief-0")
    assert not fires({"step": 9}, "evaluator-0")
    assert fires({"step": 9, "task": "evaluator-*"}, "evaluator-0")
    why = why_unfired(Trigger(step=9), {"chief-0": 7, "evaluator-0": 1000}, {"evaluator-0"})
    assert why == (
        "no task reached step 9, the last step was 7; that of evaluator-0 counts only if `task:` "
        "names it"
    )
