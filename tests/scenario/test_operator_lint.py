"""The traps of the training operator: when `emulate plan` warns of them, and when not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.scenario.loader import parse
from emulator.scenario.operator_lint import TRAPS, Trap, lint

PAGE = (Path(__file__).parents[2] / "docs" / "kubeflow.md").read_text()


TENSORFLOW = "python, train.py"
TFJOB, PYTORCHJOB = "TFJob", "PyTorchJob"
PREEMPTION, KILL = "{preempt: worker-1, at: 5s}", "{kill: chief-0, at: 5s}"
KILLED_WORKER = "{kill: worker-1, at: 5s}"

Job = tuple[str, ...]
"""Its kind, its operator beside that, its cluster, its command, and its faults, if it has any."""
IN: dict[str, list[Job]] = {
    "evaluator in TF_CONFIG": [(TFJOB, "", "chief: 1, ps: 1, worker: 1, evaluator: 1", TENSORFLOW)],
    "master in TF_CONFIG": [(TFJOB, "", "master: 1, worker: 1", TENSORFLOW)],
    "ExitCode and exit code 42": [
        (TFJOB, "restart: {worker: exit-code}", "chief: 1, worker: 1", TENSORFLOW)
    ],
    "ExitCode and backoffLimit": [
        (TFJOB, "restart: {worker: exit-code}, backoff_limit: 3", "worker: 2", TENSORFLOW),
        (PYTORCHJOB, "restart: {worker: exit-code}, backoff_limit: 3", "worker: 2", TENSORFLOW),
    ],
    "cleanPodPolicy at a limit": [
        (TFJOB, "backoff_limit: 0", "worker: 2", TENSORFLOW),
        (PYTORCHJOB, "active_deadline: 5m, clean_pods: running", "worker: 2", TENSORFLOW),
    ],
    "activeDeadlineSeconds without an event": [
        (TFJOB, "active_deadline: 5m", "worker: 2", TENSORFLOW)
    ],
    "restartPolicy Always": [
        (TFJOB, "restart: {worker: always}", "ps: 1, worker: 2", TENSORFLOW),
        (PYTORCHJOB, "restart: {master: always}", "master: 1, worker: 2", TENSORFLOW),
    ],
    "restartPolicy Never": [
        (TFJOB, "", "worker: 2", TENSORFLOW, PREEMPTION),
        (TFJOB, "restart: {worker: on-failure}", "chief: 1, worker: 1", TENSORFLOW, KILL),
        (PYTORCHJOB, "restart: {worker: never}", "worker: 2", TENSORFLOW, PREEMPTION),
    ],
    "files outside of volumes": [
        (TFJOB, "restart: {chief: on-failure}", "chief: 1, worker: 1", TENSORFLOW, KILL),
        (PYTORCHJOB, "restart: {worker: always}", "worker: 2", TENSORFLOW, KILLED_WORKER),
    ],
    "one replica": [(TFJOB, "", "worker: 1", TENSORFLOW)],
    "containers beside tensorflow": [
        (TFJOB, "", "worker: {replicas: 2, sidecars: [{name: proxy}]}", TENSORFLOW),
        (TFJOB, "", "chief: 1, worker: {init: [{name: fetch}]}", TENSORFLOW),
    ],
    "sparse TF_CONFIG of parameter servers": [
        (TFJOB, "dynamic_worker: true", "ps: 2, worker: 2", TENSORFLOW)
    ],
    "parameter servers that are left": [(TFJOB, "", "ps: 1, worker: 2", TENSORFLOW)],
    "a preempted pod of a TFJob": [
        (TFJOB, "restart: {worker: on-failure}", "worker: 2", TENSORFLOW, PREEMPTION),
        (TFJOB, "dynamic_worker: true", "ps: 1, worker: 2", TENSORFLOW, "{preempt: ps-0, at: 5s}"),
    ],
    "the end of TFJob": [(TFJOB, "", "worker: 2", TENSORFLOW)],
    "RANK of pods": [(PYTORCHJOB, "nproc_per_node: 2", "master: 1, worker: 1", "python, train.py")],
    "a process for each core": [
        (PYTORCHJOB, "", "worker: 2", "torchrun, train.py"),
        (PYTORCHJOB, "nproc_per_node: cpu", "worker: 2", "torchrun, train.py"),
        (PYTORCHJOB, "elastic: {min: 1}", "worker: 2", "torchrun, train.py"),
    ],
}
"""Jobs in each trap."""

OUT: dict[str, list[Job]] = {
    "evaluator in TF_CONFIG": [
        (TFJOB, "", "chief: 1, worker: 1, evaluator: 1", TENSORFLOW),
        (TFJOB, "dynamic_worker: true", "chief: 1, ps: 1, evaluator: 1", TENSORFLOW),
    ],
    "master in TF_CONFIG": [
        (TFJOB, "", "chief: 1, worker: 1", TENSORFLOW),
        (PYTORCHJOB, "", "master: 1, worker: 1", TENSORFLOW),
    ],
    "ExitCode and exit code 42": [
        (TFJOB, "restart: {worker: on-failure}", "worker: 2", TENSORFLOW),
        (PYTORCHJOB, "restart: {worker: exit-code}", "worker: 2", TENSORFLOW),
    ],
    "ExitCode and backoffLimit": [
        (TFJOB, "restart: {worker: exit-code}", "worker: 2", TENSORFLOW),
        (TFJOB, "restart: {worker: exit-code}, backoff_limit: 0", "worker: 2", TENSORFLOW),
        (TFJOB, "restart: {worker: on-failure}, backoff_limit: 3", "worker: 2", TENSORFLOW),
    ],
    "cleanPodPolicy at a limit": [
        (TFJOB, "backoff_limit: 1, clean_pods: all", "worker: 2", TENSORFLOW),
        (TFJOB, "", "worker: 2", TENSORFLOW),
    ],
    "activeDeadlineSeconds without an event": [
        (TFJOB, "backoff_limit: 1", "worker: 2", TENSORFLOW)
    ],
    "restartPolicy Always": [
        (TFJOB, "restart: {ps: always}", "ps: 1, worker: 2", TENSORFLOW),
        (TFJOB, "restart: {worker: always}", "chief: 1, worker: 2", TENSORFLOW),
    ],
    "restartPolicy Never": [
        (TFJOB, "restart: {worker: on-failure}", "chief: 1, worker: 2", TENSORFLOW, PREEMPTION),
        (TFJOB, "dynamic_worker: true", "worker: 2", TENSORFLOW, PREEMPTION),
        (TFJOB, "", "worker: 2", TENSORFLOW, "{pause: worker-1, at: 5s, for: 1s}"),
        (PYTORCHJOB, "", "worker: 2", TENSORFLOW, PREEMPTION),
    ],
    "files outside of volumes": [
        (PYTORCHJOB, "", "worker: 2", TENSORFLOW),
        (PYTORCHJOB, "", "worker: 2", TENSORFLOW, PREEMPTION),
        (TFJOB, "restart: {worker: exit-code}", "worker: 2", TENSORFLOW, KILLED_WORKER),
        (
            PYTORCHJOB,
            "",
            "worker: {replicas: 2, mounts: {/c: {scratch: c}}}",
            TENSORFLOW,
            KILLED_WORKER,
        ),
    ],
    "one replica": [
        (TFJOB, "", "chief: 1, worker: 1", TENSORFLOW),
        (PYTORCHJOB, "", "master: 1", TENSORFLOW),
    ],
    "containers beside tensorflow": [
        (TFJOB, "", "worker: 2", TENSORFLOW),
        (TFJOB, "", "worker: {sidecars: [{name: proxy}]}", TENSORFLOW),
        (PYTORCHJOB, "", "worker: {replicas: 2, sidecars: [{name: proxy}]}", TENSORFLOW),
    ],
    "sparse TF_CONFIG of parameter servers": [
        (TFJOB, "dynamic_worker: true", "ps: 1, worker: 2", TENSORFLOW),
        (TFJOB, "", "ps: 2, worker: 2", TENSORFLOW),
    ],
    "parameter servers that are left": [
        (TFJOB, "clean_pods: running", "ps: 1, worker: 2", TENSORFLOW),
        (TFJOB, "", "worker: 2", TENSORFLOW),
    ],
    "a preempted pod of a TFJob": [
        (TFJOB, "", "worker: 2", TENSORFLOW, "{kill: worker-1, at: 5s}"),
        (TFJOB, "dynamic_worker: true", "ps: 1, worker: 2", TENSORFLOW, PREEMPTION),
        (PYTORCHJOB, "", "worker: 2", TENSORFLOW, PREEMPTION),
    ],
    "the end of TFJob": [(PYTORCHJOB, "", "worker: 2", TENSORFLOW)],
    "RANK of pods": [
        (PYTORCHJOB, "nproc_per_node: 2", "master: 1, worker: 1", "torchrun, train.py"),
        (PYTORCHJOB, "nproc_per_node: 1", "master: 1, worker: 1", TENSORFLOW),
        (PYTORCHJOB, "", "master: 1, worker: 1", TENSORFLOW),
    ],
    "a process for each core": [
        (PYTORCHJOB, "nproc_per_node: 1", "worker: 2", "torchrun, train.py"),
        (PYTORCHJOB, "", "worker: 2", TENSORFLOW),
        (PYTORCHJOB, "", "worker: 2", "torchrun, --nproc_per_node=1, train.py"),
        (PYTORCHJOB, "elastic: {nproc_per_node: 1}", "worker: 2", "torchrun, train.py"),
        (PYTORCHJOB, "", "worker: {replicas: 2, gpus: 1}", "torchrun, train.py"),
    ],
}
"""Jobs that are nearly in a trap."""


def warnings(job: Job, more: str = "") -> list[str]:
    kind, operator, cluster, command, *faults = job
    framework = {TFJOB: "tensorflow", PYTORCHJOB: "pytorch"}[kind]
    keys = ", ".join(part for part in (f"kind: {kind}, job: test", operator, more) if part)
    scenario = parse(
        f"name: test\nframework: {framework}\noperator: {{{keys}}}\n"
        f"program: {{command: [{command}]}}\ncluster: {{{cluster}}}\n"
        f"faults: [{', '.join(faults)}]\n"
    )
    return list(lint(scenario))


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_a_job_in_a_trap_has_its_warning(trap: Trap) -> None:
    for job in IN[trap.name]:
        assert trap.warning(quirks=False) in warnings(job)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_a_job_that_is_nearly_in_a_trap_has_not(trap: Trap) -> None:
    for job in OUT[trap.name]:
        assert trap.warning(quirks=False) not in warnings(job)


def test_a_good_job_has_none_but_that_of_its_kind() -> None:
    good = "restart: {worker: on-failure, ps: on-failure}, clean_pods: running, backoff_limit: 3"
    ended = next(trap for trap in TRAPS if trap.name == "the end of TFJob")
    kept = next(trap for trap in TRAPS if trap.name == "cleanPodPolicy at a limit")
    found = warnings((TFJOB, good, "chief: 1, ps: 2, worker: 2", TENSORFLOW))
    assert found == [kept.warning(quirks=False), ended.warning(quirks=False)]
    good = "clean_pods: all, backoff_limit: 3, nproc_per_node: 1"
    assert warnings((PYTORCHJOB, good, "master: 1, worker: 2", "torchrun, train.py")) == []


def test_a_failure_that_is_expected_is_no_trap() -> None:
    text = (
        "name: test\noperator: {kind: TFJob, job: test}\nprogram: {command: [python, t.py]}\n"
        f"cluster: {{worker: 2}}\nfaults: [{PREEMPTION}]\nexpect: {{outcome: failed}}\n"
    )
    assert not any("restartPolicy Never" in warning for warning in lint(parse(text)))


def test_a_scenario_without_an_operator_has_none() -> None:
    text = "name: test\nprogram: {command: [python, t.py]}\ncluster: {ps: 1, worker: 1}\n"
    assert list(lint(parse(text))) == []


def test_where_the_emulator_differs_the_warning_says_so_unless_it_does_as_the_operator() -> None:
    job = (TFJOB, "restart: {worker: exit-code}, backoff_limit: 3", "worker: 2", TENSORFLOW)
    differing = "here it is counted over all pods; --operator-quirks does as the operator"
    assert any(differing in text for text in warnings(job))
    assert not any("--operator-quirks" in text for text in warnings(job, "quirks: true"))


def test_each_trap_has_jobs_here_and_a_row_in_the_documentation() -> None:
    names = [trap.name for trap in TRAPS]
    assert sorted(names) == sorted(IN) == sorted(OUT)
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    table = {name: (reason, instead) for name, reason, instead in rows}
    for trap in TRAPS:
        assert table.get(trap.name) == (trap.reason, trap.instead)
