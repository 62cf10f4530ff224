"""Keras on two workers that resumes from a backup: `BackupAndRestore`, as its documentation has it.

In TensorFlow 2.21 `Model.fit` under MultiWorkerMirroredStrategy needs tf_keras. The backup is
written every few steps, and nothing reacts to SIGTERM: the strategy takes it for a notice, so that
the task trains on until SIGKILL. What came after the last backup is trained again.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # likewise: tf.keras is tf_keras
import tensorflow as tf

BACKUP = Path(os.environ.get("EMULATOR_SHARED", "."), "backup")
PER_EPOCH = 50

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300, help="a multiple of 50 (300)")
parser.add_argument("--save-every", type=int, default=50, help="steps between backups (50)")
parser.add_argument("--step-cost", type=float, default=0.1, help="more seconds of a step (0.1)")
arguments = parser.parse_args()


def say(**event: object) -> None:
    """Print what the emulator reads: a line of JSON."""
    print(json.dumps(event), flush=True)


def steps_of(model: tf.keras.Model) -> int:
    """Return the steps of all epochs; the backup has them."""
    return int(model.optimizer.iterations.numpy())


class Backup(tf.keras.callbacks.BackupAndRestore):
    """Keras' callback, which says what it does."""

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Restore the last backup, if there is one."""
        super().on_train_begin(logs)
        if steps_of(self.model):
            say(emulate="phase", phase="restore", state="end", step=steps_of(self.model))

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Report the step, and save if it is time."""
        time.sleep(arguments.step_cost)  # as a larger model would compute
        step = steps_of(self.model)
        say(emulate="step", step=step, loss=float((logs or {})["loss"]))
        saves = step % arguments.save_every == 0
        if saves:
            say(emulate="phase", phase="checkpoint", state="begin", step=step)
        super().on_train_batch_end(batch, logs)
        if saves:
            say(emulate="phase", phase="checkpoint", state="end", step=step)


strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits for all workers
tf.data.experimental.enable_debug_mode()  # its autotuning delays the end of fit by seconds
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")

x = tf.random.stateless_uniform([1024, 1], [0, 1], -1.0, 1.0)
data = tf.data.Dataset.from_tensor_slices((x, 3.0 * x + 2.0)).repeat().batch(64)
model.fit(
    data,
    epochs=arguments.steps // PER_EPOCH,
    steps_per_epoch=PER_EPOCH,
    callbacks=[Backup(str(BACKUP), save_freq=arguments.save_every, delete_checkpoint=False)],
    verbose=0,
)
slope, offset = (float(one.numpy().item()) for one in model.trainable_variables)
print(f"learned y = {slope:.2f} x + {offset:.2f}")
