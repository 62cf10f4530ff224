"""The digits as TFRecord files: how an example is written, and how a batch is read again.

Each example has its number, so that a program can count which ones it has seen.
"""

import tensorflow as tf

FEATURES = {
    "id": tf.io.FixedLenFeature([], tf.int64),
    "pixels": tf.io.FixedLenFeature([64], tf.float32),
    "digit": tf.io.FixedLenFeature([], tf.int64),
}


def serialize(number: int, pixels: list[float], digit: int) -> bytes:
    """Return one example as a record."""
    values = {
        "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
        "pixels": tf.train.Feature(float_list=tf.train.FloatList(value=pixels)),
        "digit": tf.train.Feature(int64_list=tf.train.Int64List(value=[digit])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=values))
    return bytes(example.SerializeToString())


def parse(batch: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return a batch of records as tensors: `id`, `pixels` and `digit`."""
    return dict(tf.io.parse_example(batch, FEATURES))
