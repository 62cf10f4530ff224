"""What a format reads in a line: a step, values, and what it was read from (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol, Self

PHASES_ONLY = "phases"
"""The rule where steps come from somewhere else: no line has a step."""


class Rank(IntEnum):
    """How sure it is that a source counts the steps of the training; the surest one counts."""

    NONE = 0
    """It says that it is something else, or it is a bar with a title that says nothing."""
    EPOCHS = 1
    """A bar of epochs: the steps, unless a bar within an epoch is seen."""
    PLAIN = 2
    """A bar without a title, which nothing contradicts."""
    EVIDENT = 3
    """Its title, its unit, values such as a loss, or a format that only training programs print."""
    GIVEN = 4
    """The program or the scenario says so: a line of JSON, a pattern of `metrics.steps`."""


@dataclass(frozen=True)
class Source:
    """One thing in the output that counts."""

    key: str
    """Two sources with the same key are one."""
    words: str
    """For users: "the bar `Training` (60)"."""
    rank: Rank


class Reading(NamedTuple):
    """What one drawing reports."""

    step: int | None
    """The global step; None where these are values of the last one."""
    values: Mapping[str, object]
    source: Source | None = None
    """What was read; None: the format as a whole."""
    is_over: bool = False
    """This is the end of a bar."""
    opened: int | None = None
    """The step from which a bar goes on: of the drawing with which it opens, which has no step, or
    of the first step."""


NOTHING = Reading(None, {})
"""Of a drawing that is understood and reports nothing, such as a bar of a download."""


class Counter(Protocol):
    """Reads the drawings of one start of a task, in their order."""

    def read_text(self, text: str) -> Reading | None:
        """Return what a drawing reports, and note where the program is; None: of another format.

        Raises ValueError for a number of more than 4,300 digits.
        """

    def again(self) -> Self:
        """Return a counter for the next start, which knows how the program numbers its epochs."""


def number(text: str) -> object:
    """Return the text as a number, if it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def fields_of(fields: Sequence[str], separator: str) -> dict[str, object]:
    """Return the fields `name: 0.41` that are numbers."""
    values: dict[str, object] = {}
    for one in fields:
        name, found, text = one.strip(" '").partition(separator)
        if found and isinstance(value := number(text.strip(" '")), int | float):
            values[name.strip(" '")] = value
    return values
