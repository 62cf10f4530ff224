"""One line of a task's output -> a step, a phase, or nothing (pure).

Tasks need no library of ours. A line of JSON `{"emulate": "step", "step": 120, ...}` is an event.
Everything else is read by named patterns, of what common frameworks print, or by the scenario's
own regex. docs/protocol.md is the users' page on it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from emulator.patterns import Pattern

__all__ = ["PATTERNS", "PHASES", "Observation", "StepReader"]

PHASES = ("startup", "data", "compile", "checkpoint", "restore", "eval")
"""The phases that a task can announce."""

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# A progress bar redraws its line with carriage returns or backspaces: several readings in one.
_REDRAW = re.compile(r"[\r\b]+")
REDRAWN = 1000
"""The last so many readings of a line that is redrawn are looked at; only the last one counts."""

_LARGEST = 2**63 - 1
"""Integers beyond are none to Parquet, TensorBoard or a float."""
_RESERVED = frozenset({"emulate", "n", "t", "wall", "event", "task", "self", "coalesced"})
"""Fields of the history that are ours to fill; a program's own values under them are left out."""


@dataclass(frozen=True)
class Observation:
    """What one line said: `event` is `step` or `phase`, `data` the rest of it."""

    event: str
    data: Mapping[str, object]


_KERAS = (
    r"^(?:Epoch (\d+)/\d+"
    r"|\s*(\d+)/(\d+|Unknown)\s+(?:\[|━|\S*\s*\d+s)"
    r"(?:.*?loss: (-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?))?)"
)
_TF1_HOOKS = r"(?:loss = (?P<loss>[\d.eE+-]+), )?\b(?:global_)?step = (?P<step>\d+)"
_TF1_GLOBAL_STEP = r"\bglobal[ _]step:? ?(?P<step>\d+)"
_PYTORCH_EXAMPLE = (
    r"Train Epoch: (\d+) \[(\d+)/(\d+) \(\s*\d+%\)\](?:\s+[Ll]oss[:=] ?(\d+(?:\.\d+)?))?"
)
_ANY = Pattern("|".join([_KERAS, _TF1_HOOKS, _TF1_GLOBAL_STEP, _PYTORCH_EXAMPLE]), groups=False)
"""Most lines are none of these, which is found out at once."""


@dataclass
class _Keras:
    """`Epoch 2/5`, then `12/100 [==>...] - loss: 0.41`: steps are counted across epochs.

    In the first epoch over a data set of unknown length it is `12/Unknown`.
    """

    epoch: int = 0
    _line = Pattern(_KERAS)

    def __call__(self, line: str) -> dict[str, object] | None:
        if not (match := self._line.search(line)):
            return None
        if (epoch := match[1]) is not None:
            self.epoch = int(epoch) - 1
            return None
        batch, batches, loss = match[2] or "", match[3] or "", match[4]
        before = 0 if batches == "Unknown" else self.epoch * int(batches)
        return {"step": before + int(batch), **({"loss": float(loss)} if loss else {})}


def _regex(pattern: str) -> Callable[[str], dict[str, object] | None]:
    """Read `step` and any other named groups, as numbers where they are. Raises ValueError."""
    compiled = Pattern(pattern)
    if "step" not in compiled.names:
        raise ValueError("a regex needs a group (?P<step>\\d+)")

    def read(line: str) -> dict[str, object] | None:
        match = compiled.search(line)
        if not match or not match[compiled.names["step"]]:
            return None
        texts = ((name, match[number]) for name, number in compiled.names.items())
        found = {name: _number(text) for name, text in texts if text}
        # A regex may catch something that is no number where the step should be.
        return found if isinstance(found["step"], int) else None

    return read


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@dataclass
class _PyTorchExample:
    """`Train Epoch: 2 [640/60000 (1%)]\tLoss: 0.41`: the step is the number of examples seen."""

    first_epoch: int = 1
    """0 in programs that count from there."""
    _line = Pattern(_PYTORCH_EXAMPLE)

    def __call__(self, line: str) -> dict[str, object] | None:
        if not (match := self._line.search(line)):
            return None
        epoch, seen, of = (int(match[group] or "") for group in (1, 2, 3))
        self.first_epoch = min(self.first_epoch, epoch)
        examples = (epoch - self.first_epoch) * of + seen
        loss = {"loss": float(match[4])} if match[4] else {}
        return {"step": examples, "examples": examples, **loss}


PATTERNS: Mapping[str, Callable[[], Callable[[str], dict[str, object] | None]]] = {
    # model.fit of Keras 2 and 3
    "keras": _Keras,
    # TF1's LoggingTensorHook and Estimator: "loss = 0.41, step = 200 (0.5 sec)"
    "tf1-hooks": lambda: _regex(_TF1_HOOKS),
    # TF's between-graph examples: "training step 1951 done (global step: 8084)"
    "tf1-global-step": lambda: _regex(_TF1_GLOBAL_STEP),
    # PyTorch's MNIST example
    "pytorch-example": _PyTorchExample,
}


@dataclass
class StepReader:
    """Reads one task's output line by line; remembers the pattern that fitted.

    `rule` is the scenario's `metrics.steps`: `auto`, `json`, a pattern's name, or a regex. Raises
    ValueError where it is none of these.
    """

    rule: str = "auto"
    _readers: list[Callable[[str], dict[str, object] | None]] = field(init=False)

    def __post_init__(self) -> None:
        if self.rule == "auto":
            self._readers = [make() for make in PATTERNS.values()]
        elif self.rule == "json":
            self._readers = []
        else:
            make = PATTERNS.get(self.rule)
            self._readers = [make() if make else _regex(self.rule)]

    def read(self, line: str) -> Observation | None:
        """Return what the line says, or None; never raises, whatever a program prints."""
        if line.startswith("{"):
            if observation := _event(line):
                if self.rule == "auto" and observation.event == "step":
                    self._readers = []  # it says so itself: a progress bar would count twice
                return observation
        elif not self._readers:
            return None
        last = None
        for part in _readings(line):
            last = self._match(part) or last
        return last

    def _match(self, part: str) -> Observation | None:
        if len(self._readers) > 1 and not _ANY.found(part):
            return None
        for reader in self._readers:
            try:
                found = reader(part)
            except ValueError:  # Python reads no integer of thousands of digits
                continue
            if found and (seen := _observation("step", found)):
                self._readers = [reader]  # one program, one way of printing
                return seen
        return None


def _readings(line: str) -> list[str]:
    """Return what a line showed, one after the other: a progress bar redraws it."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    return _REDRAW.split(line)[-REDRAWN:] if "\r" in line or "\b" in line else [line]


def _observation(event: str, said: Mapping[str, object]) -> Observation | None:
    """Return what was said without what no reader of the history could take; no step: nothing."""
    data = {key: _tellable(value) for key, value in said.items() if key not in _RESERVED}
    return Observation(event, data) if data.get(event) is not None else None


def _tellable(value: object) -> object:
    """Return None for a number that JSON has no word for (a loss of NaN), or no machine an int."""
    if isinstance(value, int):
        return value if -_LARGEST <= value <= _LARGEST else None
    return None if isinstance(value, float) and not math.isfinite(value) else value


_DECODER = json.JSONDecoder(
    parse_constant=lambda name: None,
    parse_float=lambda text: _tellable(float(text)),
    parse_int=lambda text: _tellable(int(text)),
)
"""Reads our own JSON lines; numbers inside lists and objects are told or not as well."""


def _event(line: str) -> Observation | None:
    """Read one of our own JSON lines; anything malformed is just output."""
    try:
        data = _DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    match data:
        case {"emulate": "step", "step": int(step)} if not isinstance(step, bool):
            return _observation("step", data)
        case {"emulate": "phase", "phase": str(), "state": "begin" | "end"}:
            return _observation("phase", data)
    return None
