"""Learn y = 3x + 2 on all workers together: in each step they average their gradients."""

import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import tensorflow as tf

STEPS = 1200
saved = pathlib.Path("saved.json")
strategy = tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG, waits for all workers
worker = strategy.cluster_resolver.task_id or 0
done, weights = 0, [0.0, 0.0]
with strategy.scope():
    slope, offset = (tf.Variable(value) for value in weights)


@tf.function
def train_step(step: tf.Tensor) -> tf.Tensor:
    """Take one step on all workers; return the mean loss."""

    def replica_step() -> tf.Tensor:
        # Each step of each worker has its own numbers.
        x = tf.random.stateless_uniform([32], [worker, step], -1.0, 1.0)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((slope * x + offset - (3.0 * x + 2.0)) ** 2)
        gradients = tape.gradient(loss, [slope, offset])
        together = tf.distribute.get_replica_context()
        for variable, gradient in zip([slope, offset], gradients, strict=True):
            variable.assign_sub(0.1 * together.all_reduce(tf.distribute.ReduceOp.MEAN, gradient))
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(replica_step), axis=None)


for step in range(done + 1, STEPS + 1):
    loss = train_step(tf.constant(step))
    if step % 10 == 0:
        print(f"step {step}/{STEPS} loss {float(loss):.4f}", flush=True)
    if worker == 0 and step % 50 == 0:
        new = saved.with_suffix(".new")
        new.write_text(json.dumps([step, [float(slope.numpy()), float(offset.numpy())]]))
        new.replace(saved)  # whole, or not at all
print(f"learned y = {float(slope.numpy()):.2f} x + {float(offset.numpy()):.2f}")
