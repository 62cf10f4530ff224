"""Parse one line of a task's output into a step, a phase, or nothing (pure).

Tasks need no library. A JSON line `{"emulate": "step", "step": 120, ...}` is an event. Other lines
are matched with the formats of common libraries (`formats.py`), and with the scenario's patterns. A
progress bar is read before its line is finished: see `StepReader.read_part`. Described for users in
docs/protocol.md.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from emulator.metrics.formats import FORMATS, Format, GroupsCounter, with_accuracy
from emulator.metrics.readings import NOTHING, PHASES_ONLY, Counter, Rank, Reading, Source
from emulator.validation.patterns import Pattern

RULES = ("auto", "json", *FORMATS)
"""The names that an entry of `metrics.steps` can have."""
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


@dataclass(frozen=True)
class Seen:
    """A source that a task's output has for the first time."""

    words: str
    """What it is: "the bar `Training` (60)"."""
    counts: bool
    """From here on it has the task's steps; else it has none of them."""
    retracts: bool = False
    """The steps before were those of something else."""


JSON = Source("json", "lines of JSON", Rank.GIVEN)
PATTERN = Source("pattern", "the pattern of `metrics.steps`", Rank.GIVEN)
NOTED = 10
"""Sources without steps of a task that are noted."""


def _groups(pattern: str) -> Format:
    """Return the format of a scenario's pattern. Raises ValueError."""
    compiled = Pattern(pattern)
    if not compiled.names:
        raise ValueError("a regex needs a group (?P<step>\\d+), or one of a value, (?P<loss>\\S+)")
    return Format(pattern, ("",), lambda: GroupsCounter(compiled))


class _Reader:
    """Reads one format: its counter as of the last finished line, and as of what was drawn since.

    What is drawn and not finished is read ahead only: a supervisor that takes over reads finished
    lines again, and must come to the same state.
    """

    def __init__(self, hints: Sequence[str], counter: Counter, source: Source) -> None:
        self.hints, self.source = hints, source
        self._counter = counter
        self._ahead: Counter | None = None

    def again(self) -> _Reader:
        """Return a reader for the next start of the task."""
        return _Reader(self.hints, (self._ahead or self._counter).again(), self.source)

    def line(self, drawings: Sequence[str]) -> list[Reading]:
        """Return the readings of a finished line, in order."""
        if len(drawings) > 1:
            self._ahead = None
        elif self._ahead is not None:  # of another stream than what is drawn
            self._all(self._ahead, drawings)
        return self._all(self._counter, drawings)

    def part(self, drawings: Sequence[str]) -> list[Reading]:
        """Return the readings of what was drawn since the last time, in order."""
        if self._ahead is None:
            self._ahead = copy.copy(self._counter)
        return self._all(self._ahead, drawings)

    def steps(self, drawings: Sequence[str]) -> list[int]:
        """Return every step of a line that is not read yet."""
        found = self._all(copy.copy(self._counter), drawings)
        return [one.step for one in found if one.step is not None]

    def _all(self, counter: Counter, drawings: Sequence[str]) -> list[Reading]:
        found = []
        for drawing in drawings:
            try:
                one = counter.read_text(drawing)
            except ValueError:  # an integer of more than 4,300 digits
                continue
            if one is None or one is NOTHING:
                continue
            is_plain = one.source is None and one.step is not None
            found.append(one._replace(source=self.source) if is_plain else one)
        return found


def is_pattern(rule: str) -> bool:
    """Return whether an entry of `metrics.steps` is a regular expression, and no name."""
    return rule not in {PHASES_ONLY, *RULES}


def _readers(rules: Sequence[str]) -> Iterator[_Reader]:
    """Yield the readers of the patterns, then those of formats: patterns add to the formats."""
    names = [rule for rule in rules if not is_pattern(rule)]
    for rule in filter(is_pattern, rules):
        form = _groups(rule)
        yield _Reader(form.hints, form.counter(), PATTERN)
    for name in FORMATS if "auto" in names or not names else names:
        if name in FORMATS:
            source = Source(f"format {name}", f"lines of the format `{name}`", Rank.EVIDENT)
            yield _Reader(FORMATS[name].hints, FORMATS[name].counter(), source)


class StepReader:
    """Parses one task's output line by line, and decides which source in it has the steps.

    The source with the highest `Rank` has them, of several the first. If a source of a higher rank
    comes later, and it is not as far, the steps before were something else: they are retracted. A
    pattern of the user's with a group `step` has the steps in any case; others have values.

    `rules` is the scenario's `metrics.steps`: `auto`, `json`, names of formats, and patterns; or
    PHASES_ONLY. Raises ValueError if one is not valid.
    """

    def __init__(self, rules: str | Sequence[str] = "auto") -> None:
        self._rules = (rules,) if isinstance(rules, str) else tuple(rules)
        self._begin([*_readers(self._rules)])
        self._known: Source | None = None
        """What had the steps in an earlier start of the task."""
        self._noted: set[str] = set()
        self._news: list[Seen] = []

    def _begin(self, readers: Sequence[_Reader]) -> None:
        self._all = readers
        self._patterns = [one for one in readers if one.source is PATTERN]
        self._is_given = any(
            is_pattern(rule) and "step" in Pattern(rule).names for rule in self._rules
        )
        self._source: Source | None = None
        """What has the steps."""
        self._step: int | None = None
        """The last one that was returned."""
        self._drawn = -1
        """The last one of an unfinished line."""
        self._use(readers)

    def _use(self, readers: Sequence[_Reader]) -> None:
        self._readers = readers
        self._hints = [(hint, reader) for reader in readers for hint in reader.hints]
        """Of all readers; most lines have none of them."""

    def again(self) -> StepReader:
        """Return a reader for the next start of the task, which knows what this one has learnt."""
        other = StepReader(PHASES_ONLY)
        other._rules = self._rules
        other._begin([one.again() for one in self._all])
        other._known, other._noted = self._source or self._known, self._noted
        return other

    def continue_with(self, words: str) -> None:
        """Note what had the steps, by the record: after a takeover that may not be read again."""
        if self._source is None or self._source.words != words:
            self._begin(self._all)
            self._known = Source("", words, Rank.EVIDENT)

    def take_news(self) -> Sequence[Seen]:
        """Return the sources that were seen since the last time; to be asked before each step."""
        news, self._news = self._news, []
        return news

    def read(self, line: str) -> Observation | None:
        """Return the step or phase in a line, or None; never raises.

        What was returned of the line before it was finished is returned again, with its values.
        """
        if line.startswith("{") and (observation := json_event(line)):
            return self._json_report(observation)
        drawings: Sequence[str] = ()
        looked: _Reader | None = None
        merged = NOTHING
        for hint, reader in self._hints:  # for most lines this is all
            if hint not in line or reader is looked:
                continue
            looked, drawings = reader, drawings or _drawings(line)
            found = self._last(reader, reader.line(drawings))
            if not self._patterns and (observation := self._observation(found)):
                return observation
            step = found.step if merged.step is None else merged.step
            merged = Reading(step, {**found.values, **merged.values})
        return self._observation(merged) if self._patterns else None

    def read_part(self, text: str) -> Observation | None:
        """Return the step in a line that is not finished, if it is a later one; never raises.

        `text` is what has been drawn of it since the last time. The values come with the finished
        line.
        """
        if not any(hint in text for hint, _ in self._hints):
            return None
        drawings = _drawings(text)
        for reader in self._readers:
            step = self._last(reader, reader.part(drawings)).step
            if step is None or step <= (self._step or 0):
                continue
            if (observation := observation_of("step", {"step": step})) is not None:
                self._step = self._drawn = step
                return observation
        return None

    def steps_drawn(self, line: str) -> list[int]:
        """Return the steps that `read_part` may have returned of a line, before it is read."""
        drawings = _drawings(line)
        if len(drawings) == 1:
            return []
        return [step for reader in self._readers for step in reader.steps(drawings)]

    def _json_report(self, observation: Observation) -> Observation | None:
        if observation.event != "step":
            return observation
        if self._rules == (PHASES_ONLY,):
            return None
        step = observation.data["step"]
        assert isinstance(step, int)
        if "auto" in self._rules and self._source != JSON:
            if self._source is not None:
                self._switch(JSON, step)
            self._source = JSON
            self._use(self._patterns)  # else a progress bar would count twice
        self._step = step
        return observation

    def _last(self, reader: _Reader, readings: Iterable[Reading]) -> Reading:
        """Return the last step of some readings that counts, and the last values."""
        step, values = None, NOTHING.values
        for one in readings:
            if one.source is not None and (one.step is None or not self._counts(reader, one)):
                if one.step is not None or one.source.rank is Rank.NONE:
                    self._note(one.source)
                if one.step is None or self._is_given:
                    values = one.values or values
                continue
            step, values = one.step if one.step is not None else step, one.values
        return Reading(step, values)

    def _counts(self, reader: _Reader, reading: Reading) -> bool:
        """Return whether the step of a reading is one of the task; decide on its source."""
        source, step = reading.source, reading.step
        assert source is not None
        assert step is not None
        if self._source is not None and self._source.key == source.key:
            if source.rank > self._source.rank:
                self._source = source
                self._narrow(reader, source)
            return True
        if not self._is_better(source):
            return False
        self._switch(source, step)
        self._source = source
        self._narrow(reader, source)
        return True

    def _is_better(self, source: Source) -> bool:
        """Return whether the steps are those of this source from now on."""
        if self._is_given and source is not PATTERN:
            return False
        if self._source is not None:
            return source.rank > self._source.rank
        known = self._known  # an elastic program may come back with a bar of another length
        least = Rank.EPOCHS if known is None or known.words == source.words else known.rank
        return source.rank >= least

    def _switch(self, source: Source, step: int) -> None:
        retracts = self._step is not None and step < self._step
        if retracts:
            self._step, self._drawn = None, -1
        if self._source is not None or self._known is None or self._known.words != source.words:
            self._news.append(Seen(source.words, counts=True, retracts=retracts))

    def _narrow(self, reader: _Reader, source: Source) -> None:
        """Leave the other readers out, once nothing better can come: a program uses one format."""
        if source.rank is Rank.EVIDENT:
            self._use([*self._patterns, reader])

    def _note(self, source: Source) -> None:
        """Note what has no steps, once; lines of a trainer only where there is no step yet."""
        name = source.key.partition("|")[0]
        if name in self._noted or len(self._noted) >= NOTED:
            return
        if source.key == "trainer" and self._source is not None:
            return
        self._noted.add(name)
        self._news.append(Seen(source.words, counts=False))

    def _observation(self, found: Reading) -> Observation | None:
        step = self._step if found.step is None else max(found.step, self._drawn)
        if step is None or (step == self._step and not found.values):
            return None
        observation = observation_of("step", {**with_accuracy(found.values), "step": step})
        if observation is not None:
            self._step = step
        return observation


def _drawings(line: str) -> list[str]:
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


def json_event(line: str) -> Observation | None:
    """Return the step or phase of a JSON line of the protocol; None if it is something else."""
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
