"""How tasks find each other: TF_CONFIG, torch.distributed's variables, a plain list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from emulator.scenario.rendezvous import Member, environment, tf_config


def members(**counts: int) -> list[Member]:
    return [
        Member(role, index, f"{role}-{index}", 2222)
        for role, count in counts.items()
        for index in range(count)
    ]


def tf_configs(everybody: Sequence[Member]) -> list[dict[str, Any]]:
    return [json.loads(environment("tensorflow", m, everybody)["TF_CONFIG"]) for m in everybody]


def test_every_kind_of_task_gets_the_whole_cluster_and_its_own_place() -> None:
    # In another order than the cluster's: a plan lists roles as the scenario does.
    configs = tf_configs(members(worker=2, ps=1, chief=1))
    cluster = {
        "chief": ["chief-0:2222"],
        "ps": ["ps-0:2222"],
        "worker": ["worker-0:2222", "worker-1:2222"],
    }
    assert [config["cluster"] for config in configs] == [cluster] * 4
    assert [config["task"] for config in configs] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
        {"type": "ps", "index": 0},
        {"type": "chief", "index": 0},
    ]
    assert {config["environment"] for config in configs} == {"cloud"}


def test_the_evaluator_is_in_nobodys_cluster_and_knows_the_others() -> None:
    configs = tf_configs(members(chief=1, worker=1, evaluator=1))
    cluster = {"chief": ["chief-0:2222"], "worker": ["worker-0:2222"]}
    assert [config["cluster"] for config in configs] == [cluster] * 3
    assert configs[2]["task"] == {"type": "evaluator", "index": 0}


def test_keys_stand_in_the_order_in_which_kubeflow_writes_them() -> None:
    everybody = members(worker=1, ps=1, chief=1)
    text = environment("tensorflow", everybody[0], everybody)["TF_CONFIG"]
    assert text == (
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
def test_one_task_alone_has_no_tf_config(role: str) -> None:
    (alone,) = members(**{role: 1})
    assert environment("tensorflow", alone, [alone]) == {}


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
    everybody = members(**counts)
    first = min(ranks, key=lambda name: ranks[name])
    for member in everybody:
        rank = str(ranks[member.host])
        assert environment("pytorch", member, everybody) == {
            "MASTER_ADDR": first,
            "MASTER_PORT": "2222",
            "WORLD_SIZE": str(len(ranks)),
            "RANK": rank,
            "PET_MASTER_ADDR": first,
            "PET_MASTER_PORT": "2222",
            "PET_NNODES": str(len(ranks)),
            "PET_NODE_RANK": rank,
            "PET_NPROC_PER_NODE": "1",
        }


def test_without_a_framework_everybody_gets_a_plain_list() -> None:
    everybody = members(server=1, client=2)
    for member in everybody:
        found = environment("none", member, everybody)
        assert found.keys() == {"EMULATOR_CLUSTER"}
        assert json.loads(found["EMULATOR_CLUSTER"]) == {
            "server": ["server-0:2222"],
            "client": ["client-0:2222", "client-1:2222"],
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
    answer = subprocess.run(
        [sys.executable, "-c", ASK_TENSORFLOW],
        input=json.dumps(configs),
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = []
    for member, everybody in asked:
        roles = {m.role for m in everybody} - {"evaluator"}
        cluster = {r: [m.address for m in everybody if m.role == r] for r in roles}
        expected.append([cluster, member.role, member.index])
    assert json.loads(answer.stdout) == expected
