"""Training in one task, on its GPU if it has one, otherwise on its CPU.

The reference for every distributed run: the same model and data without a cluster. Needs no
TF_CONFIG. Nothing is saved: if the task is lost, so is the training.
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
    parser = argparse.ArgumentParser(description="Train in one task; save nothing.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (200)")
    parser.add_argument("--batch", type=int, default=64, help="examples per step (64)")
    return parser.parse_args()


def main() -> None:
    """Train on one device, then report the accuracy."""
    options = arguments()
    device = "/gpu:0" if tf.config.list_physical_devices("GPU") else "/cpu:0"
    strategy = tf.distribute.OneDeviceStrategy(device)
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)
        batches = digits.batches(train_x, train_y, options.batch, seed=SEED)

    with strategy.scope():
        model = perceptron.make(SEED)

    def device_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = perceptron.mean_loss(model, x, y)
        for variable, gradient in zip(model, tape.gradient(loss, model), strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return strategy.run(device_step, args=(x, y))

    with events.during("compile"):
        loss = train_step(*next(batches))  # the first step traces the function
    for step in range(2, options.steps + 1):
        loss = train_step(*next(batches))
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch, loss=float(loss))

    with events.during("eval"):
        accuracy = perceptron.accuracy(model, test_x, test_y)
    examples = options.steps * options.batch
    events.step(options.steps, examples=examples, loss=float(loss), accuracy=accuracy)


if __name__ == "__main__":
    main()
