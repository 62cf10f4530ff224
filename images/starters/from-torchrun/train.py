"""DistributedDataParallel under torchrun that saves when it is told, with a DataLoader's processes.

The usual way: a handler of SIGTERM sets a flag, the ranks agree on it after each step, rank 0
saves, and all leave. torchrun passes SIGTERM on to its ranks. A platform that signals every process
of the machine also ends the processes of the DataLoader, which know no handler: the ranks then fail
in the next batch, before they have saved. With `--loader ignores` these processes ignore SIGTERM.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAVED = Path(os.environ.get("EMULATOR_SHARED", "."), "saved.pt")
PREEMPTED = 143  # the exit code of what SIGTERM has ended

is_told = False


def told(number: int, frame: FrameType | None) -> None:
    """Note that the machine will be taken away."""
    global is_told
    is_told = True


def arguments() -> argparse.Namespace:
    """Read the command line; the variable LOADER is the default of --loader."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="steps to train (300)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saves (50)")
    parser.add_argument("--step-cost", type=float, default=0.1, help="more seconds of a step (0.1)")
    parser.add_argument(
        "--loader", choices=["default", "ignores"], default=os.environ.get("LOADER", "default")
    )
    return parser.parse_args()


def say(**event: object) -> None:
    """Print what the emulator reads: a line of JSON."""
    print(json.dumps(event), flush=True)


def save(model: nn.Module, step: int) -> None:
    """Save whole or not at all: if it is killed meanwhile, the old file remains."""
    say(emulate="phase", phase="checkpoint", state="begin", step=step)
    new = SAVED.with_suffix(".new")
    torch.save({"model": model.state_dict(), "step": step}, new)
    new.replace(SAVED)
    say(emulate="phase", phase="checkpoint", state="end", step=step)


def restore(model: nn.Module) -> int:
    """Load the last save and return its step."""
    if not SAVED.exists():
        return 0
    saved = torch.load(SAVED, weights_only=True)
    model.load_state_dict(saved["model"])
    return int(saved["step"])


def ignore_signals(number: int) -> None:
    """Ignore SIGTERM in a process of the DataLoader; the rank ends it by other means."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def batches(ignores: bool) -> DataLoader:
    """Return the data of this rank, which two processes load."""
    x = torch.rand(4096, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    data = TensorDataset(x, 3 * x + 2)
    return DataLoader(
        data,
        batch_size=32,
        sampler=DistributedSampler(data),
        num_workers=2,
        persistent_workers=True,
        worker_init_fn=ignore_signals if ignores else None,
    )


def main() -> None:
    """Train from the last save on; save and leave where the machine will be taken away."""
    options = arguments()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    signal.signal(signal.SIGTERM, told)
    model = nn.Linear(1, 1)
    step = restore(model)
    if step and rank == 0:
        say(emulate="phase", phase="restore", state="end", step=step)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), 0.1)
    loader = batches(options.loader == "ignores")
    while step < options.steps:
        for x, y in loader:
            time.sleep(options.step_cost)  # as a larger model would compute
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(parallel(x), y)
            loss.backward()  # includes the all-reduce
            optimizer.step()
            step += 1
            leaving = torch.tensor(float(is_told))
            distributed.all_reduce(leaving, distributed.ReduceOp.MAX)
            if rank == 0:
                say(emulate="step", step=step, loss=loss.item())
                if leaving or step % options.save_every == 0:
                    save(model, step)
            if leaving:
                distributed.barrier()  # it is saved
                sys.exit(PREEMPTED)
            if step == options.steps:
                break
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
