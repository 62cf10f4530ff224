"""Learn y = 3x + 2 on every worker at once: the smallest program that is really distributed.

TF_CONFIG tells each task who the others are; MultiWorkerMirroredStrategy reads it by itself. Every
step sums the workers' gradients by all-reduce, so all of them hold the same weights all the time.
"""

import argparse
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
steps = parser.parse_args().steps

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits until every worker is there
with strategy.scope():
    slope, offset = tf.Variable(0.0), tf.Variable(0.0)
# Every worker draws numbers of its own.
tf.random.set_seed(100 + (strategy.cluster_resolver.task_id or 0))


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


for step in range(1, steps + 1):
    loss = train_step()
    if step % 10 == 0 or step == steps:
        # A line of JSON is all that the emulator needs to follow the training.
        print(json.dumps({"emulate": "step", "step": step, "loss": float(loss)}), flush=True)

print(f"learned y = {float(slope.numpy()):.2f} x + {float(offset.numpy()):.2f}")
