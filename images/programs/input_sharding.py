"""Count how often each example is seen in an epoch, for each way to divide a data set.

Shows the policies by which MultiWorkerMirroredStrategy divides a tf.data pipeline among workers:
by files, by examples, or not at all. The model trains an epoch with each; every worker notes the
numbers of the examples that it gets, and the sum over the workers is reported: how many examples
were seen by no worker (`missing_...`), and how many more than once (`doubled_...`).
"""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

import digits
import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import perceptron  # noqa: E402
import records  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
FOLDER = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "digits")
LEARNING_RATE = 0.3
POLICIES = ("FILE", "DATA", "OFF")
Example = dict[str, tf.Tensor]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train an epoch with each sharding policy.")
    parser.add_argument("--batch", type=int, default=128, help="examples of all workers (128)")
    parser.add_argument("--drop-remainder", action="store_true", help="leave out a smaller batch")
    return parser.parse_args()


def dataset(policy: str, options: argparse.Namespace) -> tf.data.Dataset:
    """Return the pipeline of all workers, in global batches."""
    # By files, each worker reads some of these; so all must list them in the same order.
    files = tf.data.Dataset.list_files(str(FOLDER / "*.tfrecord"), shuffle=False)
    data = files.interleave(tf.data.TFRecordDataset, cycle_length=4)
    data = data.batch(options.batch, drop_remainder=options.drop_remainder).map(records.parse)
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[
        policy
    ]
    return data.prefetch(2).with_options(sharding)


def main() -> None:
    """Train an epoch with each policy, then report the accuracy."""
    options = arguments()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    train_x, _, test_x, test_y = digits.load(SEED)
    with strategy.scope():
        model = perceptron.make(SEED, tf.VariableAggregation.MEAN)
        # A sum over the workers when it is read: each counts what it has seen itself.
        seen = tf.Variable(
            tf.zeros([len(train_x)], tf.int32),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    events.phase("startup", "end")

    def replica_step(batch: Example) -> None:
        seen.assign_add(tf.math.bincount(tf.cast(batch["id"], tf.int32), minlength=len(train_x)))
        with tf.GradientTape() as tape:
            loss = perceptron.mean_loss(model, batch["pixels"], batch["digit"])
        for variable, gradient in zip(model, tape.gradient(loss, model), strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)  # zero where a share is used up

    @tf.function
    def epoch(batches: Iterable[Example]) -> tf.Tensor:
        steps = 0
        for batch in batches:
            strategy.run(replica_step, args=(batch,))
            steps += 1
        return steps

    step = 0
    for policy in POLICIES:
        seen.assign(tf.zeros_like(seen))
        step += int(epoch(strategy.experimental_distribute_dataset(dataset(policy, options))))
        counts = seen.numpy()
        numbers = {
            f"missing_{policy}": int((counts == 0).sum()),
            f"doubled_{policy}": int((counts > 1).sum()),
        }
        events.step(step, **numbers)
    with events.during("eval"):
        accuracy = perceptron.accuracy(model, test_x, test_y)
    events.step(step, accuracy=accuracy)


if __name__ == "__main__":
    main()
