"""Synchronous training on any number of workers, with or without a chief, in a loop of our own.

Shows what MultiWorkerMirroredStrategy needs: TF_CONFIG, a strategy made before anything else, a
dataset per worker, variables under `strategy.scope()`. Relies on every task running the same
steps: each step waits for all workers, so losing one ends the job. Nothing is saved.
"""

import argparse
import os
from collections.abc import Iterator

import digits
import events

events.phase("startup", "begin")  # importing TensorFlow takes seconds: count them
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
LEARNING_RATE = 0.3
REPORT_EVERY = 10
HIDDEN = 64


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on all workers in step; save nothing.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (default: 200)")
    parser.add_argument("--batch", type=int, default=64, help="examples per worker and step")
    return parser.parse_args()


def make_model() -> list[tf.Variable]:
    """Create the weights of a small perceptron, which every step averages over the workers."""

    def weights(rows: int, columns: int) -> tf.Variable:
        start = tf.random.stateless_normal([rows, columns], [SEED, rows], stddev=rows**-0.5)
        return tf.Variable(start, aggregation=tf.VariableAggregation.MEAN)

    def biases(columns: int) -> tf.Variable:
        return tf.Variable(tf.zeros([columns]), aggregation=tf.VariableAggregation.MEAN)

    return [
        weights(digits.PIXELS, HIDDEN),
        biases(HIDDEN),
        weights(HIDDEN, digits.CLASSES),
        biases(digits.CLASSES),
    ]


def predict(model: list[tf.Variable], x: tf.Tensor) -> tf.Tensor:
    w1, b1, w2, b2 = model
    return tf.nn.relu(x @ w1 + b1) @ w2 + b2


def main() -> None:
    options = arguments()
    # First of all: it starts this task's server and waits until every other worker has joined.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)

        def dataset_of(worker: tf.distribute.InputContext) -> tf.data.Dataset:
            def batches() -> Iterator[tuple[digits.Floats, digits.Labels]]:
                share = {"worker": worker.input_pipeline_id, "workers": worker.num_input_pipelines}
                return digits.batches(train_x, train_y, options.batch, seed=SEED, **share)

            image = tf.TensorSpec([options.batch, digits.PIXELS], tf.float32)
            label = tf.TensorSpec([options.batch], tf.int64)
            return tf.data.Dataset.from_generator(batches, output_signature=(image, label))

        dataset = iter(strategy.distribute_datasets_from_function(dataset_of))

    with strategy.scope():
        model = make_model()

    @tf.function
    def train(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        def on_this_worker(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                scores = predict(model, x)
                loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores)
                loss = tf.reduce_mean(loss)
            for variable, gradient in zip(model, tape.gradient(loss, model), strict=True):
                variable.assign_sub(LEARNING_RATE * gradient)  # MEAN: this is the all-reduce
            return loss

        return strategy.run(on_this_worker, args=(x, y))

    examples_per_step = options.batch * strategy.num_replicas_in_sync
    with events.during("compile"):
        loss = train(*next(dataset))  # the first step traces the function
    for step in range(2, options.steps + 1):
        loss = train(*next(dataset))
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * examples_per_step, loss=float(loss))

    with events.during("eval"):
        guesses = tf.argmax(predict(model, test_x), axis=1)
        accuracy = float(tf.reduce_mean(tf.cast(guesses == test_y, tf.float32)))
    examples = options.steps * examples_per_step
    events.step(options.steps, examples=examples, loss=float(loss), accuracy=accuracy)


if __name__ == "__main__":
    main()
