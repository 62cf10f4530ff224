"""Synchronous training with PyTorch: DistributedDataParallel over gloo, on CPUs.

Shows the rendezvous by environment variables: MASTER_ADDR and MASTER_PORT are the address of rank
0, RANK and WORLD_SIZE identify this task. Every backward pass waits for all ranks: losing one ends
the job. Nothing is saved.
"""

import argparse
import gc
import os
from datetime import timedelta

import digits
import events

events.phase("startup", "begin")  # includes the import of PyTorch, which takes seconds
import torch  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
LEARNING_RATE = 0.3
HIDDEN = 64
REPORT_EVERY = 10
# Seconds of one collective. The loss of a rank mostly shows at once, but gloo (PyTorch 2.13) can
# miss it while it sends: then this ends the wait, which would else be half an hour.
PATIENCE = 90


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train on all ranks in step; save nothing.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (200)")
    parser.add_argument("--batch", type=int, default=64, help="examples per rank and step (64)")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds to wait for other ranks (90)"
    )
    return parser.parse_args()


def train(options: argparse.Namespace) -> None:
    """Train, then report the accuracy, in step with the other ranks."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)
        batches = digits.batches(
            train_x, train_y, options.batch, seed=SEED, worker=rank, workers=ranks
        )

    torch.manual_seed(SEED)
    model = nn.Sequential(
        nn.Linear(digits.PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, digits.CLASSES)
    )
    parallel = DistributedDataParallel(model)  # broadcasts rank 0's weights
    optimizer = torch.optim.SGD(parallel.parameters(), LEARNING_RATE)

    for step in range(1, options.steps + 1):
        x, y = map(torch.from_numpy, next(batches))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(x), y)
        loss.backward()  # includes the all-reduce
        optimizer.step()
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch * ranks, loss=loss.item())

    with events.during("eval"), torch.no_grad():
        guesses = model(torch.from_numpy(test_x)).argmax(dim=1)
        accuracy = float((guesses == torch.from_numpy(test_y)).float().mean())
    examples = options.steps * options.batch * ranks
    events.step(options.steps, examples=examples, loss=loss.item(), accuracy=accuracy)


def main() -> None:
    """Join the process group, train, leave the group."""
    options = arguments()
    torch.set_num_threads(1)  # the tasks share the machine's cores
    # Reads the environment, waits for all ranks.
    distributed.init_process_group("gloo", timeout=timedelta(seconds=options.patience))
    events.phase("startup", "end")
    train(options)
    # DistributedDataParallel is part of reference cycles and refers to the process group. If it is
    # not collected first, the group outlives its destruction, and one exit in ten aborts (gloo,
    # PyTorch 2.13). The barrier keeps a rank from leaving while others still communicate with it.
    gc.collect()
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
