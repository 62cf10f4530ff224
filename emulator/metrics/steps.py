"""Parse the lines of a task's output into steps and phases, and decide what has the steps (pure).

Tasks need no library. A JSON line `{"emulate": "step", "step": 120, ...}` is an event. Other lines
are matched with the formats of common libraries (`formats.py`), and with the scenario's patterns. A
progress bar is read before its line is finished: see `StepReader.read_part`. Described for users in
docs/protocol.md.

Many things in an output count: bars of data, sentences about a save, summaries of epochs. So each
source keeps its own count, from the start of the task to its end. What a source had is held back
until it has advanced twice; then it may have the steps, and what it had before counts too.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from emulator.metrics.formats import FORMATS, LONGEST, Format, GroupsCounter, with_accuracy
from emulator.metrics.readings import NOTHING, PHASES_ONLY, Counter, Rank, Reading, Source
from emulator.metrics.step_lines import body_of
from emulator.validation.patterns import Pattern, TooSlow

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
_RESERVED = frozenset(
    {"emulate", "n", "t", "wall", "event", "task", "self", "coalesced", "bar_opened"}
)
"""Fields set by the emulator; a program's values with these names are dropped."""


@dataclass(frozen=True)
class Observation:
    """What was printed: `event` is `step` or `phase`, `data` has its fields."""

    event: str
    data: Mapping[str, object]
    wall: float = field(default=0.0, compare=False)
    """When it was printed, in seconds since 1970: what was held back is older than its line."""
    opened: int | None = field(default=None, compare=False)
    """The step from which a bar went on, of the first step that is read of a start."""


@dataclass(frozen=True)
class Seen:
    """A source that a task's output has for the first time."""

    words: str
    """What it is: "the bar `Training` (60)"."""
    counts: bool
    """From here on it has the task's steps; else it has none of them."""
    retracts: bool = False
    """The steps before were those of something else."""
    is_drawn: bool = field(default=False, compare=False)
    """It is drawn now and then: not every step of it is seen."""


JSON = Source("json", "lines of JSON", Rank.GIVEN)
PATTERN = Source("pattern", "the pattern of `metrics.steps`", Rank.GIVEN)
NOTED = 10
"""Sources without steps of a task that are noted."""
ENOUGH = 2
"""Advances after which a source is progress: one number in a line is none."""
HELD = 1000
"""Steps of a source that are kept while another one has them, or none."""
AGAIN = 3
"""Growing steps below the last one after which a source has gone back: less is another rank."""


# --- Readers --------------------------------------------------------------------------------------


def _groups(pattern: str) -> Format:
    """Return the format of a scenario's pattern. Raises ValueError."""
    compiled = Pattern(pattern)
    if not compiled.groupindex:
        raise ValueError("a regex needs a group (?P<step>\\d+), or one of a value, (?P<loss>\\S+)")
    return Format(pattern, ("",), lambda: GroupsCounter(compiled))


class _Reader:
    """Reads one format: its counter as of the last finished line, and as of what was drawn since.

    What is drawn and not finished is read ahead only: a supervisor that takes over reads finished
    lines again, and must come to the same state.
    """

    def __init__(self, form: Format, counter: Counter, source: Source) -> None:
        self.hints, self.is_drawn, self.source = form.hints, form.is_drawn, source
        self._form, self._filter = form, form.filter
        self._counter = counter
        self._ahead: Counter | None = None

    @property
    def pattern(self) -> str:
        """The scenario's pattern; empty: a format of ours."""
        return self._form.shows if self.source is PATTERN else ""

    def may_read(self, text: str) -> bool:
        """Return whether a text with a hint may have something to read."""
        return self._filter is None or self._filter.search(text) is not None

    def again(self) -> _Reader:
        """Return a reader for the next start of the task."""
        counter = (self._ahead or self._counter).again()
        return _Reader(self._form, counter, self.source)

    def line(self, drawings: Sequence[str]) -> list[Reading]:
        """Return the readings of a finished line, in order. Raises TooSlow."""
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
        readings = self._all(copy.copy(self._counter), drawings)
        return [reading.step for reading in readings if reading.step is not None]

    def _all(self, counter: Counter, drawings: Sequence[str]) -> list[Reading]:
        readings = []
        for drawing in drawings:
            if len(drawing) > LONGEST and not self.pattern:
                continue
            try:
                reading = counter.read_text(drawing)
            except ValueError:  # an integer of more than 4,300 digits
                continue
            if reading is None or reading is NOTHING:
                continue
            is_plain = reading.source is None and reading.step is not None
            readings.append(reading._replace(source=self.source) if is_plain else reading)
        return readings


def is_pattern(rule: str) -> bool:
    """Return whether an entry of `metrics.steps` is a regular expression, and no name."""
    return rule not in {PHASES_ONLY, *RULES}


def _readers(rules: Sequence[str]) -> Iterator[_Reader]:
    """Yield the readers of the patterns, then those of formats: patterns add to the formats."""
    names = [rule for rule in rules if not is_pattern(rule)]
    for rule in filter(is_pattern, rules):
        form = _groups(rule)
        yield _Reader(form, form.counter(), PATTERN)
    for name in FORMATS if "auto" in names or not names else names:
        if name in FORMATS:
            form = FORMATS[name]
            source = Source(f"format {name}", f"lines of the format `{name}`", form.rank)
            yield _Reader(form, form.counter(), source)


# --- Sources --------------------------------------------------------------------------------------


class _Track:
    """The count of one source since the start of the task."""

    def __init__(
        self, source: Source, reader: _Reader, others: Mapping[str, int], *, is_known: bool
    ) -> None:
        self.source, self.reader = source, reader
        self.is_known = is_known
        """It had the steps in an earlier start of the task, or it is what the user named."""
        self.last: int | None = None
        self.stride = 0
        """Its last advance."""
        self.advances = 0
        self.ends = 0
        """How often a bar of it has come to its end."""
        self.drawn = -1
        """Its last step in a line that is not finished."""
        self._made_at = 0.0
        """When its last step was drawn or printed first."""
        self._opened: int | None = None
        """The step from which its bar goes on, of which no step is read yet."""
        self.is_at_end = False
        """The last that was drawn is the end of a bar: it has no steps that were not drawn."""
        self._advances_then = dict(others)
        """Advances of the other sources when this one began."""
        self._held: deque[Observation] = deque(maxlen=HELD)
        self._back: list[Observation] = []
        """Steps below the last one: another rank's, or the source has gone back."""

    @property
    def is_progress(self) -> bool:
        """Whether it may have the steps."""
        return self.is_known or self.advances >= ENOUGH

    @property
    def first_held(self) -> int | None:
        """The first step that is held back."""
        return _step(self._held[0]) if self._held else None

    def take(self, readings: Sequence[Reading], wall: float, *, is_line: bool) -> None:
        """Count the steps of what was printed; of a finished line the last is held with its values.

        What was drawn of a line comes again with the line, and was made when it was drawn.
        """
        if is_line:
            self._take_line(readings, wall)
        else:
            for reading in readings:
                self._open(reading.opened)
                if reading.step is not None:
                    self._hold(reading.step, {}, wall, is_end=reading.is_over)
            self.drawn = -1 if self.last is None else self.last
        self.ends += any(reading.is_over for reading in readings)

    def _take_line(self, readings: Sequence[Reading], wall: float) -> None:
        if self.drawn < 0:
            self._open(next((one.opened for one in readings if one.opened is not None), None))
        steps = [(one.step, one.values) for one in readings if one.step is not None]
        if steps:
            step, values = steps[-1]
            last = max(step, self.drawn)
            at = self._made_at if last == self.drawn else wall
            self._hold(last, with_accuracy(values), at, is_end=readings[-1].is_over)
        self.advances += len({step for step, _ in steps[:-1] if step > self.drawn})
        self.drawn = -1

    def _open(self, opened: int | None) -> None:
        """Note from where a bar goes on, if that is not where the last one was."""
        if opened is not None:
            self.is_at_end = False
            self._opened = opened if self.last is None or opened < self.last else None

    def _hold(self, step: int, values: Mapping[str, object], wall: float, *, is_end: bool) -> None:
        seen = observation_of("step", {**values, "step": step}, wall)
        if seen is None:
            return
        last = self.last
        if step != last and self._opened is not None:
            seen = replace(seen, opened=self._opened)
        self.is_at_end = is_end
        if last is not None and step < last and self.source.rank is not Rank.GIVEN:
            if self._back and step <= _step(self._back[-1]):
                self._back.clear()
            self._back.append(seen)
            if len(self._back) < AGAIN:
                return
            self._held.extend(self._back)
            self.advances += 1
            self._back.clear()
            self._go_on(seen)
            return
        if last is None or step > last:
            self.advances += last is not None
            self.stride = step - (last or 0)
            self._back.clear()
            self._go_on(seen)
        elif not seen.data.keys() - {"step"}:
            return
        elif step < last:
            self._go_on(seen)
        self._held.append(seen)

    def _go_on(self, seen: Observation) -> None:
        self.last, self._made_at = _step(seen), seen.wall
        self._opened = None

    def hold_values(self, values: Mapping[str, object], wall: float) -> None:
        """Keep values of the step that was held back last."""
        if self._held:
            fields = {**with_accuracy(values), "step": self._held[-1].data["step"]}
            if (seen := observation_of("step", fields, wall)) is not None:
                self._held.append(seen)

    def release(self) -> list[Observation]:
        """Return what was held back."""
        held = [*self._held]
        self._held.clear()
        return held

    def advances_since(self, other: _Track) -> int:
        """Return how often this source has advanced since another one began."""
        return self.advances - other._advances_then.get(self.source.key, 0)

    def agrees_with(self, other: _Track) -> bool:
        """Return whether another source is as far, within what it draws at once."""
        if self.last is None or other.last is None:
            return False
        return abs(self.last - other.last) <= 2 * max(self.stride, other.stride, 5)


def _step(seen: Observation) -> int:
    step = seen.data["step"]
    assert isinstance(step, int)
    return step


def _is_finer(new: _Track, old: _Track) -> bool:
    """Return whether a source advances more often than another one, and is as far."""
    more = new.advances > 2 * ENOUGH * (old.advances_since(new) + 1)
    return more and new.agrees_with(old)


def _is_better(new: _Track, old: _Track | None) -> bool:
    """Return whether a source that is progress takes the steps from another one.

    What the user gave comes first, then JSON, then what had the steps before a restart, then the
    finest source that is sure. A summary of an epoch is coarser than a bar within it.
    """
    if old is None:
        return True
    rank, other = new.source.rank, old.source.rank
    if Rank.GIVEN in (rank, other):
        return rank > other
    if new.is_known != old.is_known and rank >= min(other, Rank.PLAIN):
        return new.is_known or (rank > other and not old.agrees_with(new))
    is_stale = not old.advances_since(new)
    if other is Rank.PLAIN:  # nothing says that this bar is the training's
        if rank is Rank.PLAIN:
            return is_stale and new.ends > 1
        return is_stale if rank < other else is_stale or not old.agrees_with(new)
    return rank > other or (rank is other is Rank.EVIDENT and _is_finer(new, old))


# --- The decision ---------------------------------------------------------------------------------


class StepReader:
    """Parses one task's output line by line, and decides which source in it has the steps.

    A line of JSON and a pattern of the user's with a group `step` count from their first line. Any
    other source is progress once it has advanced twice, or at once if it had the steps in an
    earlier start of the task or the scenario names its format. Of several the best one has them
    (`_is_better`). If that is not as far as what had them before, those steps were something else:
    they are retracted.

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
        self._slow: list[str] = []

    def _begin(self, readers: Sequence[_Reader]) -> None:
        self._all = readers
        self._patterns = [reader for reader in readers if reader.source is PATTERN]
        self.is_given = any(
            is_pattern(rule) and "step" in Pattern(rule).groupindex for rule in self._rules
        )
        """A pattern of the user's has the steps."""
        self._is_named = "auto" not in self._rules and not self.is_given
        self._tracks: dict[str, _Track] = {}
        self._current: _Track | None = None
        """What has the steps."""
        self._is_json = False
        self._step: int | None = None
        """The last one that was returned."""
        self._use(readers)

    def _use(self, readers: Sequence[_Reader]) -> None:
        self._hints = [(hint, reader) for reader in readers for hint in reader.hints]
        """Of all readers; most lines have none of them."""

    def again(self) -> StepReader:
        """Return a reader for the next start of the task, which knows what this one has learnt."""
        other = StepReader(PHASES_ONLY)
        other._rules = self._rules
        other._begin([reader.again() for reader in self._all])
        other._known, other._noted = self._source or self._known, self._noted
        return other

    @property
    def _source(self) -> Source | None:
        return JSON if self._is_json else self._current.source if self._current else None

    def continue_with(self, words: str) -> None:
        """Note what has the steps, by the record: after a takeover it counts at once."""
        if self._source is None or self._source.words != words:
            self._begin(self._all)
            self._known = Source("", words, Rank.NONE)

    def take_news(self) -> Sequence[Seen]:
        """Return the sources that were seen since the last time; to be asked before each step."""
        news, self._news = self._news, []
        return news

    def take_slow(self) -> Sequence[str]:
        """Return the scenario's patterns that took too long for a line since the last time."""
        slow, self._slow = self._slow, []
        return slow

    def do_without(self, pattern: str) -> None:
        """Read no line with a pattern of the scenario any more."""
        self._all = [reader for reader in self._all if reader.pattern != pattern]
        self._patterns = [reader for reader in self._patterns if reader.pattern != pattern]
        self._hints = [one for one in self._hints if one[1].pattern != pattern]

    def read(self, line: str, wall: float = 0.0) -> list[Observation]:
        """Return the steps or the phase of a line, and what was held back until it; never raises.

        What was returned of the line before it was finished is returned again, with its values.
        """
        if line.startswith("{") and (observation := json_event(line, wall)):
            return self._json_report(observation)
        readers = self._readers_of(line)
        if not readers:
            return []
        if self._current is not None and self._current.reader in readers[1:]:
            readers.remove(self._current.reader)
            readers.insert(0, self._current.reader)
        drawings = _drawings(line)
        bodies = [body_of(drawing) for drawing in drawings]
        steps: list[Observation] = []
        values: dict[str, object] = {}
        has_step = False
        for reader in readers:
            is_given = reader.source is PATTERN
            if has_step and not is_given and not reader.is_drawn:
                continue  # a line is of one format
            try:
                readings = reader.line(drawings if is_given else bodies)
            except TooSlow as slow:
                self._slow.append(slow.pattern)
                self.do_without(slow.pattern)
                continue
            if not readings:
                continue
            if not is_given and not reader.is_drawn:
                has_step = any(reading.step is not None for reading in readings)
            more, beside = self._take(reader, readings, wall, is_line=True)
            steps += more
            values = {**beside, **values}
        return self._with_values(steps, values, wall)

    def read_part(self, text: str, wall: float = 0.0) -> list[Observation]:
        """Return the later steps in a line that is not finished; never raises.

        `text` is what has been drawn of it since the last time. The values come with the finished
        line.
        """
        readers = [reader for reader in self._readers_of(text) if reader.is_drawn]
        if not readers:
            return []
        bodies = [body_of(drawing) for drawing in _drawings(text)]
        steps: list[Observation] = []
        for reader in readers:
            steps += self._take(reader, reader.part(bodies), wall, is_line=False)[0]
        return self._with_values(steps, {}, wall)

    def finish(self) -> list[Observation]:
        """Return what is still held back, as the task has ended: of the source that is surest."""
        if self._current is not None or self._is_json:
            return []
        ended = [
            track
            for track in self._tracks.values()
            if track.source.rank > Rank.NONE and (track.advances or track.ends or track.is_known)
        ]
        if not ended:
            return []
        best = max(ended, key=lambda track: (track.source.rank, track.advances))
        return self._with_values(self._switch(best), {}, 0.0)

    @property
    def is_at_end(self) -> bool:
        """Whether what has the steps is a bar at its end: no step of it is unseen."""
        return not self._is_json and self._current is not None and self._current.is_at_end

    def steps_drawn(self, line: str) -> list[int]:
        """Return the steps that `read_part` may have returned of a line, before it is read."""
        drawings = _drawings(line)
        if len(drawings) == 1:
            return []
        bodies = [body_of(drawing) for drawing in drawings]
        readers = [reader for reader in self._all if reader.is_drawn]
        return [step for reader in readers for step in reader.steps(bodies)]

    def _readers_of(self, text: str) -> list[_Reader]:
        """Return the readers of the formats that a text may be of."""
        readers: list[_Reader] = []
        for hint, reader in self._hints:  # for most lines this is all
            if hint in text and reader not in readers and reader.may_read(text):
                readers.append(reader)
        return readers

    def _json_report(self, observation: Observation) -> list[Observation]:
        if observation.event != "step":
            return [observation]
        if self._rules == (PHASES_ONLY,):
            return []
        if self.is_given and self._current is not None:
            return []
        step = _step(observation)
        if "auto" in self._rules and not self._is_json:
            if self._current is not None:
                self._tell(JSON, step)
            self._is_json = True
            self._use(self._patterns)  # else a progress bar would count twice
        self._step = step
        return [observation]

    def _take(
        self, reader: _Reader, readings: Sequence[Reading], wall: float, *, is_line: bool
    ) -> tuple[list[Observation], dict[str, object]]:
        """Return the steps of what a reader has read that count, and values of the last step."""
        by_source: dict[str, list[Reading]] = {}
        values: dict[str, object] = {}
        for reading in readings:
            source = reading.source
            if source is None or (reading.step is None and reading.opened is None):
                if source is not None and source.rank is Rank.NONE:
                    self._note(source)
                values.update(reading.values)
            elif self.is_given and source is not PATTERN:
                values.update(reading.values)
            else:
                by_source.setdefault(source.key, []).append(reading)
        steps: list[Observation] = []
        beside: dict[str, object] = {}
        for key, of_source in by_source.items():
            steps += self._count(reader, of_source, wall, is_line=is_line)
            if self._current is not None and self._current.source.key != key:
                beside |= self._values_of(of_source[-1])
        if not is_line:
            return steps, {}
        if values and not self._has_values(reader):
            self._hold_values(reader, values, wall)
            values = {}
        return steps, {**beside, **values}

    def _values_of(self, reading: Reading) -> Mapping[str, object]:
        """Return the values beside a step of a source that has none of them, if they are its."""
        current, source = self._current, reading.source
        assert current is not None
        assert source is not None
        is_beside = source.rank is Rank.EPOCHS or current.source.rank < Rank.EVIDENT
        return reading.values if is_beside else {}

    def _hold_values(self, reader: _Reader, values: Mapping[str, object], wall: float) -> None:
        """Keep the values of a step that is held back."""
        for track in reversed(self._tracks.values()):
            if track.reader is reader:
                track.hold_values(values, wall)
                return

    def _count(
        self, reader: _Reader, readings: Sequence[Reading], wall: float, *, is_line: bool
    ) -> list[Observation]:
        """Take the steps of one source; return those that count from now on."""
        source = readings[-1].source
        assert source is not None
        track = self._tracks.get(source.key)
        if track is None:
            known = self._had(source)
            named = source is PATTERN or (self._is_named and source.key == reader.source.key)
            others = {key: other.advances for key, other in self._tracks.items()}
            track = _Track(source, reader, others, is_known=known or named)
            self._tracks[source.key] = track
            if len(self._tracks) > SOURCES:
                self._forget()
        if source.rank > track.source.rank:
            track.source = replace(track.source, rank=source.rank)
        track.take(readings, wall, is_line=is_line)
        if track is self._current:
            return track.release()
        if track.is_progress:
            if not self._waits(track) and _is_better(track, self._current):
                return self._switch(track)
            self._note(track.source)
        return []

    def _had(self, source: Source) -> bool:
        """Return whether a source had the steps in an earlier start of the task."""
        known = self._known
        return (
            known is not None
            and known.words == source.words
            and known.rank in (source.rank, Rank.NONE)  # a record has no ranks
        )

    def _waits(self, track: _Track) -> bool:
        """Return whether what had the steps before the restart may still come."""
        known = self._known
        if known is None or track.is_known or self._current is not None:
            return False
        is_less_sure = known.rank is Rank.NONE or track.source.rank < known.rank
        return is_less_sure and track.advances < PATIENCE

    def _forget(self) -> None:
        """Forget the source that was seen first and has no steps."""
        for key, track in self._tracks.items():
            if track is not self._current:
                del self._tracks[key]
                return

    def _switch(self, track: _Track) -> list[Observation]:
        """Return the steps of the source that has them from now on."""
        first = track.first_held
        if first is None:
            return []
        self._tell(track.source, first, is_drawn=track.reader.is_drawn)
        self._current = track
        after = self._step
        steps = track.release()
        return [
            seen
            for seen in steps
            if after is None or _step(seen) > after or (_step(seen) == after and len(seen.data) > 1)
        ]

    def _tell(self, source: Source, step: int, *, is_drawn: bool = False) -> None:
        retracts = self._step is not None and step < self._step
        if retracts:
            self._step = None
        before = self._source or self._known
        if before is None or before.words != source.words:
            self._news.append(Seen(source.words, counts=True, retracts=retracts, is_drawn=is_drawn))

    def _note(self, source: Source) -> None:
        """Note what has no steps, once; lines of a trainer only where there is no step yet."""
        name = source.key.partition("|")[0] if source.rank is Rank.NONE else source.words
        if name in self._noted or len(self._noted) >= NOTED:
            return
        if source.key == "trainer" and self._current is not None:
            return
        self._noted.add(name)
        self._news.append(Seen(source.words, counts=False))

    def _has_values(self, reader: _Reader) -> bool:
        """Return whether values that a reader read without a step are of the last step."""
        if self.is_given or reader.source is PATTERN:
            return True
        current = self._current
        if current is None:
            return False
        return current.reader is reader or current.source.rank < Rank.EVIDENT

    def _with_values(
        self, steps: list[Observation], values: Mapping[str, object], wall: float
    ) -> list[Observation]:
        """Return the steps with the values that were printed beside or after them."""
        if steps:
            self._step = _step(steps[-1])
        if not values or self._step is None:
            return steps
        last = steps.pop() if steps else Observation("step", {"step": self._step}, wall)
        fields = {**with_accuracy({**last.data, **values}), "step": self._step}
        seen = observation_of("step", fields, last.wall)
        return [*steps, replace(seen, opened=last.opened)] if seen is not None else steps


SOURCES = 50
"""Sources of a task that are counted; of further ones the first is forgotten."""
PATIENCE = 10
"""Advances after which a source counts although one that is surer had the steps before."""


def _drawings(line: str) -> list[str]:
    if not line.isascii():  # what are no characters in it must not get into the record
        line = line.encode("utf-8", "replace").decode()
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    return _REDRAW.split(line)[-REDRAWN:] if "\r" in line or "\b" in line else [line]


def observation_of(
    event: str, fields: Mapping[str, object], wall: float = 0.0
) -> Observation | None:
    """Return the event with storable values only; None if its main field is missing."""
    data = {key: _storable(value) for key, value in fields.items() if key not in _RESERVED}
    return Observation(event, data, wall) if data.get(event) is not None else None


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


def json_event(line: str, wall: float = 0.0) -> Observation | None:
    """Return the step or phase of a JSON line of the protocol; None if it is something else."""
    try:
        data = DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    match data:
        case {"emulate": "step", "step": int(step)} if not isinstance(step, bool):
            return observation_of("step", data, wall)
        case {"emulate": "phase", "phase": str(), "state": "begin" | "end"}:
            return observation_of("phase", data, wall)
    return None


def samples_in(line: str) -> tuple[str, int | None] | None:
    """Return the digest of the ids of samples that a JSON line reports, and its step, if any."""
    if not line.startswith("{") or '"samples"' not in line:
        return None
    try:
        data = DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    match data:
        case {"emulate": "samples", "ids": ids}:
            text = json.dumps(ids, sort_keys=True).encode()
            step = data.get("step")
            number = step if isinstance(step, int) and not isinstance(step, bool) else None
            return hashlib.sha256(text).hexdigest()[:16], number
    return None
