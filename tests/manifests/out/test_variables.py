"""A pod of an export has the command and the variables of its task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emulator.manifests.out.table import TARGETS
from tests.manifests.out.exporting import documents, exported, given, in_pod

PS = {
    "name": "train",
    "program": {
        "command": ["python", "t.py", "--rank=${rank}", "--of", "${size.worker}", "it's $(x) $$1"],
        "env": {"WHO": "${task} at ${address}", "PRICE": "5$", "SEED": "$EMULATOR_SEED"},
    },
    "cluster": {
        "chief": 1,
        "worker": 12,
        "ps": {"replicas": 2, "command": ["python", "ps.py", "${index}"]},
    },
}
DDP = {
    "name": "ddp",
    "framework": "pytorch",
    "image": "pytorch",
    "program": {"command": ["python", "ddp.py"]},
    "cluster": {"master": 1, "worker": 3},
}


def containers(document: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """Return the role, the number of pods, and the container of a workload."""
    spec = document["spec"]
    count = spec.get("completions", spec.get("replicas"))
    (container,) = spec["template"]["spec"]["containers"]
    return document["metadata"]["name"].rpartition("-")[2], count, container


def workloads(name: str, data: dict[str, Any], folder: Path) -> dict[str, tuple[int, Any]]:
    found = documents(exported(given(data, folder), name, folder))
    if name == "kubernetes":
        kinds = ("Job", "StatefulSet")
        made = [containers(one) for one in found if one["kind"] in kinds]
    else:
        runtime = next(one for one in found if one["kind"] == "TrainingRuntime")
        jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        made = [
            containers({"metadata": {"name": f"x-{job['name']}"}, "spec": job["template"]["spec"]})
            for job in jobs
        ]
    return {role: (count, container) for role, count, container in made}


@pytest.mark.parametrize("name", ["kubernetes", "trainjob"])
def test_tensorflow(name: str, tmp_path: Path) -> None:
    host = TARGETS[name].host
    scenario = given(PS, tmp_path).parse()
    addresses = {
        role: [f"{host(scenario, role, n)}:2222" for n in range(count)]
        for role, count in (("chief", 1), ("ps", 2), ("worker", 12))
    }
    found = workloads(name, PS, tmp_path)
    counts = {role: count for role, (count, _) in found.items()}
    assert counts == {"chief": 1, "worker": 12, "ps": 2}
    for role, (count, container) in found.items():
        for index in range(count):
            command, env = in_pod(container, index)
            assert json.loads(env["TF_CONFIG"]) == {
                "cluster": addresses,
                "task": {"type": role, "index": index},
                "environment": "cloud",
            }
            assert env["WHO"] == f"{role}-{index} at {addresses[role][index]}"
            prices = (env["PRICE"], env["SEED"], env["EMULATOR_SEED"])
            assert prices == ("5$", "$EMULATOR_SEED", "0")
            rank = index + (role == "worker")
            trains = ["python", "t.py", f"--rank={rank}", "--of", "12", "it's $(x) $$1"]
            assert command == (["python", "ps.py", str(index)] if role == "ps" else trains)


@pytest.mark.parametrize("name", ["kubernetes", "trainjob"])
def test_pytorch(name: str, tmp_path: Path) -> None:
    scenario = given(DDP, tmp_path).parse()
    master = TARGETS[name].host(scenario, "master", 0)
    for role, (count, container) in workloads(name, DDP, tmp_path).items():
        for index in range(count):
            command, env = in_pod(container, index)
            rank = str(index + (role == "worker"))
            assert command == ["python", "ddp.py"]
            assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == (master, "2222")
            assert (env["RANK"], env["PET_NODE_RANK"], env["WORLD_SIZE"]) == (rank, rank, "4")


def test_the_operator_makes_its_own_variables(tmp_path: Path) -> None:
    operator = {"kind": "TFJob", "job": "train", "namespace": "team"}
    data = {**PS, "operator": operator, "mounts": {"/data": {"volume": "kept"}}}
    written = exported(given(data, tmp_path), "tfjob", tmp_path)
    assert [d["kind"] for d in documents(written)].count("PersistentVolumeClaim") == 1
    assert any("push it to a reg" in one and "--image cpu=REF" in one for one in written.notes)
    job = documents(written)[-1]
    assert job["metadata"]["namespace"] == "team"
    specs = job["spec"]["tfReplicaSpecs"]
    counts = {role: spec["replicas"] for role, spec in specs.items()}
    assert counts == {"Chief": 1, "Worker": 12, "PS": 2}
    for spec in specs.values():
        (container,) = spec["template"]["spec"]["containers"]
        assert container["name"] == "tensorflow"
        assert "TF_CONFIG" not in [one["name"] for one in container["env"]]


def test_workers_alone_get_what_the_operator_does_not_set(tmp_path: Path) -> None:
    data = {**DDP, "cluster": {"worker": 2}}
    job = documents(exported(given(data, tmp_path), "pytorchjob", tmp_path))[-1]
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    for index in range(2):
        env = in_pod(container, index)[1]
        assert (env["RANK"], env["WORLD_SIZE"]) == (str(index), "2")
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("ddp-worker-0", "23456")
        assert "PET_NNODES" not in env
