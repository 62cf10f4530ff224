"""Tables and charts of docs/gallery/recovery-ladder.md.

The formulas are for one job whose machines fail at random, M seconds apart in the mean. It saves
after every `interval` seconds of work, which takes `save` seconds, and a failure costs `restart`
seconds beside the work since the last save.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plotly import graph_objects

from benchmarks.gallery.pages import cell, markdown, written
from benchmarks.gallery.runs import Run, chosen

RUNGS: Mapping[str, str] = {
    "ladder-no-checkpoint": "no checkpoint",
    "ladder-checkpoint": "checkpoint every 50 steps",
    "ladder-backup": "`BackupAndRestore`",
    "ladder-notice": "`PreemptionCheckpointHandler`",
    "ladder-torchrun": "torchrun, elastic",
    "ladder-torchft": "torchft",
    "ladder-parameter-server": "parameter server",
}
"""Scenarios in the order of the ladder, with their titles."""
INTERVALS = "checkpoint-interval"
"""The scenario with several checkpoint intervals."""
CAUSES: Mapping[str, str] = {
    "productive": "#2a9d8f",
    "checkpoint": "#8ab17d",
    "wasted": "#e76f51",
    "recovery": "#f4a261",
    "other": "#adb5bd",
}
"""What the time after the first step goes into, each with its colour; the rest is `other`."""


def young(save: float, mtbf: float) -> float:
    """Return the best interval in seconds: sqrt(2 * save * mtbf), where save is far below mtbf.

    Source: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 1974.
    """
    return math.sqrt(2 * save * mtbf)


def daly(save: float, mtbf: float) -> float:
    """Return the best interval in seconds, of a higher order in save / mtbf.

    Source: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart
    dumps, Future Generation Computer Systems 2006.
    """
    if save >= 2 * mtbf:
        return mtbf
    ratio = save / (2 * mtbf)
    return math.sqrt(2 * save * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def expected_efficiency(interval: float, save: float, restart: float, mtbf: float) -> float:
    """Return the share of the time, 0 to 1, that goes into work which is kept.

    It is the inverse of the run time for a second of work in Daly's model (2006): the times between
    failures are exponential, and a failure may also hit a save or a restart.
    """
    attempts = math.exp(restart / mtbf) * math.expm1((interval + save) / mtbf)
    return interval / (mtbf * attempts)


@dataclass(frozen=True)
class Costs:
    """What a run of several intervals has measured, in seconds."""

    save: float
    restart: float
    """From a preemption to the next step."""
    mtbf: float
    """The time of the run after its first step, over the number of preemptions."""
    efficiencies: Mapping[float, float]
    """By interval, in the order of the intervals."""

    @property
    def best(self) -> float:
        """The interval that was the best one."""
        return max(self.efficiencies, key=lambda interval: self.efficiencies[interval])

    def nearest(self, interval: float) -> float:
        """Return the measured interval that is nearest to another one, by their ratio."""
        return min(self.efficiencies, key=lambda other: abs(math.log(other / interval)))


def costs(summary: Mapping[str, Any]) -> Costs:
    """Return the costs from the summary of a run of `checkpoint-interval`."""
    values = {name: of["worker-0"] for name, of in summary["values"].items()}
    faults = [fault for fault in summary["faults"] if fault["status"] == "applied"]
    restarts = [f["first_step_after"] for f in faults if f["first_step_after"] is not None]
    prefix = "efficiency_"
    every = sorted(int(name.removeprefix(prefix)) for name in values if name.startswith(prefix))
    return Costs(
        save=values["save_seconds"],
        restart=sum(restarts) / len(restarts),
        mtbf=(summary["duration"] - summary["startup"]["first_step"]) / len(faults),
        efficiencies={n * values["step_cost"]: values[f"{prefix}{n}"] for n in every},
    )


def blocks(runs: Sequence[Run]) -> dict[str, str]:
    """Return the tables of the page by block name. Raises LookupError for a missing run."""
    (intervals,) = chosen(runs, INTERVALS)
    return {"ladder": _ladder(runs), **_intervals(costs(intervals.summary))}


def _rungs(runs: Sequence[Run]) -> Iterator[tuple[str, Run]]:
    for name, title in RUNGS.items():
        (run,) = chosen(runs, name)
        yield title, run


def _ladder(runs: Sequence[Run]) -> str:
    titles = ["", "scenario", "lost steps", "recovered after", "goodput", "after the start", "took"]
    rows = []
    for title, run in _rungs(runs):
        recovered = [fault["first_step_after"] for fault in run.summary["faults"]]
        rows.append(
            [
                title,
                cell(run, "scenario"),
                cell(run, "steps.lost"),
                ", ".join("never" if t is None else f"{t:.1f} s" for t in recovered),
                cell(run, "goodput"),
                f"{time_shares(run.summary)['productive']:.0%}",
                cell(run, "duration"),
            ]
        )
    return markdown(titles, rows)


def time_shares(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the shares of the time after the first step, 0 to 1, for each of CAUSES.

    The time until the first step is the same for all rungs, and only in short runs matters.
    """
    time = {cause: seconds for cause, seconds in summary["time"].items() if cause != "startup"}
    total = sum(time.values())
    shares = {cause: time.get(cause, 0.0) / total for cause in CAUSES if cause != "other"}
    return shares | {"other": 1 - sum(shares.values())}


def _intervals(measured: Costs) -> dict[str, str]:
    rows = [
        [
            f"{interval:g} s",
            f"{efficiency:.0%}",
            f"{expected_efficiency(interval, measured.save, measured.restart, measured.mtbf):.0%}",
        ]
        for interval, efficiency in measured.efficiencies.items()
    ]
    formulas = [
        ["a save takes", f"{written(measured.save)} s"],
        ["from a preemption to the next step", f"{written(measured.restart)} s"],
        ["mean time between two preemptions", f"{written(measured.mtbf)} s"],
        ["best interval by Young (1974)", f"{written(young(measured.save, measured.mtbf))} s"],
        ["best interval by Daly (2006)", f"{written(daly(measured.save, measured.mtbf))} s"],
        ["best of the measured intervals", f"{measured.best:g} s"],
    ]
    return {
        "intervals": markdown(["interval", "kept, measured", "kept, by Daly's model"], rows),
        "formulas": markdown(["", ""], formulas),
    }


def charts(runs: Sequence[Run]) -> dict[str, graph_objects.Figure]:
    """Return the charts of the page by picture name. Raises LookupError for a missing run."""
    (intervals,) = chosen(runs, INTERVALS)
    return {
        "recovery-ladder": _ladder_chart(runs),
        "checkpoint-intervals": _interval_chart(costs(intervals.summary)),
    }


def _ladder_chart(runs: Sequence[Run]) -> graph_objects.Figure:
    rungs = [(title.replace("`", ""), time_shares(run.summary)) for title, run in _rungs(runs)]
    figure = graph_objects.Figure(
        [
            graph_objects.Bar(
                name=cause,
                orientation="h",
                x=[100 * times[cause] for _, times in rungs],
                y=[title for title, _ in rungs],
                marker_color=colour,
            )
            for cause, colour in CAUSES.items()
        ]
    )
    figure.update_layout(barmode="stack", legend_traceorder="normal")
    figure.update_xaxes(title="% of the time after the first step", range=[0, 100])
    figure.update_yaxes(autorange="reversed", automargin=True)
    return figure


def _interval_chart(measured: Costs) -> graph_objects.Figure:
    low, high = min(measured.efficiencies), max(measured.efficiencies)
    line = [low * (high / low) ** (n / 100) for n in range(101)]
    model = [
        expected_efficiency(interval, measured.save, measured.restart, measured.mtbf)
        for interval in line
    ]
    figure = graph_objects.Figure(
        [
            graph_objects.Scatter(x=line, y=[100 * y for y in model], name="Daly's model"),
            graph_objects.Scatter(
                x=list(measured.efficiencies),
                y=[100 * y for y in measured.efficiencies.values()],
                name="measured",
                mode="markers",
                marker_size=10,
            ),
        ]
    )
    for name, formula in (("Young", young), ("Daly", daly)):
        best = formula(measured.save, measured.mtbf)
        figure.add_scatter(
            x=[best, best], y=[0, 100 * max(model)], name=name, mode="lines", line_dash="dot"
        )
    figure.update_xaxes(type="log", title="seconds of work between two saves")
    figure.update_yaxes(title="% of the time in work that is kept", rangemode="tozero")
    return figure
