"""DistributedDataParallel under torchrun that saves when it is told, with DataLoader processes.

A handler of SIGTERM sets a flag, the ranks agree on it after each step, rank 0 saves, and all leave
with exit code 143. torchrun passes SIGTERM on to its ranks, and to the whole process group of each:
also to the processes of its DataLoader, which die of it, and the rank then fails in its next batch,
before it has saved. With `--loader ignores` these processes ignore SIGTERM.
"""

import argparse
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import digits
import events

events.phase("startup", "begin")  # includes the import of PyTorch, which takes seconds
import torch  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINT = Path(os.environ.get("EMULATOR_SHARED", "."), "elastic_grace.pt")
LEARNING_RATE = 0.3
HIDDEN = 64
PATIENCE = 90  # seconds of one collective, see ddp.py
PREEMPTED = 143  # the exit code of what SIGTERM has ended

told: list[int] = []
"""The signals that say that the machine will be taken away."""


def arguments() -> argparse.Namespace:
    """Read the command line; the variable LOADER is the default of --loader."""
    parser = argparse.ArgumentParser(description="Train on all ranks; save at a preemption.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (200)")
    parser.add_argument("--batch", type=int, default=32, help="examples per rank and step (32)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saves (50)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    ways = ["default", "ignores"]
    parser.add_argument("--loader", choices=ways, default=os.environ.get("LOADER", "default"))
    return parser.parse_args()


def restore(model: nn.Module) -> int:
    """Load the last save and return its step; 0 if there is none."""
    if not CHECKPOINT.exists():
        return 0
    events.phase("restore", "begin")
    saved = torch.load(CHECKPOINT, weights_only=True)
    model.load_state_dict(saved["model"])
    events.phase("restore", "end", step=saved["step"])
    return int(saved["step"])


def save(model: nn.Module, step: int) -> None:
    """Save in one step: a program that is killed leaves the last save whole."""
    unfinished = CHECKPOINT.with_suffix(".unfinished")
    with events.during("checkpoint", step=step):
        torch.save({"model": model.state_dict(), "step": step}, unfinished)
        unfinished.replace(CHECKPOINT)


def ignore_sigterm(number: int) -> None:
    """Let a process of the DataLoader live until its rank ends it, by other means."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main() -> None:
    """Train from the last save on; save and leave when the machine will be taken away."""
    options = arguments()
    torch.set_num_threads(1)  # the tasks share the machine's cores
    distributed.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = map(torch.from_numpy, digits.load(SEED))
        training = TensorDataset(train_x, train_y)
        sampler = DistributedSampler(training, seed=SEED, drop_last=True)
        loader = DataLoader(
            training,
            options.batch,
            sampler=sampler,
            drop_last=True,
            num_workers=2,
            persistent_workers=True,
            worker_init_fn=ignore_sigterm if options.loader == "ignores" else None,
        )
    torch.manual_seed(SEED)
    model = nn.Sequential(
        nn.Linear(digits.PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, digits.CLASSES)
    )
    step = restore(model)
    distributed.barrier()  # all have read the save before rank 0 writes the next
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), LEARNING_RATE)
    while step < options.steps:
        sampler.set_epoch(step)  # the epoch that begins; after a resume another one
        for x, y in loader:
            time.sleep(options.step_cost)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(x), y)
            loss.backward()  # includes the all-reduce
            optimizer.step()
            step += 1
            leaves = torch.tensor(float(bool(told)))
            distributed.all_reduce(leaves, distributed.ReduceOp.MAX)
            if rank == 0:
                events.step(step, examples=step * options.batch * ranks, loss=loss.item())
                if leaves or step % options.save_every == 0:
                    save(model, step)
            if leaves:
                distributed.barrier()  # it is saved
                sys.exit(PREEMPTED)
            if step == options.steps:
                break

    with events.during("eval"), torch.no_grad():
        accuracy = float((model(test_x).argmax(dim=1) == test_y).float().mean())
    if rank == 0:
        events.step(step, examples=step * options.batch * ranks, accuracy=accuracy)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
