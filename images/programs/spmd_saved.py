"""Synchronous training with JAX, saved by Orbax: one program over the devices of all tasks.

All tasks write a checkpoint together, and a complete one gets its final name in one step. Orbax
saves every `--save-every` steps. It also saves where JAX' coordination service says that a task
has got SIGTERM: then all tasks agree on a step, save after it, and exit with code 42, so that the
job can be restarted without a step lost. A task that is lost without notice costs the steps since
the last save.
"""

import argparse
import os
import sys
import time
import traceback
from pathlib import Path

import digits
import events
import spmd  # the model and its step; reports the begin of the startup, and imports JAX

import jax  # isort: skip
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "/tmp"), "orbax")
REPORT_EVERY = 10
PREEMPTED = 42


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train on all devices in step; save and resume.")
    parser.add_argument("--steps", type=int, default=400, help="steps to train (400)")
    parser.add_argument("--batch", type=int, default=64, help="examples per task and step (64)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saves (100)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    return parser.parse_args()


def restore(manager: ocp.CheckpointManager, weights: spmd.Weights) -> tuple[spmd.Weights, int]:
    """Load the last complete save, with the sharding of `weights`; return its step, or 0."""
    step = manager.latest_step()
    if step is None:
        return weights, 0
    events.phase("restore", "begin")
    weights = manager.restore(step, args=ocp.args.StandardRestore(weights))
    events.phase("restore", "end", step=step)
    return weights, step


def save(manager: ocp.CheckpointManager, weights: spmd.Weights, step: int) -> bool:
    """Save where it is time for it; return whether a task is to be preempted."""
    if not manager.should_save(step):
        return False
    preempted = manager.reached_preemption(step)
    with events.during("checkpoint", step=step):
        manager.save(step, args=ocp.args.StandardSave(weights))
        manager.wait_until_finished()
    return preempted


def main() -> None:
    """Join the other processes, resume, train, report the accuracy."""
    options = arguments()
    jax.distributed.initialize()
    process, processes = jax.process_index(), jax.process_count()
    devices = jax.make_mesh((jax.device_count(),), ("batch",))
    split, same = (NamedSharding(devices, PartitionSpec(*axes)) for axes in (["batch"], []))
    manager = ocp.CheckpointManager(
        CHECKPOINTS,
        options=ocp.CheckpointManagerOptions(
            save_interval_steps=options.save_every, max_to_keep=2, create=True
        ),
    )
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)
    weights = jax.jit(spmd.make, out_shardings=same)(jax.random.key(SEED))
    weights, first = restore(manager, weights)
    batches = digits.batches(
        *(train_x, train_y, options.batch),
        seed=SEED,
        worker=process,
        workers=processes,
        skip=first,
    )
    loss = jnp.zeros(())
    for step in range(first + 1, options.steps + 1):
        time.sleep(options.step_cost)
        x, y = next(batches)  # of this task; all tasks' parts are the global batch
        weights, loss = spmd.train_step(
            weights,
            jax.make_array_from_process_local_data(split, x),
            jax.make_array_from_process_local_data(split, y),
        )
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch * processes, loss=float(loss))
        if save(manager, weights, step):
            events.step(step)
            sys.exit(PREEMPTED)

    with events.during("eval"):
        mine = jax.tree.map(lambda w: np.asarray(w.addressable_data(0)), weights)
        accuracy = float(np.mean(np.argmax(spmd.predict(mine, test_x), axis=1) == test_y))
    examples = options.steps * options.batch * processes
    events.step(options.steps, examples=examples, loss=float(loss), accuracy=accuracy)
    manager.close()
    jax.distributed.shutdown()  # waits for all


if __name__ == "__main__":
    try:
        main()
    except jax.errors.JaxRuntimeError:  # another process is lost
        traceback.print_exc()
        os._exit(1)  # at its usual exit, JAX would wait for that process
