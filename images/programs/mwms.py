"""Synchronous training with Keras, which resumes from a backup when the job is restarted.

Shows Model.fit under MultiWorkerMirroredStrategy. In TensorFlow 2.21 this needs tf_keras, because
the fit of Keras 3 rejects distributed values. Recovery uses BackupAndRestore: if a worker is lost,
the others fail within about a second, and after a restart all resume from the backup on the shared
volume. SIGTERM ends no task: this strategy treats it as a preemption notice, and the task continues
training until SIGKILL.
"""

import argparse
import os
import time
from pathlib import Path

import digits
import events
import numpy as np

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # likewise: tf.keras is tf_keras
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
BACKUP = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "mwms")
REPORT_EVERY = 10

Logs = dict[str, float] | None


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train with Keras on all workers; back up.")
    parser.add_argument("--steps", type=int, default=300, help="total number of steps (300)")
    parser.add_argument("--steps-per-epoch", type=int, default=50, help="must divide --steps (50)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between backups (50)")
    parser.add_argument("--batch", type=int, default=64, help="examples per worker and step (64)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    parser.add_argument(
        "--patience", type=float, help="seconds to wait for other workers (without end)"
    )
    options = parser.parse_args()
    if options.steps % options.steps_per_epoch:
        parser.error("--steps must be a multiple of --steps-per-epoch")
    return options


def steps_done(model: tf.keras.Model) -> int:
    """Return the steps of all epochs, including those before a restart: backups contain them."""
    return int(model.optimizer.iterations.numpy())


class Backup(tf.keras.callbacks.BackupAndRestore):
    """Report when the backup is written and restored.

    Every worker takes part, because saving reads the variables of all workers. The chief (worker 0
    if there is none) writes to `chief/`, the others to a directory that they delete afterwards.
    """

    def __init__(self, save_every: int) -> None:
        # Kept after the end: if a task is started once more, no steps remain to be trained.
        super().__init__(str(BACKUP), save_freq=save_every, delete_checkpoint=False)
        self.save_every = save_every

    def on_train_begin(self, logs: Logs = None) -> None:
        """Restore the last backup, if there is one."""
        if tf.train.latest_checkpoint(str(BACKUP / "chief")) is None:
            super().on_train_begin(logs)
            return
        events.phase("restore", "begin")
        super().on_train_begin(logs)
        events.phase("restore", "end", step=steps_done(self.model))

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Write a backup every `save_every` steps."""
        if steps_done(self.model) % self.save_every:
            super().on_train_batch_end(batch, logs)
        else:
            with events.during("checkpoint", step=steps_done(self.model)):
                super().on_train_batch_end(batch, logs)


class Report(tf.keras.callbacks.Callback):
    """Print a step event every few steps."""

    def __init__(self, examples_per_step: int, step_cost: float) -> None:
        super().__init__()
        self.examples_per_step, self.step_cost = examples_per_step, step_cost

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Wait as long as a larger model would compute."""
        time.sleep(self.step_cost)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Report the step, with the mean loss of the epoch so far."""
        step = steps_done(self.model)
        if step % REPORT_EVERY == 0 and logs:
            events.step(step, examples=step * self.examples_per_step, loss=float(logs["loss"]))


def main() -> None:
    """Train the remaining steps, then report the accuracy."""
    options = arguments()
    # Without this, a thread of tf.data autotunes, and the end of fit may wait for it: seconds,
    # and more after longer training. No other option affects the internal datasets of fit.
    tf.data.experimental.enable_debug_mode()
    waits = tf.distribute.experimental.CommunicationOptions(timeout_seconds=options.patience)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=waits)
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)
        replicas = strategy.num_replicas_in_sync
        images = tf.data.Dataset.from_tensor_slices((train_x, train_y))
        # A batch here is the global one: fit gives each replica its share.
        images = images.shuffle(len(train_x), SEED).repeat().batch(options.batch * replicas)

    with strategy.scope():
        tf.keras.utils.set_random_seed(SEED)
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(64, activation="relu", input_shape=(digits.PIXELS,)),
                tf.keras.layers.Dense(digits.CLASSES),
            ]
        )
        model.compile(
            optimizer=tf.keras.optimizers.SGD(0.1, momentum=0.9),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )

    model.fit(
        images,
        epochs=options.steps // options.steps_per_epoch,
        steps_per_epoch=options.steps_per_epoch,
        callbacks=[
            Backup(options.save_every),
            Report(options.batch * replicas, options.step_cost),
        ],
        verbose=0,
    )

    with events.during("eval"):
        accuracy = float(np.mean(np.argmax(model(test_x), axis=1) == test_y))
    step = steps_done(model)
    events.step(step, examples=step * options.batch * replicas, accuracy=accuracy)


if __name__ == "__main__":
    main()
