"""Own machines, machines on demand and spot machines: docs/gallery/costs.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml
from plotly.graph_objects import Figure, Scatter

from benchmarks.gallery.pages import cell, markdown
from benchmarks.gallery.runs import Run, chosen
from emulator.runtime.bundled import ROOT
from emulator.validation.units import format_duration, format_number
from scenarios.costs.costs import Costs, costs_of, money

OWN, ON_DEMAND, SPOT = "own-machines", "on-demand-machines", "spot-machines"
PRICES = ROOT / "scenarios" / "costs" / "prices" / "examples.yaml"
HOUR = 3600.0


@dataclass(frozen=True)
class Measured:
    """What the three runs cost. Times are seconds."""

    own: Costs
    on_demand: Costs
    spot: Costs
    spot_duration: float

    @property
    def cost(self) -> float:
        """What a preemption of the run on spot machines cost, on average."""
        return self.spot.lost / self.spot.preemptions

    @property
    def seconds(self) -> float:
        """How much longer it took because of one."""
        return self.spot.seconds / self.spot.preemptions

    @property
    def between(self) -> float:
        """The time between two preemptions at the break-even."""
        assert self.spot.break_even is not None, "there was a preemption"
        return self.spot.break_even

    @property
    def rate(self) -> float:
        """Preemptions per hour of the run on spot machines."""
        return self.spot.preemptions * HOUR / self.spot_duration

    @property
    def work(self) -> float:
        """The time in which the job makes a thousand steps without a preemption."""
        return each(self.on_demand) / an_hour(self.on_demand) * HOUR

    def spot_at(self, rate: float) -> float:
        """Return what a thousand steps cost on spot machines at a rate of preemptions per hour.

        Of each second, `rate * t` is lost, if a preemption takes `t`: a thousand steps take as much
        longer. Raises ValueError if all of the time is lost.
        """
        lost = rate * self.seconds / HOUR
        if lost >= 1:
            raise ValueError(f"{rate} preemptions an hour leave no time to train")
        times = rate * self.work / (1 - lost) / HOUR
        return an_hour(self.spot) * self.work / HOUR + times * self.cost


def an_hour(costs: Costs) -> float:
    """Return what an hour of all machines costs."""
    return sum(price.hour for price in costs.prices.values())


def each(costs: Costs) -> float:
    """Return what a thousand steps cost."""
    assert costs.per_thousand_steps is not None, "they all report steps"
    return costs.per_thousand_steps


def costs(run: Run) -> Costs:
    """Return what a run cost."""
    return costs_of(run.folder, yaml.safe_load(PRICES.read_text(encoding="utf-8")))


def measured(runs: Sequence[Run]) -> Measured:
    """Return what the three runs measured.

    Raises LookupError if one is missing, or none of them was preempted.
    """
    own, on_demand, spot = chosen(runs, f"{OWN} {ON_DEMAND} {SPOT}")
    found = Measured(costs(own), costs(on_demand), costs(spot), spot.summary["duration"])
    if not found.spot.preemptions:
        raise LookupError(f"{SPOT} was not preempted")
    return found


def blocks(runs: Sequence[Run]) -> Mapping[str, str]:
    """Return what the runs cost, the break-even, and costs by the rate of preemptions."""
    found = measured(runs)
    return {"runs": _runs(runs, found), "break-even": _break_even(found), "rates": _rates(found)}


def _runs(runs: Sequence[Run], found: Measured) -> str:
    rows = []
    of = (found.own, found.on_demand, found.spot)
    for run, cost in zip(chosen(runs, f"{OWN} {ON_DEMAND} {SPOT}"), of, strict=True):
        keys = [cell(run, key) for key in ("scenario", "duration", "goodput")]
        rows.append((*keys, money(cost.total), money(each(cost)), money(cost.lost)))
    return markdown(("scenario", "took", "goodput", "cost", "1000 steps", "preempted"), rows)


def _break_even(found: Measured) -> str:
    currency = found.spot.currency
    saved = an_hour(found.on_demand) - an_hour(found.spot)
    rows = [
        ("`c`: a preemption costs", money(found.cost, currency)),
        ("`t`: and takes", format_duration(found.seconds)),
        ("`s`: an hour on both spot machines saves", money(saved, currency)),
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
        lost = share * most * found.seconds / HOUR
        rows.append(
            (
                format_number(share * most),
                f"{lost:.0%}",
                money(spot, found.spot.currency),
                f"{spot / each(found.on_demand):.2f}",
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
    for name, of in (("on demand, measured", found.on_demand), ("own, measured", found.own)):
        figure.add_trace(Scatter(x=[0, end], y=[each(of), each(of)], mode="lines", name=name))
    spot = [found.spot_at(rate) for rate in rates]
    figure.add_trace(Scatter(x=rates, y=spot, mode="lines", name="spot, from c and t"))
    figure.add_trace(
        Scatter(
            x=[found.rate],
            y=[each(found.spot)],
            mode="markers",
            name="spot, measured",
            marker={"size": 12},
        )
    )
    figure.update_xaxes(title="preemptions of the job per hour", rangemode="tozero")
    figure.update_yaxes(
        title=f"{found.spot.currency} for a thousand steps", rangemode="tozero", tickformat=".4f"
    )
    return {"costs-break-even": figure}
