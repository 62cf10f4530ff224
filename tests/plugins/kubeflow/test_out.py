"""Exports of TFJobs and PyTorchJobs, and other exports of what they describe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as for_all
from hypothesis import strategies as st

from emulator.plugins.kubeflow.manifests.out.export import TARGETS
from emulator.scenario.given import read_scenario
from tests.plugins.kubeflow.manifests.out.exporting import (
    as_manifest,
    documents,
    exported,
    given,
    in_pod,
    said_of,
)
from tests.plugins.kubeflow.manifests.out.test_exports import JOB, fits, scenarios
from tests.plugins.kubeflow.manifests.out.test_parts import BARE, DDP, TORCH, part_of

OWN = [one.name for one in TARGETS.values() if one.has_operator]
AUTO = {"kind": "PyTorchJob", "job": "a", "nproc_per_node": "auto"}


@pytest.mark.parametrize(
    ("to", "more", "number", "path", "value"),
    [
        ("pytorchjob", {**TORCH, "operator": AUTO}, -1, ("spec", "nprocPerNode"), None),
        ("pytorchjob", {**TORCH, "elastic": {}}, -1, ("spec", "elasticPolicy"),
         {"minReplicas": 2, "maxReplicas": 2, "rdzvBackend": "c10d"}),
        ("pytorchjob", {**TORCH, "elastic": {"max_restarts": 0}}, -1,
         ("spec", "elasticPolicy", "maxRestarts"), 0),
        ("tfjob", {"success": "all-workers"}, -1, ("spec", "successPolicy"), "AllWorkers"),
        ("tfjob", {"operator": {"kind": "TFJob", "job": "a"}}, -1, ("spec", "successPolicy"), None),
        ("compose", {"operator": {"kind": "TFJob", "job": "a", "restart": {"worker": "always"}}}, 0,
         ("services", "worker-0", "restart"), "always"),
    ],
)  # fmt: skip
def test_a_part_of_an_export(
    to: str, more: dict[str, Any], number: int, path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    source = given({**BARE, **more}, tmp_path)
    assert part_of(documents(exported(source, to, tmp_path))[number], path) == value


@pytest.mark.parametrize(
    ("to", "more", "said"),
    [
        ("pytorchjob", TORCH, [
            "without a master the operator sets no RANK and MASTER_ADDR: the manifest sets them",
        ]),
        ("pytorchjob", {**TORCH, "elastic": {}}, []),
        ("tfjob", {"cluster": {"worker": 1, "evaluator": 1}}, [
            "the operator's TF_CONFIG has the evaluator in its cluster, the emulator's has not: "
            "ParameterServerStrategy waits for it there for ever",
        ]),
        ("tfjob", {"restart": {"policy": "on-failure", "scope": "job"}}, [
            "backoffLimit counts the restarts of all pods together, restart.limit those of each",
            "the operator restarts pods one by one, not the job (restart.scope: job)",
        ]),
        ("tfjob", {"restart": {"policy": "never", "scope": "task"}}, []),
        ("kubernetes", {"operator": {"kind": "TFJob", "job": "a"}},
         ["a Job restarts pods that fail, whatever the restart policies of the operator"]),
        ("tfjobs", {}, "There is no format tfjobs. Did you mean 'tfjob'? Formats: tfjob, "
         "pytorchjob, trainjob, compose, kubernetes, helm-values, kubernetes-job."),
        ("tfjob", TORCH, "--to tfjob is for framework: tensorflow, and the scenario has "
         "framework: pytorch. Formats for it: pytorchjob, trainjob, compose, kubernetes."),
    ],
)  # fmt: skip
def test_the_notes_of_an_export_or_why_there_is_none(
    to: str, more: dict[str, Any], said: list[str] | str, tmp_path: Path
) -> None:
    assert said_of({**BARE, **more}, to, tmp_path) == said


@pytest.mark.parametrize(
    ("to", "hosts"),
    [
        *((to, ["a-ps", "a-ps-0.default.svc", "a-ps-1.default.svc"]) for to in OWN),
        *(
            (to, ["ps", "a-ps-0.default.svc", "a-ps-1.default.svc"])
            for to in ("compose", "helm-values")
        ),
        ("kubernetes", ["a-ps", "a-ps-0.a", "a-ps-1.a"]),
        ("trainjob", ["a-ps-0-0.a", "a-ps-0-0.a", "a-ps-0-1.a"]),
    ],
)
def test_the_names_of_helpers_and_tasks(to: str, hosts: list[str], tmp_path: Path) -> None:
    data = {**BARE, "cluster": {"worker": 1, "ps": 2}}
    without = given(data, tmp_path).parse()
    named = given(
        {**data, "name": "n", "operator": {"kind": "TFJob", "job": "a"}}, tmp_path
    ).parse()
    host = TARGETS[to].host
    assert [host(named, "ps", index) for index in (-1, 0, 1)] == hosts
    if to in OWN:
        assert [host(without, "ps", index) for index in (-1, 0, 1)] == ["a-ps", "a-ps-0", "a-ps-1"]


def test_an_exported_job_is_the_same_job(tmp_path: Path) -> None:
    command = ["python", "t.py", "--name=${task}", "--index", "${index}", "$(date)"]
    program = {"command": command, "env": {"WHERE": "${task}/$EMULATOR_SEED"}}
    data = {**JOB, "program": program, "faults": []}
    written = exported(given(data, tmp_path), "tfjob", tmp_path)
    found = as_manifest(written, tmp_path)
    assert "securityContext" not in str(read_scenario(tmp_path / "export.yaml").notes)
    assert found.operator is not None
    worker = found.cluster["worker"]
    assert (worker.replicas, worker.memory) == (2, 2**30)
    name = "--name=worker-${index}"
    assert worker.command == ["python", "t.py", name, "--index", "${index}", "$(date)"]
    # The emulator sets its own variables itself, here as there.
    assert {**found.program.env, **worker.env} == {"WHERE": "worker-${index}/$EMULATOR_SEED"}
    assert found.operator.policy_of("worker") == "on-failure"
    assert found.operator.backoff_limit == 5


def test_workers_alone_get_what_the_operator_does_not_set(tmp_path: Path) -> None:
    data = {**DDP, "cluster": {"worker": 2}}
    job = documents(exported(given(data, tmp_path), "pytorchjob", tmp_path))[-1]
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    for index in range(2):
        env = in_pod(container, index)[1]
        assert (env["RANK"], env["WORLD_SIZE"]) == (str(index), "2")
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("ddp-worker-0", "23456")
        assert "PET_NNODES" not in env


@pytest.mark.parametrize("to", ["kubernetes", "tfjob"])
def test_a_command_has_the_variable_by_which_its_task_finds_the_others(
    to: str, tmp_path: Path
) -> None:
    data = {**BARE, "cluster": {"worker": {"replicas": 2, "command": ["a", "${env.TF_CONFIG}"]}}}
    job = documents(exported(given(data, tmp_path), to, tmp_path))[-1]
    replicas = job["spec"] if to == "kubernetes" else job["spec"]["tfReplicaSpecs"]["Worker"]
    (container,) = replicas["template"]["spec"]["containers"]
    for index in range(2):
        command, env = in_pod(container, index)
        config = json.loads(command[-1])
        assert config["task"] == {"type": "worker", "index": index}
        assert json.loads(env.get("TF_CONFIG", command[-1])) == config


# --- Any scenario ---------------------------------------------------------------------------------

OPERATOR: dict[str, Any] = {
    "namespace": st.sampled_from(["default", "team-a"]),
    "restart": st.dictionaries(
        st.just("worker"), st.sampled_from(["never", "on-failure", "always", "exit-code"])
    ),
    "backoff_limit": st.integers(0, 3),
    "active_deadline": st.sampled_from(["10m", "5s"]),
    "clean_pods": st.sampled_from(["none", "running", "all"]),
    "ttl_after_finished": st.just("60s"),
    "ports": st.just({"worker": 4000}),
    "labels": st.just({"team": "a"}),
    "annotations": st.just({"note": "b"}),
}


def jobs(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return scenarios with a section `operator`."""
    tfjob = {"success": st.just("all-workers"), "dynamic_worker": st.booleans()}
    elastic = st.just({"min": 1, "max": 2, "rdzv_conf": {"timeout": "5"}})
    pytorchjob = {"elastic": elastic, "nproc_per_node": st.sampled_from([2, "auto"])}
    section = st.fixed_dictionaries(
        {"kind": st.just(kind), "job": st.just("train")},
        optional={**OPERATOR, **(tfjob if kind == "TFJob" else pytorchjob)},
    )
    framework = "tensorflow" if kind == "TFJob" else "pytorch"
    return scenarios(framework, st.fixed_dictionaries({"operator": section}))


SCENARIOS = {
    "tfjob": scenarios("tensorflow") | jobs("TFJob"),
    "pytorchjob": scenarios("pytorch") | jobs("PyTorchJob"),
    "trainjob": jobs("TFJob"),
    "kubernetes": jobs("PyTorchJob"),
    "compose": jobs("TFJob"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OWN, "trainjob", "kubernetes", "compose"])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@for_all(data=st.data())
def test_scenarios_fit(name: str, data: st.DataObject) -> None:
    fits(name, data.draw(SCENARIOS[name]))
