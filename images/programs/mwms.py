"""Synchronous training with Keras, which resumes from a backup when the job starts again.

Shows Model.fit under MultiWorkerMirroredStrategy, for which TensorFlow 2.21 needs tf_keras: the
fit of Keras 3 rejects distributed values. Relies on BackupAndRestore for recovery: a lost worker
ends the others within about a second, and all of them, started again, go on from the backup on
the shared volume. SIGTERM ends none of them: this strategy takes it for a notice of preemption,
and the task trains on until SIGKILL.
"""

import argparse
import os
from pathlib import Path

import digits
import events
import numpy as np

events.phase("startup", "begin")  # importing TensorFlow takes seconds: count them
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # likewise: makes tf.keras mean tf_keras
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
BACKUP = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "mwms")
REPORT_EVERY = 10

Logs = dict[str, float] | None


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train with Keras on all workers; back up.")
    parser.add_argument("--steps", type=int, default=300, help="steps to train in all (300)")
    parser.add_argument("--steps-per-epoch", type=int, default=50, help="must divide --steps (50)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between backups (50)")
    parser.add_argument("--batch", type=int, default=64, help="examples per worker and step (64)")
    options = parser.parse_args()
    if options.steps % options.steps_per_epoch:
        parser.error("--steps must be a multiple of --steps-per-epoch")
    return options


def steps_done(model: tf.keras.Model) -> int:
    """Return the steps of all epochs, those before a restart included: backups hold them too."""
    return int(model.optimizer.iterations.numpy())


class Backup(tf.keras.callbacks.BackupAndRestore):
    """Report when the backup is written and restored.

    Every worker takes part, as saving reads variables of all: the chief, which is worker 0 where
    there is none, writes under `chief/`, the others to a directory that they delete afterwards.
    """

    def __init__(self, save_every: int) -> None:
        # Kept after the end, so that a task started once more finds nothing left to train.
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
        """Write a backup, if it is time for one."""
        if steps_done(self.model) % self.save_every:
            super().on_train_batch_end(batch, logs)
        else:
            with events.during("checkpoint", step=steps_done(self.model)):
                super().on_train_batch_end(batch, logs)


class Report(tf.keras.callbacks.Callback):
    """Print a step event every few steps."""

    def __init__(self, examples_per_step: int) -> None:
        super().__init__()
        self.examples_per_step = examples_per_step

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Report the step, with the mean loss of the epoch so far."""
        step = steps_done(self.model)
        if step % REPORT_EVERY == 0 and logs:
            events.step(step, examples=step * self.examples_per_step, loss=float(logs["loss"]))


def main() -> None:
    """Train what the backup leaves to train, then report the accuracy."""
    options = arguments()
    # Without it tf.data tunes itself in a thread, for which the end of fit may wait: seconds, and
    # more the longer it trained. No other option reaches the datasets that fit makes inside.
    tf.data.experimental.enable_debug_mode()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)
        replicas = strategy.num_replicas_in_sync
        images = tf.data.Dataset.from_tensor_slices((train_x, train_y))
        # Of the job's global batch, fit gives each replica its share.
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
        callbacks=[Backup(options.save_every), Report(options.batch * replicas)],
        verbose=0,
    )

    with events.during("eval"):
        accuracy = float(np.mean(np.argmax(model(test_x), axis=1) == test_y))
    step = steps_done(model)
    events.step(step, examples=step * options.batch * replicas, accuracy=accuracy)


if __name__ == "__main__":
    main()
