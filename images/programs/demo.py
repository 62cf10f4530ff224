"""Train a classifier of digits on several workers, in plain Python: the program of `emulate demo`.

    python demo.py [--steps 300] [--save-every 120] [--step-time 0.025]

Every worker computes the gradient of its share of a batch; worker 0 averages them and sends the
average to all, so that all always have the same weights. It saves these on the shared volume, from
where all continue after a restart. A worker whose connection is lost ends with exit code 1, as in
other synchronous training: alone it can't make a step.

It needs nothing but Python. EMULATOR_CLUSTER has the addresses of all workers; without it, one
worker trains alone.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import operator
import os
import random
import socket
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

CLASSES, PIXELS = 10, 64
HELD_OUT = 360
LEARNING_RATE = 0.5
REPORT_EVERY = 10
PATIENCE = 120.0
"""Seconds for the workers to find each other."""

Image = tuple[list[float], int]
"""Pixels from 0 to 1 with a constant 1 behind them, and the digit."""


def tell(**fields: object) -> None:
    """Print a line that emulate reads."""
    print(json.dumps(fields), flush=True)


def load() -> tuple[list[Image], list[Image]]:
    """Return images to train on, and others to measure the accuracy with."""
    with gzip.open(Path(__file__).with_name("digits.csv.gz"), "rt") as file:
        rows = [[float(value) for value in row] for row in csv.reader(file)]
    random.Random(0).shuffle(rows)
    images = [([*(pixel / 16 for pixel in row[:PIXELS]), 1.0], int(row[PIXELS])) for row in rows]
    return images[HELD_OUT:], images[:HELD_OUT]


def probabilities(weights: Sequence[float], pixels: list[float]) -> list[float]:
    """Return how probable each digit is."""
    size = len(pixels)
    scores = [
        sum(map(operator.mul, weights[digit * size : (digit + 1) * size], pixels))
        for digit in range(CLASSES)
    ]
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]


def gradient(weights: Sequence[float], batch: Sequence[Image]) -> array[float]:
    """Return the mean gradient of the loss, and behind it the mean loss."""
    total = array("d", bytes(8 * (len(weights) + 1)))
    for pixels, digit in batch:
        found = probabilities(weights, pixels)
        total[-1] -= math.log(max(found[digit], 1e-12)) / len(batch)
        found[digit] -= 1
        for number, error in enumerate(found):
            share, begin = error / len(batch), number * len(pixels)
            for place, pixel in enumerate(pixels):
                if pixel:
                    total[begin + place] += share * pixel
    return total


# --- The cluster ----------------------------------------------------------------------------------


class Lost(Exception):
    """The connection to another worker has ended."""


def receive(peer: socket.socket, size: int) -> array[float]:
    """Return so many numbers from another worker. Raises Lost."""
    data, missing = bytearray(), size * 8
    while len(data) < missing:
        try:
            part = peer.recv(missing - len(data))
        except OSError as error:
            raise Lost(str(error)) from None
        if not part:
            raise Lost("the connection is closed")
        data += part
    return array("d", bytes(data))


def send(peer: socket.socket, numbers: array[float]) -> None:
    """Send numbers to another worker. Raises Lost."""
    try:
        peer.sendall(numbers.tobytes())
    except OSError as error:
        raise Lost(str(error)) from None


def connect(addresses: Sequence[str], index: int) -> list[socket.socket]:
    """Wait for the others; return their connections, of worker 0 alone in all other workers."""
    if len(addresses) == 1:
        return []
    host, _, port = addresses[0].rpartition(":")
    if index == 0:
        listener = socket.create_server((host, int(port)))
        listener.settimeout(PATIENCE)
        return [listener.accept()[0] for _ in addresses[1:]]
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return [socket.create_connection((host, int(port)))]
        except OSError:  # it does not listen yet
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def average(mine: array[float], peers: Sequence[socket.socket], index: int) -> array[float]:
    """Return the mean of what all workers have. Raises Lost."""
    if index:
        send(peers[0], mine)
        return receive(peers[0], len(mine))
    everything = [mine, *(receive(peer, len(mine)) for peer in peers)]
    mean = array("d", (sum(values) / len(everything) for values in zip(*everything, strict=True)))
    for peer in peers:
        send(peer, mean)
    return mean


# --- Checkpoints ----------------------------------------------------------------------------------


def save(path: Path, step: int, weights: array[float]) -> None:
    """Write a checkpoint that is there as a whole or not at all."""
    tell(emulate="phase", phase="checkpoint", state="begin", step=step)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"step": step, "weights": list(weights)}))
    os.replace(new, path)
    tell(emulate="phase", phase="checkpoint", state="end", step=step)


def restore(path: Path) -> tuple[int, array[float]]:
    """Return the step and the weights of the last checkpoint; zeros if there is none."""
    if not path.exists():
        return 0, array("d", bytes(8 * CLASSES * (PIXELS + 1)))
    tell(emulate="phase", phase="restore", state="begin")
    saved = json.loads(path.read_text())
    tell(emulate="phase", phase="restore", state="end", step=saved["step"])
    return saved["step"], array("d", saved["weights"])


def accuracy(weights: Sequence[float], images: Sequence[Image]) -> float:
    """Return the share of images whose digit is the most probable one."""
    right = 0
    for pixels, digit in images:
        found = probabilities(weights, pixels)
        right += found.index(max(found)) == digit
    return right / len(images)


def train(
    options: argparse.Namespace, peers: Sequence[socket.socket], index: int, workers: int
) -> None:
    """Train to the last step, from the last checkpoint on. Raises Lost."""
    images, held_out = load()
    checkpoint = Path(os.environ.get("EMULATOR_SHARED", "."), "demo.json")
    done, weights = restore(checkpoint)
    for step in range(done + 1, options.steps + 1):
        begun = time.monotonic()
        # All draw the same batch, and each takes its share of it.
        batch = random.Random(step).sample(images, options.batch * workers)[index::workers]
        mean = average(gradient(weights, batch), peers, index)
        for place in range(len(weights)):
            weights[place] -= LEARNING_RATE * mean[place]
        # The rest of the time stands for the work of a larger model.
        time.sleep(max(0.0, begun + options.step_time - time.monotonic()))
        if step % REPORT_EVERY == 0 or step == options.steps:
            values = {"examples": step * options.batch * workers, "loss": round(mean[-1], 4)}
            if step == options.steps and index == 0:
                values["accuracy"] = round(accuracy(weights, held_out), 4)
            tell(emulate="step", step=step, **values)
        if step % options.save_every == 0 and index == 0:
            save(checkpoint, step, weights)


def main() -> None:
    """Find the other workers, and train with them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16, help="examples a step and worker (16)")
    parser.add_argument("--save-every", type=int, default=120)
    parser.add_argument("--step-time", type=float, default=0.025, help="seconds, at least (0.025)")
    options = parser.parse_args()
    addresses = json.loads(os.environ.get("EMULATOR_CLUSTER", "{}")).get("worker", ["alone"])
    index = int(os.environ.get("EMULATOR_INDEX", "0"))
    try:
        train(options, connect(addresses, index), index, len(addresses))
    except Lost as lost:
        sys.exit(f"another worker is lost, and this one can't continue alone: {lost}")


if __name__ == "__main__":
    main()
