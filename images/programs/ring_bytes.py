"""Synchronous training by ring all-reduce, which counts what each worker has to send.

n workers that add up their gradients of M bytes along a ring send 2(n-1)/n M bytes each: n-1 parts
of M/n while they add up, and n-1 while they pass the sums on (Patarasuk and Yuan, 2009). No
algorithm needs less. Look at `worker_bytes`, which is this prediction, next to what the tasks have
sent. `ps_bytes.py` does the same with parameter servers. Several sizes are trained one after the
other. Nothing is saved.
"""

import argparse
import os

import digits
import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import perceptron  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
LEARNING_RATE = 0.1


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train synchronously; save nothing.")
    parser.add_argument(
        "--hidden", type=int, nargs="+", default=[250], help="width of each model to train (250)"
    )
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[200], help="steps of each model (200)"
    )
    parser.add_argument("--batch", type=int, default=32, help="examples per worker and step (32)")
    return parser.parse_args()


def train(strategy: tf.distribute.Strategy, hidden: int, steps: int, batch: int, done: int) -> None:
    """Train one model; `done` steps of others came before."""
    replicas = strategy.num_replicas_in_sync
    model_bytes = perceptron.size(hidden)
    report = {
        "model_bytes": model_bytes,
        "worker_bytes": 2 * (replicas - 1) / replicas * model_bytes,
    }
    train_x, train_y, test_x, test_y = digits.load(SEED)
    # One generator for every replica of the job; each task uses those of its own replicas.
    shares = [
        digits.batches(train_x, train_y, batch, seed=SEED, worker=one, workers=replicas)
        for one in range(replicas)
    ]

    def share(context: tf.distribute.experimental.ValueContext) -> tuple[tf.Tensor, tf.Tensor]:
        x, y = next(shares[context.replica_id_in_sync_group])
        return tf.constant(x), tf.constant(y)

    with strategy.scope():
        # MEAN: each update is the mean of the updates of all replicas.
        model = perceptron.make(SEED, tf.VariableAggregation.MEAN, hidden)

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = perceptron.mean_loss(model, x, y)
        for variable, gradient in zip(model, tape.gradient(loss, model), strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)  # includes the all-reduce
        return loss

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(replica_step, args=(x, y))
        return strategy.experimental_local_results(losses)[0]  # a mean would cost an all-reduce

    for step in range(done + 1, done + steps + 1):
        batches = strategy.experimental_distribute_values_from_function(share)
        loss = float(train_step(*batches))
        events.step(step, examples=step * batch * replicas, loss=loss, **report)
    accuracy = perceptron.accuracy(model, test_x, test_y)
    events.step(done + steps, accuracy=accuracy, **report)


def main() -> None:
    """Train every model together with the other workers."""
    options = arguments()
    # On GPUs, NCCL is the alternative; on CPUs, this is also what AUTO takes.
    ring = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    # Starts this task's server, reads TF_CONFIG and waits for the other workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    events.phase("startup", "end")
    done = 0
    for hidden, steps in zip(options.hidden, options.steps, strict=True):
        train(strategy, hidden, steps, options.batch, done)
        done += steps


if __name__ == "__main__":
    main()
