"""Learn y = 3x + 2 on all workers together: a minimal distributed training program.

torchrun and `emulate` set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, which
`init_process_group` reads; without them the program trains alone. DistributedDataParallel averages
the workers' gradients in every step, so all workers always have the same weights. Rank 0 saves
them on the shared volume; after a restart, all workers resume from there.
"""

import argparse
import json
import os
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--save-every", type=int, default=50)
arguments = parser.parse_args()

saved = Path(os.environ.get("EMULATOR_SHARED", "."), "saved.pt")
line, done, rank = nn.Linear(1, 1), 0, 0
if saved.exists():
    state = torch.load(saved)
    line.load_state_dict(state["line"])
    done = state["step"]

model: nn.Module = line
if "RANK" in os.environ:
    # Waits for all workers. A lost one ends the others' next step, at the latest after 90 s.
    distributed.init_process_group("gloo", timeout=timedelta(seconds=90))
    rank = distributed.get_rank()
    model = DistributedDataParallel(line)  # all begin with the weights of rank 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
torch.manual_seed(100 + rank)  # every worker uses different random numbers


def save(step: int) -> None:
    """Write the file atomically: if the task is killed meanwhile, the old file remains."""
    new = saved.with_suffix(".new")
    torch.save({"line": line.state_dict(), "step": step}, new)
    new.replace(saved)


for step in range(done + 1, arguments.steps + 1):
    x = torch.rand(32, 1) * 2 - 1
    loss = nn.functional.mse_loss(model(x), 3 * x + 2)
    optimizer.zero_grad()
    loss.backward()  # includes the all-reduce
    optimizer.step()
    if step % 10 == 0 or step == arguments.steps:
        # The emulator reads the progress of the training from such lines.
        print(json.dumps({"emulate": "step", "step": step, "loss": loss.item()}), flush=True)
    if step % arguments.save_every == 0 and rank == 0:
        save(step)

print(f"learned y = {line.weight.item():.2f} x + {line.bias.item():.2f}", flush=True)
if distributed.is_initialized():
    distributed.destroy_process_group()
