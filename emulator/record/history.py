"""One line of a history, and the order in which its events happened (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["STAMPED", "Entry", "HappenedAt", "as_it_happened", "entry_of"]

STAMPED = frozenset({"step", "phase", "exit"})
"""Events that the engine says the time of: what a task did itself."""


CLOCK_MOVED = 0.5
"""Seconds: both times of an event are taken one after the other, and what lies between them is
noise; a suspended laptop or a clock that is set moves one of them by more."""


@dataclass(frozen=True)
class Entry:
    """One line of the history."""

    n: int
    t: float
    """Seconds since the run began, monotonic: when it was written, or by `as_it_happened` when it
    happened."""
    wall: float
    """Seconds since 1970, by the engine's clock where the engine said when."""
    event: str
    task: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    # --- Of a step event, which may tell of many steps: see `coalesce.py` ----------------------

    @property
    def step(self) -> int:
        """The last step that it tells of."""
        return int(self.data["step"])

    @property
    def first(self) -> int:
        """The first one."""
        told = self.data.get("coalesced")
        return int(self.data["step"] if told is None else told["first"])

    @property
    def count(self) -> int:
        """How many times the task told of a step."""
        told = self.data.get("coalesced")
        return 1 if told is None else int(told["count"])

    @property
    def furthest(self) -> int:
        """The greatest one; it is the last, unless the task went back."""
        told = self.data.get("coalesced")
        return int(self.data["step"] if told is None else told.get("furthest", self.data["step"]))

    @property
    def gaps(self) -> Mapping[int, int]:
        """How much was between a step and the next: how often each difference came."""
        if self.count == 1:
            return {}
        told = self.data["coalesced"].get("gaps")
        if told is None:
            return {(self.step - self.first) // (self.count - 1): self.count - 1}
        return {int(gap): int(times) for gap, times in told.items()}


def entry_of(data: dict[str, Any]) -> Entry:
    """Return a line of the history as an entry; raises KeyError where it is none."""
    n, t, wall, event = data.pop("n"), data.pop("t"), data.pop("wall"), data.pop("event")
    return Entry(n, t, wall, event, data.pop("task", ""), data)


class HappenedAt:
    """Say when the events of a run happened; asked of each event once, in the order of writing.

    The one rule for time, for every number and picture. An event that the engine stamped (see
    STAMPED) happened at its stamp, but not later than it was read, and not before its task was
    started or had its own last event. Any other event happened when it was written, and has both
    times, `wall` and `t`: by these the engine's clock is set against ours, at the beginning and
    again when one of the two was moved by more than CLOCK_MOVED.
    """

    def __init__(self) -> None:
        self.began: float | None = None
        """Seconds since 1970 of the time 0; None before the first event."""
        self._floor: dict[str, float] = {}
        self._running: dict[str, float] = {}

    def __call__(self, entry: Entry) -> float:
        """Return the seconds from the beginning of the run until the event."""
        began = entry.wall - entry.t
        if self.began is None:
            self.began = began
        if entry.event not in STAMPED:
            if abs(began - self.began) > CLOCK_MOVED:
                self.began = began
            if entry.event == "start":
                self._floor[entry.task] = entry.t
            elif entry.event == "running":
                self._running[entry.task] = entry.t
            return entry.t
        floor = self._floor.get(entry.task, 0.0)
        if entry.event == "exit":  # a task runs before it ends, even for no time
            floor = max(floor, self._running.get(entry.task, 0.0))
        stamp = min(round(entry.wall - self.began, 6), entry.t)
        self._floor[entry.task] = max(stamp, floor)
        return self._floor[entry.task]


def as_it_happened(history: Sequence[Entry]) -> list[Entry]:
    """Return the events with the time at which they happened as `t`, in that order (pure).

    Lines may be read late: in a bunch, or when an emulator takes a run over. Steps that were
    written as one event are written when something else happens.
    """
    when = HappenedAt()
    timed = [replace(entry, t=when(entry)) for entry in history]
    return sorted(timed, key=lambda entry: entry.t)
