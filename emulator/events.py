"""What arrives in the supervisor's inbox besides the engine's happenings, and how a job ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emulator.errors import EmulatorError

__all__ = ["Called", "Interrupted", "JobEnd", "Operation", "Outcome"]

Outcome = Literal["succeeded", "failed", "timeout", "interrupted"]


Operation = Literal["start", "signal", "impair", "restore"]


@dataclass(frozen=True)
class Interrupted:
    """The user pressed Ctrl-C or sent SIGTERM; put into the inbox by a signal handler."""

    signal: int


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
