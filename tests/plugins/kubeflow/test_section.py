"""Section `operator`: what it may be given beside, and the roles of its job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from emulator.engines.docker.container_request import container_request
from emulator.errors import ScenarioError
from emulator.planning.planner import make_plan
from emulator.plugins.kubeflow.section import operator_of
from emulator.scenario.frameworks.registry import roles_of
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario
from emulator.scenario.sections import JobRules
from tests.scenario.mistakes import HEAD, only_problem, problems
from tests.scenario.plans import NAMED, plan

TFJOB: dict[str, Any] = {
    "name": "x",
    "program": {"command": ["true"]},
    "cluster": {"worker": 2},
    "operator": {"kind": "TFJob", "job": "mnist"},
}
PYTORCH = {"framework": "pytorch", "operator": {"kind": "PyTorchJob", "job": "mnist"}}
PYTORCHJOB: dict[str, Any] = {**TFJOB, **PYTORCH}
MASTER = {"cluster": {"master": 1}}


def read(base: dict[str, Any], **changes: Any) -> Scenario:
    own = changes.pop("operator", {})
    return parse(yaml.safe_dump({**base, **changes, "operator": {**base["operator"], **own}}))


def test_the_defaults_are_those_of_the_operator() -> None:
    tfjob, pytorchjob = operator_of(read(TFJOB)), operator_of(read(PYTORCHJOB))
    assert tfjob is not None
    assert pytorchjob is not None
    as_the_rest_knows_it: JobRules = tfjob
    assert as_the_rest_knows_it.roles != pytorchjob.roles
    assert (tfjob.policy_of("worker"), tfjob.port_of("worker")) == ("never", 2222)
    assert (pytorchjob.policy_of("worker"), pytorchjob.port_of("worker")) == ("on-failure", 23456)
    assert (tfjob.clean_pods, tfjob.backoff_limit, tfjob.success) == ("none", None, "default")
    assert tfjob.pod("worker", 1) == "mnist-worker-1"


@pytest.mark.parametrize(
    ("base", "changes", "expected"),
    [
        (TFJOB, {"restart": "always"}, "restart.policy: can't be set beside `operator`"),
        (TFJOB, {"restart": {"limit": 3}}, "instead: `operator.backoff_limit`"),
        (TFJOB, {"restart": {"scope": "job"}}, "the operator restarts single pods"),
        (TFJOB, {"success": "auto"}, "success: can't be set beside `operator`"),
        (TFJOB, {"rendezvous": "tf-config"}, "rendezvous: can't be set"),
        (PYTORCHJOB, {"elastic": {"min": 1}}, "instead: `operator.elastic`"),
        (TFJOB, {"framework": "pytorch"}, "a TFJob can't have framework pytorch"),
        (TFJOB, {"operator": {"elastic": {"min": 1}}}, "it is for a PyTorchJob"),
        (TFJOB, {"operator": {"nproc_per_node": 2}}, "operator.nproc_per_node: a TFJob has none"),
        (PYTORCHJOB, {"operator": {"dynamic_worker": True}}, "it is for a TFJob"),
        (PYTORCHJOB, {"operator": {"success": "all-workers"}}, "it is for a TFJob"),
        (TFJOB, {"operator": {"restart": {"workr": "always"}}}, "did you mean 'worker'?"),
        (TFJOB, {"operator": {"ports": {"ps": 2222}}}, "is not a role of the cluster"),
        (TFJOB, {"operator": {"ports": {"worker": 0}}}, "operator.ports.worker"),
        (TFJOB, {"operator": {"job": "Mnist"}}, "operator.job"),
        (TFJOB, {"operator": {"job": "m" * 60}}, "would have a name of 69 characters"),
        (TFJOB, {"cluster": {"worker": 11}, "operator": {"job": "m" * 54}}, "of 64 characters"),
        (TFJOB, {"operator": {"suspend": False}}, "suspend: was removed (leave it out; the run"),
        (TFJOB, {"cluster": {"chief": 1, "master": 1}}, "either a chief or a master"),
        (TFJOB, {"cluster": {"master": 2}}, "there can be only one master"),
        (
            TFJOB,
            {"cluster": {"worker": 1, "data": {"before": "training"}}},
            "a TFJob has no tasks before training",
        ),
        (PYTORCHJOB, {**MASTER, "operator": {"elastic": {}}}, "an elastic job needs workers"),
        (PYTORCHJOB, {"operator": {"elastic": {"min": 3, "max": 2}}}, "min is 3, but max is 2"),
    ],
)
def test_what_does_not_fit_is_a_mistake(
    base: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ScenarioError) as error:
        read(base, **changes)
    assert expected in str(error.value)


def test_a_limit_may_be_reached_and_backoff_and_stall_may_be_set() -> None:
    assert read(TFJOB, cluster={"worker": 10}, operator={"job": "m" * 54}).rules
    assert read(PYTORCHJOB, operator={"elastic": {"min": 2, "max": 2}}).rules
    assert read(TFJOB, restart={"backoff": "2s", "stall": "1m"}).restart.backoff == 2


def test_a_tfjob_may_have_a_master_that_leads() -> None:
    scenario = read(TFJOB, cluster={"master": 1, "ps": 1, "worker": 1, "evaluator": 1})
    roles = roles_of(scenario)
    assert roles.leader([f"{role}-0" for role in scenario.cluster]) == "master-0"
    assert roles.trains("master")


@pytest.mark.parametrize(
    "text",
    [
        "cluster: 5\noperator: {kind: TFJob, job: j, ports: {ps: 3333}}\n"
        "helpers: {j-worker-0: {command: [a]}}\nprogram: {command: [a]}",
        "framework: 5\ncluster: {master: 1, worker: 1}\nelastic: {min: 1}\n"
        "operator: {kind: PyTorchJob, job: j}\n"
        "program: {command: ['${env.MASTER_ADDR}'], env: {TF_CONFIG: a}}",
        "operator: {kind: TFJob}\ncluster: {master: 1}\nsuccess: chief\nprogram: {command: [a]}",
    ],
)
def test_nothing_is_reported_that_rests_on_a_broken_section(text: str) -> None:
    assert only_problem(f"name: x\n{text}\n").startswith("s.yaml:2: ")


def test_a_job_of_an_operator_is_none_of_slurms() -> None:
    said = only_problem(
        """\
        name: x
        slurm: true
        operator: {kind: TFJob, job: x}
        program: {command: [a]}
        cluster: {worker: 1}
        """
    )
    assert "slurm: the job has the rules of `operator`" in said


# --- Names on the network, and labels -------------------------------------------------------------

LOOPBACK = replace(
    NAMED, engine="process", named=False, address=lambda task: ("127.0.0.1", 5000 + len(task))
)
MNIST = "operator: {kind: TFJob, job: mnist, namespace: team-a, ports: {ps: 3333}}\n"
CLUSTER = "cluster: {ps: 1, worker: 2}\n"


def test_the_operator_names_each_pod_by_its_service_and_gives_it_a_port() -> None:
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
def test_a_mistake_in_names_is_named(section: str, message: str) -> None:
    found = problems(f"{HEAD}{section}\n{CLUSTER}")
    assert message in "\n".join(found)
    assert len(found) <= 3


# --- Warnings, which follow from what the section says --------------------------------------------

TWO = "name: x\nprogram: {command: [torchrun, t.py]}\ncluster: {worker: 2}\n"
EXPECTING = TWO + "expect: {max_restarts: 3}\noperator: {kind: TFJob, job: j"
TORCHRUN = TWO + "framework: pytorch\n"


@pytest.mark.parametrize(
    ("text", "beginnings"),
    [
        (EXPECTING + "}", ["max_restarts is expected, but", "addresses"]),
        (EXPECTING + ", restart: {worker: on-failure}}", ["addresses"]),
        (
            TORCHRUN + "operator: {kind: PyTorchJob, job: j}",
            [
                "torchrun without `elastic`: once a task is lost, the others end too, within 60 s; "
                "`operator.elastic: {min",
                "addresses",
            ],
        ),
    ],
)
def test_what_is_rarely_meant_is_warned_of(text: str, beginnings: list[str]) -> None:
    site = replace(NAMED, named=False)
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
    found = make_plan(parse(text), "x-1", NAMED).warnings
    assert (
        any(one.startswith(f"no task and no helper is called {host},") for one in found) != answers
    )
