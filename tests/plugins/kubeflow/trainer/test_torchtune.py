"""TrainJobs of torchtune: its runtimes, the command of a bare `tune run`, and what is refused.

The expected commands follow the rules of kubeflow/trainer 2.3.0, written out by hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from emulator.planning.planner import make_plan
from emulator.plugins.kubeflow.trainer.torchtune import model_of
from emulator.plugins.kubeflow.trainer.trainjob import built_in
from emulator.scenario.assembly import as_text
from emulator.scenario.loader import parse
from tests.plugins.kubeflow.trainer.test_trainer import (
    converted,
    job_of,
    patch,
    planned,
    refused,
    runtime,
    train_job,
    variables,
    without_ours,
)
from tests.scenario.plans import NAMED

LLAMA, SMALL, QWEN = "torchtune-llama3.2-3b", "torchtune-llama3.2-1b", "torchtune-qwen2.5-1.5b"
LARGE = "torchtune-llama3.3-70b"
LORA, QLORA = "model.lora_attn_modules=['q_proj']", "model.quantize_base=True"
DORA = "model.use_dora=true"
AT_FIRST = "--rdzv_endpoint=mnist-node-0-0.mnist:29500"
FULL = "full_finetune_distributed"
ONE_GPU = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}}
NO_GPU = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 0}}}
FIXED = [
    "output_dir=/workspace/output",
    "tokenizer.path=/workspace/model/original/tokenizer.model",
    "checkpointer.checkpoint_dir=/workspace/model",
]


def tune(name: str, *args: str, **trainer: Any) -> dict[str, Any]:
    return train_job(name, trainer={"command": ["tune", "run"], "args": [*args], **trainer})


def large(*jobs: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """Return the runtime of a model that may be on several nodes."""
    own = runtime(*(jobs or (job_of(),)), torch={}, **policy)
    own["metadata"]["name"] = LARGE
    return own


def command_of(*documents: dict[str, Any]) -> list[str]:
    """Return the command of the first node, with its name instead of the value for it."""
    scenario = converted(*documents).scenario
    node = scenario["cluster"]["node"]
    words = {**scenario["program"], **(node if isinstance(node, dict) else {})}["command"]
    return [word.replace("${address.node-0}", "mnist-node-0-0.mnist:29500") for word in words]


# --- The command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trainer", "args", "known"),
    [
        # The runtime asks for two GPUs.
        ({}, [], [AT_FIRST, FULL, "--config", "llama3_2/3B_full"]),
        (
            {},
            [LORA],
            [AT_FIRST, "lora_finetune_distributed", "--config", "llama3_2/3B_lora"],
        ),
        (
            {},
            [LORA, QLORA, DORA],
            [AT_FIRST, "lora_finetune_distributed", "--config", "llama3_2/3B_lora"],
        ),
        (
            ONE_GPU,
            [],
            ["full_finetune_single_device", "--config", "llama3_2/3B_full_single_device"],
        ),
        (
            ONE_GPU,
            [LORA, "model.quantize_base=False"],
            ["lora_finetune_single_device", "--config", "llama3_2/3B_lora_single_device"],
        ),
        (
            ONE_GPU,
            [LORA, QLORA, "model.use_dora=False"],
            ["lora_finetune_single_device", "--config", "llama3_2/3B_qlora_single_device"],
        ),
        # Only quantize_base decides: DoRA of no attention module is no LoRA.
        (
            ONE_GPU,
            [QLORA, DORA],
            ["full_finetune_single_device", "--config", "llama3_2/3B_full_single_device"],
        ),
        (
            {"numProcPerNode": 1},
            [QLORA],
            ["lora_finetune_single_device", "--config", "llama3_2/3B_qlora_single_device"],
        ),
        # One GPU means one device, and several processes mean a rendezvous.
        (
            {**ONE_GPU, "numProcPerNode": 4},
            [],
            [AT_FIRST, "full_finetune_single_device", "--config", "llama3_2/3B_full_single_device"],
        ),
        # Without GPUs the processes are those of the CPUs.
        (
            NO_GPU,
            [],
            ["full_finetune_single_device", "--config", "llama3_2/3B_full_single_device"],
        ),
        (
            {"resourcesPerNode": {"limits": {"cpu": 3}}},
            [],
            [AT_FIRST, FULL, "--config", "llama3_2/3B_full"],
        ),
    ],
)
def test_a_bare_tune_run_gets_a_recipe_and_a_configuration(
    trainer: dict[str, Any], args: list[str], known: list[str]
) -> None:
    assert command_of(tune(LLAMA, *args, **trainer)) == ["tune", "run", *known, *FIXED, *args]


def test_several_nodes_have_a_configuration_of_their_own() -> None:
    known = ["tune", "run", AT_FIRST, FULL, "--config", "llama3_3/70B_full_multinode"]
    assert command_of(large(), tune(LARGE, numNodes=2)) == known
    assert command_of(large(numNodes=2), tune(LARGE)) == known
    # A number of the runtime is not validated: LoRA is dropped in silence.
    assert command_of(large(numNodes=2), tune(LARGE, LORA)) == [*known, LORA]


def test_only_the_settings_of_the_container_node_that_are_fixed_are_taken() -> None:
    node, other = job_of(), job_of("other", "")
    for one, words in (
        (node, ["output_dir=/a", "epochs=2", "output_dir"]),
        (other, ["output_dir=/b"]),
    ):
        (container,) = one["template"]["spec"]["template"]["spec"]["containers"]
        container["command"] = words
    made = command_of(large(node, other), tune(LARGE, numProcPerNode=1))
    assert made[4:] == ["llama3_3/70B_full_single_device", "output_dir=/a", "output_dir"]


def test_a_longer_command_and_that_of_another_policy_stay() -> None:
    job = train_job(SMALL, trainer={"command": ["tune", "run", "own.py"]})
    assert command_of(job) == ["tune", "run", "own.py"]
    jax = runtime(job_of(), jax={})
    assert command_of(jax, tune("own", "a=b")) == ["tune", "run", "a=b"]


def test_torchtune_gets_no_address_in_variables() -> None:
    text = as_text(converted(tune(SMALL)).scenario).replace("gpus: 2", "gpus: 0")
    assert variables(make_plan(parse(text), "x-1", NAMED), "node-0") == {
        "PET_NNODES": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_NODE_RANK": "0",
        "JOB_COMPLETION_INDEX": "0",
    }
    job = train_job(SMALL, trainer={})
    assert "PET_MASTER_ADDR" in converted(job).scenario["cluster"]["node"]["env"]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        (QWEN, "qwen2_5/1.5B"),
        ("a-llama3.2-1b", "llama3_2/1B"),
        ("torchtune-llama3.2", ""),
        ("torchtune-llama3.2-1b-own", ""),
    ],
)
def test_a_model_is_named_by_its_runtime(name: str, model: str) -> None:
    assert model_of(name) == model


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (tune("torch-distributed"), "spec.runtimeRef.name: torch-distributed names no model"),
        (tune(SMALL, numNodes=2), "spec.trainer.numNodes: must be 1 for llama3_2/1B"),
        (tune(SMALL, LORA, numNodes=2), "spec.trainer.numNodes: must be 1 for llama3_2/1B"),
        (tune(LARGE, LORA, numNodes=2), "spec.trainer.numNodes: must be 1 with LoRA"),
        (tune(QWEN, QLORA, **ONE_GPU), "runtimeRef.name: qwen2_5/1.5B can't be tuned with QLoRA"),
        (tune(SMALL, QLORA), "spec.trainer.numProcPerNode: QLoRA of llama3_2/1B runs on one GPU"),
        # The command would be that of one device, but the check doesn't count CPUs.
        (tune(SMALL, QLORA, **NO_GPU), "QLoRA of llama3_2/1B runs on one GPU"),
        (tune(SMALL, "epochs=1", "output_dir=/o"), "args[1]: output_dir is set by the runtime"),
        (tune(SMALL, "tokenizer.path"), "args[0]: tokenizer.path is set by the runtime"),
    ],
)
def test_what_trainer_refuses_of_tune_run_is_refused(job: dict[str, Any], problem: str) -> None:
    (found,) = refused(large(), job)
    assert problem in found


# --- The runtimes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model"),
    [
        (SMALL, "meta-llama/Llama-3.2-1B-Instruct"),
        (LLAMA, "meta-llama/Llama-3.2-3B-Instruct"),
        (QWEN, "Qwen/Qwen2.5-1.5B-Instruct"),
    ],
)
def test_the_runtimes_of_torchtune_are_built_in(name: str, model: str) -> None:
    scenario = converted(train_job(name, trainer={})).scenario
    roles = scenario["cluster"]
    assert {key: one.get("before") for key, one in roles.items()} == {
        "dataset-initializer": "training",
        "model-initializer": "training",
        "node": None,
    }
    assert roles["model-initializer"]["env"] == {"STORAGE_URI": f"hf://{model}"}
    assert roles["node"]["gpus"] == 2
    words = roles["node"]["command"]
    assert words[:4] == ["tune", "run", "--rdzv_endpoint=localhost:29500", FULL]
    assert words[5] == f"{model_of(name)}_full"
    assert name in built_in()


def test_initializers_and_nodes_share_the_claim_of_their_job() -> None:
    made = converted(train_job(SMALL, trainer={})).scenario
    assert made["mounts"] == {"/workspace": {"volume": "pvc-default-initializer-mnist"}}
    assert not any("mounts" in one for one in made["cluster"].values())


# --- Variables of more containers -----------------------------------------------------------------


def with_more(**policy: Any) -> dict[str, Any]:
    """Return a runtime whose pods have a side-car and init containers."""
    node = job_of()
    pod = node["template"]["spec"]["template"]["spec"]
    pod["containers"].append({"name": "logs", "image": "i"})
    pod["initContainers"] = [{"name": "check", "image": "i"}, {"name": "copy", "image": "i"}]
    return runtime(node, job_of("other", "", parallelism=1), torch=policy)


def injected(*targets: tuple[str, list[str]]) -> dict[str, Any]:
    return with_more(
        envInjection={"targets": [{"jobName": job, "containerNames": of} for job, of in targets]}
    )


PET = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "1",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "mnist-node-0-0.mnist",
    "PET_MASTER_PORT": "29500",
    "JOB_COMPLETION_INDEX": "1",
}


def test_containers_that_the_runtime_names_get_the_variables_too() -> None:
    own = injected(("node", ["logs", "check"]), ("other", ["other"]))
    made = planned(own, train_job("own"))
    task = made.task("node-1")
    check, copy = task.init
    assert (without_ours(check.env), without_ours(copy.env)) == (PET, {"JOB_COMPLETION_INDEX": "1"})
    other = {**PET, "PET_NODE_RANK": "0", "JOB_COMPLETION_INDEX": "0"}
    assert variables(made, "other-0") == other


def test_they_have_them_beside_tune_run_without_a_trainer_and_over_a_patch() -> None:
    own = injected(("node", ["check"]))
    own["metadata"]["name"] = LARGE
    task = planned(own, tune(LARGE, numNodes=2)).task("node-0")
    assert "PET_MASTER_ADDR" not in task.env
    assert task.init[0].env["PET_MASTER_ADDR"] == "mnist-node-0-0.mnist"
    check = [{"name": "check", "env": [{"name": "PET_NNODES", "value": "7"}]}]
    job = train_job(LARGE, **patch({"initContainers": check}))
    del job["spec"]["trainer"]
    task = planned(own, job).task("node-0")
    assert "PET_NNODES" not in task.env
    assert task.init[0].env["PET_NNODES"] == "1"


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (("node", ["log"]), "targets[0].containerNames[0]: the runtime has no container log in"),
        (("nod", ["logs"]), "the runtime has no container logs in a job nod"),
        (("node", ["logs", "node"]), "containerNames[1]: node has the variables anyway"),
    ],
)
def test_a_container_that_can_not_be_named_is_a_mistake(
    target: tuple[str, list[str]], problem: str
) -> None:
    (found,) = refused(injected(target), train_job("own"))
    assert problem in found
