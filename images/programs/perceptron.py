"""The model of the TensorFlow programs: a 64-64-10 perceptron of plain variables, without Keras.

Create it under `strategy.scope()`: the strategy decides where the variables are placed.
"""

import digits
import numpy as np
import tensorflow as tf

HIDDEN = 64
Model = list[tf.Variable]


def make(
    seed: int,
    aggregation: tf.VariableAggregation = tf.VariableAggregation.NONE,
    hidden: int = HIDDEN,
) -> Model:
    """Create the weights; `aggregation` defines how the updates of replicas are combined."""
    random = np.random.default_rng(seed)

    def layer(rows: int, columns: int) -> Model:
        weights = random.normal(scale=rows**-0.5, size=(rows, columns)).astype(np.float32)
        biases = np.zeros(columns, np.float32)
        return [tf.Variable(start, aggregation=aggregation) for start in (weights, biases)]

    return layer(digits.PIXELS, hidden) + layer(hidden, digits.CLASSES)


def size(hidden: int) -> int:
    """Return the bytes of a model's weights."""
    weights = digits.PIXELS * hidden + hidden + hidden * digits.CLASSES + digits.CLASSES
    return weights * np.dtype(np.float32).itemsize


def predict(model: Model, x: tf.Tensor) -> tf.Tensor:
    """Return the logits of every digit, of shape [images, 10]."""
    hidden_weights, hidden_biases, weights, biases = model
    x = x - 0.3  # about the mean pixel: centred inputs tolerate larger and staler updates
    hidden = tf.nn.relu(tf.matmul(x, hidden_weights) + hidden_biases)
    return tf.matmul(hidden, weights) + biases


def mean_loss(model: Model, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return the mean cross entropy over a batch."""
    scores = predict(model, x)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores))


def accuracy(model: Model, x: tf.Tensor, y: tf.Tensor) -> float:
    """Return the share of images that the model classifies correctly."""
    return float(np.mean(tf.argmax(predict(model, x), axis=1) == y))
