"""Write the training data as TFRecord shards to the shared volume, before training begins.

Shows a task with `before: training`: it ends, and then the others start. Several such tasks divide
the shards among them. A shard is renamed when it is complete, so a reader never sees half of one,
and an ingest task that was preempted continues with the shards that are missing.
"""

import argparse
import os
import time
from pathlib import Path

import digits
import events

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import records
import tensorflow as tf

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
FOLDER = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "digits")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Write the digits as TFRecord shards.")
    parser.add_argument("--shards", type=int, default=8, help="files to write, of all tasks (8)")
    parser.add_argument("--part", type=int, default=0, help="the number of this task (0)")
    parser.add_argument("--of", type=int, default=1, help="how many tasks write (1)")
    parser.add_argument("--cost", type=float, default=0, help="seconds that a shard takes (0)")
    return parser.parse_args()


def main() -> None:
    """Write the shards of this part that do not exist yet."""
    options = arguments()
    x, y, _, _ = digits.load(SEED)
    FOLDER.mkdir(exist_ok=True)
    with events.during("data"):
        for shard in range(options.part, options.shards, options.of):
            done = FOLDER / f"{shard:03}-of-{options.shards:03}.tfrecord"
            if done.exists():
                print(f"shard {shard} is there already", flush=True)
                continue
            unfinished = done.with_suffix(".unfinished")
            with tf.io.TFRecordWriter(str(unfinished)) as writer:
                for number in range(shard, len(x), options.shards):
                    writer.write(records.serialize(number, list(x[number]), int(y[number])))
            time.sleep(options.cost)
            unfinished.rename(done)
            print(f"wrote shard {shard} of {options.shards}", flush=True)


if __name__ == "__main__":
    main()
