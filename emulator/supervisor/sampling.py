"""Measures the usage of tasks and GPUs at the scenario's interval, without delaying the loop.

A timer starts it, another thread measures and writes `samples.jsonl` (it is the only writer), and
the result arrives in the inbox. If that takes longer than the interval, the next sample is left
out; if it never ends, the run continues without samples.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.engines.base import Engine, GpusElsewhere, Inbox, Measuring
from emulator.engines.capabilities import capable
from emulator.errors import EmulatorError, RecordError
from emulator.record.events import SamplingFailed, SamplingStarted

if TYPE_CHECKING:
    from emulator.metrics.catalog import GpuUsage, Usage
    from emulator.metrics.gpu.sampler import GpuSampler
    from emulator.metrics.samples import Sample
    from emulator.runtime.clock import Clock, Workers
    from emulator.supervisor.job import Job

GIVE_UP = 2.0
"""Seconds at the end of a run that a measurement under way gets."""


@dataclass(frozen=True)
class Measured:
    """The result of a measurement; the sample is stored already."""

    sample: Sample | None = None
    """None: there was nothing to measure, or it can't be measured."""
    error: str = ""
    """Why it can't be measured."""
    unwritten: RecordError | None = None
    """Why it can't be stored."""


class Sampling:
    """Samples one run. An engine without the capability `usage` is not asked.

    GPUs are those of this machine, and none with an engine whose tasks run on others.
    """

    def __init__(
        self,
        interval: float,
        engine: Engine,
        inbox: Inbox,
        clock: Clock,
        workers: Workers,
        job: Job,
    ) -> None:
        self._interval, self._engine, self._inbox = interval, engine, inbox
        self._clock, self._workers = clock, workers
        self._timers, self._history = job.timers, job.history
        self._gpus: GpuSampler | None = None
        self._under_way = False
        self._noted = False
        self._failing = False
        self._over = False
        self._measuring = threading.Lock()

    def begin(self) -> None:
        """Sample from now on."""
        if "usage" in self._engine.capabilities:
            self._timers.after(self._interval, self._tick)

    def on_measured(self, event: Measured) -> None:
        """Record a result and pass the sample on.

        Raises RecordError if it could not be stored.
        """
        self._under_way = False
        if event.unwritten is not None:
            raise event.unwritten
        if not self._noted and (event.sample is not None or not event.error):
            self._noted = True
            self._history.write(self._started())
        if bool(event.error) != self._failing:  # the same reason may be worded anew each time
            self._failing = bool(event.error)
            self._history.write(SamplingFailed(reason=event.error))
        if event.sample is not None:
            self._history.tell(event.sample)

    def end(self) -> None:
        """Close the GPUs' driver; a running measurement gets a moment to finish."""
        in_time = self._measuring.acquire(timeout=GIVE_UP)
        self._over = True
        if in_time:
            if self._gpus is not None:
                self._gpus.close()
            self._measuring.release()

    def _tick(self) -> None:
        self._timers.after(self._interval, self._tick)
        if not self._under_way:
            self._under_way = True
            self._workers.aside(self._measure)

    def _measure(self) -> None:
        """Ask the engine and the driver, and store the sample; on another thread."""
        with self._measuring:
            if not self._over:
                self._inbox.put(self._answer())

    def _answer(self) -> Measured:
        at, wall = self._clock.now(), self._clock.wall()
        try:
            used, error = self._task_usage()
            gpus = self._gpu_usage()
            if self._over:  # it was given up: the history is closed
                return Measured()
            store = self._history.sample
            return Measured(store(at, wall, used, gpus) if used or gpus else None, error)
        except RecordError as unwritten:
            return Measured(unwritten=unwritten)
        except Exception as failed:  # a measurement that fails must not end the run
            return Measured(error=_why(failed))

    def _task_usage(self) -> tuple[Mapping[str, Usage], str]:
        """Return what tasks use, or why that can't be measured: GPUs may be all the same."""
        try:
            return capable(self._engine, Measuring).usage(), ""
        except Exception as failed:  # as above
            return {}, _why(failed)

    def _gpu_usage(self) -> Sequence[GpuUsage]:
        if isinstance(self._engine, GpusElsewhere):
            return ()
        if self._gpus is None:
            from emulator.metrics.gpu.sampler import GpuSampler  # loads the driver's library

            self._gpus = GpuSampler()
        pids = capable(self._engine, Measuring).pids
        return tuple(self._gpus.sample(pids())) if self._gpus.found.gpus else ()

    def _started(self) -> SamplingStarted:
        if isinstance(self._engine, GpusElsewhere):
            why = self._engine.why_no_gpus
            return SamplingStarted(interval=self._interval, gpus=[], driver="", why_no_gpus=why)
        if self._gpus is None:
            return SamplingStarted(interval=self._interval)
        inventory = self._gpus.found
        return SamplingStarted(
            interval=self._interval,
            gpus=[vars(gpu) for gpu in inventory.gpus],
            driver=inventory.driver,
            why_no_gpus=inventory.why_none,
            lacking=dict(self._gpus.unavailable) if inventory.gpus else None,
        )


def _why(failed: Exception) -> str:
    return failed.message if isinstance(failed, EmulatorError) else repr(failed)
