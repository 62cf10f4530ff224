"""A training of a line, as people write one: it prints its loss, and nothing for the emulator.

    python train.py --out FOLDER [--bug NAME] [--steps 30] [--every 10] [--pause 0]

Each bug is one that a run without a fault does not show:

two-files     the weights and the step are two files, written one after the other in place
newest        the newest save is loaded, whole or not, with zeros for what is missing
tracker       the file that names the latest save is written before the save
no-optimizer  the momentum of the optimizer is not restored
data-order    the order of the data is not restored
counter       the step is restored, and the weights are not

It needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
from pathlib import Path
from typing import Any

BUGS = ("two-files", "newest", "tracker", "no-optimizer", "data-order", "counter")
SIZE = 200
"""Numbers in the weights."""


def write(path: Path, content: object) -> None:
    """Write a file in several pieces."""
    text = json.dumps(content)
    with open(path, "w", buffering=1) as file:
        for begin in range(0, len(text), 2000):
            file.write(text[begin : begin + 2000])
            file.flush()


def whole(path: Path, content: object) -> None:
    """Write a file that is there as a whole or not at all."""
    begun = path.with_suffix(".tmp")
    write(begun, content)
    os.replace(begun, path)


def read(path: Path) -> Any:
    """Return what a file has; None: it is not there, or not whole."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


class Saves:
    """Saves in a folder, rightly or with a bug."""

    def __init__(self, folder: Path, bug: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._bug = folder, bug

    def save(self, state: dict[str, Any]) -> None:
        """Save a state."""
        folder, step = self._folder, state["step"]
        if self._bug == "two-files":
            write(folder / "weights.json", state["weights"])
            write(folder / "rest.json", {key: state[key] for key in state if key != "weights"})
        elif self._bug == "newest":
            write(folder / f"model-{step:04}.json", state)
        elif self._bug == "tracker":
            whole(folder / "latest.json", step)
            whole(folder / f"model-{step:04}.json", state)
        else:
            whole(folder / f"model-{step:04}.json", state)

    def load(self) -> dict[str, Any] | None:
        """Return what was saved last."""
        folder = self._folder
        if self._bug == "two-files":
            weights, rest = read(folder / "weights.json"), read(folder / "rest.json")
            return {**rest, "weights": weights} if weights and rest else None
        if self._bug == "tracker":
            step = read(folder / "latest.json")
            return None if step is None else read(folder / f"model-{step:04}.json")
        if self._bug == "newest" and (found := sorted(folder.glob("model-*.json"))):
            words = re.findall(r"-?\d+\.\d+", found[-1].read_text().rpartition("[")[2])
            numbers, state = [float(word) for word in words], read(found[-1])
            if state is None:
                step = int(found[-1].stem.split("-")[1])
                weights = [*numbers, *[0.0] * SIZE][:SIZE]
                state = {"step": step, "momentum": [0.0] * SIZE, "drawn": step, "weights": weights}
            return dict(state)
        return read(found[-1]) if (found := sorted(folder.glob("model-*.json"))) else None


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bug", choices=BUGS, default="")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--pause", type=float, default=0.0, help="Seconds that a step takes.")
    options = parser.parse_args()
    saves = Saves(options.out, options.bug)
    state: dict[str, Any] = {
        "step": 0,
        "momentum": [0.0] * SIZE,
        "drawn": 0,
        "weights": [0.0] * SIZE,
    }
    if (saved := saves.load()) is not None:
        if options.bug == "no-optimizer":
            saved["momentum"] = state["momentum"]
        elif options.bug == "data-order":
            saved["drawn"] = 0
        elif options.bug == "counter":
            saved["weights"] = state["weights"]
        state = saved
    order = random.Random(0)
    for _ in range(state["drawn"]):
        order.random()
    weights, momentum = state["weights"], state["momentum"]
    for step in range(state["step"] + 1, options.steps + 1):
        data = order.random()
        errors = [weight - data - place / SIZE for place, weight in enumerate(weights)]
        momentum = [0.9 * past + error for past, error in zip(momentum, errors, strict=True)]
        weights = [weight - 0.05 * m for weight, m in zip(weights, momentum, strict=True)]
        loss = sum(error * error for error in errors) / SIZE
        print(f"step {step} loss {loss:.6f}", flush=True)
        time.sleep(options.pause)
        if step % options.every == 0:
            drawn = state["drawn"] + step - state["step"]
            saves.save({"step": step, "momentum": momentum, "drawn": drawn, "weights": weights})


if __name__ == "__main__":
    main()
