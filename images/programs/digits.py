"""The training data of all programs: 1,797 handwritten digits, in a file next to this one.

The file is small enough to be copied with the programs, so a task needs no network to start.
README.md names the source. Imports only numpy; tasks that don't train need not import this module.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
Batch = tuple[Floats, Labels]

PIXELS = 64
CLASSES = 10
HELD_OUT = 360
_FILE = Path(__file__).with_name("digits.csv.gz")


def load(seed: int) -> tuple[Floats, Labels, Floats, Labels]:
    """Return train_x, train_y, test_x, test_y: 1437 and 360 images of 64 pixels in 0..1.

    The held-out images are the same for every seed, so that accuracies are comparable; the seed
    only determines the order of the training images.
    """
    table = np.loadtxt(_FILE, delimiter=",", dtype=np.float32)  # 64 pixels of 0..16, then the digit
    table = np.random.default_rng(0).permutation(table)
    held_out, train = table[:HELD_OUT], np.random.default_rng(seed).permutation(table[HELD_OUT:])
    return (*_split(train), *_split(held_out))


def batches(
    x: Floats,
    y: Labels,
    size: int,
    *,
    seed: int,
    worker: int = 0,
    workers: int = 1,
    skip: int = 0,
) -> Iterator[Batch]:
    """Yield an endless series of batches of `size` examples, from the share of one worker.

    All workers use the same order of an epoch, and each takes every `workers`-th example of it, so
    no two train on the same example. Remaining examples of an epoch go into the next batch.
    The first `skip` batches are left out: those of the steps before a restart, so that a job that
    resumes goes on with the data that it would have had.
    """
    order = np.random.default_rng(seed)
    share = np.empty(0, dtype=np.intp)
    for batch in count():
        while len(share) < size:
            share = np.concatenate([share, order.permutation(len(x))[worker::workers]])
        chosen, share = share[:size], share[size:]
        if batch >= skip:
            yield x[chosen], y[chosen]


def _split(table: Floats) -> Batch:
    return table[:, :PIXELS] / np.float32(16), table[:, PIXELS].astype(np.int64)
