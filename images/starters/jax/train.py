"""Learn y = 3x + 2 on all workers together: a minimal distributed training program.

`emulate` sets the variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID, which
`jax.distributed.initialize` reads; without them the program trains alone. The batch is split over
the devices of all workers, and the compiler adds the all-reduce of the gradients. Process 0 saves
the weights on the shared volume; after a restart, all workers resume from there.
"""

import argparse
import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--save-every", type=int, default=50)
arguments = parser.parse_args()

saved = Path(os.environ.get("EMULATOR_SHARED", "."), "saved.json")
slope, offset, done = json.loads(saved.read_text()) if saved.exists() else (0.0, 0.0, 0)

if "JAX_COORDINATOR_ADDRESS" in os.environ:
    jax.distributed.initialize()  # waits for all workers
process = jax.process_index()
devices = jax.make_mesh((jax.device_count(),), ("batch",))
split = NamedSharding(devices, PartitionSpec("batch"))
same = NamedSharding(devices, PartitionSpec())
# Every worker uses different random numbers.
random = np.random.default_rng(100 + process)


def mean_loss(weights: jax.Array, x: jax.Array) -> jax.Array:
    """Return the mean squared error over the whole batch."""
    return jnp.mean((weights[0] * x + weights[1] - (3 * x + 2)) ** 2)


@jax.jit
def train_step(weights: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the weights after a step, and the loss before it."""
    loss, gradient = jax.value_and_grad(mean_loss)(weights, x)
    return weights - 0.2 * gradient, loss


def save(step: int, weights: list[float]) -> None:
    """Write the file atomically: if the task is killed meanwhile, the old file remains."""
    new = saved.with_suffix(".new")
    new.write_text(json.dumps([*weights, step]))
    new.replace(saved)


start = np.array([slope, offset], np.float32)
weights = jax.jit(lambda: jnp.asarray(start), out_shardings=same)()
for step in range(done + 1, arguments.steps + 1):
    x = random.uniform(-1, 1, 32 * jax.local_device_count()).astype(np.float32)
    weights, loss = train_step(weights, jax.make_array_from_process_local_data(split, x))
    if step % 10 == 0 or step == arguments.steps:
        # The emulator reads the progress of the training from such lines.
        print(json.dumps({"emulate": "step", "step": step, "loss": float(loss)}), flush=True)
    if step % arguments.save_every == 0 and process == 0:
        save(step, np.asarray(weights.addressable_data(0)).tolist())

slope, offset = np.asarray(weights.addressable_data(0)).tolist()
print(f"learned y = {slope:.2f} x + {offset:.2f}", flush=True)
if jax.process_count() > 1:
    jax.distributed.shutdown()  # waits for all
