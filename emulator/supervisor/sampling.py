"""Measures what tasks and GPUs use, at the scenario's interval, without ever holding the loop up.

A timer asks, another thread measures, and what it found arrives in the inbox like everything else:
there is one writer. Where measuring takes longer than the interval, the next moment is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.clock import Clock
from emulator.engines.base import Engine, Inbox
from emulator.errors import EmulatorError
from emulator.metrics.samples import GpuUsage
from emulator.supervisor.events import Measured

if TYPE_CHECKING:
    from emulator.metrics.gpu_usage import GpuSampler

__all__ = ["Sampling"]


class Hands(Protocol):
    """What sampling needs the supervisor to do."""

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Do something later."""

    def note(self, event: str, task: str, **data: object) -> None:
        """Write to the history."""


class Sampling:
    """Samples one run; `submit` runs a call on another thread.

    An engine without the capability `usage` is not asked; GPUs are sampled where the tasks run on
    this machine.
    """

    def __init__(
        self,
        interval: float,
        engine: Engine,
        inbox: Inbox,
        hands: Hands,
        *,
        clock: Clock,
        submit: Callable[[Callable[[], None]], object],
    ) -> None:
        self._interval, self._engine, self._inbox, self._hands = interval, engine, inbox, hands
        self._clock, self._submit = clock, submit
        self._gpus: GpuSampler | None = None
        self._under_way = False
        self._noted = False
        self._failing = False
        self._over = False
        self._measuring = threading.Lock()

    def begin(self) -> None:
        """Sample from now on."""
        if "usage" in self._engine.capabilities:
            self._hands.after(self._interval, self._tick)

    def measured(self, event: Measured) -> bool:
        """Take note of an answer; say whether there is anything in it to be stored."""
        self._under_way = False
        if not self._noted and not event.error:
            self._noted = True
            self._hands.note("sampling", "", interval=self._interval, **self._devices())
        if bool(event.error) != self._failing:  # the same reason may be worded anew each time
            self._failing = bool(event.error)
            self._hands.note("sampling-failed", "", reason=event.error)
        return bool(event.tasks or event.gpus)

    def end(self) -> None:
        """Let go of the GPUs' driver; what is being measured is waited for."""
        with self._measuring:
            self._over = True
            if self._gpus is not None:
                self._gpus.close()

    def _tick(self) -> None:
        self._hands.after(self._interval, self._tick)
        if not self._under_way:
            self._under_way = True
            self._submit(self._measure)

    def _measure(self) -> None:
        """Ask the engine and the driver; on another thread."""
        with self._measuring:
            if self._over:
                return
            at, wall = self._clock.now(), self._clock.wall()
            try:
                used = self._engine.usage()
                self._inbox.put(Measured(at, wall, used, self._of_gpus()))
            except Exception as error:  # training goes on, whatever measuring runs into
                why = error.message if isinstance(error, EmulatorError) else repr(error)
                self._inbox.put(Measured(at, wall, {}, error=why))

    def _of_gpus(self) -> Sequence[GpuUsage]:
        if self._gpus is None:
            from emulator.metrics.gpu_usage import GpuSampler  # loads the driver's library

            self._gpus = GpuSampler()
        return tuple(self._gpus.sample(self._engine.pids())) if self._gpus.found.gpus else ()

    def _devices(self) -> dict[str, object]:
        if self._gpus is None:
            return {}
        found = self._gpus.found
        told: dict[str, object] = {
            "gpus": [vars(gpu) for gpu in found.gpus],
            "driver": found.driver,
            "why_no_gpus": found.why_none,
        }
        return {**told, "lacking": dict(self._gpus.lacking)} if found.gpus else told
