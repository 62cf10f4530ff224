"""Tensor parallelism with PyTorch: every layer is split over all tasks, on GPUs or CPUs.

Each block has two linear layers. The first is split by columns and the second by rows, so that a
task needs nothing of the others between them, and one all-reduce adds what the tasks have computed
(Shoeybi et al. 2019). What travels depends on the batch and the width, and not on the hidden size.
All tasks train on the same batch, exactly as one task would. They save together
(`torch.distributed.checkpoint`), each its own part, and resume from the last save.

Look at `weights_share`, the part of all weights that a task holds, and at `all_reduces`, counted in
one step: two in the forward pass of two blocks, and one in the backward pass. The first block needs
none there: nobody asks for the gradient of its input.
"""

import argparse
import gc
import os
from contextlib import nullcontext
from pathlib import Path

import digits
import events

events.phase("startup", "begin")  # includes the import of PyTorch, which takes seconds
import torch  # noqa: E402
from torch import Tensor, distributed, nn  # noqa: E402
from torch.distributed import checkpoint  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "."), "tensor_parallel")
LEARNING_RATE = 0.3
WIDTH = 64
HIDDEN = 256
REPORT_EVERY = 10


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train one model that is split over all tasks.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (200)")
    parser.add_argument("--batch", type=int, default=64, help="examples per step of all tasks (64)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saves (100)")
    return parser.parse_args()


class Block(nn.Module):
    """A hidden layer, split over the tasks, between two that all tasks have whole."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(inputs, HIDDEN), nn.Linear(HIDDEN, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations of all tasks together, of shape [images, outputs]."""
        return self.down(nn.functional.relu(self.up(x)))


def make(mesh: DeviceMesh) -> nn.Module:
    """Create the model, and split it over the mesh."""
    torch.manual_seed(SEED)  # all tasks make the same model, and keep their part of it
    model = nn.Sequential(Block(digits.PIXELS, WIDTH), Block(WIDTH, digits.CLASSES)).to(DEVICE)
    plan = {"*.up": ColwiseParallel(), "*.down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def weights_share(model: nn.Module) -> float:
    """Return the part of all weights that this task holds."""
    weights = list(model.parameters())
    held = [w.to_local() if isinstance(w, DTensor) else w for w in weights]
    return sum(w.numel() for w in held) / sum(w.numel() for w in weights)


def restore(model: nn.Module) -> int:
    """Load this task's part of the last save and return its step; 0: there is none."""
    # The metadata is written last: without it, not all tasks have finished.
    saved = [int(path.parent.name) for path in CHECKPOINTS.glob("*/.metadata")]
    if not saved:
        return 0
    events.phase("restore", "begin")
    # Into the tensors that are there.
    checkpoint.load({"model": model.state_dict()}, checkpoint_id=CHECKPOINTS / str(max(saved)))
    events.phase("restore", "end", step=max(saved))
    return max(saved)


def train(options: argparse.Namespace) -> None:
    """Resume, train, report and save, in step with the other tasks."""
    with events.during("data"):
        data = (torch.from_numpy(array).to(DEVICE) for array in digits.load(SEED))
        train_x, train_y, test_x, test_y = data
    model = make(init_device_mesh(DEVICE, (distributed.get_world_size(),)))
    done = restore(model)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    batches = digits.batches(train_x, train_y, options.batch, seed=SEED, skip=done)
    all_reduces = 0

    for step in range(done + 1, options.steps + 1):
        x, y = next(batches)  # the same in all tasks
        optimizer.zero_grad()
        counting = CommDebugMode() if step == done + 1 else nullcontext()  # it is slow
        with counting:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
        if isinstance(counting, CommDebugMode):
            all_reduces = counting.get_total_counts()
        optimizer.step()
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch, loss=loss.item())
        if step % options.save_every == 0:
            with events.during("checkpoint", step=step):
                checkpoint.save(
                    {"model": model.state_dict()}, checkpoint_id=CHECKPOINTS / str(step)
                )

    with events.during("eval"), torch.no_grad():
        accuracy = (model(test_x).argmax(dim=1) == test_y).float().mean().item()
    events.step(
        options.steps,
        examples=options.steps * options.batch,
        loss=loss.item(),
        accuracy=accuracy,
        weights_share=weights_share(model),
        all_reduces=all_reduces,
    )


def main() -> None:
    """Join the process group, train, leave the group."""
    options = arguments()
    torch.set_num_threads(1)  # the tasks share the machine's cores
    # Reads the environment, waits for all ranks.
    distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    events.phase("startup", "end")
    train(options)
    gc.collect()  # see ddp.py
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
