"""Asynchronous training: workers fetch weights from parameter servers and send updates back.

Shows one program for every role of TF_CONFIG: the chief schedules each step on any free worker,
worker and ps tasks are servers, an evaluator watches the checkpoints. If a worker is lost, training
continues. If a ps is lost, the chief fails, and after a restart of the job it resumes from the last
checkpoint.
"""

import argparse
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # a lost task is an error at once
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "parameter_server")
# Ten updates may be computed from the same weights, and are then one of ten times the rate. With
# 0.2, one training of 200 ended at an accuracy below 0.9; with 0.05 none did.
LEARNING_RATE = 0.05
ROUND = 10  # steps between joins; also bounds how stale an update can be


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train with parameter servers.")
    parser.add_argument("--steps", type=int, default=600, help="total steps of all workers (600)")
    parser.add_argument("--batch", type=int, default=64, help="examples per step (64)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saves (100)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    return parser.parse_args()


def serve(cluster: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Execute the functions that the chief sends, until SIGTERM ends the process."""
    # Small thread pools, because tens of these tasks may share a core or two. But not a single
    # inter-op thread, TensorFlow's default on one core: a worker would hang in its first step.
    threads = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=2
    )
    server = tf.distribute.Server(
        cluster.cluster_spec(),
        job_name=cluster.task_type,
        task_index=cluster.task_id,
        protocol="grpc",
        config=threads,
    )
    events.phase("startup", "end")
    server.join()


def train(
    cluster: tf.distribute.cluster_resolver.ClusterResolver, options: argparse.Namespace
) -> None:
    """Schedule the steps, save checkpoints, report (chief)."""
    import digits
    import perceptron
    import step_cost

    servers = cluster.cluster_spec().num_tasks("ps")
    strategy = tf.distribute.ParameterServerStrategy(
        cluster,
        variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes=2048, max_shards=servers
        ),
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)

        def dataset() -> tf.data.Dataset:
            # No seed: each worker has a different order.
            images = tf.data.Dataset.from_tensor_slices((train_x, train_y))
            images = images.shuffle(len(train_x)).repeat().batch(options.batch)
            plain = tf.data.Options()
            plain.autotune.enabled = False  # its thread can delay the chief's exit for long
            return step_cost.delayed(images, options.step_cost).with_options(plain)

        shares = iter(coordinator.create_per_worker_dataset(dataset))

    with strategy.scope():
        model = perceptron.make(SEED)
    step = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, step=step)
    manager = tf.train.CheckpointManager(checkpoint, str(CHECKPOINTS), max_to_keep=5)
    if manager.latest_checkpoint:
        events.phase("restore", "begin")
        manager.restore_or_initialize()
        events.phase("restore", "end", step=int(step))

    # Gradients are computed for the shards of a partitioned variable, not for the whole.
    shards = [part for whole in model for part in getattr(whole, "variables", [whole])]

    # No AutoGraph: there is no loop or condition to convert.
    @tf.function(autograph=False)
    def train_step(share: Iterator[digits.Batch]) -> tf.Tensor:
        x, y = next(share)
        with tf.GradientTape() as tape:
            loss = perceptron.mean_loss(model, x, y)
        for shard, gradient in zip(shards, tape.gradient(loss, shards), strict=True):
            shard.assign_sub(LEARNING_RATE * gradient)
        return loss

    while int(step) < options.steps:
        due = min(ROUND, options.steps - int(step))
        losses = [coordinator.schedule(train_step, args=(shares,)) for _ in range(due)]
        coordinator.join()
        before, done = int(step), int(step.assign_add(due))
        events.step(done, examples=done * options.batch, loss=float(losses[-1].fetch()))
        # After a join no worker changes a weight, so a checkpoint has the weights of one step.
        if done // options.save_every > before // options.save_every or done == options.steps:
            with events.during("checkpoint", step=done):
                manager.save(checkpoint_number=done)

    with events.during("eval"):
        accuracy = perceptron.accuracy(model, test_x, test_y)
    events.step(int(step), examples=int(step) * options.batch, accuracy=accuracy)


def evaluate(options: argparse.Namespace) -> None:
    """Report the accuracy of every new checkpoint until the last one (evaluator).

    `evaluated` counts them. Those that were saved while another was evaluated are skipped.
    """
    import digits
    import perceptron

    *_, test_x, test_y = digits.load(SEED)
    model = perceptron.make(SEED)
    step = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, step=step)
    events.phase("startup", "end")
    for evaluated, path in enumerate(tf.train.checkpoints_iterator(str(CHECKPOINTS)), start=1):
        with events.during("eval"):
            checkpoint.read(path).expect_partial()
            accuracy = perceptron.accuracy(model, test_x, test_y)
        events.step(int(step), accuracy=accuracy, evaluated=evaluated)
        if int(step) >= options.steps:
            return


def main() -> None:
    """Run the part of this task's role in TF_CONFIG."""
    options = arguments()
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        serve(cluster)
    elif cluster.task_type == "evaluator":
        evaluate(options)
    else:
        try:
            train(cluster, options)
        except tf.errors.OpError:
            traceback.print_exc()
            os._exit(1)  # a normal exit may wait forever for the confirmation of a lost ps


if __name__ == "__main__":
    main()
