"""The tables and charts of docs/gallery/pipeline-parallelism.md: measured beside the theory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plotly.graph_objects import Figure, Scatter

from benchmarks.gallery.pages import markdown
from benchmarks.gallery.runs import Run, chosen

WAITING = {"pipeline-gpipe": "GPipe", "pipeline-1f1b": "1F1B"}
COMPUTING = "pipeline-computing"
COLORS = {2: "#1f77b4", 4: "#d62728"}
SYMBOLS = {"GPipe": "circle-open", "1F1B": "x"}


@dataclass(frozen=True)
class Point:
    """What one count of micro-batches gave."""

    schedule: str
    stages: int
    count: int
    """Micro-batches in a step."""
    bubble: float
    """Share of a step, 0 to 1: the median of its steps."""
    in_flight: float
    """The most micro-batches that the first stage kept at a time."""
    kept_kib: float
    """Their activations."""


def bubble(stages: int, count: int) -> float:
    """Return the share of a step in which stages are idle, 0 to 1 (Huang et al. 2019)."""
    return (stages - 1) / (count + stages - 1)


def points(run: Run, schedule: str) -> list[Point]:
    """Return what a run measured, by falling count of micro-batches."""
    values = {name: next(iter(of.values())) for name, of in run.summary["values"].items()}
    counts = [int(name.removeprefix("theory_")) for name in values if name.startswith("theory_")]
    stages = len(run.summary["tasks"])
    return [
        Point(
            schedule,
            stages,
            count,
            values[f"bubble_{count}"],
            values[f"in_flight_{count}"],
            values[f"kept_kib_{count}"],
        )
        for count in sorted(counts, reverse=True)
    ]


def waiting(runs: Sequence[Run]) -> list[Point]:
    """Return the points of the pipelines whose stages wait. Raises LookupError: one is missing."""
    return [
        point
        for scenario, schedule in WAITING.items()
        for run in chosen(runs, f"{scenario}[*]")
        for point in points(run, schedule)
    ]


def blocks(runs: Sequence[Run]) -> dict[str, str]:
    """Return the tables of the page. Raises LookupError if a run is missing."""
    by_place = {(p.stages, p.count, p.schedule): p for p in waiting(runs)}
    rows = []
    for stages, count in sorted({(stages, count) for stages, count, _ in by_place}):
        pair = [by_place.get((stages, count, schedule)) for schedule in WAITING.values()]
        rows.append(
            [str(stages), str(count), f"{bubble(stages, count):.3f}"]
            + [f"{p.bubble:.3f}" if p else "—" for p in pair]
            + [f"{p.in_flight:.0f}" if p else "—" for p in pair]
            + [f"{p.kept_kib:.0f} KiB" if p else "—" for p in pair]
        )
    titles = ["stages", "micro-batches", "idle, theory", "GPipe", "1F1B"]
    titles += ["in flight, GPipe", "1F1B", "kept, GPipe", "1F1B"]
    (computing,) = chosen(runs, COMPUTING)
    computed = [
        [str(p.count), f"{bubble(p.stages, p.count):.3f}", f"{p.bubble:.3f}"]
        for p in sorted(points(computing, "GPipe"), key=lambda p: p.count)
    ]
    return {
        "bubbles": markdown(titles, rows),
        "computing": markdown(["micro-batches", "idle, theory", "measured"], computed),
    }


def charts(runs: Sequence[Run]) -> dict[str, Figure]:
    """Return the charts of the page. Raises LookupError if a run is missing."""
    found = waiting(runs)
    return {
        "pipeline-bubbles": _bubbles(found),
        "pipeline-activations": _activations([p for p in found if p.stages == 4]),
    }


def _bubbles(found: Sequence[Point]) -> Figure:
    figure = Figure()
    for stages in sorted({p.stages for p in found}):
        counts = list(range(1, 17))
        figure.add_scatter(
            x=counts,
            y=[bubble(stages, count) for count in counts],
            mode="lines",
            line={"color": COLORS[stages]},
            name=f"theory, {stages} stages",
        )
        for schedule in WAITING.values():
            mine = [p for p in found if (p.stages, p.schedule) == (stages, schedule)]
            figure.add_trace(
                _markers(mine, [p.bubble for p in mine], f"{schedule}, {stages} stages")
            )
    figure.update_layout(
        margin={"t": 20},
        xaxis={"title": "micro-batches in a step", "type": "log", "tickvals": [1, 2, 4, 8, 16]},
        yaxis={"title": "idle share of a step", "rangemode": "tozero", "tickformat": ".0%"},
    )
    return figure


def _activations(found: Sequence[Point]) -> Figure:
    figure = Figure()
    for schedule in WAITING.values():
        mine = [p for p in found if p.schedule == schedule]
        figure.add_trace(_markers(mine, [p.kept_kib for p in mine], f"{schedule}, 4 stages"))
        figure.data[-1].mode = "lines+markers"
    figure.update_layout(
        margin={"t": 20},
        xaxis={"title": "micro-batches in a step", "type": "log", "tickvals": [1, 2, 4, 8, 16]},
        yaxis={"title": "activations kept by the first stage, KiB", "rangemode": "tozero"},
    )
    return figure


def _markers(found: Sequence[Point], heights: Sequence[float], name: str) -> Scatter:
    first = found[0]
    return Scatter(
        x=[p.count for p in found],
        y=list(heights),
        mode="markers",
        marker={"color": COLORS[first.stages], "symbol": SYMBOLS[first.schedule], "size": 11},
        name=name,
    )
