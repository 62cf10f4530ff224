"""Training whose disk may be full when it saves: it keeps its last whole checkpoint, and goes on.

A save is written under another name, in one call, and takes the place of the last one only when it
is on the disk. What can't be written is removed, and the next save tries again; the last one waits
until there is room. Each save and each restore is reported with a digest of the weights. Needs only
NumPy.
"""

import argparse
import hashlib
import io
import os
import time
from pathlib import Path

import digits
import events
import numpy as np

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
FOLDER = Path(os.environ.get("EMULATOR_SHARED", "."), "full_disk")
LEARNING_RATE = 0.5
REPORT_EVERY = 5
RETRY_EVERY = 0.2  # seconds


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train, and save to a disk that may be full.")
    parser.add_argument("--steps", type=int, default=400, help="until this step (400)")
    parser.add_argument("--batch", type=int, default=64, help="examples per step (64)")
    parser.add_argument("--save-every", type=int, default=25, help="steps (25)")
    parser.add_argument("--save-size", type=float, default=1, help="MiB of a save, at least (1)")
    parser.add_argument("--step-cost", type=float, default=0.02, help="seconds of a step (0.02)")
    return parser.parse_args()


def digest(weights: digits.Floats) -> str:
    """Return what tells these weights from others."""
    return hashlib.sha256(weights.tobytes()).hexdigest()[:16]


class Saves:
    """The last whole checkpoint, in one file."""

    def __init__(self, size: int) -> None:
        self.file, self.padding = FOLDER / "model.npz", np.zeros(size, np.uint8)
        self.refused = 0

    def restore(self) -> tuple[digits.Floats, int]:
        """Return the weights and the step of the last save, if there is one."""
        if not self.file.exists():
            return np.zeros((digits.PIXELS, digits.CLASSES), np.float32), 0
        with np.load(self.file) as saved:
            weights, step = saved["weights"], int(saved["step"])
        events.phase("restore", "begin")
        events.phase("restore", "end", step=step, digest=digest(weights))
        return weights, step

    def save(self, weights: digits.Floats, step: int) -> bool:
        """Replace the last save; return whether there was room for another."""
        content = io.BytesIO()
        np.savez(content, weights=weights, step=step, padding=self.padding)
        unfinished = self.file.with_suffix(".unfinished")
        events.phase("checkpoint", "begin", step=step)
        try:
            with unfinished.open("wb", buffering=0) as file:
                if file.write(content.getbuffer()) < content.getbuffer().nbytes:
                    raise OSError("the disk has room for a part of it only")
                os.fsync(file)
        except OSError as error:
            print(f"step {step} is not saved: {error}", flush=True)
            unfinished.unlink(missing_ok=True)
            self.refused += 1
            return False
        unfinished.replace(self.file)
        events.phase("checkpoint", "end", step=step, digest=digest(weights))
        return True


def main() -> None:
    """Resume, train, save, and report how good the model is."""
    options = arguments()
    FOLDER.mkdir(exist_ok=True)
    train_x, train_y, test_x, test_y = digits.load(SEED)
    saves = Saves(round(options.save_size * 2**20))
    weights, step = saves.restore()
    batches = digits.batches(train_x, train_y, options.batch, seed=SEED, skip=step)
    while step < options.steps:
        x, y = next(batches)
        scores = x @ weights
        guesses = np.exp(scores - scores.max(axis=1, keepdims=True))
        guesses /= guesses.sum(axis=1, keepdims=True)
        guesses[np.arange(len(y)), y] -= 1
        weights = weights - LEARNING_RATE * x.T @ guesses / len(y)
        step += 1
        time.sleep(options.step_cost)
        if step % REPORT_EVERY == 0:
            events.step(step, refused=saves.refused)
        if step % options.save_every == 0 and step < options.steps:
            saves.save(weights, step)
    while not saves.save(weights, step):
        time.sleep(RETRY_EVERY)
    accuracy = float(np.mean(np.argmax(test_x @ weights, axis=1) == test_y))
    events.step(step, accuracy=accuracy, refused=saves.refused)


if __name__ == "__main__":
    main()
