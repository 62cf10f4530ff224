"""What Trainer makes of a bare `tune run`: the command, and what it refuses (pure).

Source: kubeflow/trainer v2.3.0, pkg/runtime/framework/plugins/torch/torchtune.go and torch.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from emulator.plugins.kubeflow.trainer.jobset import PORT
from emulator.plugins.kubeflow.trainer.policies import Nodes, gpus, torch_processes
from emulator.scenario.document import KeyPath

TUNE = ["tune", "run"]
"""The command to which Trainer adds the rest; one with more words stays as it is."""
SEVERAL_NODES = ("llama3_3/70B",)
"""Models that are trained on several nodes."""
WITHOUT_QLORA = ("qwen2_5/1.5B",)
ON_ONE_GPU = ("llama3_2/1B", "llama3_2/3B")
"""Models that QLoRA trains on one GPU alone."""
MODELS = (*ON_ONE_GPU, *SEVERAL_NODES, *WITHOUT_QLORA)
FIXED = (
    "output_dir",
    "tokenizer.path",
    "checkpointer.checkpoint_dir",
    "tokenizer.merges_file",
)
"""Settings that are taken from the runtime's command, and that a TrainJob may not have."""

Method = Literal["full", "lora", "qlora"]
Mistake = tuple[KeyPath, str, str]
"""Where in the spec of a TrainJob, what is wrong, and a hint."""


def model_of(runtime: str) -> str:
    """Return the model that the name of a runtime stands for; empty if it has not three parts."""
    parts = runtime.split("-")
    return f"{parts[1].replace('.', '_')}/{parts[2].upper()}" if len(parts) == 3 else ""


def command(
    runtime: str, nodes: Nodes, args: Sequence[str], of_runtime: Sequence[str]
) -> list[str]:
    """Return all of the command; `of_runtime` is that of the runtime's own container."""
    processes, devices = torch_processes(nodes), gpus(nodes.resources)
    several = processes if isinstance(processes, int) else devices
    endpoint = [f"--rdzv_endpoint={nodes.first}:{PORT}"]
    recipe, suffix = recipe_of(nodes.count, processes, devices, args)
    fixed = [word for word in of_runtime if _key(word) in FIXED]
    return [
        *TUNE,
        *(endpoint if nodes.count > 1 or several > 1 else ()),
        recipe,
        *("--config", model_of(runtime) + suffix),
        *fixed,
    ]


def recipe_of(
    count: int, processes: int | str, devices: int, args: Sequence[str]
) -> tuple[str, str]:
    """Return the recipe, and how the name of its configuration ends."""
    method = _method(args)
    name = "full_finetune" if method == "full" else "lora_finetune"
    if count > 1:
        return "full_finetune_distributed", "_full_multinode"
    if processes == 1 or devices == 1:
        return f"{name}_single_device", f"_{method}_single_device"
    return f"{name}_distributed", f"_{method}"


def mistakes(runtime: str, nodes: Nodes, args: Sequence[str]) -> Iterator[Mistake]:
    """Yield what Trainer refuses; the nodes and processes are those that the TrainJob gives.

    Unlike in the command, processes that are not given are never counted by CPUs.
    """
    model, method = model_of(runtime), _method(args)
    if model not in MODELS:
        message = f"{runtime} names no model that Trainer tunes"
        hint = "call it torchtune-FAMILY-SIZE, such as torchtune-llama3.2-1b"
        yield ("runtimeRef", "name"), message, hint
    at: KeyPath = ("trainer", "numNodes")
    if nodes.count > 1 and model not in SEVERAL_NODES:
        yield at, f"must be 1 for {model or runtime}", "torchtune trains it on one node"
    elif nodes.count > 1 and method != "full":
        yield at, "must be 1 with LoRA", "torchtune has no LoRA on several nodes"
    _, suffix = recipe_of(nodes.count, nodes.processes or "auto", gpus(nodes.resources), args)
    if suffix.startswith("_qlora") and model in WITHOUT_QLORA:
        yield ("runtimeRef", "name"), f"{model} can't be tuned with QLoRA", "use LoRA"
    elif suffix == "_qlora" and model in ON_ONE_GPU:
        message = f"QLoRA of {model} runs on one GPU"
        hint = "write numProcPerNode: 1, or one GPU in resourcesPerNode"
        yield ("trainer", "numProcPerNode"), message, hint
    for number, word in enumerate(args):
        if _key(word) in FIXED:
            hint = "leave it out; Trainer takes it from the command of the runtime"
            yield ("trainer", "args", number), f"{_key(word)} is set by the runtime", hint


def _method(args: Sequence[str]) -> Method:
    """Return how the weights are tuned; DoRA is LoRA, also of a quantized model."""
    if _is_on("model.quantize_base", args) and not _is_on("model.use_dora", args):
        return "qlora"
    return "lora" if any("model.lora_attn_modules" in word for word in args) else "full"


def _is_on(name: str, args: Sequence[str]) -> bool:
    pairs = [word.partition("=") for word in args]
    return any(name in key and value.strip().lower() == "true" for key, _, value in pairs)


def _key(word: str) -> str:
    return word.partition("=")[0]
