"""The figures of a job: name, unit, format and source (pure).

summary.json, the terminal, the page, Markdown, JUnit, comparisons and listings choose from FIGURES
by key; a new figure is one entry, and its key where it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from emulator.validation.units import format_duration, format_number, format_rate

if TYPE_CHECKING:
    from emulator.analysis.analyse import Analysis

UNKNOWN = "—"
"""Shown for an unknown value."""
DIGITS = 4
"""Decimals of a number as data."""


_Known = TypeVar("_Known")


class AtMost(int):
    """A count of which only bounds are known: it is at most this, and at least `least`."""

    least: int

    @classmethod
    def of(cls, most: _Known, least: object) -> _Known | AtMost:
        """Return the count; what was given where that is all that is known."""
        if not isinstance(most, int) or not isinstance(least, int) or least >= most:
            return most
        count = cls(most)
        count.least = least
        return count


@dataclass(frozen=True)
class Figure:
    """One number of a job."""

    key: str
    """Its name as data, and the attribute of `Analysis`."""
    path: str
    """Its dotted key in summary.json."""
    title: str
    """As a heading."""
    column: str
    """As the head of a column."""
    phrase: str
    """In a line of text, around `{}`; empty if it is not shown there."""
    note: str
    """A short definition."""
    form: Callable[[float], str]
    of_one: str = ""
    """The phrase for exactly one of what is counted; empty if it is the same."""
    of_never: str = ""
    """The phrase for an infinite time."""
    least: str = ""
    """The name of the number that it is at least, beside it; empty: it is known exactly."""

    def value_in(self, analysis: Analysis) -> float | None:
        """Return its value in a run; None: unknown."""
        value: float | None = getattr(analysis, self.key)
        return AtMost.of(value, getattr(analysis, self.least)) if self.least else value

    def text(self, value: float | None, unknown: str = UNKNOWN) -> str:
        """Return a value as text; `never` for an infinite time."""
        if value is None:
            return unknown
        text = "never" if math.isinf(value) else self.form(value)
        if isinstance(value, AtMost):
            text = f"{self.form(value.least)} to {text}"
        return text

    def in_words(self, value: float) -> str:
        """Return a value in a phrase."""
        is_one = value == 1 and not isinstance(value, AtMost)
        phrase = self.of_one if self.of_one and is_one else self.phrase
        if self.of_never and math.isinf(value):
            return self.of_never
        return phrase.format(self.text(value))


def _percent(share: float) -> str:
    return f"{share:.0%}"


FIGURES: Mapping[str, Figure] = {
    figure.key: figure
    for figure in (
        Figure("duration", "duration", "Took", "took", "took {}",
               "from the run's start to the outcome", format_duration),
        Figure("network", "startup.network", "Network after", "network", "",
               "from the run's start", format_duration),
        Figure("all_running", "startup.all_running", "Running after", "running",
               "running after {}", "from the run's start", format_duration),
        Figure("first_step", "startup.first_step", "First step after", "first step",
               "first step after {}", "from the run's start", format_duration),
        Figure("steps_per_second", "throughput.steps_per_second", "Steps/s", "steps/s",
               "{} steps/s", "of whichever task was first, from the job's first to its last step",
               format_rate),
        Figure("examples_per_second", "throughput.examples_per_second", "Examples/s", "examples/s",
               "{} examples/s", "of the job", format_rate),
        Figure("final_step", "steps.final", "Final step", "steps", "step {}",
               "the furthest of any task", format_number),
        Figure("lost_steps", "steps.lost", "Steps lost", "lost", "{} steps lost",
               "done again after restarts", format_number, of_one="{} step lost",
               least="lost_at_least"),
        Figure("goodput", "goodput", "Goodput", "goodput", "goodput {}",
               "productive share of the time", _percent),
        Figure("worst_recovery", "worst_recovery", "Worst recovery", "recovery", "recovered in {}",
               "from a failure to the next step", format_duration, of_never="never recovered"),
        Figure("restarts", "restarts", "Restarts", "restarts", "{} restarts",
               "by the restart policy", format_number, of_one="{} restart"),
        Figure("accuracy", "accuracy", "Accuracy", "accuracy", "accuracy {}",
               "the last that was reported", partial(format_number, digits=3)),
    )
}  # fmt: skip
"""By key, in the order of the page."""


BEFORE_SIGNAL = "left before the signal"
"""What is said of a task that ended after the notice and before the signal, in place of a time."""
FAULT_STAGES: Mapping[str, tuple[str, str]] = {
    "saved_after": ("saved", "a checkpoint was saved, before the fault took effect"),
    "applied_after": ("applied", "the task had ended, was frozen, throttled or cut off"),
    "detected_after": ("detected", "another task failed or complained, or the job stalled"),
    "restored_after": ("restored", "the task ran again, or was healed"),
    "first_step_after": ("first step", "the job's first step with the task restored"),
    "caught_up_after": (
        "caught up",
        "the job was further than before the fault, with the task restored",
    ),
}
"""Stages of a fault, in seconds after its trigger: by the attribute of `FaultResult`, the head of a
column and a description."""


def fault_stages(fault: Mapping[str, Any], unknown: str = "") -> dict[str, str]:
    """Return the times of a fault's stages as text, by key."""
    times = {key: fault[key] for key in FAULT_STAGES}
    texts = {key: unknown if t is None else format_duration(t) for key, t in times.items()}
    if (applied := times["applied_after"]) is not None and applied < 0:
        texts["applied_after"] = BEFORE_SIGNAL
    return texts


def fault_rates(fault: Mapping[str, Any]) -> str:
    """Return the job's steps per second before, during and after a fault; empty: all unknown."""
    rates = [fault[f"rate_{when}"] for when in ("before", "during", "after")]
    if not any(rate is not None for rate in rates):
        return ""
    return " → ".join(UNKNOWN if rate is None else format_rate(rate) for rate in rates)


def put_in_summary(summary: dict[str, Any], key: str, value: float | None) -> None:
    """Write a figure to its place in a summary; an infinite one as null, as JSON requires."""
    figure = FIGURES[key]
    *sections, last = figure.path.split(".")
    for name in sections:
        summary = summary.setdefault(name, {})
    summary[last] = None if value == math.inf else rounded(value)
    if figure.least:
        summary[f"{last}_at_least"] = getattr(value, "least", value)


def in_summary(summary: Mapping[str, Any], key: str) -> float | None:
    """Return a figure from a summary.json; None if it has none."""
    if key == "worst_recovery" and summary.get("unrecovered"):
        return math.inf
    value: Any = summary
    for name in FIGURES[key].path.split("."):
        section, value = value, value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(value, int | float):
        return None
    return AtMost.of(value, section.get(f"{name}_at_least")) if FIGURES[key].least else value


def as_data(row: Any) -> dict[str, Any]:  # noqa: ANN401  of a comparison or a listing
    """Return a dataclass with `figures` as flat data for JSON, which has no infinity (None).

    Which values of a comparison are defaults is for people alone.
    """
    data = {key: value for key, value in vars(row).items() if key != "by_default"}
    figures = data.pop("figures")
    return data | {key: None if value == math.inf else value for key, value in figures.items()}


def rounded(value: float | None) -> float | None:
    """Return a number with at most DIGITS decimals, as results have it."""
    return round(value, DIGITS) if isinstance(value, float) else value
