"""Parse one line of a task's output into a step, a phase, or nothing (pure).

Tasks need no library. A JSON line `{"emulate": "step", "step": 120, ...}` is an event. Other lines
are matched with named patterns for common frameworks, or with the scenario's regex. Described for
users in docs/protocol.md.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from emulator.validation.patterns import Pattern

PHASES = ("startup", "data", "compile", "checkpoint", "restore", "eval")
"""The standard phases."""

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# A progress bar redraws its line with carriage returns or backspaces.
_REDRAW = re.compile(r"[\r\b]+")
REDRAWN = 1000
"""Redraws of one line that are parsed, from its end; the last match counts."""

_LARGEST = 2**63 - 1
"""The largest integer of Parquet and TensorBoard."""
_RESERVED = frozenset({"emulate", "n", "t", "wall", "event", "task", "self", "coalesced"})
"""Fields set by the emulator; a program's values with these names are dropped."""


@dataclass(frozen=True)
class Observation:
    """The content of one line: `event` is `step` or `phase`, `data` has its fields."""

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
"""All patterns in one search, because most lines match none."""


@dataclass
class _Keras:
    """`Epoch 2/5`, then `12/100 [==>...] - loss: 0.41`; counts steps across epochs.

    The first epoch over a data set of unknown length prints `12/Unknown`.
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
    """Return a reader of the named groups, as numbers if possible. Raises ValueError."""
    compiled = Pattern(pattern)
    if "step" not in compiled.names:
        raise ValueError("a regex needs a group (?P<step>\\d+)")

    def read(line: str) -> dict[str, object] | None:
        match = compiled.search(line)
        if not match or not match[compiled.names["step"]]:
            return None
        texts = ((name, match[number]) for name, number in compiled.names.items())
        values = {name: _number(text) for name, text in texts if text}
        # The group `step` may match something that is not a number.
        return values if isinstance(values["step"], int) else None

    return read


def _number(text: str) -> object:
    """Return the text as a number, if it is one."""
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
    """0 in programs that count from 0."""
    _line = Pattern(_PYTORCH_EXAMPLE)

    def __call__(self, line: str) -> dict[str, object] | None:
        if not (match := self._line.search(line)):
            return None
        epoch, examples, total = (int(match[group] or "") for group in (1, 2, 3))
        self.first_epoch = min(self.first_epoch, epoch)
        examples += (epoch - self.first_epoch) * total
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
    """Parses one task's output line by line, and keeps using the first pattern that matched.

    `rule` is the scenario's `metrics.steps`: `auto`, `json`, a pattern's name, or a regex. Raises
    ValueError if it is not valid.
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
        """Return the step or phase in a line, or None; never raises."""
        if line.startswith("{"):
            if observation := _event(line):
                if self.rule == "auto" and observation.event == "step":
                    self._readers = []  # else a progress bar would count twice
                return observation
        elif not self._readers:
            return None
        last = None
        for part in _redraws(line):
            last = self._match(part) or last
        return last

    def _match(self, part: str) -> Observation | None:
        if len(self._readers) > 1 and not _ANY.matches(part):
            return None
        for reader in self._readers:
            try:
                values = reader(part)
            except ValueError:  # an integer of more than 4,300 digits
                continue
            if values and (observation := _observation("step", values)):
                self._readers = [reader]  # a program uses one pattern
                return observation
        return None


def _redraws(line: str) -> list[str]:
    """Return the successive redraws of a line."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    return _REDRAW.split(line)[-REDRAWN:] if "\r" in line or "\b" in line else [line]


def _observation(event: str, fields: Mapping[str, object]) -> Observation | None:
    """Return the event with storable values only; None if its main field is missing."""
    data = {key: _storable(value) for key, value in fields.items() if key not in _RESERVED}
    return Observation(event, data) if data.get(event) is not None else None


def _storable(value: object) -> object:
    """Return the value; None for NaN, infinity and integers of more than 64 bits."""
    if isinstance(value, int):
        return value if -_LARGEST <= value <= _LARGEST else None
    return None if isinstance(value, float) and not math.isfinite(value) else value


_DECODER = json.JSONDecoder(
    parse_constant=lambda name: None,
    parse_float=lambda text: _storable(float(text)),
    parse_int=lambda text: _storable(int(text)),
)
"""Decodes JSON lines; also checks numbers inside lists and objects."""


def _event(line: str) -> Observation | None:
    """Parse a JSON line of the protocol; None if it is malformed."""
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
