"""The variables of the training operator, byte for byte as v1.9.0 makes them.

Cases named after a test of the operator have its inputs and its results (facts of
pkg/controller.v1/tensorflow/pod_test.go, tensorflow_test.go and pytorch/elastic_test.go).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from emulator.errors import ScenarioError
from emulator.planning.context import PlanContext
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.scenario.loader import parse
from tests.scenario.plans import NAMED

TF_JOB = {"kind": "TFJob", "job": "test-tfjob"}
TORCH_JOB = {"kind": "PyTorchJob", "job": "mnist"}


def plan(
    operator: dict[str, Any], cluster: dict[str, Any], site: PlanContext = NAMED, **keys: Any
) -> Plan:
    framework = "tensorflow" if operator["kind"] == "TFJob" else "pytorch"
    given = {"name": "x", "program": {"command": ["a"]}, "operator": operator, "cluster": cluster}
    return make_plan(parse(json.dumps({**given, "framework": framework, **keys})), "x-1", site)


def variables(made: Plan, task: str) -> dict[str, str]:
    """Return what the operator sets: all but the emulator's own."""
    env = made.task(task).env
    ours = {name: env[name] for name in env if not name.startswith("EMULATOR_")}
    if made.scenario.framework == "tensorflow":
        del ours["PYTHONUNBUFFERED"]  # a PyTorchJob has it too
    return ours


# --- TFJob ----------------------------------------------------------------------------------------


POD = "test-tfjob-{}.default.svc:2222".format
LED = {"worker": 1, "chief": 1}


@pytest.mark.parametrize(
    ("operator", "cluster", "task", "known"),
    [
        # pod_test.go, a job of one worker, one parameter server and an evaluator in ns3.
        (
            {"namespace": "ns3"},
            {"worker": 1, "ps": 1, "evaluator": 1},
            "worker-0",
            '"evaluator":["test-tfjob-evaluator-0.ns3.svc:2222"],'
            '"ps":["test-tfjob-ps-0.ns3.svc:2222"],"worker":["test-tfjob-worker-0.ns3.svc:2222"]',
        ),
        # pod_test.go, isDistributed: a chief, one worker and no parameter server.
        ({}, LED, "chief-0", f'"chief":["{POD("chief-0")}"],"worker":["{POD("worker-0")}"]'),
        # Types are sorted, and each has its port.
        (
            {"ports": {"worker": 5000, "ps": 6000}},
            {"worker": 2, "ps": 1, "chief": 1},
            "ps-0",
            f'"chief":["{POD("chief-0")}"],"ps":["test-tfjob-ps-0.default.svc:6000"],'
            '"worker":["test-tfjob-worker-0.default.svc:5000",'
            '"test-tfjob-worker-1.default.svc:5000"]',
        ),
    ],
)
def test_the_cluster_of_a_tfjob(
    operator: dict[str, Any], cluster: dict[str, int], task: str, known: str
) -> None:
    role, index = task.split("-")
    assert variables(plan({**TF_JOB, **operator}, cluster), task) == {
        "TF_CONFIG": f'{{"cluster":{{{known}}},"task":{{"type":"{role}","index":{index}}},'
        '"environment":"cloud"}'
    }


def test_indexes_are_in_the_order_of_numbers() -> None:
    made = plan(TF_JOB, {"worker": 11})
    workers = json.loads(made.task("worker-10").env["TF_CONFIG"])["cluster"]["worker"]
    assert workers == [f"test-tfjob-worker-{n}.default.svc:2222" for n in range(11)]


BOTH, FIRST, SECOND = {"ps": 2, "worker": 2}, POD("ps-0"), POD("ps-1")


@pytest.mark.parametrize(
    ("cluster", "task", "known"),
    [
        # A worker knows itself and the parameter servers.
        (BOTH, "worker-0", f'"worker":{{"0":"{POD("worker-0")}"}},"ps":["{FIRST}","{SECOND}"]'),
        (BOTH, "worker-1", f'"worker":{{"1":"{POD("worker-1")}"}},"ps":["{FIRST}","{SECOND}"]'),
        # A parameter server has a list of one; its index remains, so it is outside of that list.
        (BOTH, "ps-0", f'"worker":{{}},"ps":["{FIRST}"]'),
        (BOTH, "ps-1", f'"worker":{{}},"ps":["{SECOND}"]'),
        # Others know nobody.
        ({"ps": 1, "worker": 1, "chief": 1}, "chief-0", '"worker":{},"ps":[]'),
        ({"ps": 1, "worker": 1, "evaluator": 1}, "evaluator-0", '"worker":{},"ps":[]'),
        # A slice that is not in a Go map is nil, which json.Marshal writes as null.
        ({"worker": 2}, "worker-1", f'"worker":{{"1":"{POD("worker-1")}"}},"ps":null'),
    ],
)
def test_beside_dynamic_workers_a_task_knows_only_some(
    cluster: dict[str, int], task: str, known: str
) -> None:
    """tensorflow_test.go, two parameter servers and two workers."""
    role, index = task.split("-")
    assert plan({**TF_JOB, "dynamic_worker": True}, cluster).task(task).env["TF_CONFIG"] == (
        f'{{"cluster":{{{known}}},"task":{{"type":"{role}","index":{index}}}}}'
    )


def test_a_pod_keeps_its_variable_where_the_operator_sets_none() -> None:
    made = plan(TF_JOB, {"worker": {"env": {"TF_CONFIG": "{}"}}})
    assert variables(made, "worker-0") == {"TF_CONFIG": "{}"}
    assert not [text for text in made.warnings if "replaced" in text]


# --- PyTorchJob -----------------------------------------------------------------------------------


def test_pods_of_a_job_with_a_master_and_without() -> None:
    made = plan(TORCH_JOB, {"master": 1, "worker": 2})
    for task, rank in (("master-0", "0"), ("worker-0", "1"), ("worker-1", "2")):
        assert variables(made, task) == {
            "PYTHONUNBUFFERED": "1",
            "MASTER_PORT": "23456",
            "PET_MASTER_PORT": "23456",
            "MASTER_ADDR": "mnist-master-0",
            "PET_MASTER_ADDR": "mnist-master-0",
            "WORLD_SIZE": "3",
            "RANK": rank,
            "PET_NODE_RANK": rank,
            "PET_NPROC_PER_NODE": "auto",
            "PET_NNODES": "3",
        }
    made = plan(TORCH_JOB, {"worker": 2})
    assert variables(made, "worker-1") == {  # no rank
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_NNODES": "2",
    }


@pytest.mark.parametrize(("processes", "world"), [(4, "12"), (1, "3"), ("gpu", "3"), ("cpu", "3")])
def test_the_world_counts_processes_where_their_number_is_known(
    processes: int | str, world: str
) -> None:
    job = {**TORCH_JOB, "nproc_per_node": processes, "ports": {"master": 29500}}
    env = variables(plan(job, {"master": 1, "worker": 2}), "worker-0")
    assert (env["WORLD_SIZE"], env["RANK"], env["PET_NNODES"]) == (world, "1", "3")
    assert (env["PET_NPROC_PER_NODE"], env["MASTER_PORT"]) == (str(processes), "29500")


def elastic(cluster: dict[str, Any], task: str = "worker-0", **policy: Any) -> dict[str, str]:
    env = variables(plan({**TORCH_JOB, "elastic": policy}, cluster), task)
    return {name: env[name] for name in sorted(env) if name != "PYTHONUNBUFFERED"}


def test_an_elastic_policy_in_full_with_nothing_in_it_and_with_a_rendezvous_elsewhere() -> None:
    # elastic_test.go, "With ElasticPolicy".
    conf = {"rdzv-conf-name": "rdzv-conf-value", "rdzv-conf-name-1": "rdzv-conf-value-1"}
    where = {"rdzv_backend": "c10d", "rdzv_host": "localhost", "rdzv_port": 1234}
    given: dict[str, Any] = {"min": 1, "max": 3, "max_restarts": 3, "rdzv_conf": conf, **where}
    assert elastic({"worker": 1}, rdzv_id="rdzv-id", **given) == {
        "PET_MAX_RESTARTS": "3",
        "PET_NNODES": "1:3",
        "PET_NPROC_PER_NODE": "auto",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_CONF": "rdzv-conf-name=rdzv-conf-value,rdzv-conf-name-1=rdzv-conf-value-1",
        "PET_RDZV_ENDPOINT": "localhost:1234",
        "PET_RDZV_ID": "rdzv-id",
    }
    assert elastic({"worker": 3}) == {
        "PET_NNODES": "3:3",
        "PET_NPROC_PER_NODE": "auto",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "mnist-worker-0:23456",
    }
    elsewhere = elastic({"worker": 2}, rdzv_host="etcd.infra", rdzv_port=2379)
    assert elsewhere["PET_RDZV_ENDPOINT"] == "etcd.infra:2379"


@pytest.mark.parametrize(
    ("policy", "nodes"), [({"min": 2}, "2:2"), ({"max": 4}, "4:4"), ({"min": 1, "max": 4}, "1:4")]
)
def test_one_of_the_limits_is_the_default_of_the_other(policy: dict[str, Any], nodes: str) -> None:
    assert elastic({"worker": 3}, **policy)["PET_NNODES"] == nodes


def test_what_an_elastic_policy_adds_comes_last() -> None:
    found = elastic(
        {"master": 1, "worker": 2}, "worker-1", nproc_per_node=2, standalone=True, min=1
    )
    assert found["PET_NPROC_PER_NODE"] == "2"
    assert found["PET_STANDALONE"] == ""
    assert found["WORLD_SIZE"] == "3"  # of spec.nprocPerNode only
    assert (found["RANK"], found["PET_NODE_RANK"], found["PET_NNODES"]) == ("2", "2", "1:1")


def test_where_all_have_one_address_it_is_said_which_agent_holds_the_store() -> None:
    ports = {"worker-0": 5000, "worker-1": 5001}
    site = replace(NAMED, named=False, address=lambda task: ("127.0.0.1", ports[task]))
    for host in (None, "mnist-worker-0", "mnist-worker-0.default.svc"):
        made = plan({**TORCH_JOB, "elastic": {"rdzv_host": host}}, {"worker": 2}, site)
        found = [variables(made, f"worker-{n}") for n in range(2)]
        assert [env["PET_RDZV_ENDPOINT"] for env in found] == ["127.0.0.1:5000"] * 2
        assert [env["PET_RDZV_CONF"] for env in found] == ["is_host=1", "is_host=0"]
        assert [env["PET_LOCAL_ADDR"] for env in found] == ["127.0.0.1"] * 2


def test_the_operators_variables_take_the_place_of_the_pods() -> None:
    env = {"PET_NPROC_PER_NODE": "2", "PYTHONUNBUFFERED": "1", "RANK": "7"}
    made = plan(TORCH_JOB, {"worker": {"replicas": 2, "env": env}})
    found = variables(made, "worker-0")
    assert (found["PET_NPROC_PER_NODE"], found["RANK"]) == ("auto", "7")
    assert [text for text in made.warnings if "replaced" in text] == [
        "PET_NPROC_PER_NODE of the scenario is replaced: the operator sets it"
    ]


# --- As values ------------------------------------------------------------------------------------


def test_a_variable_that_is_not_set_is_no_value() -> None:
    for job, name in ((TORCH_JOB, "RANK"), (TF_JOB, "TF_CONFIG")):
        with pytest.raises(ScenarioError, match=rf"there is no value \$\{{env\.{name}\}}"):
            plan(job, {"worker": 1}, program={"command": ["a", f"${{env.{name}}}"]})
