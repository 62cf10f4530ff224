"""Synchronous training with JAX: one program over the devices of all tasks, on CPUs.

`jax.distributed.initialize()` has no arguments: it finds the coordinator, the number of processes
and its own number in the environment. The batch is split over all devices, and the compiler adds
the all-reduce of the gradients (gloo). Losing one task ends the job. Nothing is saved.
"""

import argparse
import os

import digits
import events

events.phase("startup", "begin")  # includes the import of JAX, which takes seconds
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
LEARNING_RATE = 0.3
HIDDEN = 64
REPORT_EVERY = 10

Weights = dict[str, jax.Array]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train on all devices in step; save nothing.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (200)")
    parser.add_argument("--batch", type=int, default=64, help="examples per task and step (64)")
    return parser.parse_args()


def make(key: jax.Array) -> Weights:
    """Create the weights of a 64-64-10 perceptron."""
    hidden, output = jax.random.split(key)
    return {
        "hidden": jax.random.normal(hidden, (digits.PIXELS, HIDDEN)) / digits.PIXELS**0.5,
        "hidden_bias": jnp.zeros(HIDDEN),
        "output": jax.random.normal(output, (HIDDEN, digits.CLASSES)) / HIDDEN**0.5,
        "output_bias": jnp.zeros(digits.CLASSES),
    }


def predict(weights: Weights, x: jax.Array) -> jax.Array:
    """Return the logits of every digit, of shape [images, 10]."""
    hidden = jax.nn.relu(x @ weights["hidden"] + weights["hidden_bias"])
    return hidden @ weights["output"] + weights["output_bias"]


def mean_loss(weights: Weights, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the mean cross entropy over a batch."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(predict(weights, x)), y[:, None], axis=1)
    return -chosen.mean()


@jax.jit
def train_step(weights: Weights, x: jax.Array, y: jax.Array) -> tuple[Weights, jax.Array]:
    """Return the weights after a step on the global batch, and the loss before it."""
    loss, gradients = jax.value_and_grad(mean_loss)(weights, x, y)
    return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, weights, gradients), loss


def main() -> None:
    """Join the other processes, train, report the accuracy."""
    options = arguments()
    jax.distributed.initialize()
    process, processes = jax.process_index(), jax.process_count()
    devices = jax.make_mesh((jax.device_count(),), ("batch",))
    split, same = (NamedSharding(devices, PartitionSpec(*axes)) for axes in (["batch"], []))
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)
        batches = digits.batches(
            train_x, train_y, options.batch, seed=SEED, worker=process, workers=processes
        )
    weights = jax.jit(make, out_shardings=same)(jax.random.key(SEED))
    loss = jnp.zeros(())
    for step in range(1, options.steps + 1):
        x, y = next(batches)  # of this task; all tasks' parts are the global batch
        weights, loss = train_step(
            weights,
            jax.make_array_from_process_local_data(split, x),
            jax.make_array_from_process_local_data(split, y),
        )
        if step % REPORT_EVERY == 0 and step < options.steps:
            examples = step * options.batch * processes
            events.step(step, examples=examples, loss=float(loss))

    with events.during("eval"):
        mine = jax.tree.map(lambda w: np.asarray(w.addressable_data(0)), weights)
        accuracy = float(np.mean(np.argmax(predict(mine, test_x), axis=1) == test_y))
    examples = options.steps * options.batch * processes
    events.step(options.steps, examples=examples, loss=float(loss), accuracy=accuracy)
    jax.distributed.shutdown()  # waits for all


if __name__ == "__main__":
    main()
