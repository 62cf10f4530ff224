"""Writes a run's record, and passes everything on to subscribers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.record.events import Entry, Phase, Step
from emulator.record.writer import RunWriter

if TYPE_CHECKING:
    from emulator.metrics.samples import Sample


class Subscriber(Protocol):
    """Follows a run; its methods are called on the supervisor's thread and must not block."""

    @property
    def hurried(self) -> bool:
        """Whether it needs lines at once, and not a quarter of a second later."""

    def entry(self, entry: Entry, /) -> None:
        """Take an event that was written."""

    def lines(self, lines: Sequence[tuple[str, str]], /) -> None:
        """Take lines that tasks printed: each its task and its text."""

    def sample(self, sample: Sample, /) -> None:
        """Take a sample that was stored."""


class HistoryWriter:
    """Writes events and output, and passes each on to the subscribers."""

    def __init__(self, record: RunWriter, *subscribers: Subscriber) -> None:
        self.record = record
        self._subscribers = list(subscribers)
        self._entries: list[Entry] = []
        self._lines: list[tuple[str, str]] = []

    @property
    def hurried(self) -> bool:
        """Whether a subscriber needs lines at once."""
        return any(subscriber.hurried for subscriber in self._subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Pass everything from now on to this one as well."""
        self._subscribers.append(subscriber)

    def begin_batch(self) -> None:
        """Write output, steps and phases together later: at `end_batch`, or with another event."""
        self.record.buffering = True

    def end_batch(self) -> None:
        """Write what has waited."""
        self.record.buffering = False
        self._flush()

    def write(self, entry: Entry, *, wall: float | None = None) -> Entry:
        """Write an event, and return it with its number and time. Raises RecordError.

        `wall` is the engine's stamp, where it gave one.
        """
        written = self.record.write(entry, wall=wall)
        self._entries.append(written)
        if not self.record.buffering or not isinstance(entry, Step | Phase):
            self._flush()
        return written

    def line(self, task: str, text: str, *, wall: float | None = None, shown: bool = True) -> None:
        """Write a line to the task's log, and pass it on unless it is not `shown`.

        `wall` is the engine's stamp, where it gave one. Raises RecordError.
        """
        self.record.log(task, text, wall=wall)
        if shown:
            self._lines.append((task, text))
        if not self.record.buffering:
            self._flush()

    def sampled(self, sample: Sample) -> None:
        """Pass on a sample; the thread that took it has stored it."""
        for subscriber in self._subscribers:
            subscriber.sample(sample)

    def _flush(self) -> None:
        self.record.flush()
        lines, self._lines = self._lines, []
        entries, self._entries = self._entries, []
        for subscriber in self._subscribers:
            if lines:
                subscriber.lines(lines)
            for entry in entries:
                subscriber.entry(entry)
        for cut in self.record.cut_short():
            self.write(cut)
