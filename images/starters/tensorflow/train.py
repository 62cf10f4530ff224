"""Learn y = 3x + 2 on all workers together: a minimal distributed training program.

TF_CONFIG contains the addresses of all tasks; MultiWorkerMirroredStrategy reads it. Every step
averages the workers' gradients by all-reduce, so all workers always have the same weights. Worker 0
saves them on the shared volume; after a restart, all workers resume from there.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--save-every", type=int, default=50)
arguments = parser.parse_args()

saved = Path(os.environ.get("EMULATOR_SHARED", "."), "saved.json")
values = json.loads(saved.read_text()) if saved.exists() else [0.0, 0.0, 0.0]

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits for all workers
with strategy.scope():  # variables get worker 0's initial values on all workers
    slope, offset, done = (tf.Variable(value) for value in values)
worker = strategy.cluster_resolver.task_id or 0
# Every worker uses different random numbers.
tf.random.set_seed(100 + worker)


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


def save(step: int) -> None:
    """Write the file atomically: if the task is killed meanwhile, the old file remains."""
    new = saved.with_suffix(".new")
    new.write_text(json.dumps([float(slope.numpy()), float(offset.numpy()), float(step)]))
    new.replace(saved)


for step in range(int(done.numpy()) + 1, arguments.steps + 1):
    loss = train_step()
    if step % 10 == 0 or step == arguments.steps:
        # The emulator reads the progress of the training from such lines.
        print(json.dumps({"emulate": "step", "step": step, "loss": float(loss)}), flush=True)
    if step % arguments.save_every == 0 and worker == 0:
        save(step)

print(f"learned y = {float(slope.numpy()):.2f} x + {float(offset.numpy()):.2f}")
