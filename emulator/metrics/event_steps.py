"""Steps from TensorBoard's event files, as `event_files.py` prints their scalars (pure).

A step is reported when a task writes a scalar of a later step than before. Scalars of validation
(`val_loss`, `Loss/test`, all in a folder `validation`) are no steps, nor are those of earlier
steps, which count epochs as a rule: they are values of the last step. Once there is a loss, only
the loss makes steps. A program that starts again may go back: a file that it began after the start
counts from the beginning.

Of several losses, such as those of the parts of a model, one is the `loss`: the plain one, or the
total, else the first that was written; likewise of several accuracies.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.metrics.formats import ACCURACY
from emulator.metrics.steps import DECODER, Observation, observation_of

_WORD = re.compile(r"[a-z0-9]+")
_VALIDATION = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "testing"})


_ASIDE = _VALIDATION | {"train", "training", "epoch", "batch", "step", "mean", "avg", "average"}
"""Words of a scalar's name that say of what it is a loss, and not of which part."""
_TOTAL = frozenset({"total", "all", "overall", "sum"})


@dataclass(frozen=True)
class Reported:
    """What an event file has of one step."""

    task: str
    wall: float
    """When the program wrote it, in seconds since 1970."""
    seen: Observation


@dataclass
class _Progress:
    """One start of a task."""

    step: int | None = None
    has_loss: bool = False
    tags: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By the name of a value, such as `loss`: how plain the scalar is that has it, and its tag."""

    def has(self, name: str, tag: str) -> bool:
        """Return whether a scalar is the value of this name; a plainer one takes its place."""
        plain = _plainness(tag)
        best = self.tags.setdefault(name, (plain, tag))
        if plain > best[0]:
            best = self.tags[name] = (plain, tag)
        return tag == best[1]


class EventSteps:
    """Reads the scalars of all tasks, in the order in which they are printed."""

    def __init__(self) -> None:
        self._progress: dict[tuple[str, int], _Progress] = {}
        self._has_accuracy: set[str] = set()

    def read(self, line: str, starts: Mapping[str, Sequence[float]]) -> Reported | None:
        """Return the step in a line, or None; never raises.

        `starts`: when each task was started, in seconds since 1970, ascending. What an earlier
        start of a task has reported is no step any more.
        """
        match decoded(line):
            case {
                "emulate": "scalars",
                "task": str(task),
                "file": str(path),
                "begun": int() | float() as begun,
                "wall": int() | float() as wall,
                "step": int(step),
                "values": dict(scalars),
            } if task in starts and step >= 0:
                number = bisect_right(starts[task], begun)
                if number < len(starts[task]):
                    return None
                progress = self._progress.setdefault((task, number), _Progress())
                seen = self._read_event(progress, task, path, step, scalars)
                return Reported(task, round(float(wall), 6), seen) if seen else None
        return None

    def _read_event(
        self, progress: _Progress, task: str, path: str, step: int, scalars: Mapping[str, Any]
    ) -> Observation | None:
        aside = _is_of_validation(path, task)
        meanings = {tag: _meaning(tag, aside=aside) for tag in scalars}
        counts = any(
            name == "loss" or (of_training and not progress.has_loss)
            for name, of_training in meanings.values()
        )
        if progress.step is None and not counts:
            return None  # nothing yet of which these could be values
        values = {
            name: scalars[tag]
            for tag, (name, _) in meanings.items()
            if name and progress.has(name, tag)
        }
        if counts and (progress.step is None or step > progress.step):
            progress.step = step
            progress.has_loss |= "loss" in values
        elif not values:
            return None
        if "accuracy" in values:
            self._has_accuracy.add(task)
        elif task not in self._has_accuracy:
            found = [values[name] for name in ACCURACY if name in values]
            if found:
                values["accuracy"] = found[0]
        return observation_of("step", {**values, "step": progress.step})


def _meaning(tag: str, *, aside: bool) -> tuple[str, bool]:
    """Return the name of a scalar's value, empty for others, and whether it is of training."""
    words = _WORD.findall(tag.lower())
    if "hparam" in words:  # a result of the whole program, with step 0
        return "", False
    of_training = not aside and _VALIDATION.isdisjoint(words)
    name = ""
    if any(word.endswith("loss") for word in words):
        name = "loss"
    elif any(word == "acc" or word.endswith("accuracy") for word in words):
        name = "accuracy"
    return (name if of_training or not name else f"val_{name}"), of_training


def _plainness(tag: str) -> int:
    """Return 2 for a plain `loss`, `train/loss` or `epoch_accuracy`, 1 for a total, else 0."""
    words = [word for word in _WORD.findall(tag.lower().replace("_", " ")) if word not in _ASIDE]
    if len(words) <= 1:
        return 2
    return int(not _TOTAL.isdisjoint(words))


def _is_of_validation(path: str, task: str) -> bool:
    """Return whether a file is in a folder for validation, such as `validation` or `Loss_test`."""
    folders = [one for one in posixpath.dirname(path).lower().split("/") if one != task]
    return any(_VALIDATION & {*_WORD.findall(folder)[-1:]} for folder in folders)


def decoded(line: str) -> Any:  # noqa: ANN401  anything that JSON has
    """Return what a line of JSON has; None for another line."""
    if not line.startswith("{"):
        return None
    try:
        return DECODER.decode(line)
    except (ValueError, RecursionError):
        return None


def unwritten(reported: Sequence[Reported], last: tuple[int, float] | None) -> Sequence[Reported]:
    """Return what one task has reported after the `last` step and time in the history.

    None: the history has no step of it. Without what the history has last, nothing is returned,
    so that no step is written twice.
    """
    if last is None:
        return reported
    for number in range(len(reported), 0, -1):
        if (reported[number - 1].seen.data["step"], reported[number - 1].wall) == last:
            return reported[number:]
    return ()
