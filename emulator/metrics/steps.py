"""Parse one line of a task's output into a step, a phase, or nothing (pure).

Tasks need no library. A JSON line `{"emulate": "step", "step": 120, ...}` is an event. Other lines
are matched with the formats of common libraries (`formats.py`), or with the scenario's regex. A
progress bar is read before its line is finished: see `StepReader.read_part`. Described for users in
docs/protocol.md.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emulator.metrics.formats import (
    ACCURACY,
    FORMATS,
    NOTHING,
    Counter,
    Format,
    GroupsCounter,
    Reading,
)
from emulator.validation.patterns import Pattern

PHASES_ONLY = "phases"
"""The rule where steps come from somewhere else: no line has a step."""
PHASES = ("startup", "data", "compile", "checkpoint", "restore", "eval")
"""The standard phases."""

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# A progress bar redraws its line with carriage returns or backspaces.
_REDRAW = re.compile(r"[\r\b]+")
REDRAWN = 10_000
"""Drawings of one line that are parsed, from its end."""

_LARGEST = 2**63 - 1
"""The largest integer of Parquet and TensorBoard."""
_RESERVED = frozenset({"emulate", "n", "t", "wall", "event", "task", "self", "coalesced"})
"""Fields set by the emulator; a program's values with these names are dropped."""


@dataclass(frozen=True)
class Observation:
    """The content of one line: `event` is `step` or `phase`, `data` has its fields."""

    event: str
    data: Mapping[str, object]


def _groups(pattern: str) -> Format:
    """Return the format of a scenario's regex. Raises ValueError."""
    compiled = Pattern(pattern)
    if "step" not in compiled.names:
        raise ValueError("a regex needs a group (?P<step>\\d+)")
    return Format(pattern, ("",), lambda: GroupsCounter(compiled))


class _Reader:
    """Reads one format: its counter as of the last finished line, and as of what was drawn since.

    What is drawn and not finished is read ahead only: a supervisor that takes over reads finished
    lines again, and must come to the same state.
    """

    def __init__(self, form: Format) -> None:
        self.hints = form.hints
        self._counter = form.counter()
        self._ahead: Counter | None = None

    def line(self, drawings: Sequence[str]) -> Reading | None:
        """Return the last reading of a finished line."""
        self._ahead = found = None
        for one in drawings:
            reading = _take(self._counter, one)
            found = reading if reading not in (None, NOTHING) else found
        return found

    def part(self, drawings: Sequence[str]) -> Reading | None:
        """Return the last reading of an unfinished line."""
        if self._ahead is None:
            self._ahead = copy.copy(self._counter)
        for one in reversed(drawings):
            if found := _take(self._ahead, one):
                return found
        return None

    def steps(self, drawings: Sequence[str]) -> list[int]:
        """Return every step of a line that is not read yet."""
        counter = copy.copy(self._counter)
        found = [_take(counter, one) for one in drawings]
        return [one.step for one in found if one is not None and one.step is not None]


def _take(counter: Counter, text: str) -> Reading | None:
    try:
        return counter.take(text)
    except ValueError:  # an integer of more than 4,300 digits
        return None


def _readers(rule: str) -> list[_Reader]:
    if rule in ("json", PHASES_ONLY):
        return []
    if rule == "auto":
        return [_Reader(form) for form in FORMATS.values()]
    return [_Reader(FORMATS[rule] if rule in FORMATS else _groups(rule))]


@dataclass
class StepReader:
    """Parses one task's output line by line, and keeps using the first format that matched.

    `rule` is the scenario's `metrics.steps`: `auto`, `json`, a format's name, or a regex; or
    PHASES_ONLY. Raises ValueError if it is not valid.
    """

    rule: str = "auto"
    _readers: Sequence[_Reader] = field(init=False)
    _step: int | None = field(init=False, default=None)
    """The last one that was returned."""
    _drawn: int = field(init=False, default=-1)
    """The last one of an unfinished line."""

    _hints: Sequence[tuple[str, _Reader]] = field(init=False)
    """Of all readers; most lines have none of them."""

    def __post_init__(self) -> None:
        self._use(_readers(self.rule))

    def _use(self, readers: Sequence[_Reader]) -> None:
        self._readers = readers
        self._hints = [(hint, reader) for reader in readers for hint in reader.hints]

    def read(self, line: str) -> Observation | None:
        """Return the step or phase in a line, or None; never raises.

        What was returned of the line before it was finished is returned again, with its values.
        """
        if line.startswith("{") and (observation := _event(line)):
            if self.rule == PHASES_ONLY and observation.event == "step":
                return None
            if self.rule == "auto" and observation.event == "step":
                self._use([])  # else a progress bar would count twice
            return observation
        drawings: Sequence[str] = ()
        looked: _Reader | None = None
        for hint, reader in self._hints:  # for most lines this is all
            if hint not in line or reader is looked:
                continue
            looked, drawings = reader, drawings or _drawings(line)
            found = reader.line(drawings)
            if found and (observation := self._observation(reader, found)):
                self._drawn = -1
                return observation
        return None

    def read_part(self, text: str) -> Observation | None:
        """Return the step in a line that is not finished, if it is a later one; never raises.

        `text` is the end of what has been drawn of it. The values come with the finished line.
        """
        if not any(hint in text for hint, _ in self._hints):
            return None
        drawings = _drawings(text)
        for reader in self._readers:
            found = reader.part(drawings)
            if found is None or found.step is None or found.step <= (self._step or 0):
                continue
            if (observation := observation_of("step", {"step": found.step})) is not None:
                self._use([reader])
                self._step = self._drawn = found.step
                return observation
        return None

    def steps_drawn(self, line: str) -> list[int]:
        """Return the steps that `read_part` may have returned of a line, before it is read."""
        if not any(hint in line for hint, _ in self._hints):
            return []
        drawings = _drawings(line)
        if len(drawings) == 1:
            return []
        return [step for reader in self._readers for step in reader.steps(drawings)]

    def _observation(self, reader: _Reader, found: Reading) -> Observation | None:
        step = self._step if found.step is None else max(found.step, self._drawn)
        if step is None or (step == self._step and not found.values):
            return None
        values = dict(found.values)
        if "accuracy" not in values:
            for name in ACCURACY:
                if name in values:
                    values["accuracy"] = values[name]
                    break
        observation = observation_of("step", {"step": step, **values})
        if observation is not None:
            self._step = step
            if len(self._readers) > 1:
                self._use([reader])  # a program uses one format
        return observation


def _drawings(line: str) -> list[str]:
    """Return the successive drawings of a line."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    return _REDRAW.split(line)[-REDRAWN:] if "\r" in line or "\b" in line else [line]


def observation_of(event: str, fields: Mapping[str, object]) -> Observation | None:
    """Return the event with storable values only; None if its main field is missing."""
    data = {key: _storable(value) for key, value in fields.items() if key not in _RESERVED}
    return Observation(event, data) if data.get(event) is not None else None


def _storable(value: object) -> object:
    """Return the value; None for NaN, infinity and integers of more than 64 bits."""
    if isinstance(value, int):
        return value if -_LARGEST <= value <= _LARGEST else None
    return None if isinstance(value, float) and not math.isfinite(value) else value


DECODER = json.JSONDecoder(
    parse_constant=lambda name: None,
    parse_float=lambda text: _storable(float(text)),
    parse_int=lambda text: _storable(int(text)),
)
"""Decodes JSON lines; also checks numbers inside lists and objects."""


def _event(line: str) -> Observation | None:
    """Parse a JSON line of the protocol; None if it is malformed."""
    try:
        data = DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    match data:
        case {"emulate": "step", "step": int(step)} if not isinstance(step, bool):
            return observation_of("step", data)
        case {"emulate": "phase", "phase": str(), "state": "begin" | "end"}:
            return observation_of("phase", data)
    return None
