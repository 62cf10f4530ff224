"""When the events of a history happened, and in which order (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from emulator.record.events import (
    CheckpointRead,
    CheckpointRemoved,
    CheckpointSaved,
    Complaint,
    Entry,
    FaultEvent,
    Phase,
    Reaction,
    Step,
    StepSource,
    StopSignal,
    TaskExit,
    TaskRunning,
    TaskStart,
)

STAMPED = (Step, Phase, Reaction, Complaint, TaskExit)
"""Events that carry the engine's stamp: what a task did itself."""

SEEN = (CheckpointSaved, CheckpointRead, CheckpointRemoved)
"""Events that carry a stamp of the engine's machine, and are told when they are surely over."""

HELD = ("reapplied", "healed")
"""Stages of a fault with a stamp of ours: when the engine held a task again, and when it was asked
to let it go."""

CLOCK_MOVED = 0.5
"""Seconds by which the two times of an event may differ: they are taken one after the other, see
`clock.both_times`. A suspended laptop, or a clock that is set, moves one of them by more."""


class HappenedAt:
    """Returns when the events of a run happened; to be called once for each, in written order.

    The one rule for time, for every number and picture. An event that the engine stamped (see
    STAMPED) happened at its stamp, but not after it was read, and not before its task was started
    or reported its last step or phase. It may have been read after the exit: event files are read
    with a delay. What became of a save happened at its stamp (SEEN). A fault that ended its target
    took effect at the stamp of that exit, and not before it was triggered; one that was healed, or
    that holds a task which has started again, has a stamp as well. Any other event happened when it
    was written. Its `wall` and `t` relate the engine's clock to ours, at the beginning and again
    when either was moved by more than CLOCK_MOVED.
    """

    def __init__(self) -> None:
        self.began: float | None = None
        """Seconds since 1970 of the time 0; None before the first event."""
        self._floor: dict[str, float] = {}
        self._earliest_exit: dict[str, float] = {}
        """Where no step or phase is later."""
        self._triggered: dict[str, float] = {}
        """When the latest stage of each fault, by its id, was written."""

    def __call__(self, entry: Entry) -> float:
        """Return the seconds from the beginning of the run until the event."""
        began = entry.wall - entry.t
        if self.began is None:
            self.began = began
        if isinstance(entry, SEEN):
            return max(0.0, min(round(entry.wall - self.began, 6), entry.t))
        if isinstance(entry, FaultEvent) and (entry.stage in HELD or entry.exit_code is not None):
            floor = self._triggered.get(entry.id, 0.0)
            if entry.exit_code is not None:
                floor = max(floor, self._first_moment_of_exit(entry.task))
            return max(floor, min(round(entry.wall - self.began, 6), entry.t))
        if not isinstance(entry, STAMPED):
            if abs(began - self.began) > CLOCK_MOVED:
                self.began = began
            if isinstance(entry, TaskStart):
                self._floor[entry.task] = entry.t
            elif isinstance(entry, TaskRunning):
                self._earliest_exit[entry.task] = entry.t
            elif isinstance(entry, FaultEvent):
                self._triggered[entry.id] = entry.t
            return entry.t
        if is_exit := isinstance(entry, TaskExit):
            floor = self._first_moment_of_exit(entry.task)
            floor = max(floor, self._triggered.get(entry.fault or "", 0.0))
        else:
            floor = self._floor.get(entry.task, 0.0)
        stamp = min(round(entry.wall - self.began, 6), entry.t)
        floors = self._earliest_exit if is_exit else self._floor
        floors[entry.task] = max(stamp, floor)
        return floors[entry.task]

    def _first_moment_of_exit(self, task: str) -> float:
        """Return before when a task has not ended: it ran, even for no time, and reported."""
        return max(self._floor.get(task, 0.0), self._earliest_exit.get(task, 0.0))


def as_it_happened(history: Sequence[Entry]) -> list[Entry]:
    """Return the events with the time at which they happened as `t`, in that order (pure).

    Lines may be read late: many at once, or when a run is taken over. Merged steps are written when
    something else happens. Likewise a task may have ended before it was told to stop. Steps that
    were retracted are left out.
    """
    happened_at = HappenedAt()
    timed = [entry.having(t=happened_at(entry)) for entry in _without_retracted(history)]
    return sorted(_by_themselves(timed), key=lambda entry: entry.t)


def _by_themselves(timed: Iterable[Entry]) -> Iterator[Entry]:
    """Yield events in written order; an exit before the signal to stop was not told to.

    Where an engine stamps whole seconds, the exit may have been up to a second later. A signal's
    exit code is that of ours, whatever the clocks say.
    """
    stopped: dict[str, float] = {}
    for entry in timed:
        match entry:
            case TaskStart():
                stopped.pop(entry.task, None)
            case StopSignal():
                stopped.setdefault(entry.task, entry.t)
            case TaskExit(told_to_stop=True) if entry.exit_code <= _SIGNALS:
                latest = entry.t + (1.0 if entry.wall == int(entry.wall) else 0.0)
                if latest < stopped.get(entry.task, 0.0):
                    yield replace(entry, told_to_stop=False)
                    continue
            case _:
                pass
        yield entry


_SIGNALS = 128
"""Exit codes above are those of signals."""


def _without_retracted(history: Sequence[Entry]) -> Sequence[Entry]:
    """Return a history as written without the steps that were those of something else.

    A source that is retracted had no steps in the starts before either.
    """
    source: dict[str, str] = {}
    of: dict[int, tuple[str, str]] = {}
    retracted: dict[tuple[str, str], int] = {}
    for entry in history:
        match entry:
            case Step():
                of[entry.n] = entry.task, source.get(entry.task, "")
            case StepSource(counts=True):
                if entry.retracts:
                    retracted[entry.task, source.get(entry.task, "")] = entry.n
                source[entry.task] = entry.source
            case _:
                pass
    if not retracted:
        return history
    return [
        entry
        for entry in history
        if not isinstance(entry, Step) or entry.n > retracted.get(of[entry.n], -1)
    ]
