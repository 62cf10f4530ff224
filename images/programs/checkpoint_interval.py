"""The same training with several checkpoint intervals at once, to see which is best.

Each interval has a job of its own, a thread of this program, so that exactly the same preemptions
hit all of them. They train for a fixed time, which includes all interruptions. A job that saves
often spends its time on saving, one that saves seldom does many steps again. Look at
`efficiency_25`, the share of the time that went into steps which were kept, with a save every 25
steps, and at `best`, the best interval in steps. A save takes `--save-cost` seconds longer than
writing the file, as if the model were large. Needs only NumPy.
"""

import argparse
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import digits
import events
import numpy as np

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
FOLDER = Path(os.environ.get("EMULATOR_SHARED", "."), "checkpoint_interval")
LEARNING_RATE = 0.5
REPORT_EVERY = 0.2  # seconds


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train for a time, with several intervals.")
    parser.add_argument("--seconds", type=float, default=30, help="from the first start (30)")
    parser.add_argument("--batch", type=int, default=64, help="examples per step (64)")
    parser.add_argument("--step-cost", type=float, default=0.02, help="seconds of a step (0.02)")
    parser.add_argument("--save-cost", type=float, default=0.2, help="seconds of a save (0.2)")
    parser.add_argument(
        "--save-every", type=int, nargs="+", default=[50], help="steps, of each job (50)"
    )
    return parser.parse_args()


class Job:
    """A softmax regression that saves every `every` steps, and resumes from its last save."""

    def __init__(self, every: int, options: argparse.Namespace) -> None:
        self.every, self.options = every, options
        self.weights, self.step = np.zeros((digits.PIXELS, digits.CLASSES), np.float32), 0
        self.saves, self.save_seconds = 0, 0.0
        self.file = FOLDER / f"every-{every}.npz"
        if self.file.exists():
            saved = np.load(self.file)
            self.weights, self.step = saved["weights"], int(saved["step"])

    def train(self, x: digits.Floats, y: digits.Labels, end: float) -> None:
        """Train until the time `end`."""
        cost = self.options.step_cost
        batches = digits.batches(x, y, self.options.batch, seed=SEED, skip=self.step)
        due = time.time()
        while time.time() < end:
            self.update(*next(batches))
            self.step += 1
            due += cost
            time.sleep(max(0.0, due - time.time()))
            if self.step % self.every == 0:
                self.save()
                due = time.time()

    def update(self, x: digits.Floats, y: digits.Labels) -> None:
        """Make a step down the gradient of the mean cross entropy."""
        scores = x @ self.weights
        guesses = np.exp(scores - scores.max(axis=1, keepdims=True))
        guesses /= guesses.sum(axis=1, keepdims=True)
        guesses[np.arange(len(y)), y] -= 1
        self.weights = self.weights - LEARNING_RATE * x.T @ guesses / len(y)

    def save(self) -> None:
        """Replace the last save in one step: a job that is killed leaves it whole."""
        began = time.monotonic()
        unfinished = self.file.with_suffix(".unfinished.npz")
        np.savez(unfinished, weights=self.weights, step=self.step)
        time.sleep(self.options.save_cost)
        unfinished.replace(self.file)
        self.saves += 1
        self.save_seconds += time.monotonic() - began


def first_start() -> float:
    """Return when this program started for the first time, in seconds since 1970."""
    FOLDER.mkdir(exist_ok=True)
    note = FOLDER / "first-start"
    if not note.exists():
        unfinished = note.with_suffix(".unfinished")
        unfinished.write_text(str(time.time()))
        unfinished.replace(note)
    return float(note.read_text())


def save_cost(jobs: Sequence[Job]) -> dict[str, float]:
    """Return the mean time of a save, if there was one since this start."""
    if saves := sum(job.saves for job in jobs):
        return {"save_seconds": sum(job.save_seconds for job in jobs) / saves}
    return {}


def main() -> None:
    """Resume all jobs, train until the time is over, report what was kept."""
    options = arguments()
    end = first_start() + options.seconds
    train_x, train_y, test_x, test_y = digits.load(SEED)

    events.phase("restore", "begin")
    jobs = [Job(every, options) for every in options.save_every]
    events.phase("restore", "end", step=sum(job.step for job in jobs))

    threads = [
        # A daemon does not keep a program alive that gets SIGTERM.
        threading.Thread(target=job.train, args=(train_x, train_y, end), daemon=True)
        for job in jobs
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(REPORT_EVERY)
        events.step(sum(job.step for job in jobs), **save_cost(jobs))  # of all jobs together

    best = max(jobs, key=lambda job: job.step)
    events.step(
        sum(job.step for job in jobs),
        accuracy=float(np.mean(np.argmax(test_x @ best.weights, axis=1) == test_y)),
        best=best.every,
        step_cost=options.step_cost,
        **{f"efficiency_{j.every}": j.step * options.step_cost / options.seconds for j in jobs},
    )


if __name__ == "__main__":
    main()
