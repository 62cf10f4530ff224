"""What a run cost, and what its preemptions cost (pure).

The rules, which docs/numbers.md explains:

- A task's machine is paid for from the start that the engine was asked for until the task's last
  exit, but not while it is down after a preemption: from its exit until its replacement is started.
  It is paid for while it starts, and while it waits for a restart by the policy. Nothing is paid
  for after the job's outcome is settled.
- Each microsecond of this has the cause that `goodput.py` gives to the time of the job, so the
  money is divided like the time.
- A preemption costs what all machines cost in the time that is `wasted` or `recovery` because of
  it, with the phases and stalls within: from the step that it cut off until the job is further than
  ever before. If another failure falls into this time, it belongs to the preemption.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

from emulator.faults.kinds import FAULTS

if TYPE_CHECKING:
    from emulator.analysis.goodput import Piece, Spent
    from emulator.record.events import TaskExit
    from emulator.record.timeline import TaskTimeline, Timeline

_MICROS_PER_HOUR = 3_600_000_000
Paid = tuple[int, int]
"""A time in which a machine is paid for, in microseconds since the run began."""


@dataclass(frozen=True)
class TaskCost:
    """What one task cost."""

    kind: str
    """How its machine is paid for: spot, on demand, own."""
    per_hour: float
    """Money per hour of its machine."""
    paid: float
    """Seconds."""
    cost: float
    """Money."""


@dataclass(frozen=True)
class Preempted:
    """What all preemptions of a run cost together."""

    count: int
    """How often a task was preempted."""
    cost: float
    """Money."""
    seconds: float
    """Of the job: how much longer it took."""

    @property
    def each(self) -> float | None:
        """Money for one preemption, on average; None: there was none."""
        return self.cost / self.count if self.count else None


@dataclass(frozen=True)
class Costs:
    """What a run cost. Money is in the currency of the prices."""

    tasks: Mapping[str, TaskCost]
    time: Mapping[str, float]
    """Money by cause of the time, as in goodput.CAUSES."""
    preempted: Preempted
    saved_per_hour: float | None = None
    """By how much all spot machines together are cheaper than on demand; None: no price says so."""
    currency: str = ""
    final_step: int | None = None
    """Of the job; None if no task reported a step."""

    @property
    def cost(self) -> float:
        """What the run cost, in money."""
        return sum(task.cost for task in self.tasks.values())

    @property
    def cost_per_thousand_steps(self) -> float | None:
        """The same, for every thousand steps that the job has reached."""
        return self.cost / self.final_step * 1000 if self.final_step else None

    @property
    def preemption_cost(self) -> float:
        """What its preemptions cost, in money."""
        return self.preempted.cost

    @property
    def break_even(self) -> float | None:
        """See `break_even`. None also if no price says what spot machines save."""
        saved = self.saved_per_hour
        return None if saved is None else break_even(self.preempted, saved)

    def as_data(self) -> dict[str, Any]:
        """Return what summary.json has besides the figures; money in billionths."""
        preempted = self.preempted
        return {
            "currency": self.currency,
            "preemptions": {
                "count": preempted.count,
                "each": None if preempted.each is None else round(preempted.each, 9),
                "seconds": round(preempted.seconds, 6),
            },
            "time": {cause: round(money, 9) for cause, money in self.time.items()},
            "tasks": {
                name: {**asdict(task), "cost": round(task.cost, 9)}
                for name, task in self.tasks.items()
            },
        }


def break_even(preempted: Preempted, saved_per_hour: float) -> float | None:
    """Return the time between two preemptions at which spot machines cost as much as on demand.

    Seconds; if the job is preempted more often, they cost more. Infinite: they never cost less.
    None: there was no preemption.

    A preemption costs `c` in money and `t` in time, and an hour of work on spot machines saves `s`.
    Between two preemptions the job works for a time `w`, and saves what a preemption costs if
    `w * s = c`. So the break-even is at `w + t = c / s + t` seconds from one to the next. If
    preempted machines were paid for while they are down, `c` would be the spot price of `t`, and
    this would be `t / (1 - spot / on_demand)`: the share of time that is lost equals the discount.
    """
    if not preempted.count:
        return None
    if saved_per_hour <= 0:
        return math.inf
    return (preempted.cost / saved_per_hour * 3600 + preempted.seconds) / preempted.count


def costs(timeline: Timeline, spent: Spent, final_step: int | None = None) -> Costs | None:
    """Return what a run cost whose time was spent so; None if its scenario has no prices."""
    scenario = timeline.plan.scenario
    if not scenario.prices:
        return None
    prices = {task.name: scenario.prices[task.role] for task in timeline.plan.tasks}
    lost = {
        name: [exit_ for exit_ in timeline.tasks[name].exits if _lost(timeline, exit_)]
        for name in prices
    }
    paid = {name: _paid(timeline.tasks[name], lost[name], spent) for name in prices}
    ends = (exit_.t for exits in lost.values() for exit_ in exits)
    time, preempted = _divided(
        spent,
        [(prices[name].per_hour, spans) for name, spans in paid.items()],
        [spent.micros(end) for end in ends if end <= spent.duration],
    )
    tasks = {}
    for name, price in prices.items():
        micros = sum(end - begin for begin, end in paid[name])
        cost = price.per_hour * micros / _MICROS_PER_HOUR
        tasks[name] = TaskCost(price.kind, price.per_hour, micros / 1e6, cost)
    saved = [p.saved_per_hour for p in prices.values() if p.saved_per_hour is not None]
    saving = sum(saved) if saved else None
    return Costs(tasks, time, preempted, saving, scenario.currency, final_step)


def _lost(timeline: Timeline, exit_: TaskExit) -> bool:
    """Return whether a task lost its machine with this exit."""
    fault = timeline.faults.get(exit_.fault or "")
    return fault is not None and FAULTS[fault.kind].replaces_target


def _paid(task: TaskTimeline, lost: Sequence[TaskExit], spent: Spent) -> list[Paid]:
    """Return when a task's machine is paid for, in order and without overlap."""
    spans: list[Paid] = []
    for one, after in zip_longest(task.incarnations, task.incarnations[1:]):
        until = spent.duration if after is None else after.begin
        is_last = after is None and (one.exit is not None and one.restart is None)
        if one.exit is not None and (is_last or one.exit in lost):
            until = one.exit.t
        spans.append((spent.micros(one.begin), spent.micros(until)))
    return spans


def _merged(all_pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield pieces, with those of one cause and failure that follow each other as one."""
    for _, same in groupby(all_pieces, lambda piece: piece[2:]):
        first, *rest = same
        yield first._replace(end=(rest[-1] if rest else first).end)


def _divided(
    spent: Spent,
    machines: Sequence[tuple[float, Sequence[Paid]]],
    lost: Sequence[int],
) -> tuple[dict[str, float], Preempted]:
    """Divide the money by causes, and sum up what belongs to preemptions.

    `machines` are prices per hour with the times for which they are paid, `lost` is when machines
    were lost.
    """
    by_price = defaultdict[float, list[Paid]](list)
    for price, spans in machines:
        by_price[price] += spans
    meters = [(price, _meter(spans)) for price, spans in by_price.items()]
    time = dict.fromkeys(spent.by_cause(), 0.0)
    cost, seconds = 0.0, 0.0
    for failure, group in groupby(_merged(spent.pieces), lambda piece: piece.failure):
        together = list(group)
        begin, end = together[0].begin, together[-1].end
        is_counted = failure > 0 and any(begin <= when <= end for when in lost)
        for piece in together:
            money = sum(price * (paid(piece.end) - paid(piece.begin)) for price, paid in meters)
            time[piece.cause] += money / _MICROS_PER_HOUR
            cost += money / _MICROS_PER_HOUR if is_counted else 0.0
        seconds += (end - begin) / 1e6 if is_counted else 0.0
    return time, Preempted(len(lost), cost, seconds)


def _meter(spans: Sequence[Paid]) -> Callable[[int], int]:
    """Return a function of a time: the microseconds until then, of all the spans together."""
    times, sums, counts = [0], [0], [0]
    edges = [(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans]
    for at, change in sorted(edges):
        sums.append(sums[-1] + counts[-1] * (at - times[-1]))
        times.append(at)
        counts.append(counts[-1] + change)

    def until(when: int) -> int:
        number = bisect_right(times, when) - 1
        return sums[number] + counts[number] * (when - times[number])

    return until
