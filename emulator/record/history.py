"""One line of a history, and the order in which its events happened (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["STAMPED", "Entry", "as_it_happened", "entry_of"]

STAMPED = frozenset({"step", "phase", "exit"})
"""Events that the engine says the time of: what a task did itself."""


@dataclass(frozen=True)
class Entry:
    """One line of the history."""

    n: int
    t: float
    """Seconds since the run began, monotonic."""
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


def as_it_happened(history: Sequence[Entry]) -> list[Entry]:
    """Put events in the order of their times (pure).

    The steps, phases and exits of a gap without an emulator are told at once when one takes over:
    they are moved to when they happened. Coalesced steps are told when something else happens:
    they have their own time, and go back there.
    """
    moved: list[Entry] = []
    taken_over: Entry | None = None
    for entry in history:
        if entry.event == "attached":
            taken_over = entry
        elif taken_over and entry.event in STAMPED:
            since = taken_over.wall - entry.wall
            if since > 0:
                entry = replace(entry, t=round(max(0.0, taken_over.t - since), 6))
        moved.append(entry)
    return sorted(moved, key=lambda entry: entry.t)
