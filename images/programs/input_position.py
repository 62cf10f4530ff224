"""Continue an epoch after a preemption: from its beginning, by skipping, or where it was.

Shows that a checkpoint of the model alone forgets the position in the data. With `--position
forget`, the pipeline begins anew, so that some examples are seen twice in the epoch and others
never. `skip` reads the same order again and drops what was trained; `save` puts the iterator of
tf.data into the checkpoint. The counts are saved with the model: they are of what this model was
trained with, without the steps that were lost (`missing_...`, `doubled_...`).
"""

import argparse
import os
import time
from pathlib import Path

import digits
import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import perceptron  # noqa: E402
import records  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
SHARED = Path(os.environ.get("EMULATOR_SHARED", "/shared"))
LEARNING_RATE = 0.3
BUFFER = 512


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train for one epoch; save the position, or not.")
    parser.add_argument("--position", choices=["forget", "skip", "save"], default="save")
    parser.add_argument("--batch", type=int, default=32, help="examples in a step (32)")
    parser.add_argument("--save-every", type=int, default=10, help="steps between saves (10)")
    parser.add_argument("--step-cost", type=float, default=0.03, help="seconds of a step (0.03)")
    return parser.parse_args()


def main() -> None:
    """Train the rest of the epoch, then report how often each example was seen."""
    options = arguments()
    train_x, _, test_x, test_y = digits.load(SEED)
    steps = -(-len(train_x) // options.batch)
    model = perceptron.make(SEED)
    done = tf.Variable(0, dtype=tf.int64)
    seen = tf.Variable(tf.zeros([len(train_x)], tf.int32))
    files = tf.data.Dataset.list_files(str(SHARED / "digits" / "*.tfrecord"), shuffle=False)
    data = files.interleave(tf.data.TFRecordDataset, cycle_length=4)
    # To skip what was trained, the order has to be the same again.
    data = data.shuffle(BUFFER, SEED, reshuffle_each_iteration=False)
    data = data.batch(options.batch).map(records.parse).prefetch(2)
    events.phase("startup", "end")

    checkpoint = tf.train.Checkpoint(model=model, done=done, seen=seen)
    if options.position == "save":
        checkpoint.batches = batches = iter(data)  # with the examples in its shuffle buffer
    folder = SHARED / f"position-{options.position}"
    saves = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=2)
    if saves.latest_checkpoint:
        events.phase("restore", "begin")
        checkpoint.restore(saves.latest_checkpoint)
        events.phase("restore", "end", step=int(done))
    if options.position != "save":
        batches = iter(data.skip(int(done)) if options.position == "skip" else data)

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = perceptron.mean_loss(model, x, y)
        for variable, gradient in zip(model, tape.gradient(loss, model), strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    while (step := int(done) + 1) <= steps:
        batch = next(batches)
        loss = float(train_step(batch["pixels"], batch["digit"]))
        time.sleep(options.step_cost)
        seen.scatter_add(tf.IndexedSlices(tf.ones_like(batch["id"], tf.int32), batch["id"]))
        done.assign(step)
        if step < steps:
            events.step(step, loss=loss)
        if step % options.save_every == 0:
            with events.during("checkpoint", step=step):
                saves.save()
    counts = seen.numpy()
    files_saved = folder.glob(f"{Path(saves.latest_checkpoint).name}.*")
    size = sum(file.stat().st_size for file in files_saved)
    numbers = {
        f"missing_{options.position}": int((counts == 0).sum()),
        f"doubled_{options.position}": int((counts > 1).sum()),
        f"kilobytes_{options.position}": size / 1000,
    }
    with events.during("eval"):
        accuracy = perceptron.accuracy(model, test_x, test_y)
    events.step(steps, accuracy=accuracy, **numbers)


if __name__ == "__main__":
    main()
