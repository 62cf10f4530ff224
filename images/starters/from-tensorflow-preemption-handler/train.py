"""TensorFlow on two workers that saves when it is told: `PreemptionCheckpointHandler`.

The worker that gets SIGTERM agrees with the other on a step. Both save after it, and end with code
42, TensorFlow's own. The job starts again and resumes from there. Nothing else is saved: with
`--save-every` the program also saves every few steps, for machines that go without a notice. On
Compute Engine without GPUs the handler does nothing: it neither watches nor restores.
"""

import argparse
import atexit
import json
import os
import signal
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import tensorflow as tf

SAVES = Path(os.environ.get("EMULATOR_SHARED", "."), "saves")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300, help="steps to train (300)")
parser.add_argument("--save-every", type=int, default=int(os.environ.get("SAVE_EVERY", "0")))
parser.add_argument("--step-cost", type=float, default=0.1, help="more seconds of a step (0.1)")
arguments = parser.parse_args()


def say(**event: object) -> None:
    """Print what the emulator reads: a line of JSON."""
    print(json.dumps(event), flush=True)


class Saves(tf.train.CheckpointManager):
    """TensorFlow's manager, which says what it does.

    All workers save, because the variables are on all of them; only worker 0's save is used.
    """

    def save(self, *args: object, **options: object) -> str | None:
        """Save. The handler calls this once all workers have done the step that they agreed on."""
        step = int(done)
        say(emulate="phase", phase="checkpoint", state="begin", step=step)
        path = super().save(*args, **options)
        say(emulate="phase", phase="checkpoint", state="end", step=step)
        return path

    def restore_or_initialize(self) -> str | None:
        """Restore worker 0's last save. The handler calls this when it is made."""
        path = tf.train.latest_checkpoint(str(SAVES))
        if path is not None:
            self.checkpoint.restore(path)
            say(emulate="phase", phase="restore", state="end", step=int(done))
        return path


strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits for all workers
resolver = strategy.cluster_resolver
worker = resolver.task_id or 0
with strategy.scope():
    slope, offset = (tf.Variable(0.0) for _ in range(2))
done = tf.Variable(0, dtype=tf.int64)
saves = Saves(
    tf.train.Checkpoint(slope=slope, offset=offset, step=done),
    "copy" if worker else str(SAVES),
    max_to_keep=2,
)
handler = tf.distribute.experimental.PreemptionCheckpointHandler(resolver, saves)
# Python removes its handlers at its end, a second before TensorFlow's: a second SIGTERM in that
# time, such as from a restart of the job, would turn 42 into 143.
atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)
tf.random.set_seed(100 + worker)  # every worker has numbers of its own


@tf.function
def train_step() -> tf.Tensor:
    """Take one step on every worker and return the mean loss."""

    def replica_step() -> tf.Tensor:
        x = tf.random.uniform([32], -1.0, 1.0)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((slope * x + offset - (3.0 * x + 2.0)) ** 2)
        gradients = tape.gradient(loss, [slope, offset])
        replicas = tf.distribute.get_replica_context()
        for variable, gradient in zip([slope, offset], gradients, strict=True):
            variable.assign_sub(0.2 * replicas.all_reduce(tf.distribute.ReduceOp.MEAN, gradient))
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(replica_step), axis=None)


while int(done) < arguments.steps:
    time.sleep(arguments.step_cost)  # as a larger model would compute
    loss = handler.run(train_step)  # looks for a notice first, and may save and leave
    step = int(done.assign_add(1))
    say(emulate="step", step=step, loss=float(loss))
    if arguments.save_every and step % arguments.save_every == 0:
        saves.save()
print(f"learned y = {float(slope.numpy()):.2f} x + {float(offset.numpy()):.2f}")
