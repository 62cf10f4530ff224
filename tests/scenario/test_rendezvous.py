"""How tasks find each other: TF_CONFIG, torch.distributed's variables, a plain list."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, get_args

import pytest

from emulator.errors import UsageError
from emulator.scenario import rendezvous
from emulator.scenario.frameworks.pytorch import Elastic
from emulator.scenario.frameworks.registry import FRAMEWORKS
from emulator.scenario.frameworks.spec import FrameworkName, Job, Member, RendezvousForm
from emulator.scenario.frameworks.tensorflow import tf_config
from emulator.scenario.loader import parse
from emulator.scenario.schema import Gpus, Program, Role, Scenario
from tests.conftest import python
from tests.scenario.plans import members


def environment(
    framework: FrameworkName, member: Member, everybody: Sequence[Member], **keys: Any
) -> dict[str, str]:
    """Return the variables of a task of a scenario with these keys."""
    cluster = {m.role: Role(replicas=sum(o.role == m.role for o in everybody)) for m in everybody}
    given: dict[str, Any] = {"name": "x", "program": Program(command=["a"]), "cluster": cluster}
    scenario = Scenario(framework=framework, **(given | keys))
    job = Job(scenario, scenario.cluster[member.role], run_id="x-1")
    return rendezvous.environment(member, everybody, job)


def of(framework: FrameworkName, task: str, counts: dict[str, int], **keys: Any) -> dict[str, str]:
    """Return the variables of one of so many tasks of each role."""
    everybody = members(**counts)
    return environment(framework, next(m for m in everybody if m.host == task), everybody, **keys)


def test_every_framework_is_in_the_table() -> None:
    assert tuple(FRAMEWORKS) == get_args(FrameworkName)
    assert all(name == framework.name for name, framework in FRAMEWORKS.items())


def tf_configs(everybody: Sequence[Member]) -> list[dict[str, Any]]:
    return [json.loads(environment("tensorflow", m, everybody)["TF_CONFIG"]) for m in everybody]


def test_the_evaluator_is_in_nobodys_cluster_and_knows_the_others() -> None:
    configs = tf_configs(members(chief=1, worker=1, evaluator=1))
    cluster = {"chief": ["chief-0:2222"], "worker": ["worker-0:2222"]}
    assert [config["cluster"] for config in configs] == [cluster] * 3
    assert configs[2]["task"] == {"type": "evaluator", "index": 0}


def test_keys_stand_in_the_order_in_which_kubeflow_writes_them() -> None:
    assert of("tensorflow", "worker-0", {"worker": 1, "ps": 1, "chief": 1})["TF_CONFIG"] == (
        '{"cluster": {"chief": ["chief-0:2222"], "ps": ["ps-0:2222"], '
        '"worker": ["worker-0:2222"]}, '
        '"task": {"type": "worker", "index": 0}, "environment": "cloud"}'
    )


def test_addresses_stand_in_the_order_of_their_index() -> None:
    everybody = [Member("worker", i, "127.0.0.1", 5000 + i) for i in (10, 2, 0)]
    assert tf_config(everybody[0], everybody)["cluster"] == {
        "worker": ["127.0.0.1:5000", "127.0.0.1:5002", "127.0.0.1:5010"]
    }


@pytest.mark.parametrize("role", ["worker", "chief", "evaluator"])
@pytest.mark.parametrize("form", ["tf-config", "cluster-config"])
def test_one_task_alone_has_no_form_of_the_rendezvous(role: str, form: str) -> None:
    assert of("tensorflow", f"{role}-0", {role: 1}) == {}
    assert of("tensorflow", f"{role}-0", {role: 1}, rendezvous=form) == {}


@pytest.mark.parametrize(
    ("counts", "ranks"),
    [
        ({"worker": 3}, {"worker-0": 0, "worker-1": 1, "worker-2": 2}),
        ({"worker": 2, "master": 1}, {"master-0": 0, "worker-0": 1, "worker-1": 2}),
        ({"master": 1}, {"master-0": 0}),
    ],
)
def test_pytorch_ranks_begin_with_the_master_or_worker_0(
    counts: dict[str, int], ranks: dict[str, int]
) -> None:
    first = min(ranks, key=lambda name: ranks[name])
    size = str(len(ranks))
    for task, number in ranks.items():
        rank = str(number)
        assert of("pytorch", task, counts) == {
            "MASTER_ADDR": first,
            "MASTER_PORT": "2222",
            "WORLD_SIZE": size,
            "RANK": rank,
            "PET_MASTER_ADDR": first,
            "PET_MASTER_PORT": "2222",
            "PET_NNODES": size,
            "PET_NODE_RANK": rank,
            "PET_NPROC_PER_NODE": "1",
            "NODE_RANK": rank,
            "GROUP_RANK": rank,
        }


ELASTIC = Elastic(min=1, max=2, max_restarts=3)


def test_an_elastic_job_meets_at_worker_0_and_has_no_fixed_ranks() -> None:
    """As with elasticPolicy of a PyTorchJob without a master: nothing of which torchrun warns."""
    for task in ("worker-0", "worker-1"):
        assert of("pytorch", task, {"worker": 2}, elastic=ELASTIC) == {
            "PET_NPROC_PER_NODE": "1",
            "PET_NNODES": "1:2",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": "worker-0:2222",
            "PET_RDZV_ID": "x-1",
            "PET_MAX_RESTARTS": "3",
        }


def test_with_a_master_an_elastic_job_has_the_ranks_of_a_pytorchjob() -> None:
    found = of("pytorch", "worker-0", {"worker": 1, "master": 1}, elastic=ELASTIC)
    assert (found["RANK"], found["WORLD_SIZE"], found["MASTER_ADDR"]) == ("1", "2", "master-0")
    assert found["PET_RDZV_ENDPOINT"] == "worker-0:2222"
    assert not {"PET_NODE_RANK", "NODE_RANK", "GROUP_RANK"} & found.keys()
    found = of("pytorch", "master-0", {"master": 1}, elastic=ELASTIC)  # which then has the store
    assert found["PET_RDZV_ENDPOINT"] == "master-0:2222"


def test_where_all_have_one_address_it_is_said_which_agent_holds_the_store() -> None:
    everybody = [Member("worker", n, "127.0.0.1", 5000 + n) for n in range(2)]
    found = [environment("pytorch", m, everybody, elastic=ELASTIC) for m in everybody]
    assert [of["PET_RDZV_ENDPOINT"] for of in found] == ["127.0.0.1:5000"] * 2
    assert [of["PET_RDZV_CONF"] for of in found] == ["is_host=1", "is_host=0"]
    assert [of["PET_LOCAL_ADDR"] for of in found] == ["127.0.0.1"] * 2


TRAIN = ["torchrun", "train.py"]


@pytest.mark.parametrize(
    ("command", "env"),
    [
        (["torchrun", "--rdzv_backend=c10d", "train.py"], {}),
        (["torchrun", "--nnodes=2", "--rdzv-backend", "c10d", "train.py"], {}),
        (["/bin/python", "-m", "torch.distributed.run", "--rdzv_backend", "c10d", "train.py"], {}),
        (["sh", "-c", "exec torchrun --rdzv_backend=c10d train.py"], {}),
        (TRAIN, {"PET_RDZV_BACKEND": "c10d"}),
    ],
    ids=str,
)
def test_a_program_that_asks_for_c10d_itself_is_told_where_to_meet(
    command: list[str], env: dict[str, str]
) -> None:
    """Without an endpoint, each agent would wait alone on localhost."""
    program = Program.model_validate({"command": command, "env": env})
    found = of("pytorch", "worker-1", {"worker": 2}, program=program)
    assert found["PET_RDZV_ENDPOINT"] == "worker-0:2222"
    assert (found["RANK"], found["WORLD_SIZE"], found["PET_NNODES"]) == ("1", "2", "2")
    assert not {"PET_NODE_RANK", "PET_RDZV_BACKEND"} & found.keys()


def test_jax_finds_its_coordinator_and_its_number_in_the_environment() -> None:
    """As a step of Slurm, which jax.distributed.initialize() recognises; and as Kubeflow's."""
    assert of("jax", "worker-1", {"worker": 2}) == {
        "JAX_COORDINATOR_ADDRESS": "worker-0:2222",
        "JAX_COORDINATOR_BIND_ADDRESS": "worker-0:2222",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "COORDINATOR_ADDRESS": "worker-0",
        "COORDINATOR_PORT": "2222",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "1",
        "SLURM_JOB_ID": "1",
        "SLURM_STEP_NODELIST": "worker-0,worker-1",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "0",
    }


def test_the_launcher_of_mpi_knows_the_hosts_with_a_slot_for_each_gpu_and_their_port() -> None:
    counts = {"launcher": 1, "worker": 2}
    found = of("mpi", "launcher-0", counts)
    assert found["OMPI_MCA_orte_default_dash_host"] == "worker-0:1,worker-1:1"
    assert found["OMPI_MCA_plm_rsh_args"].startswith("-p 2222 -o ConnectionAttempts=10 ")
    assert of("mpi", "worker-0", counts) == {}
    cluster = {"launcher": Role(), "worker": Role(replicas=2, gpus=Gpus(count=4))}
    found = of("mpi", "launcher-0", counts, cluster=cluster)
    assert found["OMPI_MCA_orte_default_dash_host"] == "worker-0:4,worker-1:4"


def test_all_tasks_of_ray_know_the_head() -> None:
    for task in ("worker-0", "worker-1", "head-0"):
        assert of("ray", task, {"worker": 2, "head": 1}) == {"RAY_ADDRESS": "head-0:2222"}


def test_without_a_framework_everybody_gets_a_plain_list() -> None:
    for task in ("server-0", "client-0", "client-1"):
        found = of("none", task, {"server": 1, "client": 2})
        assert found.keys() == {"EMULATOR_CLUSTER"}
        assert json.loads(found["EMULATOR_CLUSTER"]) == {
            "server": ["server-0:2222"],
            "client": ["client-0:2222", "client-1:2222"],
        }


def test_a_form_can_be_named_that_is_the_default() -> None:
    named = of("tensorflow", "worker-0", {"worker": 2}, rendezvous="tf-config")
    assert named == of("tensorflow", "worker-0", {"worker": 2})


def test_every_form_is_one_of_a_framework() -> None:
    assert {form for one in FRAMEWORKS.values() for form in one.forms} == {
        *get_args(RendezvousForm)
    }


ASK_TENSORFLOW = """
import json, os, sys
import tensorflow as tf
answers = []
for config in json.load(sys.stdin):
    os.environ["TF_CONFIG"] = config
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster = resolver.cluster_spec().as_dict()
    answers.append([cluster, resolver.task_type, resolver.task_id])
print(json.dumps(answers))
"""


@pytest.mark.tensorflow
@pytest.mark.usefixtures("host_tensorflow")
def test_tensorflow_reads_every_tasks_tf_config_as_it_was_meant() -> None:
    clusters = [members(chief=1, worker=2, ps=2, evaluator=1), members(worker=12)]
    asked = [(m, everybody) for everybody in clusters for m in everybody]
    configs = [environment("tensorflow", m, everybody)["TF_CONFIG"] for m, everybody in asked]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    answer = python(ASK_TENSORFLOW, env=environ, text=json.dumps(configs)).ended()
    expected = []
    for member, everybody in asked:
        roles = {m.role for m in everybody} - {"evaluator"}
        cluster = {r: [m.address for m in everybody if m.role == r] for r in roles}
        expected.append([cluster, member.role, member.index])
    assert answer.json == expected


def test_roles_of_others_are_no_hosts_of_mpi() -> None:
    text = "name: x\nframework: mpi\nprogram: {command: [a]}\ncluster: {chief: 1}\n"
    with pytest.raises(UsageError, match=r"cluster\.chief: unknown role \(roles of mpi: launcher"):
        parse(text)
