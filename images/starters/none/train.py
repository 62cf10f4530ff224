"""Learn y = 3x + 2: a minimal training program that needs nothing but Python.

Every worker trains a model of its own, with random numbers of its own, and saves it on the shared
volume; after a restart it resumes from there. EMULATOR_CLUSTER has the addresses of all tasks, for
programs that talk to each other. Without `emulate` the program trains in the current folder.
"""

import argparse
import json
import os
import random
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--save-every", type=int, default=50)
parser.add_argument("--seconds", type=float, default=0.02, help="of a step")
arguments = parser.parse_args()

worker = int(os.environ.get("EMULATOR_INDEX", "0"))
saved = Path(os.environ.get("EMULATOR_SHARED", "."), f"saved-{worker}.json")
slope, offset, done = json.loads(saved.read_text()) if saved.exists() else (0.0, 0.0, 0)
random.seed(100 + worker)


def save(step: int) -> None:
    """Write the file atomically: if the task is killed meanwhile, the old file remains."""
    new = saved.with_suffix(".new")
    new.write_text(json.dumps([slope, offset, step]))
    new.replace(saved)


for step in range(done + 1, arguments.steps + 1):
    batch = [random.uniform(-1, 1) for _ in range(32)]
    errors = [slope * x + offset - (3 * x + 2) for x in batch]
    slope -= 0.4 * sum(error * x for error, x in zip(errors, batch, strict=True)) / len(batch)
    offset -= 0.4 * sum(errors) / len(batch)
    time.sleep(arguments.seconds)  # stands for the work of a larger model
    if step % 10 == 0 or step == arguments.steps:
        loss = sum(error**2 for error in errors) / len(batch)
        # The emulator reads the progress of the training from such lines.
        print(json.dumps({"emulate": "step", "step": step, "loss": loss}), flush=True)
    if step % arguments.save_every == 0:
        save(step)

print(f"learned y = {slope:.2f} x + {offset:.2f}")
