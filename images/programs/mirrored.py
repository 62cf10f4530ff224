"""Synchronous training on all devices of one task, with a copy of the model on each or one for all.

Shows MirroredStrategy: each device has a copy of every variable and computes the gradients of its
part of the batch; an all-reduce gives all copies the same update. With `--central-storage`, there
is one copy, on the CPU, which all devices read and update (CentralStorageStrategy). Uses the GPUs
of the task; without any, it divides the CPU into `--devices` logical devices.

Look at the last line: the number of `copies` of a variable, the `spread` (the largest difference
between two copies), and the `batch_error`: the difference between the first update and that of one
device with the whole batch, as a share of the update.
"""

import argparse
import os
from pathlib import Path

import digits
import events
import numpy as np
from numpy.typing import ArrayLike

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import perceptron  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "mirrored")
LEARNING_RATE = 0.3
REPORT_EVERY = 10


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train on all devices of one task.")
    parser.add_argument("--steps", type=int, default=1000, help="steps to train (1000)")
    parser.add_argument("--batch", type=int, default=64, help="examples per step (64)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saves (100)")
    parser.add_argument("--devices", type=int, default=4, help="logical devices of the CPU (4)")
    parser.add_argument("--central-storage", action="store_true", help="one copy of the variables")
    return parser.parse_args()


def devices(logical: int) -> list[str]:
    """Return the GPUs of this task, or as many parts of its CPU; before any other use of them."""
    if not tf.config.list_physical_devices("GPU"):
        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * logical
        tf.config.set_logical_device_configuration(cpu, parts)
    used = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in used]


def difference(one: ArrayLike, other: ArrayLike) -> float:
    """Return the largest difference between two arrays of the same shape."""
    return float(np.max(np.abs(np.subtract(one, other))))


def gradient_of_one_device(
    model: perceptron.Model, x: digits.Floats, y: digits.Labels
) -> list[tf.Tensor]:
    """Return the gradient of the whole batch, computed on one device from a copy of the model."""
    alone = [tf.Variable(weights.numpy()) for weights in model]
    with tf.GradientTape() as tape:
        loss = perceptron.mean_loss(alone, x, y)
    return list(tape.gradient(loss, alone))


def main() -> None:
    """Train the remaining steps, then report the accuracy and how equal the copies are."""
    options = arguments()
    names = devices(options.devices)
    if options.central_storage:
        strategy = tf.distribute.experimental.CentralStorageStrategy(names, "/device:CPU:0")
    else:
        strategy = tf.distribute.MirroredStrategy(names)
    events.phase("startup", "end")

    with strategy.scope():
        # MEAN: each update is the mean of the updates of all replicas.
        model = perceptron.make(SEED, tf.VariableAggregation.MEAN)
    done = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, step=done)
    manager = tf.train.CheckpointManager(checkpoint, str(CHECKPOINTS), max_to_keep=2)
    if manager.latest_checkpoint:
        events.phase("restore", "begin")
        manager.restore_or_initialize()
        events.phase("restore", "end", step=int(done))

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)
        replicas = strategy.num_replicas_in_sync
        batches = digits.batches(train_x, train_y, options.batch, seed=SEED, skip=int(done))

        def split(x: digits.Floats, y: digits.Labels) -> tuple[tf.Tensor, tf.Tensor]:
            """Give each replica its part of the batch."""
            parts = list(zip(tf.split(x, replicas), tf.split(y, replicas), strict=True))
            return strategy.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group]
            )

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = perceptron.mean_loss(model, x, y)
        for variable, gradient in zip(model, tape.gradient(loss, model), strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)  # includes the all-reduce
        return loss

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(replica_step, args=(x, y))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    x, y = next(batches)
    before, update = model[0].numpy(), LEARNING_RATE * gradient_of_one_device(model, x, y)[0]
    with events.during("compile"):
        loss = train_step(*split(x, y))  # the first step traces the function
    done.assign_add(1)
    batch_error = difference(before - model[0].numpy(), update) / difference(update, 0)

    while int(done) < options.steps:
        loss = train_step(*split(*next(batches)))
        step = int(done.assign_add(1))
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch, loss=float(loss))
        if step % options.save_every == 0:
            with events.during("checkpoint", step=step):
                manager.save(checkpoint_number=step)

    with events.during("eval"):
        accuracy = perceptron.accuracy(model, test_x, test_y)
    copies = [strategy.experimental_local_results(variable) for variable in model]
    events.step(
        options.steps,
        examples=options.steps * options.batch,
        loss=float(loss),
        accuracy=accuracy,
        replicas=replicas,
        copies=max(len(same) for same in copies),
        spread=max(difference(same[0], one) for same in copies for one in same),
        batch_error=batch_error,
    )


if __name__ == "__main__":
    main()
