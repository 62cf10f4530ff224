"""Elastic training with PyTorch under torchrun: DistributedDataParallel over gloo, on CPUs.

torchrun starts this program on every task, and gives it RANK, WORLD_SIZE and the address of rank 0.
When a task is lost, the others fail in their next all-reduce, and torchrun starts them again with
the tasks that are left; when it is back, with all. Rank 0 saves to the shared folder, and every
start resumes from there: what was trained since the last save is trained again.

Each step reports `ranks`, and `alone`, how many steps of the job one rank has trained by itself.
"""

import argparse
import gc
import os
import time
from datetime import timedelta
from pathlib import Path

import digits
import events

events.phase("startup", "begin")  # includes the import of PyTorch, which takes seconds
import torch  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINT = Path(os.environ.get("EMULATOR_SHARED", ".")) / "elastic.pt"
LEARNING_RATE = 0.3
HIDDEN = 64
REPORT_EVERY = 10
PATIENCE = 90  # seconds of one collective, see ddp.py


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train with the tasks that are there.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (200)")
    parser.add_argument("--batch", type=int, default=64, help="examples per rank and step (64)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saves (100)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds to wait for other ranks (90)"
    )
    return parser.parse_args()


def restore(model: nn.Module) -> tuple[int, int, int]:
    """Load the last save and return its step, examples and steps alone; zeros if there is none."""
    if not CHECKPOINT.exists():
        return 0, 0, 0
    events.phase("restore", "begin")
    saved = torch.load(CHECKPOINT, weights_only=True)
    model.load_state_dict(saved["model"])
    events.phase("restore", "end", step=saved["step"])
    return saved["step"], saved["examples"], saved["alone"]


def save(model: nn.Module, step: int, examples: int, alone: int) -> None:
    """Save in one step: a program that is killed leaves the last save whole."""
    unfinished = CHECKPOINT.with_suffix(".unfinished")
    counts = {"step": step, "examples": examples, "alone": alone}
    with events.during("checkpoint", step=step):
        torch.save({"model": model.state_dict(), **counts}, unfinished)
        unfinished.replace(CHECKPOINT)


def train(options: argparse.Namespace) -> None:
    """Resume, train, then report the accuracy, in step with the other ranks."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)

    torch.manual_seed(SEED)
    model = nn.Sequential(
        nn.Linear(digits.PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, digits.CLASSES)
    )
    first, examples, alone = restore(model)
    distributed.barrier()  # all have read the save before rank 0 writes the next
    parallel = DistributedDataParallel(model)  # broadcasts rank 0's weights
    optimizer = torch.optim.SGD(parallel.parameters(), LEARNING_RATE)
    batches = digits.batches(
        train_x, train_y, options.batch, seed=SEED, worker=rank, workers=ranks, skip=first
    )

    loss = torch.zeros(())
    counts = {"examples": examples, "ranks": ranks, "alone": alone}
    for step in range(first + 1, options.steps + 1):
        time.sleep(options.step_cost)
        x, y = map(torch.from_numpy, next(batches))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(x), y)
        loss.backward()  # includes the all-reduce
        optimizer.step()
        examples += options.batch * ranks
        alone += ranks == 1
        counts = {"examples": examples, "ranks": ranks, "alone": alone}
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, loss=loss.item(), **counts)
        if rank == 0 and step % options.save_every == 0:
            save(model, step, examples, alone)

    with events.during("eval"), torch.no_grad():
        guesses = model(torch.from_numpy(test_x)).argmax(dim=1)
        accuracy = float((guesses == torch.from_numpy(test_y)).float().mean())
    events.step(options.steps, loss=loss.item(), accuracy=accuracy, **counts)


def main() -> None:
    """Join the process group, train, leave the group."""
    options = arguments()
    torch.set_num_threads(1)  # the tasks share the machine's cores
    # Reads the environment, waits for all ranks.
    distributed.init_process_group("gloo", timeout=timedelta(seconds=options.patience))
    events.phase("startup", "end")
    train(options)
    gc.collect()  # see ddp.py
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
