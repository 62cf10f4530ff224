"""Parameter servers in rounds, which count what each task has to send.

In a round, n workers each fetch the M bytes of the weights and send M bytes of updates back. So the
servers send n M bytes and receive as much, shared among them; a worker does one n-th of that. Look
at `ps_bytes` and `worker_bytes`, which are this prediction, next to what the tasks have sent.
`ring_bytes.py` does the same without servers. The updates of a round are applied as they arrive.
Several sizes are trained one after the other. Nothing is saved.
"""

import argparse
import os
import traceback

import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # a lost task is an error at once
import digits  # noqa: E402
import perceptron  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
LEARNING_RATE = 0.1
Cluster = tf.distribute.cluster_resolver.ClusterResolver
Coordinator = tf.distribute.coordinator.ClusterCoordinator


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train in rounds; save nothing.")
    parser.add_argument(
        "--hidden", type=int, nargs="+", default=[250], help="width of each model to train (250)"
    )
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[200], help="rounds of each model (200)"
    )
    parser.add_argument("--batch", type=int, default=32, help="examples per worker and round (32)")
    return parser.parse_args()


def serve(cluster: Cluster) -> None:
    """Execute the functions that the chief sends, until SIGTERM ends the process."""
    # Small thread pools, because several tasks share a core; but not a single inter-op thread,
    # TensorFlow's default on one core: a worker would hang in its first step.
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
    coordinator: Coordinator, cluster: Cluster, hidden: int, rounds: int, batch: int, done: int
) -> None:
    """Train one model (chief); `done` rounds of others came before."""
    workers, servers = (cluster.cluster_spec().num_tasks(role) for role in ("worker", "ps"))
    model_bytes = perceptron.size(hidden)
    report = {
        "model_bytes": model_bytes,
        "worker_bytes": model_bytes,
        "ps_bytes": workers * model_bytes / servers,
    }
    train_x, train_y, test_x, test_y = digits.load(SEED)

    def dataset() -> tf.data.Dataset:
        # No seed: each worker has a different order.
        images = tf.data.Dataset.from_tensor_slices((train_x, train_y))
        images = images.shuffle(len(train_x)).repeat().batch(batch)
        plain = tf.data.Options()
        plain.autotune.enabled = False  # its thread can delay the chief's exit for long
        return images.with_options(plain)

    shares = iter(coordinator.create_per_worker_dataset(dataset))
    with coordinator.strategy.scope():
        model = perceptron.make(SEED, hidden=hidden)
    # Gradients are computed for the shards of a partitioned variable, not for the whole.
    shards = [part for whole in model for part in getattr(whole, "variables", [whole])]

    @tf.function
    def train_step(share: tf.data.Iterator) -> tf.Tensor:
        x, y = next(share)
        with tf.GradientTape() as tape:
            loss = perceptron.mean_loss(model, x, y)  # fetches the weights
        for shard, gradient in zip(shards, tape.gradient(loss, shards), strict=True):
            shard.assign_sub(LEARNING_RATE / workers * gradient)  # sends the update
        return loss

    for step in range(done + 1, done + rounds + 1):
        losses = [coordinator.schedule(train_step, args=(shares,)) for _ in range(workers)]
        coordinator.join()
        loss = float(losses[-1].fetch())
        events.step(step, examples=step * batch * workers, loss=loss, **report)
    accuracy = perceptron.accuracy(model, test_x, test_y)
    events.step(done + rounds, accuracy=accuracy, **report)


def lead(cluster: Cluster, options: argparse.Namespace) -> None:
    """Train every model, one after the other (chief)."""
    servers = cluster.cluster_spec().num_tasks("ps")
    # Each variable is split among all servers; whole ones would be larger on some than on others.
    strategy = tf.distribute.ParameterServerStrategy(
        cluster,
        variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(servers)
        if servers > 1
        else None,
    )
    coordinator = Coordinator(strategy)
    events.phase("startup", "end")
    done = 0
    for hidden, rounds in zip(options.hidden, options.steps, strict=True):
        train(coordinator, cluster, hidden, rounds, options.batch, done)
        done += rounds


def main() -> None:
    """Run the part of this task's role in TF_CONFIG."""
    options = arguments()
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        serve(cluster)
    try:
        lead(cluster, options)
    except tf.errors.OpError:
        traceback.print_exc()
        os._exit(1)  # a normal exit may wait forever for the confirmation of a lost ps


if __name__ == "__main__":
    main()
