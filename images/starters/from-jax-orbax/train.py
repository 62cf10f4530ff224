"""JAX on two workers with Orbax' CheckpointManager, which saves when a worker is told to go.

JAX' coordination service hears SIGTERM. `reached_preemption` is then true on all workers after the
same step, and the manager saves there: the workers save it together, and end with code 42, so that
the job starts again. The manager also saves every few steps.
"""

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec

SAVES = Path(os.environ.get("EMULATOR_SHARED", "."), "saves").absolute()
PREEMPTED = 42

Weights = dict[str, jax.Array]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="steps to train (300)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saves (50)")
    parser.add_argument("--step-cost", type=float, default=0.1, help="more seconds of a step (0.1)")
    return parser.parse_args()


def say(**event: object) -> None:
    """Print what the emulator reads: a line of JSON."""
    print(json.dumps(event), flush=True)


@jax.jit
def train_step(weights: Weights, x: jax.Array) -> tuple[Weights, jax.Array]:
    """Return the weights after a step on the batch of all workers, and the loss before it."""

    def mean_loss(weights: Weights) -> jax.Array:
        return jnp.mean((weights["slope"] * x + weights["offset"] - (3 * x + 2)) ** 2)

    loss, gradients = jax.value_and_grad(mean_loss)(weights)
    return jax.tree.map(lambda w, g: w - 0.2 * g, weights, gradients), loss


def restore(manager: ocp.CheckpointManager, weights: Weights) -> tuple[Weights, int]:
    """Load the last complete save; return its step too, or 0."""
    step = manager.latest_step()
    if step is None:
        return weights, 0
    weights = manager.restore(step, args=ocp.args.StandardRestore(weights))
    say(emulate="phase", phase="restore", state="end", step=step)
    return weights, step


def save(manager: ocp.CheckpointManager, weights: Weights, step: int) -> bool:
    """Save if it is time to; return whether that is because a worker was told to go."""
    if not manager.should_save(step):
        return False
    is_told = manager.reached_preemption(step)
    say(emulate="phase", phase="checkpoint", state="begin", step=step)
    manager.save(step, args=ocp.args.StandardSave(weights))
    manager.wait_until_finished()
    say(emulate="phase", phase="checkpoint", state="end", step=step)
    return is_told


def main() -> None:
    """Join the other workers, and train from the last save on."""
    options = arguments()
    if "JAX_COORDINATOR_ADDRESS" in os.environ:
        jax.distributed.initialize()
    devices = jax.make_mesh((jax.device_count(),), ("batch",))
    split, same = (NamedSharding(devices, PartitionSpec(*axes)) for axes in (["batch"], []))
    keeps = ocp.CheckpointManagerOptions(
        save_interval_steps=options.save_every, max_to_keep=2, create=True
    )
    manager = ocp.CheckpointManager(SAVES, options=keeps)
    make = jax.jit(lambda: {"slope": jnp.zeros(()), "offset": jnp.zeros(())}, out_shardings=same)
    weights, first = restore(manager, make())
    numbers = np.random.default_rng(100 + jax.process_index())
    for step in range(first + 1, options.steps + 1):
        time.sleep(options.step_cost)  # as a larger model would compute
        x = numbers.uniform(-1, 1, 32 * jax.local_device_count()).astype(np.float32)
        weights, loss = train_step(weights, jax.make_array_from_process_local_data(split, x))
        say(emulate="step", step=step, loss=float(loss))
        if save(manager, weights, step):
            sys.exit(PREEMPTED)
    manager.close()
    if jax.process_count() > 1:
        jax.distributed.shutdown()  # waits for all


if __name__ == "__main__":
    try:
        main()
    except jax.errors.JaxRuntimeError:  # another worker is lost
        traceback.print_exc()
        os._exit(1)  # at its usual exit, JAX would wait for that worker
