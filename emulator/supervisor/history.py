"""Writes a run's record, and passes everything on to subscribers."""

from __future__ import annotations

from typing import Protocol

from emulator.metrics.samples import Sample
from emulator.record.events import Entry
from emulator.record.writer import RunWriter

__all__ = ["HistoryWriter", "Subscriber"]


class Subscriber(Protocol):
    """Follows a run; its methods are called on the supervisor's thread and must not block."""

    def entry(self, entry: Entry, /) -> None:
        """Take an event that was written."""

    def line(self, task: str, text: str, /) -> None:
        """Take a line that a task printed."""

    def sample(self, sample: Sample, /) -> None:
        """Take a sample that was stored."""


class HistoryWriter:
    """Writes events and output, and passes each on to the subscribers."""

    def __init__(self, record: RunWriter, *subscribers: Subscriber) -> None:
        self.record = record
        self._subscribers = list(subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Pass everything from now on to this one as well."""
        self._subscribers.append(subscriber)

    def write(self, entry: Entry, *, wall: float | None = None) -> None:
        """Write an event; `wall` is the engine's stamp, if it gave one. Raises RecordError."""
        written = self.record.write(entry, wall=wall)
        for subscriber in self._subscribers:
            subscriber.entry(written)

    def line(self, task: str, text: str) -> None:
        """Write a line to the task's log. Raises RecordError."""
        self.record.log(task, text)
        for subscriber in self._subscribers:
            subscriber.line(task, text)

    def sampled(self, sample: Sample) -> None:
        """Pass on a sample; the thread that took it has stored it."""
        for subscriber in self._subscribers:
            subscriber.sample(sample)
