"""Asynchronous training with Keras: Model.fit under ParameterServerStrategy, without a loop.

Shows DatasetCreator, whose function makes the data on each worker; `steps_per_epoch`, which counts
the steps of all workers together; and BackupAndRestore, which saves after each epoch. fit sends
each step to any free worker. If a worker is lost, the others do its steps. If a parameter server is
lost, the chief fails, and after a restart of the job fit resumes with the epoch that was cut off.
In TensorFlow 2.21 this needs tf_keras.

Look at the last line: `iterations` is the number of updates that the optimizer counted, on the
parameter server. More than the number of steps would mean that a step was done twice.
"""

import argparse
import os
import traceback
from pathlib import Path

import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # likewise: tf.keras is tf_keras
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # a lost task is an error at once
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
BACKUP = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "ps_fit")

Resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver
Logs = dict[str, float] | None


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train with Keras and parameter servers.")
    parser.add_argument("--epochs", type=int, default=10, help="epochs to train (10)")
    parser.add_argument("--steps-per-epoch", type=int, default=100, help="of all workers (100)")
    parser.add_argument("--batch", type=int, default=64, help="examples per step (64)")
    return parser.parse_args()


def serve(cluster: Resolver) -> None:
    """Execute the functions that the chief sends, until SIGTERM ends the process."""
    # A single inter-op thread, TensorFlow's default on one core, would hang a worker.
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2)
    spec, name, index = cluster.cluster_spec(), cluster.task_type, cluster.task_id
    server = tf.distribute.Server(spec, job_name=name, task_index=index, config=threads)
    events.phase("startup", "end")
    server.join()


class Backup(tf.keras.callbacks.BackupAndRestore):
    """Report when the backup is written and restored."""

    def __init__(self, steps_per_epoch: int) -> None:
        super().__init__(str(BACKUP), delete_checkpoint=False)
        self.steps_per_epoch = steps_per_epoch

    def on_train_begin(self, logs: Logs = None) -> None:
        """Restore the last backup, if there is one."""
        if tf.train.latest_checkpoint(str(BACKUP / "chief")) is None:
            super().on_train_begin(logs)
            return
        events.phase("restore", "begin")
        super().on_train_begin(logs)
        events.phase("restore", "end", step=int(self.model.optimizer.iterations))

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Save the weights, the optimizer and the number of the epoch."""
        with events.during("checkpoint", step=(epoch + 1) * self.steps_per_epoch):
            super().on_epoch_end(epoch, logs)


class Report(tf.keras.callbacks.Callback):
    """Print a step event after each epoch: only then are all steps done that fit has sent."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Report the steps of all epochs, including those before a restart."""
        step = (epoch + 1) * self.options.steps_per_epoch
        events.step(step, examples=step * self.options.batch, loss=float((logs or {})["loss"]))


def train(cluster: Resolver, options: argparse.Namespace) -> None:
    """Fit, with the steps on the workers and the variables on the parameter servers (chief)."""
    import digits
    import numpy as np

    strategy = tf.distribute.ParameterServerStrategy(cluster)
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        # Called on each worker. No seed: each has a different order.
        images = tf.data.Dataset.from_tensor_slices((train_x, train_y))
        images = images.shuffle(len(train_x)).repeat().batch(options.batch)
        plain = tf.data.Options()
        plain.autotune.enabled = False  # its thread can delay the chief's exit for long
        return images.with_options(plain)

    with strategy.scope():
        tf.keras.utils.set_random_seed(SEED)
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(64, activation="relu", input_shape=(digits.PIXELS,)),
                tf.keras.layers.Dense(digits.CLASSES),
            ]
        )
        model.compile(
            optimizer=tf.keras.optimizers.SGD(0.2),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )

    model.fit(
        tf.keras.utils.experimental.DatasetCreator(dataset),
        epochs=options.epochs,
        steps_per_epoch=options.steps_per_epoch,
        callbacks=[Backup(options.steps_per_epoch), Report(options)],
        verbose=0,
    )

    with events.during("eval"):
        accuracy = float(np.mean(np.argmax(model(test_x), axis=1) == test_y))
    step = options.epochs * options.steps_per_epoch
    iterations = int(model.optimizer.iterations)
    events.step(step, examples=step * options.batch, accuracy=accuracy, iterations=iterations)


def main() -> None:
    """Run the part of this task's role in TF_CONFIG."""
    options, cluster = arguments(), Resolver()
    if cluster.task_type in ("worker", "ps"):
        serve(cluster)
        return
    try:
        train(cluster, options)
    except tf.errors.OpError:
        traceback.print_exc()
        os._exit(1)  # a normal exit may wait forever for the confirmation of a lost ps


if __name__ == "__main__":
    main()
