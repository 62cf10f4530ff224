"""A training whose saves are wrong in one of three common ways, or mended: for `emulate sweep`.

    python saves.py --saves in-place | newest | tracker [--mended] [--steps 40] [--every 10]

`in-place`: two files, the weights and their step, are written over the old ones: between the two,
and within the first, what is there belongs to no step. Mended: one file that gets its name by a
rename when it is whole.

`newest`: each save has a file of its own, and the newest one is restored, complete or not. Mended:
it gets the name that is looked for by a rename when it is whole.

`tracker`: a file names the latest save, and is written before that is. Without the save that it
names, the training begins again. Mended: it is written after the save.

It needs nothing but Python. The weights are a function of the step, so that all runs make the same
calls to the kernel, and a digest says whether what is restored had been saved.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from array import array
from collections.abc import Callable
from pathlib import Path

SIZE = 4096
"""Numbers in the weights."""
PARTS = 4
"""Writes of a save: a real one is made of many."""


def tell(**fields: object) -> None:
    """Print a line that emulate reads."""
    print(json.dumps(fields), flush=True)


def digest(weights: array[float]) -> str:
    """Return what tells these weights from others."""
    return hashlib.sha256(weights.tobytes()).hexdigest()[:16]


def phase(name: str, state: str, step: int, weights: array[float]) -> None:
    """Report a save or a restore."""
    tell(emulate="phase", phase=name, state=state, step=step, digest=digest(weights))


def write(path: Path, data: bytes) -> None:
    """Write a file in several calls, and have the disk keep it."""
    with open(path, "wb", buffering=0) as file:
        size = -(-len(data) // PARTS)
        for begin in range(0, len(data), size):
            file.write(data[begin : begin + size])
        os.fsync(file)


def whole(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all."""
    begun = path.with_name(f"{path.name}.tmp")
    write(begun, data)
    os.replace(begun, path)


def weights_in(data: bytes) -> array[float]:
    """Return weights as they are in a file, zeros for what is missing."""
    found = array("d")
    found.frombytes(data[: len(data) // 8 * 8])
    found.extend(0.0 for _ in range(SIZE - len(found)))
    return found[:SIZE]


Saved = tuple[int, array]


class InPlace:
    """The weights and the step are two files, which each save writes over."""

    def __init__(self, folder: Path, *, mended: bool) -> None:
        self._folder, self._mended = folder, mended

    def save(self, step: int, weights: array[float]) -> None:
        """Write both, or one that has both."""
        if self._mended:
            whole(self._folder / "state.bin", step.to_bytes(8, "little") + weights.tobytes())
            return
        write(self._folder / "weights.bin", weights.tobytes())
        (self._folder / "step.txt").write_text(str(step))

    def restore(self) -> Saved | None:
        """Return what is there."""
        if self._mended:
            state = self._folder / "state.bin"
            data = state.read_bytes() if state.exists() else None
            return data and (int.from_bytes(data[:8], "little"), weights_in(data[8:]))
        weights, step = self._folder / "weights.bin", self._folder / "step.txt"
        if not (weights.exists() and step.exists()):
            return None
        return int(step.read_text() or 0), weights_in(weights.read_bytes())


class Newest:
    """The newest file is restored."""

    def __init__(self, folder: Path, *, mended: bool) -> None:
        self._folder, self._write = folder, whole if mended else write

    def save(self, step: int, weights: array[float]) -> None:
        """Write a file of its own."""
        self._write(self._folder / f"model-{step:04}.bin", weights.tobytes())

    def restore(self) -> Saved | None:
        """Return the newest one."""
        found = sorted(self._folder.glob("model-*.bin"))
        if not found:
            return None
        return int(found[-1].stem.split("-")[1]), weights_in(found[-1].read_bytes())


class Tracker:
    """A file names the latest save."""

    def __init__(self, folder: Path, *, mended: bool) -> None:
        self._folder, self._mended = folder, mended

    def save(self, step: int, weights: array[float]) -> None:
        """Write the save and the file that names it, in the right order if it is mended."""
        model, latest = self._folder / f"model-{step:04}.bin", self._folder / "latest.txt"
        if not self._mended:
            whole(latest, str(step).encode())
        whole(model, weights.tobytes())
        if self._mended:
            whole(latest, str(step).encode())

    def restore(self) -> Saved | None:
        """Return the one that is named, if it is there."""
        latest = self._folder / "latest.txt"
        step = int(latest.read_text()) if latest.exists() else 0
        model = self._folder / f"model-{step:04}.bin"
        return (step, weights_in(model.read_bytes())) if model.exists() else None


SAVES: dict[str, Callable[..., InPlace | Newest | Tracker]] = {
    "in-place": InPlace,
    "newest": Newest,
    "tracker": Tracker,
}


def main() -> None:
    """Train, and save every few steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--saves", choices=SAVES, required=True)
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    folder = Path(os.environ["EMULATOR_SHARED"])
    saves = SAVES[options.saves](folder, mended=options.mended)
    done, weights = 0, array("d", [0.0] * SIZE)
    if (restored := saves.restore()) is not None:
        done, weights = restored
        phase("restore", "begin", done, weights)
        phase("restore", "end", done, weights)
    for step in range(done + 1, options.steps + 1):
        weights = array("d", (value + step * (place % 7) for place, value in enumerate(weights)))
        tell(emulate="step", step=step)
        if step % options.every == 0:
            phase("checkpoint", "begin", step, weights)
            saves.save(step, weights)
            phase("checkpoint", "end", step, weights)


if __name__ == "__main__":
    main()
