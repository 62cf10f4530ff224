"""Measures what tasks and GPUs use, at the scenario's interval, without ever holding the loop up.

A timer asks, another thread measures and writes `samples.jsonl` (which nobody else does), and the
loop hears of it by its inbox. Where that takes longer than the interval, the next moment is left
out; where it never ends, the run does without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.clock import Clock
from emulator.engines.base import Engine, Inbox, Measuring, capable
from emulator.errors import EmulatorError, RecordError
from emulator.metrics.samples import GpuUsage, Sample, Usage
from emulator.record.events import Entry, SamplingFailed, SamplingStarted
from emulator.supervisor.events import Measured

if TYPE_CHECKING:
    from emulator.metrics.gpu.sampler import GpuSampler

__all__ = ["Sampling"]

GIVE_UP = 2.0
"""Seconds at the end of a run that a measurement under way gets."""
Store = Callable[[float, float, Mapping[str, Usage], Sequence[GpuUsage]], Sample]


class Hands(Protocol):
    """What sampling needs the supervisor to do."""

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Do something later."""

    def note(self, entry: Entry) -> None:
        """Write to the history."""


class Sampling:
    """Samples one run; `aside` runs a call on another thread, `store` writes a sample.

    An engine without the capability `usage` is not asked. GPUs are those of this machine.
    """

    def __init__(
        self,
        interval: float,
        engine: Engine,
        store: Store,
        inbox: Inbox,
        hands: Hands,
        *,
        clock: Clock,
        aside: Callable[[Callable[[], None]], object],
    ) -> None:
        self._interval, self._engine, self._store = interval, engine, store
        self._inbox, self._hands = inbox, hands
        self._clock, self._aside = clock, aside
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

    def measured(self, event: Measured) -> Sample | None:
        """Take note of an answer; return what there is to be told of it.

        Raises RecordError where it could not be stored.
        """
        self._under_way = False
        if event.unwritten is not None:
            raise event.unwritten
        if not self._noted and not event.error:
            self._noted = True
            self._hands.note(self._started())
        if bool(event.error) != self._failing:  # the same reason may be worded anew each time
            self._failing = bool(event.error)
            self._hands.note(SamplingFailed(reason=event.error))
        return event.sample

    def end(self) -> None:
        """Let go of the GPUs' driver; what is being measured gets a moment to be over."""
        in_time = self._measuring.acquire(timeout=GIVE_UP)
        self._over = True
        if in_time:
            if self._gpus is not None:
                self._gpus.close()
            self._measuring.release()

    def _tick(self) -> None:
        self._hands.after(self._interval, self._tick)
        if not self._under_way:
            self._under_way = True
            self._aside(self._measure)

    def _measure(self) -> None:
        """Ask the engine and the driver, and store what they say; on another thread."""
        with self._measuring:
            if not self._over:
                self._inbox.put(self._answer())

    def _answer(self) -> Measured:
        at, wall = self._clock.now(), self._clock.wall()
        try:
            used, gpus = capable(self._engine, Measuring).usage(), self._of_gpus()
            return Measured(self._store(at, wall, used, gpus) if used or gpus else None)
        except RecordError as error:
            return Measured(unwritten=error)
        except Exception as error:  # training goes on, whatever measuring runs into
            return Measured(
                error=error.message if isinstance(error, EmulatorError) else repr(error)
            )

    def _of_gpus(self) -> Sequence[GpuUsage]:
        if self._gpus is None:
            from emulator.metrics.gpu.sampler import GpuSampler  # loads the driver's library

            self._gpus = GpuSampler()
        pids = capable(self._engine, Measuring).pids
        return tuple(self._gpus.sample(pids())) if self._gpus.found.gpus else ()

    def _started(self) -> SamplingStarted:
        if self._gpus is None:
            return SamplingStarted(interval=self._interval)
        found = self._gpus.found
        return SamplingStarted(
            interval=self._interval,
            gpus=[vars(gpu) for gpu in found.gpus],
            driver=found.driver,
            why_no_gpus=found.why_none,
            lacking=dict(self._gpus.unavailable) if found.gpus else None,
        )
