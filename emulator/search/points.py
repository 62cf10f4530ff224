"""What came of a sweep: its moments, and what became of the training at each (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from emulator.record.version import header
from emulator.search.moments import Moment
from emulator.search.outcomes import Outcome, Word, exit_code, figure


@dataclass(frozen=True)
class Point:
    """A moment, and what became of the training."""

    moment: Moment
    outcome: Outcome
    verdict: str
    """Of the run's expectations."""
    run: Path | None
    """Its folder."""

    @property
    def is_ok(self) -> bool:
        """Whether it passed, and all that the scenario expects was met."""
        return (self.outcome.what, self.verdict) == ("passed", "ok")

    def as_data(self, place: Path) -> dict[str, Any]:
        """Return it as `--json` prints it; its run is relative to the folder `place`."""
        return {
            "moment": self.moment.words,
            "at": self.moment.at,
            "outcome": self.outcome.what,
            "why": self.outcome.why,
            "compared": list(self.outcome.compared),
            "verdict": self.verdict,
            "lost_steps": self.outcome.lost,
            "resumed_from": self.outcome.resumed,
            "last_save": self.outcome.saved,
            "run": None if self.run is None else self.run.relative_to(place).as_posix(),
        }


@dataclass(frozen=True)
class SweepResult:
    """All moments of a sweep."""

    folder: Path
    points: Sequence[Point]
    left_out: int = 0
    """Moments beyond the most that were asked for."""
    not_compared: Sequence[str] = ()
    """What differs between two runs without a fault: a sentence each."""
    kept: Mapping[Word, Path] = field(default_factory=dict)
    """The worst moment of each word but `passed`, as a scenario; the worst word first."""

    @property
    def figure(self) -> str:
        """All outcomes in one line."""
        return figure([one.outcome.what for one in self.points])

    @property
    def exit_code(self) -> int:
        """1 if a moment did not pass, 3 if one could not be judged, else 0."""
        return exit_code([(one.outcome.what, one.verdict) for one in self.points])

    def as_data(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        words = get_args(Word)
        counts = {word: sum(one.outcome.what == word for one in self.points) for word in words}
        return {
            **header(),
            "sweep": self.folder.name,
            "figure": self.figure,
            "counts": counts,
            "left_out": self.left_out,
            "not_compared": list(self.not_compared),
            "kept": {word: path.name for word, path in self.kept.items()},
            "points": [one.as_data(self.folder) for one in self.points],
        }

    def check(self) -> None:
        """Raise AssertionError unless every moment is ok; the text names each that is not."""
        __tracebackhide__ = True
        if wrong := [one for one in self.points if not one.is_ok]:
            texts = (f"{one.moment.words}: {said(one)}" for one in wrong)
            raise AssertionError("\n".join([self.figure, *texts]))


def said(point: Point) -> str:
    """Return what became of a training at a moment, in words."""
    words = f"{point.outcome.what}; {point.outcome.why}"
    if point.outcome.what != "passed" or point.verdict == "ok":
        return words
    return f"{words}; an expectation {'failed' if point.verdict == 'failed' else 'is unknown'}"
