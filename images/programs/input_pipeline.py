"""Read TFRecord shards with eight input pipelines, from the plain one to AUTOTUNE.

Shows what each means of tf.data brings where storage is slow: a model trains on the same examples
with each pipeline in turn, and reports how many times faster its best epoch was than the plain
pipeline's (`times_...`). The slow storage is emulated in the pipeline's own functions, which wait:
`--open-cost` for a file, `--read-cost` for each block of it, `--map-cost` to prepare a batch.
A step takes `--step-cost` longer than on this machine, as if a device computed meanwhile.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import digits
import events
import numpy as np

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import perceptron  # noqa: E402
import records  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
FOLDER = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "digits")
LEARNING_RATE = 0.3
Waits = Callable[[float], Callable[[tf.Tensor], tf.Tensor]]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train with one input pipeline after the other.")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each pipeline (2)")
    parser.add_argument("--seconds", type=float, default=0.6, help="of a turn, at least (0.6)")
    parser.add_argument("--batch", type=int, default=96, help="examples in a step (96)")
    parser.add_argument("--block", type=int, default=60, help="records in a block (60)")
    parser.add_argument("--at-once", type=int, default=8, help="files or batches at once (8)")
    parser.add_argument("--open-cost", type=float, default=0.025, help="seconds to open (0.025)")
    parser.add_argument("--read-cost", type=float, default=0.025, help="of a block (0.025)")
    parser.add_argument("--map-cost", type=float, default=0.025, help="of a batch (0.025)")
    parser.add_argument("--step-cost", type=float, default=0.01, help="of a step (0.01)")
    return parser.parse_args()


def waits(seconds: float) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function for `map` that passes a tensor of strings on after some time."""

    def wait(strings: object) -> object:
        time.sleep(seconds)  # other threads of tf.data go on meanwhile
        return strings

    return lambda strings: tf.ensure_shape(
        tf.numpy_function(wait, [strings], tf.string), strings.shape
    )


def pipelines(options: argparse.Namespace) -> dict[str, tf.data.Dataset]:
    """Return the pipelines by name; those up to the cache add one means each to the one before."""
    files = sorted(str(file) for file in FOLDER.glob("*.tfrecord"))
    if not files:
        raise SystemExit(f"{FOLDER} has no shards; ingest.py writes them")
    names = tf.data.Dataset.from_tensor_slices(files)

    def read(file: tf.Tensor) -> tf.data.Dataset:
        opened = tf.data.Dataset.from_tensors(file).map(waits(options.open_cost))
        blocks = opened.flat_map(tf.data.TFRecordDataset).batch(options.block)
        return blocks.map(waits(options.read_cost)).unbatch()

    def prepare(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        return records.parse(waits(options.map_cost)(batch))

    many, auto = options.at_once, tf.data.AUTOTUNE
    plain = names.flat_map(read).batch(options.batch)
    parallel = names.interleave(read, cycle_length=many, num_parallel_calls=many)
    parallel = parallel.batch(options.batch)
    prepared = parallel.map(prepare, num_parallel_calls=many)
    tuned = names.interleave(read, cycle_length=many, num_parallel_calls=auto).batch(options.batch)
    tuned = tuned.map(prepare, num_parallel_calls=auto).prefetch(auto)
    # A function of tf.data that waits holds one of its threads, of which there are as many as
    # cores. This is also the most that AUTOTUNE tries.
    threads = tf.data.Options()
    threads.threading.private_threadpool_size = 4 * many
    with_threads = {
        "plain": plain.map(prepare),
        "prefetch": plain.map(prepare).prefetch(many),
        "interleave": parallel.map(prepare).prefetch(many),
        "map": prepared.prefetch(many),
        "repeat": prepared.repeat().prefetch(many),  # no break between the epochs
        "cache": prepared.cache().prefetch(many),
        "autotune": tuned,
    }
    enough = {name: pipeline.with_options(threads) for name, pipeline in with_threads.items()}
    return {**enough, "autotune_by_cores": tuned}


def main() -> None:
    """Train with each pipeline, and report how much faster than the plain one it was."""
    options = arguments()
    train_x, _, test_x, test_y = digits.load(SEED)
    model = perceptron.make(SEED)
    events.phase("startup", "end")

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = perceptron.mean_loss(model, x, y)
        for variable, gradient in zip(model, tape.gradient(loss, model), strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    with events.during("compile"):
        train_step(np.zeros([1, digits.PIXELS], np.float32), np.zeros([1], np.int64))
    made, best = pipelines(options), dict[str, float]()
    step, examples, steps = 0, 0, -(-len(train_x) // options.batch)
    for _ in range(options.rounds):  # in turn: where the machine is busy for a moment, all get some
        for name, pipeline in made.items():
            endless = iter(pipeline) if name == "repeat" else None
            times = list[float]()
            while sum(times) < options.seconds or (endless and len(times) < 2):
                began = time.perf_counter()
                for batch in itertools.islice(endless, steps) if endless else pipeline:
                    loss = train_step(batch["pixels"], batch["digit"])
                    time.sleep(options.step_cost)
                    step, examples = step + 1, examples + len(batch["id"])
                times.append(time.perf_counter() - began)
            best[name] = min([*times, best.get(name, times[0])])
            events.step(step, examples=examples, loss=float(loss))
    with events.during("eval"):
        accuracy = perceptron.accuracy(model, test_x, test_y)
    numbers = {f"times_{name}": best["plain"] / seconds for name, seconds in best.items()}
    events.step(step, examples=examples, accuracy=accuracy, **numbers)


if __name__ == "__main__":
    main()
