"""Synchronous training on any number of workers, with or without a chief, in a custom loop.

Shows what MultiWorkerMirroredStrategy needs: TF_CONFIG, the strategy before anything else of
TensorFlow, batches from each worker's own share, variables created under `strategy.scope()`. Every
step waits for all workers: they report the same steps, and losing one ends the job. Nothing is
saved. SIGTERM ends no task: this strategy treats it as a preemption notice.
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
LEARNING_RATE = 0.3
REPORT_EVERY = 10


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train synchronously; save nothing.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (200)")
    parser.add_argument("--batch", type=int, default=64, help="examples per worker and step (64)")
    return parser.parse_args()


def main() -> None:
    """Train together with the other workers, then report the accuracy."""
    options = arguments()
    # Starts this task's server, reads TF_CONFIG and waits for the other workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)

        replicas = strategy.num_replicas_in_sync
        # One generator for every replica of the job; each task uses those of its own replicas.
        shares = [
            digits.batches(train_x, train_y, options.batch, seed=SEED, worker=one, workers=replicas)
            for one in range(replicas)
        ]

        def share(context: tf.distribute.experimental.ValueContext) -> tuple[tf.Tensor, tf.Tensor]:
            x, y = next(shares[context.replica_id_in_sync_group])
            return tf.constant(x), tf.constant(y)

        def next_batch() -> tuple[tf.Tensor, tf.Tensor]:
            return strategy.experimental_distribute_values_from_function(share)

    with strategy.scope():
        # MEAN: each update is the mean of the updates of all replicas.
        model = perceptron.make(SEED, tf.VariableAggregation.MEAN)

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

    with events.during("compile"):
        loss = train_step(*next_batch())  # the first step traces the function
    for step in range(2, options.steps + 1):
        loss = train_step(*next_batch())
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch * replicas, loss=float(loss))

    with events.during("eval"):
        accuracy = perceptron.accuracy(model, test_x, test_y)
    examples = options.steps * options.batch * replicas
    events.step(options.steps, examples=examples, loss=float(loss), accuracy=accuracy)


if __name__ == "__main__":
    main()
