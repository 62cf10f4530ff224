"""The traps of the training operator: when `emulate plan` warns of them, and when not."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from emulator.planning.planner import make_plan
from emulator.plugins.kubeflow.lint import TRAPS, lint
from emulator.scenario.loader import parse
from tests.scenario import plans

PAGE = (Path(__file__).parents[3] / "docs" / "kubeflow-traps.md").read_text()


@dataclass(frozen=True)
class Job:
    """A job of one kind, with what its operator has beside that."""

    cluster: str
    operator: str = ""
    fault: str = ""
    _: KW_ONLY
    kind: str = "TFJob"
    command: str = "python, train.py"


Torch = partial(Job, kind="PyTorchJob")
Torchrun = partial(Torch, command="torchrun, train.py")
PREEMPTION, KILL = "{preempt: worker-1, at: 5s}", "{kill: chief-0, at: 5s}"
KILLED_WORKER = "{kill: worker-1, at: 5s}"
EXIT_CODE, ON_FAILURE = "restart: {worker: exit-code}", "restart: {worker: on-failure}"
PROXY = "sidecars: [{name: proxy}]"

IN: list[tuple[str, Job]] = [
    ("evaluator in TF_CONFIG", Job("chief: 1, ps: 1, worker: 1, evaluator: 1")),
    ("master in TF_CONFIG", Job("master: 1, worker: 1")),
    ("ExitCode and exit code 42", Job("chief: 1, worker: 1", EXIT_CODE)),
    ("ExitCode and backoffLimit", Job("worker: 2", f"{EXIT_CODE}, backoff_limit: 3")),
    ("ExitCode and backoffLimit", Torch("worker: 2", f"{EXIT_CODE}, backoff_limit: 3")),
    ("cleanPodPolicy at a limit", Job("worker: 2", "backoff_limit: 0")),
    ("cleanPodPolicy at a limit", Torch("worker: 2", "active_deadline: 5m, clean_pods: running")),
    ("activeDeadlineSeconds without an event", Job("worker: 2", "active_deadline: 5m")),
    ("restartPolicy Always", Job("ps: 1, worker: 2", "restart: {worker: always}")),
    ("restartPolicy Always", Torch("master: 1, worker: 2", "restart: {master: always}")),
    ("restartPolicy Never", Job("worker: 2", "", PREEMPTION)),
    ("restartPolicy Never", Job("chief: 1, worker: 1", ON_FAILURE, KILL)),
    ("restartPolicy Never", Torch("worker: 2", "restart: {worker: never}", PREEMPTION)),
    ("files outside of volumes", Job("chief: 1, worker: 1", "restart: {chief: on-failure}", KILL)),
    ("files outside of volumes", Torch("worker: 2", "restart: {worker: always}", KILLED_WORKER)),
    ("one replica", Job("worker: 1")),
    ("containers beside tensorflow", Job(f"worker: {{replicas: 2, {PROXY}}}")),
    ("containers beside tensorflow", Job("chief: 1, worker: {init: [{name: fetch}]}")),
    ("sparse TF_CONFIG of parameter servers", Job("ps: 2, worker: 2", "dynamic_worker: true")),
    ("parameter servers that are left", Job("ps: 1, worker: 2")),
    ("a preempted pod of a TFJob", Job("worker: 2", ON_FAILURE, PREEMPTION)),
    (
        "a preempted pod of a TFJob",
        Job("ps: 1, worker: 2", "dynamic_worker: true", "{preempt: ps-0, at: 5s}"),
    ),
    ("the end of TFJob", Job("worker: 2")),
    ("RANK of pods", Torch("master: 1, worker: 1", "nproc_per_node: 2")),
    ("a process for each core", Torchrun("worker: 2")),
    ("a process for each core", Torchrun("worker: 2", "nproc_per_node: cpu")),
    ("a process for each core", Torchrun("worker: 2", "elastic: {min: 1}")),
]
"""Jobs in each trap."""

OUT: list[tuple[str, Job]] = [
    ("evaluator in TF_CONFIG", Job("chief: 1, worker: 1, evaluator: 1")),
    ("evaluator in TF_CONFIG", Job("chief: 1, ps: 1, evaluator: 1", "dynamic_worker: true")),
    ("master in TF_CONFIG", Job("chief: 1, worker: 1")),
    ("master in TF_CONFIG", Torch("master: 1, worker: 1")),
    ("ExitCode and exit code 42", Job("worker: 2", ON_FAILURE)),
    ("ExitCode and exit code 42", Torch("worker: 2", EXIT_CODE)),
    ("ExitCode and backoffLimit", Job("worker: 2", EXIT_CODE)),
    ("ExitCode and backoffLimit", Job("worker: 2", f"{EXIT_CODE}, backoff_limit: 0")),
    ("ExitCode and backoffLimit", Job("worker: 2", f"{ON_FAILURE}, backoff_limit: 3")),
    ("cleanPodPolicy at a limit", Job("worker: 2", "backoff_limit: 1, clean_pods: all")),
    ("cleanPodPolicy at a limit", Job("worker: 2")),
    ("activeDeadlineSeconds without an event", Job("worker: 2", "backoff_limit: 1")),
    ("restartPolicy Always", Job("ps: 1, worker: 2", "restart: {ps: always}")),
    ("restartPolicy Always", Job("chief: 1, worker: 2", "restart: {worker: always}")),
    ("restartPolicy Never", Job("chief: 1, worker: 2", ON_FAILURE, PREEMPTION)),
    ("restartPolicy Never", Job("worker: 2", "dynamic_worker: true", PREEMPTION)),
    ("restartPolicy Never", Job("worker: 2", "", "{pause: worker-1, at: 5s, for: 1s}")),
    ("restartPolicy Never", Torch("worker: 2", "", PREEMPTION)),
    ("files outside of volumes", Torch("worker: 2")),
    ("files outside of volumes", Torch("worker: 2", "", PREEMPTION)),
    ("files outside of volumes", Job("worker: 2", EXIT_CODE, KILLED_WORKER)),
    (
        "files outside of volumes",
        Torch("worker: {replicas: 2, mounts: {/c: {scratch: c}}}", "", KILLED_WORKER),
    ),
    ("one replica", Job("chief: 1, worker: 1")),
    ("one replica", Torch("master: 1")),
    ("containers beside tensorflow", Job("worker: 2")),
    ("containers beside tensorflow", Job(f"worker: {{{PROXY}}}")),
    ("containers beside tensorflow", Torch(f"worker: {{replicas: 2, {PROXY}}}")),
    ("sparse TF_CONFIG of parameter servers", Job("ps: 1, worker: 2", "dynamic_worker: true")),
    ("sparse TF_CONFIG of parameter servers", Job("ps: 2, worker: 2")),
    ("parameter servers that are left", Job("ps: 1, worker: 2", "clean_pods: running")),
    ("parameter servers that are left", Job("worker: 2")),
    ("a preempted pod of a TFJob", Job("worker: 2", "", KILLED_WORKER)),
    ("a preempted pod of a TFJob", Job("ps: 1, worker: 2", "dynamic_worker: true", PREEMPTION)),
    ("a preempted pod of a TFJob", Torch("worker: 2", "", PREEMPTION)),
    ("the end of TFJob", Torch("worker: 2")),
    ("RANK of pods", Torchrun("master: 1, worker: 1", "nproc_per_node: 2")),
    ("RANK of pods", Torch("master: 1, worker: 1", "nproc_per_node: 1")),
    ("RANK of pods", Torch("master: 1, worker: 1")),
    ("a process for each core", Torchrun("worker: 2", "nproc_per_node: 1")),
    ("a process for each core", Torch("worker: 2")),
    (
        "a process for each core",
        Torch("worker: 2", command="torchrun, --nproc_per_node=1, train.py"),
    ),
    ("a process for each core", Torchrun("worker: 2", "elastic: {nproc_per_node: 1}")),
    ("a process for each core", Torchrun("worker: {replicas: 2, gpus: 1}")),
]
"""Jobs that are nearly in a trap."""


def warnings(job: Job) -> list[str]:
    framework = {"TFJob": "tensorflow", "PyTorchJob": "pytorch"}[job.kind]
    keys = ", ".join(part for part in (f"kind: {job.kind}, job: test", job.operator) if part)
    scenario = parse(
        f"name: test\nframework: {framework}\noperator: {{{keys}}}\n"
        f"program: {{command: [{job.command}]}}\ncluster: {{{job.cluster}}}\n"
        f"faults: [{job.fault}]\n"
    )
    return list(lint(scenario))


NAMED = {trap.name: trap.warning for trap in TRAPS}


@pytest.mark.parametrize(
    ("trap", "job", "warned"), [(*row, jobs is IN) for jobs in (IN, OUT) for row in jobs]
)
def test_a_job_has_the_warning_of_a_trap_that_it_is_in(trap: str, job: Job, warned: bool) -> None:
    assert (NAMED[trap] in warnings(job)) == warned


def test_a_failure_that_is_expected_is_no_trap_and_without_an_operator_there_are_none() -> None:
    text = "name: test\nprogram: {command: [python, t.py]}\ncluster: {ps: 1, worker: 1}\n"
    assert list(lint(parse(text))) == []
    text = f"{TFJOB}}}\nfaults: [{PREEMPTION}]\n".replace("max_restarts: 3", "outcome: failed")
    assert not any("restartPolicy Never" in warning for warning in lint(parse(text)))


def test_where_the_emulator_differs_the_warning_says_so() -> None:
    found = warnings(Job("worker: 2", f"{EXIT_CODE}, backoff_limit: 3"))
    assert any(text.endswith(" (here it is counted over all pods)") for text in found)


def test_each_trap_has_jobs_here_and_a_row_in_the_documentation() -> None:
    assert len(NAMED) == len(TRAPS)
    assert {*NAMED} == {trap for trap, _ in IN} == {trap for trap, _ in OUT}
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    table = {name: (reason, instead) for name, reason, instead in rows}
    for trap in TRAPS:
        assert table.get(trap.name) == (trap.reason, trap.instead)


TWO = "name: x\nprogram: {command: [torchrun, t.py]}\ncluster: {worker: 2}\n"
TFJOB = TWO + "expect: {max_restarts: 3}\noperator: {kind: TFJob, job: j"
TORCHRUN = TWO + "framework: pytorch\n"


@pytest.mark.parametrize(
    ("text", "beginnings"),
    [
        (TFJOB + "}", ["Trainer v2", "max_restarts is expected, but", "addresses"]),
        (TFJOB + ", restart: {worker: on-failure}}", ["Trainer v2", "addresses"]),
        (
            TORCHRUN + "operator: {kind: PyTorchJob, job: j}",
            [
                "torchrun without `elastic`: once a task is lost, the others end too, within 60 s; "
                "`operator.elastic: {min",
                "without nprocPerNode",
                "addresses",
            ],
        ),
    ],
)
def test_a_plan_warns_of_them_among_others(text: str, beginnings: list[str]) -> None:
    site = replace(plans.NAMED, named=False)
    found = make_plan(parse(text), "x-1", site).warnings
    assert len(found) == len(beginnings)
    assert all(map(str.startswith, found, beginnings))


@pytest.mark.parametrize(
    ("host", "answers"), [("etcd", False), ("j-worker-1", True), ("j-worker-1.default.svc", True)]
)
def test_a_rendezvous_of_an_elastic_policy_where_nothing_answers_is_warned_of(
    host: str, answers: bool
) -> None:
    elastic = f"elastic: {{max_restarts: 3, rdzv_host: {host}}}"
    text = f"{TORCHRUN}operator: {{kind: PyTorchJob, job: j, {elastic}}}"
    found = make_plan(parse(text), "x-1", plans.NAMED).warnings
    assert (
        any(one.startswith(f"no task and no helper is called {host},") for one in found) != answers
    )
