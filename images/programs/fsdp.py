"""Sharded training with PyTorch: FSDP2 (`fully_shard`) over gloo on CPUs, nccl on GPUs.

Each rank keeps its part of every parameter and of the optimizer's state. A layer's parameters are
gathered for its forward and its backward pass and freed again; its gradients are reduced and
scattered. Every step reports `share`, the part of all parameters that this rank stores, and
`optimizer_share`, the same of Adam's moments: both are 1 / ranks.

Each rank saves its own part to the shared folder (torch.distributed.checkpoint). A save is
complete once it has metadata, and another number of ranks can load it. Losing a rank fails all.
"""

import argparse
import os
import time
from datetime import timedelta
from pathlib import Path

import digits
import events

events.phase("startup", "begin")  # includes the import of PyTorch, which takes seconds
import torch  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.distributed import checkpoint  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "."), "fsdp")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LEARNING_RATE = 0.001
HIDDEN = 256
REPORT_EVERY = 10
PATIENCE = timedelta(seconds=90)  # of one collective, see ddp.py


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train with parameters spread over all ranks.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (200)")
    parser.add_argument("--batch", type=int, default=64, help="examples per rank and step (64)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saves (50)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    return parser.parse_args()


def sharded_model() -> nn.Module:
    """Make a perceptron of three layers, each gathered on its own."""
    torch.manual_seed(SEED)
    model = nn.Sequential(
        nn.Linear(digits.PIXELS, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, digits.CLASSES),
    ).to(DEVICE)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return model


def share(tensors: list[torch.Tensor]) -> float:
    """Return the part of the tensors' elements that this rank stores, 0 to 1."""
    here = sum((t.to_local() if isinstance(t, DTensor) else t).numel() for t in tensors)
    return here / sum(t.numel() for t in tensors)


def shares(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Return what this rank stores of the parameters, and of Adam's moments of them."""
    moments = [s[key] for s in optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
    return {"share": share(list(model.parameters())), "optimizer_share": share(moments)}


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, examples: int) -> None:
    """Save this rank's part, together with the other ranks; the metadata are written last."""
    with events.during("checkpoint", step=step):
        parts, moments = get_state_dict(model, optimizer)
        state = {"model": parts, "optimizer": moments, "examples": examples}
        checkpoint.save(state, checkpoint_id=CHECKPOINTS / str(step))


def restore(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """Load the last complete save; return its step and the examples until then, or 0, 0."""
    complete = [int(metadata.parent.name) for metadata in CHECKPOINTS.glob("*/.metadata")]
    if not complete:
        return 0, 0
    step = max(complete)
    events.phase("restore", "begin")
    parts, moments = get_state_dict(model, optimizer)
    state = {"model": parts, "optimizer": moments, "examples": 0}
    checkpoint.load(state, checkpoint_id=CHECKPOINTS / str(step))  # fills the tensors of `state`
    set_state_dict(model, optimizer, model_state_dict=parts, optim_state_dict=moments)
    events.phase("restore", "end", step=step)
    return step, state["examples"]


def train(options: argparse.Namespace) -> None:
    """Resume, train, then report the accuracy, in step with the other ranks."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)

    model = sharded_model()
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    first, examples = restore(model, optimizer)
    distributed.barrier()  # all have chosen the save before there is another
    batches = digits.batches(
        train_x, train_y, options.batch, seed=SEED, worker=rank, workers=ranks, skip=first
    )

    loss = torch.zeros(())
    for step in range(first + 1, options.steps + 1):
        time.sleep(options.step_cost)
        x, y = (torch.from_numpy(part).to(DEVICE) for part in next(batches))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)  # includes the all-gathers
        loss.backward()  # includes all-gathers and the reduce-scatters
        optimizer.step()  # of this rank's part
        examples += options.batch * ranks
        if step % REPORT_EVERY == 0 and step < options.steps:
            stored = shares(model, optimizer)
            events.step(step, examples=examples, loss=loss.item(), ranks=ranks, **stored)
        if step % options.save_every == 0:
            save(model, optimizer, step, examples)

    with events.during("eval"), torch.no_grad():
        guesses = model(torch.from_numpy(test_x).to(DEVICE)).argmax(dim=1).cpu()
        accuracy = float((guesses == torch.from_numpy(test_y)).float().mean())
    stored = shares(model, optimizer)
    events.step(
        options.steps, examples=examples, accuracy=accuracy, ranks=ranks, loss=loss.item(), **stored
    )


def main() -> None:
    """Join the process group, train, leave the group."""
    options = arguments()
    torch.set_num_threads(1)  # the tasks share the machine's cores
    backend = "cpu:gloo,cuda:nccl" if DEVICE.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=PATIENCE)
    events.phase("startup", "end")
    train(options)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
