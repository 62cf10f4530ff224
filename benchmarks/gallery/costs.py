"""Own machines, machines on demand and spot machines: docs/gallery/costs.md (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plotly.graph_objects import Figure, Scatter

from benchmarks.gallery.pages import markdown
from benchmarks.gallery.runs import Run, chosen
from emulator.analysis.costs.costs import Preempted, break_even
from emulator.validation.units import format_duration, format_money, format_number

OWN, ON_DEMAND, SPOT = "own-machines", "on-demand-machines", "spot-machines"
HOUR = 3600.0


@dataclass(frozen=True)
class Measured:
    """What the three runs measured. Money is in `currency`, times are seconds."""

    own: float
    """Money for a thousand steps."""
    on_demand: float
    spot: float
    on_demand_hour: float
    """Money per hour of all machines."""
    spot_hour: float
    preempted: Preempted
    """The preemptions of the run on spot machines."""
    spot_duration: float
    currency: str

    @property
    def between(self) -> float:
        """The time between two preemptions at the break-even."""
        between = break_even(self.preempted, self.on_demand_hour - self.spot_hour)
        assert between is not None, "there was a preemption"
        return between

    @property
    def rate(self) -> float:
        """Preemptions per hour of the run on spot machines."""
        return self.preempted.count * HOUR / self.spot_duration

    @property
    def work(self) -> float:
        """The time in which the job makes a thousand steps without a preemption."""
        return self.on_demand / self.on_demand_hour * HOUR

    def spot_at(self, rate: float) -> float:
        """Return what a thousand steps cost on spot machines at a rate of preemptions per hour.

        Of each second, `rate * t` is lost, if a preemption takes `t`: a thousand steps take as much
        longer. Raises ValueError if all of the time is lost.
        """
        count, cost = self.preempted.count, self.preempted.cost
        lost = rate * self.preempted.seconds / count / HOUR
        if lost >= 1:
            raise ValueError(f"{rate} preemptions an hour leave no time to train")
        times = rate * self.work / (1 - lost) / HOUR
        return self.spot_hour * self.work / HOUR + times * cost / count


def measured(runs: Sequence[Run]) -> Measured:
    """Return what the three runs measured.

    Raises LookupError if one is missing, or none of them was preempted.
    """
    own, on_demand, spot = (run.summary for run in chosen(runs, f"{OWN} {ON_DEMAND} {SPOT}"))
    preemptions = spot["cost"]["preemptions"]
    if not preemptions["count"]:
        raise LookupError(f"{SPOT} was not preempted")
    return Measured(
        own=own["cost"]["per_thousand_steps"],
        on_demand=on_demand["cost"]["per_thousand_steps"],
        spot=spot["cost"]["per_thousand_steps"],
        on_demand_hour=_an_hour(on_demand),
        spot_hour=_an_hour(spot),
        preempted=Preempted(preemptions["count"], preemptions["cost"], preemptions["seconds"]),
        spot_duration=spot["duration"],
        currency=spot["cost"]["currency"],
    )


def _an_hour(summary: Mapping[str, Any]) -> float:
    """Return what an hour of all machines costs."""
    return float(sum(task["per_hour"] for task in summary["cost"]["tasks"].values()))


def blocks(runs: Sequence[Run]) -> Mapping[str, str]:
    """Return the break-even, and a table of costs by the rate of preemptions."""
    found = measured(runs)
    return {"break-even": _break_even(found), "rates": _rates(found)}


def _break_even(found: Measured) -> str:
    preempted = found.preempted
    cost, seconds = preempted.cost / preempted.count, preempted.seconds / preempted.count
    saved = found.on_demand_hour - found.spot_hour
    rows = [
        ("`c`: a preemption costs", format_money(cost, found.currency)),
        ("`t`: and takes", format_duration(seconds)),
        ("`s`: an hour on both spot machines saves", format_money(saved, found.currency)),
        ("`c / s + t`: the break-even is at a preemption every", format_duration(found.between)),
        ("that is, preemptions an hour", format_number(HOUR / found.between)),
        ("in this run, preemptions an hour", format_number(found.rate)),
    ]
    return markdown(("", "measured"), rows)


def _rates(found: Measured) -> str:
    most = HOUR / found.between
    rows = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0, 1.1):
        spot = found.spot_at(share * most)
        lost = share * most * found.preempted.seconds / found.preempted.count / HOUR
        rows.append(
            (
                format_number(share * most),
                f"{lost:.0%}",
                format_money(spot, found.currency),
                f"{spot / found.on_demand:.2f}",
            )
        )
    head = ("preemptions an hour", "time lost", "a thousand steps on spot machines", "of on demand")
    return markdown(head, rows)


def charts(runs: Sequence[Run]) -> Mapping[str, Figure]:
    """Return the chart of what a thousand steps cost, by preemptions per hour."""
    found = measured(runs)
    end = 1.15 * HOUR / found.between
    rates = [end * number / 100 for number in range(101)]
    figure = Figure()
    for name, cost in (("on demand, measured", found.on_demand), ("own, measured", found.own)):
        figure.add_trace(Scatter(x=[0, end], y=[cost, cost], mode="lines", name=name))
    spot = [found.spot_at(rate) for rate in rates]
    figure.add_trace(Scatter(x=rates, y=spot, mode="lines", name="spot, from c and t"))
    figure.add_trace(
        Scatter(
            x=[found.rate],
            y=[found.spot],
            mode="markers",
            name="spot, measured",
            marker={"size": 12},
        )
    )
    figure.update_xaxes(title="preemptions of the job per hour", rangemode="tozero")
    figure.update_yaxes(
        title=f"{found.currency} for a thousand steps", rangemode="tozero", tickformat=".4f"
    )
    return {"costs-break-even": figure}
