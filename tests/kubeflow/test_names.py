"""The names of pods on the network, and what they are labelled with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator.engines.docker.requests import container_request
from emulator.planning.context import PlanContext
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.scenario.loader import parse
from tests.scenario.mistakes import HEAD, only_problem, problems
from tests.scenario.plans import NAMED

LOOPBACK = replace(
    NAMED, engine="process", named=False, address=lambda task: ("127.0.0.1", 5000 + len(task))
)
MNIST = "operator: {kind: TFJob, job: mnist, namespace: team-a, ports: {ps: 3333}}\n"
CLUSTER = "cluster: {ps: 1, worker: 2}\n"


def plan(text: str, site: PlanContext = NAMED) -> Plan:
    return make_plan(parse(HEAD + text), "x-1", site)


def test_the_operator_names_each_pod_by_its_service() -> None:
    made = plan(MNIST + CLUSTER)
    assert [(task.host, task.port, task.aliases[0]) for task in made.tasks] == [
        ("mnist-ps-0.team-a.svc", 3333, "mnist-ps-0"),
        ("mnist-worker-0.team-a.svc", 2222, "mnist-worker-0"),
        ("mnist-worker-1.team-a.svc", 2222, "mnist-worker-1"),
    ]
    assert made.task("worker-0").aliases[1:] == (
        "mnist-worker-0.team-a",
        "mnist-worker-0.team-a.svc",
        "mnist-worker-0.team-a.svc.cluster.local",
    )


def test_pods_of_a_pytorchjob_have_its_port() -> None:
    text = "framework: pytorch\noperator: {kind: PyTorchJob, job: mnist}\n"
    made = plan(text + "cluster: {master: 1, worker: 1}\n")
    assert [task.port for task in made.tasks] == [23456, 23456]


def test_values_have_the_names() -> None:
    words = "'${host}', '${address.ps-0}', '${hosts.worker}', '${pod}', '${namespace}', '${task}'"
    text = f"cluster: {{ps: 1, worker: {{replicas: 2, command: [{words}]}}}}\n"
    pod = ("mnist-worker-1", "team-a", "worker-1")
    assert plan(MNIST + text).task("worker-1").command == (
        *("mnist-worker-1.team-a.svc", "mnist-ps-0.team-a.svc:3333"),
        "mnist-worker-0.team-a.svc,mnist-worker-1.team-a.svc",
        *pod,
    )
    on_loopback = plan(MNIST + text, LOOPBACK).task("worker-1").command
    assert on_loopback == ("127.0.0.1", "127.0.0.1:5004", "127.0.0.1,127.0.0.1", *pod)


def test_a_container_has_the_names_of_its_pod_and_no_other() -> None:
    made = plan(MNIST + CLUSTER)
    request = container_request(made, made.task("worker-1"), {"emulator.run": "x-1"})
    endpoint = request["NetworkingConfig"]["EndpointsConfig"]["x-1"]
    assert endpoint["Aliases"] == list(made.task("worker-1").aliases)
    assert request["Hostname"] == "mnist-worker-1"
    assert request["Labels"] == {
        "emulator.run": "x-1",
        "emulator.task": "worker-1",
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }


@pytest.mark.parametrize(
    ("kind", "cluster", "leader"),
    [
        ("TFJob", "{ps: 1, worker: 2}", "worker-0"),
        ("TFJob", "{ps: 1, worker: 2, chief: 1}", "chief-0"),
        ("PyTorchJob", "{worker: 2}", "worker-0"),
        ("PyTorchJob", "{worker: 2, master: 1}", "master-0"),
    ],
)
def test_one_pod_has_the_role_of_the_master(kind: str, cluster: str, leader: str) -> None:
    framework = {"TFJob": "tensorflow", "PyTorchJob": "pytorch"}[kind]
    made = plan(f"framework: {framework}\noperator: {{kind: {kind}, job: j}}\ncluster: {cluster}\n")
    labelled = {task.name: container_request(made, task, {})["Labels"] for task in made.tasks}
    key = "training.kubeflow.org/job-role"
    assert {name: labels[key] for name, labels in labelled.items() if key in labels} == {
        leader: "master"
    }
    names = {labels["training.kubeflow.org/operator-name"] for labels in labelled.values()}
    assert names == {f"{kind.lower()}-controller"}


def test_a_helper_keeps_its_name_and_is_no_pod_of_the_job() -> None:
    made = plan(MNIST + CLUSTER + "helpers: {board: {command: [b]}}\n")
    request = container_request(made, made.task("board"), {})
    assert request["Hostname"] == "board"
    assert request["Labels"] == {"emulator.task": "board"}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (f"operator: {{kind: TFJob, job: {'a' * 58}}}", "would have a name of 67 characters"),
        (MNIST + "addresses: {host: '{task}.x'}", "which names the tasks itself"),
        (MNIST + "helpers: {mnist-ps-0: {command: [a]}}", "is a name of the task ps-0"),
    ],
)
def test_a_mistake_is_named(section: str, message: str) -> None:
    found = problems(f"{HEAD}{section}\n{CLUSTER}")
    assert message in "\n".join(found)
    assert len(found) <= 3


def test_the_addresses_that_all_tasks_get_are_limited() -> None:
    text = f"operator: {{kind: TFJob, job: {'m' * 44}}}\ncluster: {{worker: 500}}\n"
    why = "gives the tasks, which know each other, 18 MiB of addresses"
    assert only_problem(HEAD + text).startswith(f"s.yaml:3: operator.job: {why}")


def test_values_count_in_the_limits_of_text() -> None:
    operator = f"operator: {{kind: TFJob, job: j, namespace: {'n' * 40}}}\n"
    for value, longest in {"role": "evaluator", "namespace": "n" * 40}.items():
        most = 100_000 // len(longest)
        text = f"{operator}name: x\ncluster: {{worker: 1, evaluator: 1, ps: 1}}\n"
        text += "program: {command: [a, '%s']}\n"
        parse(text % (f"${{{value}}}" * most))
        assert "characters with its values" in only_problem(text % (f"${{{value}}}" * (most + 1)))
