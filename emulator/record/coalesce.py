"""Merging of step events, so that the history of a long run stays small (pure).

The first FREE step events of a run are written one by one, so a short run is exact. After that a
task's steps are buffered until an interval has passed since the last that was written. Then one
event is written: the last of them, with what the others were:

    {"event": "step", "step": 1200, "loss": 0.41, "coalesced": {"first": 1191, "count": 10}}

`first` is the first of the steps and `count` how many different ones were reported. Of other values
each is the last that was reported.

What is lost: the steps in a merged event count as evenly spaced, in number and in time, and a step
that is reported again right away counts once. So the time of a single step, and which steps were
left out in between, are no longer known within an interval. What stays exact: steps only ascend in
a merged event. A step back ends the buffer and is written at once, so lost steps and steps that
were done again are exact. So are the times around failures: the buffer is written before any other
event (for a phase, only the buffer of its task), and the first step after it at once. A pause also
ends the buffer: a gap that is far longer than the steps before it, of a second and a 16th of the
interval at least.

The interval is a second, and doubles with every further EACH step events. Each interval a task's
steps make 1 event as a rule, 2 where it reports each step twice, and 32 at worst (16 pauses). At N
events per task and interval, T tasks and an interval of 2**k s, EACH events take EACH * 2**k / (N *
T) seconds, so a run of S seconds has doubled K = log2(1 + S * N * T / EACH) times, and has FREE + K
* EACH step events. A day of 25 tasks: K = 5.5, 373,000 events; at worst K = 10.4, 622,000. A line
has about 160 bytes: 60 MB and 100 MB. Twice the time is 50,000 events more, however many steps the
tasks make a second. Other events are not merged: each makes at most two step events for each task,
a phase two for its task, a step back two, and these count as any others.

A supervisor that is killed loses no more than its buffers; the one that takes over reads these
steps again from the tasks' logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from emulator.record.events import Entry, Phase, Step

__all__ = ["EACH", "FREE", "Coalescer"]

FREE = 100_000
"""Step events of a run that are written one by one."""
EACH = 50_000
"""Step events after which the interval doubles."""
PAUSE, PAUSE_TIMES, PAUSES = 1.0, 10, 16
"""A pause has so many seconds, so many usual steps, and so many fit into an interval."""


@dataclass
class _Buffer:
    """The steps of one task that are not written yet."""

    last: Step
    """The last that was reported, buffered or written."""
    since: float
    """When the last step was made that was written (`wall`)."""
    usual: float | None = None
    """Seconds between the steps before that."""
    at_once: bool = False
    """Another event came: the next step is written at once."""
    first: int = 0
    count: int = 0
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, entry: Step) -> None:
        """Add a step that is not smaller than the last."""
        self.values.update(entry.values)
        if self.count and entry.step == self.last.step:
            return
        self.first = self.first if self.count else entry.step
        self.count += 1
        self.last = entry

    def follows_a_pause(self, entry: Entry, interval: float) -> bool:
        usual = self.step_time()
        if usual is None:
            return False
        least = max(PAUSE, interval / PAUSES, PAUSE_TIMES * usual)
        return entry.wall - self.last.wall >= least

    def step_time(self) -> float | None:
        """Return the seconds between two of the buffered steps, or of those before them."""
        return abs(self.last.wall - self.since) / self.count if self.count else self.usual

    def merged(self) -> Step:
        """Return the one event for all."""
        coalesced = {"first": self.first, "count": self.count} if self.count > 1 else None
        return replace(self.last, values=self.values, coalesced=coalesced)


class Coalescer:
    """Decides what is written of a run's events, as they come."""

    def __init__(self, written: int = 0) -> None:
        """Begin, or continue after so many step events were `written`."""
        self._written = written
        self._buffers: dict[str, _Buffer] = {}

    @property
    def interval(self) -> float:
        """Seconds between two step events of a task; 0 as long as each is written."""
        return 2.0 ** ((self._written - FREE) // EACH) if self._written >= FREE else 0.0

    def take(self, entry: Entry) -> list[Entry]:
        """Return what is to be written now that this has happened, in order."""
        due: list[Entry] = []
        if isinstance(entry, Step):
            due += self._step(entry)
            self._written += len(due)
            return due
        due += self._before(entry)
        self._written += len(due)
        return [*due, entry]

    def _step(self, entry: Step) -> Iterator[Step]:
        buffer, interval = self._buffers.get(entry.task), self.interval
        if buffer is None:
            yield self._alone(entry, None)
        elif not interval:
            yield self._alone(entry, entry.wall - buffer.last.wall)
        elif (
            buffer.at_once
            or entry.step < buffer.last.step
            or (not buffer.count and entry.step == buffer.last.step)
            or buffer.follows_a_pause(entry, interval)
        ):
            usual = buffer.step_time()
            if buffer.count:
                yield self._written_out(buffer)
            yield self._alone(entry, usual)
        else:
            buffer.add(entry)
            # The engine's clock may have been set back: then the buffer is written too.
            if abs(entry.wall - buffer.since) >= interval:
                yield self._written_out(buffer)

    def _before(self, entry: Entry) -> Iterator[Step]:
        """Yield what is buffered when another event comes: of all tasks, or of a phase's task."""
        for task in [entry.task] if isinstance(entry, Phase) else list(self._buffers):
            if (buffer := self._buffers.get(task)) is None:
                continue
            if buffer.count:
                yield self._written_out(buffer)
            self._buffers[task].at_once = True

    def _alone(self, entry: Step, usual: float | None) -> Step:
        self._buffers[entry.task] = _Buffer(entry, entry.wall, usual)
        return entry

    def _written_out(self, buffer: _Buffer) -> Step:
        last = buffer.last
        self._buffers[last.task] = _Buffer(last, last.wall, buffer.step_time())
        return buffer.merged()
