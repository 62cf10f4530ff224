"""A table too large for one parameter server: its rows are divided among all of them.

Shows the variable partitioner of ParameterServerStrategy with an embedding, for which it was made.
Each of the 64 pixels has 17 possible values, so an image is 64 words of a vocabulary of 1,088; the
scores of the digits are the sum of their rows. A worker fetches only the rows of its batch, each
from the server that has it, and sends back updates of these rows only.

Look at the last line: the number of `shards`, the `smallest_share` (the rows on the server that
has least, as a share of an equal part), and `rows`, the share of the table that a step updates.
"""

import argparse
import os
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # a lost task is an error at once
import digits  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "ps_embedding")
LEARNING_RATE = 0.1
VALUES = 17  # of a pixel
ROUND = 10  # steps between joins

Resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a table divided among parameter servers.")
    parser.add_argument("--steps", type=int, default=1000, help="steps of all workers (1000)")
    parser.add_argument("--batch", type=int, default=16, help="examples per step (16)")
    parser.add_argument("--save-every", type=int, default=200, help="steps between saves (200)")
    return parser.parse_args()


def words(x: digits.Floats) -> np.ndarray:
    """Return the row of the table for each pixel, of shape [images, 64]."""
    values = np.rint(x * (VALUES - 1)).astype(np.int64)
    return values + VALUES * np.arange(digits.PIXELS)


def serve(cluster: Resolver) -> None:
    """Execute the functions that the chief sends, until SIGTERM ends the process."""
    # A single inter-op thread, TensorFlow's default on one core, would hang a worker.
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2)
    spec, name, index = cluster.cluster_spec(), cluster.task_type, cluster.task_id
    server = tf.distribute.Server(spec, job_name=name, task_index=index, config=threads)
    events.phase("startup", "end")
    server.join()


def train(cluster: Resolver, options: argparse.Namespace) -> None:
    """Schedule the steps, save checkpoints, report (chief)."""
    servers = cluster.cluster_spec().num_tasks("ps")
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(servers)
    strategy = tf.distribute.ParameterServerStrategy(cluster, variable_partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)

        def dataset() -> tf.data.Dataset:
            images = tf.data.Dataset.from_tensor_slices((words(train_x), train_y))
            images = images.shuffle(len(train_x)).repeat().batch(options.batch)
            plain = tf.data.Options()
            plain.autotune.enabled = False  # its thread can delay the chief's exit for long
            return images.with_options(plain)

        batches = iter(coordinator.create_per_worker_dataset(dataset))

    with strategy.scope():
        table = tf.Variable(tf.zeros([digits.PIXELS * VALUES, digits.CLASSES]))
    step = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(table=table, step=step)
    manager = tf.train.CheckpointManager(checkpoint, str(CHECKPOINTS), max_to_keep=2)
    if manager.latest_checkpoint:
        events.phase("restore", "begin")
        manager.restore_or_initialize()
        events.phase("restore", "end", step=int(step))

    def scores(x: tf.Tensor) -> tf.Tensor:
        rows = tf.nn.embedding_lookup(table.variables, x)  # each shard has consecutive rows
        return tf.reduce_sum(rows, axis=1)

    @tf.function
    def train_step(batches: Iterator[digits.Batch]) -> tuple[tf.Tensor, tf.Tensor]:
        x, y = next(batches)
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores(x))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, table.variables)
        for shard, update in zip(table.variables, gradients, strict=True):
            shard.scatter_sub(tf.IndexedSlices(LEARNING_RATE * update.values, update.indices))
        return loss, tf.size(tf.unique(tf.reshape(x, [-1])).y)

    while int(step) < options.steps:
        due = min(ROUND, options.steps - int(step))
        results = [coordinator.schedule(train_step, args=(batches,)) for _ in range(due)]
        coordinator.join()
        before, done = int(step), int(step.assign_add(due))
        loss, rows = results[-1].fetch()
        events.step(done, examples=done * options.batch, loss=float(loss))
        # After a join no worker changes a weight, so a checkpoint has the weights of one step.
        if done // options.save_every > before // options.save_every:
            with events.during("checkpoint", step=done):
                manager.save(checkpoint_number=done)

    with events.during("eval"):
        accuracy = float(np.mean(np.argmax(scores(words(test_x)), axis=1) == test_y))
    rows_on = Counter[str]()
    for shard in table.variables:
        rows_on[shard.device] += shard.shape[0]
    smallest = min(rows_on.values()) if len(rows_on) == servers else 0
    events.step(
        options.steps,
        examples=options.steps * options.batch,
        accuracy=accuracy,
        shards=len(table.variables),
        smallest_share=smallest * servers / table.shape[0],
        rows=int(rows) / table.shape[0],
    )


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
