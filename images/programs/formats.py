"""What the programs of the clinic of formats share: a state, its digest, a loop that saves.

Each of `formats_torch.py`, `formats_tensorflow.py` and `formats_jax.py` saves by the format that
`--format` names, and resumes as the documentation of its library does it. Steps cost nothing. Each
makes its state from the one before, so that whoever goes on from a wrong state ends with another.
Every save and every restore is reported with the digest of the arrays.
"""

import argparse
import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import events
import numpy as np

SAVES = Path(os.environ.get("EMULATOR_SHARED", "."), "saves")
SIZE = 768 * 1024
"""Numbers in the weights: 3 MiB. The momentum has a third, so that the middle of any file that has
both is one of the weights.
"""

Arrays = dict[str, np.ndarray]


KEPT = np.float32(0.9)
"""How much of its state a step keeps."""


def arrays_of(step: int) -> Arrays:
    """Return what a step learns: weights, momentum and bias."""
    count = np.arange(SIZE, dtype=np.float32)
    weights = np.sin(count * 1e-3 + step, dtype=np.float32)
    momentum = np.cos(count[::3] * 1e-3 + step, dtype=np.float32)
    return {
        "weights": weights,
        "momentum": momentum,
        "bias": weights[:16].copy(),
    }


def learned(arrays: Arrays, step: int) -> Arrays:
    """Return the state after a step, from the one before it."""
    new = arrays_of(step)
    return {name: KEPT * array + (1 - KEPT) * new[name] for name, array in arrays.items()}


def loss(arrays: Arrays) -> float:
    """Return a number that tells one state from another."""
    return float(np.square(arrays["bias"]).mean())


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Return a digest of arrays; their order counts."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def saving(step: int, arrays: Iterable[np.ndarray]) -> AbstractContextManager[None]:
    """Report a save: its begin and, unless it fails, its end."""
    return events.during("checkpoint", step=step, digest=digest(arrays))


def restored(step: int, arrays: Iterable[np.ndarray]) -> None:
    """Report that training resumes from a step, with what was loaded."""
    events.phase("restore", "end", step=step, digest=digest(arrays))


class Format(Protocol):
    """A way to save a state and to find it again."""

    state: Arrays
    """What a save has, and after a restore what was loaded."""

    def restore(self) -> int | None:
        """Load the latest state there is; return its step, or None if there is none."""

    def save(self, step: int) -> None:
        """Save the state."""


def arguments(formats: Iterable[str], description: str) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--format", choices=[*formats], required=True, help="how it is saved")
    parser.add_argument("--steps", type=int, default=40, help="steps to train (40)")
    parser.add_argument("--save-every", type=int, default=10, help="steps between saves (10)")
    parser.add_argument("--step-cost", type=float, default=0, help="seconds of each step (0)")
    parser.add_argument(
        "--hold-at", type=int, help="wait there, in the first life alone, until it is killed"
    )
    parser.add_argument(
        "--end-at", type=int, help="end there, in the first life alone, as if it were killed"
    )
    return parser.parse_args()


class Steps:
    """Reports steps, and waits where it is told to; for loops of a library, too."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Remember what the command line says."""
        self.options = options
        lived = Path("lived")  # on the task's own disk, which outlives a restart
        self.first_life = not lived.exists()
        lived.touch()

    def made(self, step: int, loss: float) -> None:
        """Report a step."""
        time.sleep(self.options.step_cost)
        events.step(step, loss=loss)
        if step == self.options.hold_at and self.first_life:
            signal.pause()
        if step == self.options.end_at and self.first_life:
            os._exit(1)


def train(formats: Mapping[str, Callable[[], Format]], description: str) -> None:
    """Resume, make steps, save."""
    options = arguments(formats, description)
    SAVES.mkdir(parents=True, exist_ok=True)
    saver, steps = formats[options.format](), Steps(options)
    events.phase("restore", "begin")
    first = saver.restore()
    if first is not None:
        restored(first, saver.state.values())
    for step in range((first or 0) + 1, options.steps + 1):
        saver.state = learned(saver.state, step)
        steps.made(step, loss(saver.state))
        if step % options.save_every == 0:
            with saving(step, saver.state.values()):
                saver.save(step)
