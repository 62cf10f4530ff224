"""A delay in a dataset of TensorFlow, which stands for the time that an accelerator computes.

The worker that reads the dataset waits, also if the chief has scheduled its steps from elsewhere.
"""

import tensorflow as tf


def delayed(dataset: tf.data.Dataset, seconds: float) -> tf.data.Dataset:
    """Return the dataset; each of its elements, a tuple of tensors, takes `seconds` longer."""
    slow = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        sleep_microseconds=tf.constant(int(seconds * 1e6), tf.int64),
        output_types=[part.dtype for part in dataset.element_spec],
        output_shapes=[part.shape for part in dataset.element_spec],
    )
    return tf.data.experimental.from_variant(slow, dataset.element_spec)
