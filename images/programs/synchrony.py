"""The same training, synchronous or asynchronous, until the model has learned enough.

TF_CONFIG decides. With a ps in the cluster, each worker reads the weights there, computes a
gradient and applies it, without waiting for the others (ParameterServerStrategy). Without one, each
update is the mean of the gradients of all workers (MultiWorkerMirroredStrategy). The step is the
same function in both.

Look at `staleness`, the mean age of a gradient: the number of updates that others have made between
reading the weights and applying the gradient that was computed from them. `oldest` is the largest
age so far, `seconds` the time since the first step.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import digits
import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import perceptron  # noqa: E402
import step_cost  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
REPORT_EVERY = 10
IN_FLIGHT = 2  # steps that the chief has scheduled ahead, for each worker


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train to an accuracy, with or without waiting.")
    parser.add_argument("--until", type=float, default=0.92, help="accuracy to reach (0.92)")
    parser.add_argument("--steps", type=int, default=3000, help="steps at most (3000)")
    parser.add_argument("--batch", type=int, default=64, help="examples per gradient (64)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each gradient (0)"
    )
    parser.add_argument(
        "--learning-rate", type=float, default=0.05, help="for an update by one gradient (0.05)"
    )
    return parser.parse_args()


class Training:
    """The model and the ages of its gradients; `gradients` is the number of those in an update."""

    def __init__(self, options: argparse.Namespace, strategy: tf.distribute.Strategy) -> None:
        self.options, self.gradients = options, strategy.num_replicas_in_sync
        self.learning_rate = options.learning_rate * self.gradients  # grows with the batch
        with strategy.scope():
            self.model = perceptron.make(SEED, tf.VariableAggregation.MEAN)
        # Counters of updates belong to a copy of the weights. Workers that update together have a
        # copy each; otherwise the weights, and so the counters, are on the parameter servers.
        servers = isinstance(strategy, tf.distribute.ParameterServerStrategy)
        with strategy.scope() if servers else nullcontext():
            self.version, self.ages, self.oldest = (tf.Variable(0, dtype=tf.int64) for _ in "123")
        *self.train, self.test_x, self.test_y = digits.load(SEED)
        self.first_step = 0.0

    def dataset(self, *, worker: int, workers: int, seed: int | None) -> tf.data.Dataset:
        """Return the batches of a worker's share; each takes `step_cost` seconds."""
        share = tf.data.Dataset.from_tensor_slices(tuple(self.train)).shard(workers, worker)
        share = share.shuffle(len(self.train[1]), seed).repeat().batch(self.options.batch)
        return step_cost.delayed(share, self.options.step_cost)

    def step(self, share: Iterator[digits.Batch]) -> tf.Tensor:
        """Read the weights, compute a gradient, apply it; runs on a worker."""
        read_at = self.version.read_value()
        with tf.control_dependencies([read_at]):
            weights = [tf.identity(variable) for variable in self.model]
        with tf.control_dependencies(weights), tf.GradientTape() as tape:
            x, y = next(share)
            tape.watch(weights)
            loss = perceptron.mean_loss(weights, x, y)
        gradients = tape.gradient(loss, weights)
        with tf.control_dependencies(gradients):
            age = self.version.read_value() - read_at
        with tf.control_dependencies([age]):
            self.version.assign_add(1)
            self.ages.assign_add(age)
            self.oldest.assign(tf.maximum(self.oldest, age))
        for variable, gradient in zip(self.model, gradients, strict=True):
            variable.assign_sub(self.learning_rate * gradient)  # includes the all-reduce
        return loss

    def is_done(self, step: int) -> bool:
        """Report a step with the accuracy on held-out images; return whether it is good enough."""
        self.first_step = self.first_step or time.monotonic()
        accuracy = perceptron.accuracy(self.model, self.test_x, self.test_y)
        events.step(
            step,
            examples=step * self.gradients * self.options.batch,
            accuracy=accuracy,
            staleness=int(self.ages) / step,
            oldest=int(self.oldest),
            seconds=time.monotonic() - self.first_step,
        )
        return accuracy >= self.options.until or step >= self.options.steps


def train_together(options: argparse.Namespace) -> None:
    """Update all copies of the weights by the mean gradient (every worker runs this)."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    events.phase("startup", "end")
    training = Training(options, strategy)
    worker, workers = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    share = iter(training.dataset(worker=worker, workers=workers, seed=SEED))

    @tf.function
    def step() -> tf.Tensor:
        return strategy.run(training.step, args=(share,))

    step()
    while not training.is_done(int(training.version)):
        for _ in range(REPORT_EVERY):
            step()


def train_apart(
    cluster: tf.distribute.cluster_resolver.ClusterResolver, options: argparse.Namespace
) -> None:
    """Keep every worker busy with steps, and watch what they do to the weights (chief)."""
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    events.phase("startup", "end")
    workers = cluster.cluster_spec().num_tasks("worker")
    training = Training(options, strategy)
    # Every worker reads all images. No seed: each has a different order.
    shares = iter(
        coordinator.create_per_worker_dataset(
            lambda: training.dataset(worker=0, workers=1, seed=None)
        )
    )
    step: Callable[..., tf.Tensor] = tf.function(training.step)

    scheduled, report_at = 0, 1
    while True:
        done = int(training.version)
        if done >= report_at:
            if training.is_done(done):
                break
            report_at = done + REPORT_EVERY
        while scheduled - done < IN_FLIGHT * workers:
            coordinator.schedule(step, args=(shares,))
            scheduled += 1
        time.sleep(options.step_cost / 4)
    coordinator.join()


def main() -> None:
    """Run the part of this task's role in TF_CONFIG."""
    options = arguments()
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if "ps" not in cluster.cluster_spec().jobs:
        train_together(options)
    elif cluster.task_type == "chief":
        train_apart(cluster, options)
    else:
        events.phase("startup", "end")
        tf.distribute.Server(
            cluster.cluster_spec(),
            job_name=cluster.task_type,
            task_index=cluster.task_id,
            protocol="grpc",
            # With one thread, TensorFlow's default on one core, a worker hangs in its first step.
            config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2),
        ).join()


if __name__ == "__main__":
    main()
