"""Output of which no step is read: which line may be one, and the pattern that reads it (pure)."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from emulator.errors import shown
from emulator.metrics.step_lines import body_of
from emulator.validation.patterns import Pattern

AFTER = 5.0
"""Seconds of output with numbers in it without a step, after which something is said."""
LINES_OF_PATTERN = 200
"""Lines of which the scenario's pattern matches none, after which something is said."""
KEPT = 100
"""Lines with numbers that are looked at."""
LONGEST = 300
"""Characters of a line that can be one."""
SHOWN = 100
"""Characters of a line that are shown."""
ALIKE = 3
"""Lines that differ in their numbers alone, at least."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_STEP_WORD = re.compile(r"(?:step|iter|batch|update|round|epoch|it)\w*\W{0,3}$", re.I)
_BEFORE = re.compile(r"\w*\W{0,3}$")
_LOSS = re.compile(r"loss\w*(?:\W| is ){1,4}$", re.I)


@dataclass(frozen=True)
class Unread:
    """What is said of a task's output without steps."""

    line: str
    """One that was printed."""
    pattern: str | None
    """Of `metrics.steps`, which reads a step of it; None: that of the scenario matches nothing."""


def suggested(lines: Iterable[str]) -> Unread | None:
    """Return the line that looks most like a step, and a pattern for it.

    Lines that differ in their numbers alone, with a whole number that grows from each to the next:
    first one after a word such as `step`, else the one that comes most often.
    """
    alike: dict[str, list[str]] = {}
    raw: dict[str, str] = {}
    for line in lines:
        body = body_of(line).rstrip()
        if len(body) <= LONGEST and _NUMBER.search(body):
            alike.setdefault(_NUMBER.sub("#", body), []).append(body)
            raw[body] = line
    groups = [group for group in alike.values() if len(group) >= ALIKE]
    for needs_word in (True, False):
        for group in sorted(groups, key=len, reverse=True):
            if (place := _step_in(group, needs_word=needs_word)) is not None:
                pattern = _pattern(group[-1], place)
                if pattern is not None and Pattern(pattern).search(raw[group[-1]]):
                    return Unread(raw[group[-1]], pattern)
    return None


def _step_in(group: Sequence[str], *, needs_word: bool) -> int | None:
    """Return which number of some lines grows and may be the step; None: none of them."""
    rows = [_NUMBER.findall(line) for line in group]
    matches = [*_NUMBER.finditer(group[-1])]
    for place, texts in enumerate(zip(*rows, strict=True)):
        if not all(text.isdigit() and len(text) < 19 for text in texts):
            continue
        numbers = [*map(int, texts)]
        grows = all(before < after for before, after in pairwise(numbers))
        before_it = group[-1][: matches[place].start()]
        if grows and (not needs_word or _STEP_WORD.search(before_it)):
            return place
    return None


def _pattern(line: str, place: int) -> str | None:
    """Return the pattern that reads a number of a line as the step, and the loss after it."""
    numbers = [*_NUMBER.finditer(line)]
    step = numbers[place]
    before = line[: step.start()]
    word = _STEP_WORD.search(before) or _BEFORE.search(before)
    begin = word.start() if word else step.start()
    pattern = _literal(line[begin : step.start()]) + r"(?P<step>\d+)"
    if not any(map(str.isalpha, pattern[: -len(r"(?P<step>\d+)")])):
        pattern = "^" + pattern
    for number in numbers[place + 1 :]:
        if match := _LOSS.search(line[step.end() : number.start()]):
            between = line[step.end() : number.start()]
            pattern += (".*" if match.start() else "") + _literal(between[match.start() :])
            pattern += r"(?P<loss>\S+)"
            break
    try:
        found = Pattern(pattern).search(line)
    except ValueError:
        return None
    return pattern if found and found[1] == step[0] else None


def _literal(text: str) -> str:
    """Return a regular expression for a text; its numbers may be others."""
    parts = _NUMBER.split(text)
    return r"\S+".join(re.sub(r"([\\.^$|?*+()\[\]{}])", r"\\\1", part) for part in parts)


@dataclass
class _Output:
    """What a task has printed, until something is said of it."""

    has_pattern: bool
    """The scenario gives a pattern of the step."""
    lines: int = 0
    since: float | None = None
    """When the first line with a number was printed."""
    asked: float = 0.0
    """When the lines were looked at last."""
    kept: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))

    def note(self, line: str, wall: float) -> Unread | None:
        """Take a line; return what is to be said now."""
        self.lines += 1
        if _NUMBER.search(line[:LONGEST]):
            self.kept.append(line)
            self.since = wall if self.since is None else self.since
        if self.has_pattern:
            return Unread(line[:LONGEST], None) if self.lines >= LINES_OF_PATTERN else None
        if self.since is None or wall - self.since < AFTER or wall - self.asked < 1.0:
            return None
        self.asked = wall  # not with each line: to look at them all takes time
        return suggested(self.kept)


class UnreadWatch:
    """Watches the output of the tasks that train, until a step is read or something is said."""

    def __init__(self, tasks: Iterable[str], *, has_pattern: bool) -> None:
        self._outputs = {task: _Output(has_pattern) for task in tasks}

    def note(self, task: str, line: str, wall: float) -> Unread | None:
        """Take a line without a step, printed at `wall`; return what is to be said now."""
        output = self._outputs.get(task)
        if output is None or not line.strip():
            return None
        unread = output.note(line, wall)
        if unread is not None:
            self.stop()
        return unread

    def stop(self) -> None:
        """A step was read, or something is said: there is nothing more to watch."""
        self._outputs.clear()


def unread(line: str, pattern: str | None) -> str:
    """Return in words that no step is read so far, and why; the arguments are as in `Unread`."""
    if pattern is None:
        line = shown(line.strip(), SHOWN)
        return f"the pattern of `metrics.steps` has matched nothing yet: a line is `{line}`"
    return f"no step is read yet: {looks_like(line, pattern)}"


def looks_like(line: str, pattern: str) -> str:
    """Return which line may be a step, and what to write into the scenario to read it."""
    quoted = pattern.replace("'", "''")
    return (
        f"`{shown(line.strip(), SHOWN)}` looks like a step. "
        f"Add `metrics: {{steps: '{quoted}'}}` to the scenario"
    )
