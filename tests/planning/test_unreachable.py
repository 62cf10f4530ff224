"""Triggers that won't fire, as far as a scenario shows it."""

from __future__ import annotations

import pytest

from emulator.faults.spec import Trigger
from emulator.planning.planner import steps_of, unreachable
from emulator.runtime.bundled import scenarios
from emulator.scenario.loader import load, parse

HEAD = "name: test\ncluster: {worker: 2, ps: 1}\n"
HUNDRED = "program: {command: [python, t.py, --steps, 100]}\n"
UNKNOWN = "program: {command: [python, t.py]}\n"


def found(text: str) -> list[str]:
    return list(unreachable(parse(HEAD + text), ["worker-0", "worker-1", "ps-0"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HUNDRED + "faults: [{kill: worker-1, at: {step: 100}}]", []),
        (
            HUNDRED + "faults: [{kill: worker-1, at: {step: 101}}]",
            [
                "fault 0 (kill) won't happen: it waits for step 101, and the program ends at "
                "step 100, by its command"
            ],
        ),
        # What the program does counts, not what is expected of it at least.
        (HUNDRED + "expect: {final_step: 50}\nfaults: [{kill: ps-0, at: {step: 80}}]", []),
        (
            UNKNOWN + "expect: {final_step: 50}\nfaults: [{kill: ps-0, at: {step: 80}}]",
            ["fault 0 (kill) may not happen: it waits for step 80, and expect.final_step is 50"],
        ),
        (UNKNOWN + "expect: {final_step: 80}\nfaults: [{kill: ps-0, at: {step: 80}}]", []),
        (UNKNOWN + "faults: [{kill: ps-0, at: {step: 80}}]", []),
        (HUNDRED + "timeout: 1m\nfaults: [{random: {kill: ps-0}, every: 90s}]", []),
        (
            UNKNOWN + "expect: {steps: none}\nfaults: [{kill: ps-0, at: {step: 8}}]",
            ["fault 0 (kill) won't happen: it waits for step 8, and `expect.steps` is none"],
        ),
        (
            UNKNOWN + "timeout: 1m\nfaults: [{kill: ps-0, at: 59s}, {kill: ps-0, at: 60s}]",
            ["fault 1 (kill) won't happen: it is due after 1m 00s, and the timeout is 1m 00s"],
        ),
        (
            HUNDRED + "faults:\n- {name: a, kill: ps-0, at: {step: 500}}\n"
            "- {kill: ps-0, at: {after: a}}\n- {kill: ps-0, at: {recovery: '1'}}\n",
            [
                "fault 0 (a) won't happen: it waits for step 500, and the program ends at step "
                "100, by its command",
                "fault 1 (kill) won't happen: fault 0 (a) won't",
                "fault 2 (kill) won't happen: fault 0 (a) won't",
            ],
        ),
    ],
)
def test_what_can_not_fire_is_said(text: str, expected: list[str]) -> None:
    assert found(text) == expected


def test_the_steps_of_the_watched_role_count() -> None:
    text = (
        "name: test\nprogram: {command: [t.py, --steps=10]}\n"
        "cluster: {worker: 1, ps: {replicas: 1, command: [t.py, --steps=90]}}\n"
        "faults: [{kill: ps-0, at: {step: 50, task: 'TASK'}}]\n"
    )

    def of(task: str) -> int:
        scenario = parse(text.replace("TASK", task))
        return len(list(unreachable(scenario, ["worker-0", "ps-0"])))

    assert (of("worker-0"), of("ps-0"), of("*")) == (1, 0, 0)
    unnamed = text.replace(", task: 'TASK'", "").replace(" ps", " evaluator")
    assert len(list(unreachable(parse(unnamed), ["worker-0", "evaluator-0"]))) == 1
    text = text.replace("--steps=90", "--fast")  # which do not say when they end
    assert (of("worker-0"), of("ps-0"), of("*")) == (1, 0, 0)


def test_faults_that_wait_for_each_other_are_no_endless_search() -> None:
    """No scenario has them; one that was changed in Python may."""
    scenario = parse(
        HEAD + UNKNOWN + "faults: [{kill: ps-0, at: 1s}, {kill: ps-0, at: {after: 0}}]"
    )
    circle = [scenario.faults[1].model_copy(update={"at": Trigger(after=other)}) for other in "10"]
    changed = scenario.model_copy(update={"faults": circle})
    assert list(unreachable(changed, ["worker-0", "worker-1", "ps-0"])) == []


@pytest.mark.parametrize(
    ("command", "steps"),
    [
        (["python", "t.py", "--steps", "100"], 100),
        (["python", "t.py", "--steps=100"], 100),
        (["python", "t.py", "--max_steps", "100"], 100),
        (["sh", "-c", "exec python t.py --train-steps 100 --fast"], 100),
        (["python", "t.py", "--save-every", "100"], None),
        (["python", "t.py", "--eval-steps", "100"], None),
        (["python", "t.py", "--steps", "$STEPS"], None),
        (["python", "t.py", "--steps", "150", "40"], None),
        (["python", "t.py", "--steps", "10", "--max-steps", "20"], None),
        (["python", "t.py", "--epochs", "3", "--steps", "100"], None),
        (["python", "t.py", "--steps"], None),
        ([], None),
    ],
)
def test_steps_of_a_command_are_known_where_it_is_clear(
    command: list[str], steps: int | None
) -> None:
    assert steps_of(command) == steps


def test_every_fault_of_the_bundled_scenarios_can_happen() -> None:
    for path in scenarios():
        scenario = load(path)
        tasks = [f"{r}-{i}" for r, spec in scenario.cluster.items() for i in range(spec.replicas)]
        assert not list(unreachable(scenario, tasks)), path
