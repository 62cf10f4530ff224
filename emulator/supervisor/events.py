"""What arrives in the supervisor's inbox besides the engine's happenings, and how a job ends."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

from emulator.errors import EmulatorError, RecordError, UsageError
from emulator.metrics.samples import Sample

__all__ = [
    "Asked",
    "Called",
    "Interrupted",
    "JobEnd",
    "Measured",
    "Operation",
    "Outcome",
    "Preparing",
]

Outcome = Literal["succeeded", "failed", "timeout", "interrupted"]


Operation = Literal["start", "signal", "impair", "restore", "equip"]


@dataclass(frozen=True)
class Interrupted:
    """The user pressed Ctrl-C or sent SIGTERM; put into the inbox by a signal handler."""

    signal: int


@dataclass(frozen=True)
class Asked:
    """Somebody outside asks or tells the supervisor something; it is done on its own thread."""

    call: Callable[[], Any]
    reply: Future[Any]

    def answer(self) -> None:
        """Make the call; what comes of it, good or bad, goes to whoever asked."""
        if self.reply.set_running_or_notify_cancel():
            try:
                self.reply.set_result(self.call())
            except Exception as error:
                self.reply.set_exception(error)

    def refuse(self) -> None:
        """Say that nobody will answer any more."""
        if self.reply.set_running_or_notify_cancel():
            self.reply.set_exception(UsageError("The run is over."))


@dataclass(frozen=True)
class JobEnd:
    """How the job ended; `task` and `last_words` tell whose fault it was."""

    outcome: Outcome
    reason: str
    task: str = ""
    last_words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Called:
    """An engine call has returned."""

    operation: Operation
    task: str
    answer: str = ""
    error: EmulatorError | None = None


@dataclass(frozen=True)
class Preparing:
    """The engine makes something that strikes wait for."""

    what: str


@dataclass(frozen=True)
class Measured:
    """What tasks and GPUs use was asked for; what came of it is stored already."""

    sample: Sample | None = None
    """None: there was nothing to measure, or it can't be."""
    error: str = ""
    """Why it can't be measured."""
    unwritten: RecordError | None = None
    """Why it can't be stored."""
