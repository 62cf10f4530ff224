"""The signal by which a fault asks its target to end: which one it is, and to whom it goes."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, Self, get_args, runtime_checkable

from pydantic import BeforeValidator, Field

from emulator.faults.spec import Effect, Entry, FaultContext, FaultSpec

Whom = Literal["main", "all"]
Named = Literal["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"]
Short = Literal["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"]


def _in_full(value: object) -> object:
    """Return the full name of a signal; answer what belongs into `signals`. Raises ValueError."""
    if value in get_args(Whom):
        raise ValueError(f"it says which signal; whom it is for is `signals: {value}`")
    return f"SIG{value}" if value in get_args(Short) else value


SignalName = Annotated[Named, BeforeValidator(_in_full, json_schema_input_type=Named | Short)]
SignalOrNone = Annotated[
    Literal[Named, "none"],
    BeforeValidator(_in_full, json_schema_input_type=Named | Short | Literal["none"]),
]

WHICH = "The first signal; SIGTERM by default. SIGKILL follows the grace period in any case."
"""Of the key `signal` of a fault."""


class Signals(Entry):
    """An entry whose signals are for a task's own command alone, or for all its processes."""

    signals: Whom | None = Field(
        default=None,
        description="Who gets the signal: `main`, the task's own command alone, or `all` its "
        "processes; default: as the scenario says.",
        examples=["all"],
        exclude_if=lambda whom: whom is None,
    )

    @property
    def to_all(self) -> bool:
        """Whether its signals are for all processes."""
        return self.signals == "all"

    def by_default(self, whom: Whom) -> Self:
        """Return it with whom the scenario's signals are for, where it does not say that."""
        if self.signals is not None or whom == "main":
            return self
        filled = self.model_copy()
        filled.__dict__["signals"] = whom  # unwritten: a scenario is printed as it was given
        return filled


@runtime_checkable
class SignallingAll(Protocol):
    """Capability `signal-all`: `Engine.signal` is for the task's own command alone."""

    def signal_all(self, task: str, numbers: Sequence[int]) -> int | None:
        """Send signals, in this order, to all of a task's own processes; return how many got them.

        Not to what the engine itself runs there. None: the number is not known. Nothing happens if
        the task has ended; a frozen task gets them later. Raises EngineError.
        """


def deliver(fault: FaultSpec, target: FaultContext, *before: str) -> Effect | None:
    """Send a fault's signal, after others, to those whom it is for."""
    names = [*before, fault.sends]
    numbers = [signal.Signals[name] for name in names]
    if not fault.to_all:
        for number in numbers:
            target.engine.signal(target.task, number)
        return None
    reached = target.engine_as(SignallingAll).signal_all(target.task, numbers)
    count = "all processes" if reached is None else f"{reached} process{'es' * (reached != 1)}"
    return Effect(f"{' and '.join(names)} to {count} of {target.task}")
