"""What is to run, as it was asked for: a file with what is added to it and overridden in it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emulator.planning.plan import ThroughputReference, new_run_id
from emulator.scenario import loader
from emulator.scenario.given import NOTHING, PIPED, Additions, Given, again_piped
from emulator.scenario.schema import Scenario
from emulator.validation.run_id import check_new_run_id


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a scenario runs, beside what it says itself: from the command line, Python or pytest."""

    out: Path = Path("runs")
    """Where the run folder is made."""
    run_id: str | None = None
    """Its name; None: a new one."""
    variant: str = ""
    """The name of this variant, for the record."""
    gpus: Sequence[str] | None = None
    """The only devices that it gets; None: all of the engine's."""
    reference: ThroughputReference | None = None
    """What its rate is compared with; None: nothing."""
    keep: bool = False
    """Keep what it made after the run."""
    warm: bool = False
    """Fork tasks from processes that have imported their frameworks (docs/warm.md), and leave these
    waiting for the next run."""
    reports: bool = True
    """Write the pages for people."""
    python: str | None = None
    """The Python in which tasks run that are processes here; None: the caller's."""
    calls_of: str = ""
    """Record the calls to the kernel for these files: a glob; after a `!` for all others."""
    disposable: bool = False
    """Nobody goes on with the run after its emulator was killed: its held tasks may end then."""
    reads_results: bool = False
    """Read what the tasks have left, at the end."""
    uninterrupted: Mapping[str, Any] | None = None
    """What runs without a fault have alike, as in `uninterrupted.json`; it is written there."""

    def begins_held(self, scenario: Scenario) -> bool:
        """Return whether the tasks begin held: what forks from a parent that waits never does."""
        return bool(self.calls_of) or any(one.at and one.at.call for one in scenario.faults)

    def named(self, scenario: Scenario) -> str:
        """Return the name of a run of a scenario. Raises UsageError if it was given and is none."""
        return new_run_id(scenario.name) if self.run_id is None else check_new_run_id(self.run_id)


@dataclass(frozen=True)
class RequestedScenario:
    """A scenario with its overrides, as `--set` takes them, in the order in which they apply."""

    given: Given
    path: Path | None
    """None if it is written in a test or a program, or came on standard input."""
    image: tuple[str, ...] = ()
    """The session's image."""
    sets: tuple[str, ...] = ()
    """Overrides of all tests of a session."""
    chosen: tuple[str, ...] = ()
    """Overrides of this variant."""
    by_call: bool = False
    """Whether `chosen` is the `set` of a call, not a variant."""
    last: tuple[str, ...] = ()
    added: Additions = NOTHING
    """What is added to a manifest."""

    @functools.cached_property
    def scenario(self) -> Scenario:
        """The parsed scenario. Raises UsageError."""
        return self.given.parse(self._overrides, self._called)

    def placed(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which a mistake that is found later gets its file and line."""
        return self.given.placed(self._overrides, self._called)

    def _called(self, override: str) -> str:
        """Return what messages call an override: by where a test or a program gave it."""
        if override in self.image:
            return "--emulator-image"
        if override in self.sets:
            return f"--emulator-set {override}"
        return f'set["{override.partition("=")[0]}"]' if self.by_call else loader.OPTION(override)

    @property
    def _overrides(self) -> tuple[str, ...]:
        return (*self.image, *self.sets, *self.chosen, *self.last)

    def variant(self, chosen: Sequence[str], last: Sequence[str] = ()) -> RequestedScenario:
        """Return another variant of it."""
        return replace(self, chosen=tuple(chosen), last=tuple(last))

    @property
    def label(self) -> str:
        """Its name in tables."""
        return " ".join(self.chosen)

    @property
    def source(self) -> str:
        """What it was read from, if that is no file."""
        return "" if self.given.piped is None else str(PIPED)

    def command(self, engine: str, record: Path | None = None) -> str:
        """Return the command that runs it again; empty if there is none.

        `record` is the folder of its run, which has a copy of what came on standard input.
        """
        if self.given.piped is not None and record is not None:
            return again_piped(self.given, record, engine, self._overrides)
        if self.path is None:
            return ""
        return self.added.again(self.path, engine, self._overrides)
