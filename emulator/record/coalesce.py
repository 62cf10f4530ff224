"""Merging of step events, so that the history of a long run stays small (pure).

The first FREE step events of a run are written one by one, so a short run is exact. After that a
task's steps are buffered until an interval has passed since its last written event. Then one event
is written: the last of the steps, with a summary of the others:

    {"event": "step", "step": 1200, "loss": 0.41, "coalesced": {"first": 1191, "count": 10}}

`first` is the first of the steps and `count` the number of different ones. Other values are the
last that were reported.

Exact as without merging: the times around failures, because the buffer is written before any other
event (for a phase, only the buffer of its task), and the first step after it at once; lost and
repeated steps, because a smaller step ends the buffer and is written at once; pauses of an interval
or longer, which end the buffer as well.

Lost: within a merged event the steps count as evenly spaced, in number and in time. So a pause that
is shorter than the interval is spread over the steps around it, and it is no longer known which
steps were left out. A step that is reported twice in a row counts once.

The interval is a second, and doubles with every further EACH step events. Each interval a task's
steps make 1 event as a rule, and 3 at worst (it reports each step twice and pauses all the time).
With N events per task and interval, T tasks and an interval of 2**k s, EACH events take EACH * 2**k
/ (N * T) seconds. So a run of S seconds has doubled K = log2(1 + S * N * T / EACH) times, and has
FREE + K * EACH step events. A day of 25 tasks: K = 5.5 and 373,000 events, at worst K = 7.0 and
452,000; of about 160 bytes each, 60 to 72 MB. Other events are not merged: each adds at most two
step events for each task, a phase two for its task, a smaller step two.

A supervisor that is killed loses no more than its buffers, and the next one reads these steps again
from the tasks' logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from emulator.record.events import Entry, Phase, Step

FREE = 100_000
"""Step events of a run that are written one by one."""
EACH = 50_000
"""Step events after which the interval doubles."""


@dataclass
class _Buffer:
    """The steps of one task that are not written yet."""

    last: Step
    """The last that was reported, buffered or written."""
    since: float
    """When the last written step was made (`wall`)."""
    at_once: bool = False
    """Another event was written: the next step is written at once."""
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

    def is_ended_by(self, entry: Step, interval: float) -> bool:
        """Return whether this step can't be merged with those before it."""
        return (
            self.at_once
            or entry.step < self.last.step
            or (not self.count and entry.step == self.last.step)
            or entry.wall - self.last.wall >= interval
        )

    def merged(self) -> Step:
        """Return the one event for all."""
        coalesced = {"first": self.first, "count": self.count} if self.count > 1 else None
        return replace(self.last, values=self.values, coalesced=coalesced)


class Coalescer:
    """Decides which events of a run are written, and when."""

    def __init__(self, written: int = 0) -> None:
        """Begin, or continue after so many step events were `written`."""
        self._written = written
        self._buffers: dict[str, _Buffer] = {}

    @property
    def interval(self) -> float:
        """Seconds between two step events of a task; 0 as long as each is written."""
        return 2.0 ** ((self._written - FREE) // EACH) if self._written >= FREE else 0.0

    def add(self, entry: Entry) -> list[Entry]:
        """Return the events to write now that this one has happened, in order."""
        if isinstance(entry, Step):
            steps = list(self._step(entry))
            self._written += len(steps)
            return [*steps]
        steps = list(self._buffered_before(entry))
        self._written += len(steps)
        return [*steps, entry]

    def _step(self, entry: Step) -> Iterator[Step]:
        buffer, interval = self._buffers.get(entry.task), self.interval
        if buffer is None or not interval or buffer.is_ended_by(entry, interval):
            if buffer is not None and buffer.count:
                yield buffer.merged()
            self._buffers[entry.task] = _Buffer(entry, entry.wall)
            yield entry
            return
        buffer.add(entry)
        # The engine's clock may have been set back: then the buffer is written too.
        if abs(entry.wall - buffer.since) >= interval:
            yield self._flush(buffer)

    def _buffered_before(self, entry: Entry) -> Iterator[Step]:
        """Yield the buffered steps that precede another event: of all tasks, or a phase's task."""
        for task in [entry.task] if isinstance(entry, Phase) else list(self._buffers):
            if (buffer := self._buffers.get(task)) is None:
                continue
            if buffer.count:
                yield self._flush(buffer)
            self._buffers[task].at_once = True

    def _flush(self, buffer: _Buffer) -> Step:
        self._buffers[buffer.last.task] = _Buffer(buffer.last, buffer.last.wall)
        return buffer.merged()
