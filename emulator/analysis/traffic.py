"""What tasks send and receive in a step, from samples and steps (pure).

A sample has what a task has sent since it was started, so that two samples have what it has sent in
between. At the time of a step, a counter is interpolated between the samples around it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.metrics.samples import Sample
    from emulator.planning.plan import Plan
    from emulator.record.events import Step

LEAST = 0.5
"""The share of the steps that must be between the two whose counters are compared.

Where it is less, there were hardly any samples, or most steps were read at once and too late.
"""


@dataclass(frozen=True)
class Traffic:
    """Bytes over the network in a step of the job, without loopback."""

    sent: float
    received: float


@dataclass(frozen=True)
class Stretch:
    """Consecutive steps of a job with which its tasks reported the same value."""

    value: float
    steps: Sequence[Step]


@dataclass(frozen=True)
class Reading:
    """The counters of a task at one moment, in bytes over all its starts."""

    t: float
    sent: float
    received: float


@dataclass(frozen=True)
class TrafficIndex:
    """The counters of all tasks and the steps of the job; each query is about some of these."""

    advances: Sequence[Step] = ()
    """The steps that were further than all before them."""
    readings: Mapping[str, Sequence[Sequence[Reading]]] = field(default_factory=dict)
    """By role, those of each of its tasks."""

    def by_role(self) -> Mapping[str, Traffic]:
        """Return the bytes of a step for each role of which they are known."""
        found = ((role, self.bytes_per_step(role, self.advances)) for role in self.readings)
        return {role: traffic for role, traffic in found if traffic is not None}

    def bytes_per_step(self, role: str, steps: Sequence[Step]) -> Traffic | None:
        """Return what a task of a role sent and received in a step, on average over the role.

        `steps` are consecutive ones of the job. None if it is unknown of one of the tasks: the
        engine does not count its bytes, or there are not enough samples of it between the steps.
        """
        tasks = [_task_traffic(readings, steps) for readings in self.readings.get(role, ())]
        known = [one for one in tasks if one is not None]
        if not known or len(known) < len(tasks):
            return None
        return Traffic(fmean(one.sent for one in known), fmean(one.received for one in known))

    def stretches(self, name: str) -> list[Stretch]:
        """Return the stretches of steps with the same number above zero under a name."""
        groups = groupby(self.advances, lambda step: step.number(name))
        return [Stretch(value, [*steps]) for value, steps in groups if value and value > 0]


def traffic_of(plan: Plan, advances: Sequence[Step], samples: Sequence[Sample]) -> TrafficIndex:
    """Return the traffic of a run."""
    readings: dict[str, list[Sequence[Reading]]] = {}
    for task in plan.tasks:
        readings.setdefault(task.role, []).append(_readings(samples, task.name))
    return TrafficIndex(advances, readings)


def _task_traffic(readings: Sequence[Reading], steps: Sequence[Step]) -> Traffic | None:
    """Return what a task sent and received from one step of the job to another, for each step.

    They are as far apart as its samples allow. Of the steps before the second of these samples, the
    last one is taken: on a busy machine, several steps get the time at which they were read, and
    the last of these is the least late.
    """
    within = [step for step in steps if readings and readings[0].t <= step.t <= readings[-1].t]
    if not within:
        return None
    after = readings[bisect_left(readings, within[0].t, key=_time)].t
    first, last = [step for step in within if step.t <= after][-1], within[-1]
    count = last.step - first.step
    if count <= 0 or count < LEAST * (steps[-1].step - steps[0].step):
        return None
    begin, end = _at(readings, first.t), _at(readings, last.t)
    return Traffic((end.sent - begin.sent) / count, (end.received - begin.received) / count)


def _readings(samples: Sequence[Sample], task: str) -> Sequence[Reading]:
    """Return a task's counters over time; none where the engine does not count bytes.

    The counters of a start follow those of the starts before it: they begin at zero again where the
    counter of the CPU goes back.
    """
    used = [(sample.t, sample.tasks[task]) for sample in samples if task in sample.tasks]
    readings: list[Reading] = []
    sent = received = 0.0  # by earlier starts
    for (_, before), (t, now) in pairwise([*used[:1], *used]):
        if now.sent is None or now.received is None:
            return []
        if now.cpu < before.cpu:
            sent, received = readings[-1].sent, readings[-1].received
        readings.append(Reading(t, sent + now.sent, received + now.received))
    return readings


def _time(reading: Reading) -> float:
    return reading.t


def _at(readings: Sequence[Reading], t: float) -> Reading:
    """Return the counters at a time between the first and the last reading."""
    place = bisect_left(readings, t, key=_time)
    before, after = readings[max(0, place - 1)], readings[place]
    share = (t - before.t) / (after.t - before.t) if after.t > before.t else 1.0
    return Reading(
        t,
        before.sent + share * (after.sent - before.sent),
        before.received + share * (after.received - before.received),
    )
