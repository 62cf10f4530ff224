"""One TensorFlow model whose weights are split over all tasks by their layouts: DTensor, on CPUs.

Every task runs this program. The mesh of devices spans all tasks: `--model` of its devices split
the hidden layer (tensor parallelism), and the others repeat this for their share of the batch (data
parallelism). A layout says which axis of a tensor is split over which axis of the mesh; TensorFlow
adds the collectives. Losing one task ends the job. Nothing is saved.

Look at `weights_share`: the part of the model's weights that this task holds.
"""

import argparse
import os

import digits
import events
import numpy as np

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import tensorflow as tf  # noqa: E402
from tensorflow.experimental import dtensor  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
LEARNING_RATE = 0.3
HIDDEN = 64
REPORT_EVERY = 10

Weights = dict[str, tf.Variable]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train one model over all tasks; save nothing.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (200)")
    parser.add_argument("--batch", type=int, default=64, help="examples per step of all tasks (64)")
    parser.add_argument("--model", type=int, default=2, help="devices that split a layer (2)")
    return parser.parse_args()


def make(mesh: dtensor.Mesh) -> Weights:
    """Create the weights of a 64-64-10 perceptron, each with its layout on the mesh."""
    random = np.random.default_rng(SEED)

    def weights(rows: int, columns: int) -> np.ndarray:
        return random.normal(scale=rows**-0.5, size=(rows, columns)).astype(np.float32)

    starts = {
        "hidden": (weights(digits.PIXELS, HIDDEN), [dtensor.UNSHARDED, "model"]),  # by columns
        "hidden_bias": (np.zeros(HIDDEN, np.float32), ["model"]),
        "output": (weights(HIDDEN, digits.CLASSES), ["model", dtensor.UNSHARDED]),  # by rows
        "output_bias": (np.zeros(digits.CLASSES, np.float32), [dtensor.UNSHARDED]),
    }
    return {
        name: dtensor.DVariable(place(start, dtensor.Layout(axes, mesh)), name=name)
        for name, (start, axes) in starts.items()
    }


def place(tensor: np.ndarray, layout: dtensor.Layout) -> tf.Tensor:
    """Split a tensor that all tasks have over the devices of the mesh."""
    whole = dtensor.Layout.replicated(layout.mesh, rank=tensor.ndim)
    return dtensor.relayout(dtensor.copy_to_mesh(tf.constant(tensor), whole), layout)


def weights_share(weights: Weights) -> float:
    """Return the part of all weights that the devices of this task hold."""
    parts = [part for w in weights.values() for part in dtensor.unpack(w.read_value())]
    whole = sum(w.shape.num_elements() for w in weights.values())
    return sum(part.shape.num_elements() for part in parts) / whole


def predict(weights: Weights, x: tf.Tensor) -> tf.Tensor:
    """Return the logits of every digit, of shape [images, 10]."""
    hidden = tf.nn.relu(tf.matmul(x - 0.3, weights["hidden"]) + weights["hidden_bias"])
    return tf.matmul(hidden, weights["output"]) + weights["output_bias"]


@tf.function
def train_step(weights: Weights, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Train on one batch and return its mean loss."""
    with tf.GradientTape() as tape:
        scores = predict(weights, x)
        losses = tf.nn.softmax_cross_entropy_with_logits(labels=y, logits=scores)
        loss = tf.reduce_mean(losses)
    for name, gradient in tape.gradient(loss, weights).items():
        weights[name].assign_sub(LEARNING_RATE * gradient)
    return loss


def main() -> None:
    """Join the other tasks, train, report the accuracy."""
    options = arguments()
    dtensor.initialize_accelerator_system()
    kind = dtensor.preferred_device_type()
    data = dtensor.num_global_devices(kind) // options.model
    mesh = dtensor.create_distributed_mesh(
        [("batch", data), ("model", options.model)], device_type=kind
    )
    events.phase("startup", "end")

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)
        batches = digits.batches(train_x, train_y, options.batch, seed=SEED)
    rows = dtensor.Layout(["batch", dtensor.UNSHARDED], mesh)
    whole = dtensor.Layout.replicated(mesh, rank=2)

    weights = make(mesh)
    share = weights_share(weights)
    one_hot = np.eye(digits.CLASSES, dtype=np.float32)
    for step in range(1, options.steps + 1):
        x, y = next(batches)  # the same in all tasks
        loss = train_step(weights, place(x, rows), place(one_hot[y], rows))
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch, loss=float(loss))

    with events.during("eval"):
        scores = dtensor.relayout(predict(weights, place(test_x, whole)), whole)
        guesses = scores.numpy().argmax(axis=1)  # every device has the whole of it
        accuracy = float(np.mean(guesses == test_y))
    events.step(
        options.steps,
        examples=options.steps * options.batch,
        loss=float(loss),
        accuracy=accuracy,
        weights_share=share,
    )
    dtensor.barrier(mesh)  # a task that ends while others compute would fail them


if __name__ == "__main__":
    main()
