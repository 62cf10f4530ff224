"""docs/gallery/communication.md: bytes in a step, and step times under a bandwidth limit.

The lines of the theory: in a step of n workers with a model of M bytes, each worker of a ring sends
2(n-1)/n M (Patarasuk and Yuan, 2009); parameter servers send n M together and receive as much, each
worker M.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plotly.graph_objects import Figure, Scatter

from benchmarks.gallery.pages import markdown
from benchmarks.gallery.runs import Run, chosen
from emulator.analysis.analyse import analyse
from emulator.analysis.traffic import Stretch, Traffic
from emulator.record.reader import Record
from emulator.validation.units import format_number, format_size

MEGA = 1e6
LIMITED = 4
"""Workers of the runs with a limit; ring-bandwidth and ps-bandwidth have it, and one server."""


@dataclass(frozen=True)
class Point:
    """One model that one cluster trained."""

    workers: int
    servers: int
    """0: a ring."""
    model: float
    """Bytes."""
    bandwidth: int | None
    """Bits per second that each task can send; None: no limit."""
    worker: Traffic
    """Of each worker in a step, on average."""
    ps: Traffic | None
    """Of each parameter server."""
    seconds: float
    """Of a step, on average."""

    @property
    def name(self) -> str:
        """As in tables."""
        servers = f"{self.servers} server{'s' if self.servers > 1 else ''}"
        return servers if self.servers else "ring"

    @property
    def sent(self) -> float:
        """Models that a worker of a ring sent, or all servers."""
        sent = self.worker.sent if self.ps is None else self.ps.sent * self.servers
        return sent / self.model

    @property
    def both_ways(self) -> float:
        """Models that the busiest part sent and received: a worker of a ring, or all servers."""
        busiest, count = (self.worker, 1) if self.ps is None else (self.ps, self.servers)
        return (busiest.sent + busiest.received) * count / self.model

    @property
    def predicted(self) -> float:
        """`sent` by the theory."""
        return self.workers if self.servers else ring(self.workers)


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step as a function of the bandwidth b in bits per second: a + v / b."""

    a: float
    """Without a limit."""
    v: float
    """Bits that a step has to wait for, one after the other."""

    def at(self, bandwidth: float) -> float:
        """Return the seconds of a step under a limit."""
        return self.a + self.v / bandwidth


def ring(workers: int) -> float:
    """Return the models that each worker of a ring sends in a step."""
    return 2 * (workers - 1) / workers


def crossing(one: StepTime, other: StepTime) -> float | None:
    """Return the bandwidth at which both take the same time; None: one wins at every bandwidth."""
    if (other.a - one.a) * (one.v - other.v) <= 0:
        return None
    return (one.v - other.v) / (other.a - one.a)


def points(run: Run) -> list[Point]:
    """Return what a run measured, for each model that it trained."""
    record = Record(run.folder)
    cluster = record.plan.scenario.cluster
    traffic = analyse(record.timeline, record.samples).traffic
    found = []
    for stretch in traffic.stretches("model_bytes"):
        worker = traffic.bytes_per_step("worker", stretch.steps)
        ps = traffic.bytes_per_step("ps", stretch.steps)
        if worker is None or (ps is None and "ps" in cluster):
            raise LookupError(f"{run.name}: bytes of a step are not known")
        found.append(
            Point(
                workers=cluster["worker"].replicas,
                servers=cluster["ps"].replicas if "ps" in cluster else 0,
                model=stretch.value,
                bandwidth=record.plan.scenario.network.bandwidth,
                worker=worker,
                ps=ps,
                seconds=_seconds(stretch),
            )
        )
    return found


def _seconds(stretch: Stretch) -> float:
    first, last = stretch.steps[0], stretch.steps[-1]
    return (last.t - first.t) / (last.step - first.step)


def blocks(runs: Sequence[Run]) -> Mapping[str, str]:
    """Return the tables of the page."""
    unlimited = _of(runs, "ring-all-reduce[*] ps-rounds[*]")
    return {"bytes": bytes_table(unlimited), "bandwidth": bandwidth_text(*_step_times(runs))}


def charts(runs: Sequence[Run]) -> Mapping[str, Figure]:
    """Return the charts of the page."""
    unlimited = _of(runs, "ring-all-reduce[*] ps-rounds[*]")
    return {
        "ring-and-servers": traffic_chart(unlimited),
        "bandwidth": bandwidth_chart(*_step_times(runs)),
    }


def _of(runs: Sequence[Run], patterns: str) -> list[Point]:
    found = [point for run in chosen(runs, patterns) for point in points(run)]
    return sorted(found, key=lambda point: (-point.model, point.servers, point.workers))


def _step_times(runs: Sequence[Run]) -> tuple[Point, Point, Point, Point]:
    """Return the ring and the server without a limit, then both with it; all of one model."""
    ring_limited, ps_limited = _of(runs, "ring-bandwidth") + _of(runs, "ps-bandwidth")
    alike = [
        next(
            point
            for point in _of(runs, pattern)
            if (point.workers, point.servers, point.model)
            == (limited.workers, servers, limited.model)
        )
        for pattern, limited, servers in (
            ("ring-all-reduce[*]", ring_limited, 0),
            ("ps-rounds[*]", ps_limited, ps_limited.servers),
        )
    ]
    return alike[0], alike[1], ring_limited, ps_limited


def step_time(free: Point, limited: Point) -> StepTime:
    """Return the line through a time without a limit and one with it."""
    if limited.bandwidth is None:
        raise ValueError("the second point needs a bandwidth limit")
    return StepTime(free.seconds, max(0.0, limited.seconds - free.seconds) * limited.bandwidth)


# --- Tables ---------------------------------------------------------------------------------------


def bytes_table(measured: Sequence[Point]) -> str:
    """Return a row for each model of each cluster."""
    titles = ["model", "workers", "", "sent by", "theory", "measured", "more"]
    rows = [
        [
            format_size(point.model, 1),
            str(point.workers),
            point.name,
            "all servers" if point.servers else "each worker",
            f"{point.predicted:.2f} models",
            f"{point.sent:.2f} models",
            f"{point.sent / point.predicted - 1:+.1%}",
        ]
        for point in measured
    ]
    return markdown(titles, rows)


def bandwidth_text(free_ring: Point, free_ps: Point, slow_ring: Point, slow_ps: Point) -> str:
    """Return a table of both, and where they cross."""
    lines = step_time(free_ring, slow_ring), step_time(free_ps, slow_ps)
    bits = free_ring.model * 8
    waits = (
        f"{ring(LIMITED):.2f}",
        f"{LIMITED / slow_ps.servers:.0f} to {LIMITED / slow_ps.servers + 1:.0f}",
    )
    rows = [
        [
            free.name,
            f"{free.seconds * 1000:.1f} ms",
            f"{slow.seconds * 1000:.1f} ms",
            f"{line.v / bits:.2f}",
            waited,
        ]
        for free, slow, line, waited in zip(
            (free_ring, free_ps), (slow_ring, slow_ps), lines, waits, strict=True
        )
    ]
    limit = f"{format_number((slow_ring.bandwidth or 0) / MEGA)} Mbit/s"
    titles = ["", "a step without a limit", f"at {limit}", "models waited for", "theory"]
    size = format_size(free_ring.model, 1)
    where = crossing(*lines)
    if where is None:
        winner = "ring" if lines[0].at(MEGA) < lines[1].at(MEGA) else "parameter server"
        text = (
            f"The lines do not cross: with this model of {size} the {winner} wins at every limit."
        )
    else:
        below = "ring" if lines[0].v < lines[1].v else "parameter server"
        text = (
            f"**Crossing point**: {format_number(where / MEGA)} Mbit/s, for a model of {size}. "
            f"Below, the {below} is faster."
        )
    return f"{markdown(titles, rows)}\n\n{text}"


# --- Charts ---------------------------------------------------------------------------------------

COLOURS = {0: "#1f77b4", 1: "#d62728", 2: "#ff7f0e"}
"""By the number of servers."""
MARGIN = {"t": 30, "b": 50}
"""Pixels."""


def traffic_chart(measured: Sequence[Point]) -> Figure:
    """Return models on the wire by workers: lines of the theory, and what was measured."""
    workers = sorted({point.workers for point in measured})
    figure = Figure()
    for name, values, servers in (
        ("theory: servers together, 2n", [2 * n for n in workers], 1),
        ("theory: a worker of a ring, 2 · 2(n-1)/n", [2 * ring(n) for n in workers], 0),
    ):
        line = {"color": COLOURS[servers], "dash": "dot"}
        figure.add_trace(Scatter(x=workers, y=values, name=name, mode="lines", line=line))
    sizes = sorted({point.model for point in measured})
    for servers in sorted({point.servers for point in measured}):
        for size in sizes:
            mine = [p for p in measured if (p.servers, p.model) == (servers, size)]
            if mine:
                symbol = ("circle-open", "circle")[sizes.index(size) == len(sizes) - 1]
                figure.add_trace(
                    Scatter(
                        x=[p.workers + 0.04 * (servers - 1) * bool(servers) for p in mine],
                        y=[p.both_ways for p in mine],
                        name=f"{mine[0].name}, {format_size(size, 1)}",
                        mode="markers",
                        marker={"color": COLOURS[servers], "symbol": symbol, "size": 11},
                    )
                )
    figure.update_xaxes(title="workers", dtick=1)
    figure.update_yaxes(title="models sent and received in a step", rangemode="tozero")
    figure.update_layout(margin=MARGIN)
    return figure


def bandwidth_chart(free_ring: Point, free_ps: Point, slow_ring: Point, slow_ps: Point) -> Figure:
    """Return the time of a step by bandwidth, for a ring and a server, with the crossing point."""
    figure = Figure()
    bandwidths = [10 ** (n / 10) * MEGA for n in range(8, 34)]
    lines = step_time(free_ring, slow_ring), step_time(free_ps, slow_ps)
    for line, slow in zip(lines, (slow_ring, slow_ps), strict=True):
        colour = COLOURS[slow.servers]
        figure.add_trace(
            Scatter(
                x=[bandwidth / MEGA for bandwidth in bandwidths],
                y=[line.at(bandwidth) * 1000 for bandwidth in bandwidths],
                name=slow.name,
                line={"color": colour},
            )
        )
        figure.add_trace(
            Scatter(
                x=[(slow.bandwidth or 0) / MEGA],
                y=[slow.seconds * 1000],
                name=f"{slow.name}, measured",
                mode="markers",
                marker={"color": colour, "size": 11},
            )
        )
        wait = slow.predicted / max(1, slow.servers) * slow.model * 8
        figure.add_trace(
            Scatter(
                x=[bandwidth / MEGA for bandwidth in bandwidths],
                y=[wait / bandwidth * 1000 for bandwidth in bandwidths],
                name=f"theory: {slow.name}, sending only",
                line={"color": colour, "dash": "dot"},
            )
        )
    where = crossing(*lines)
    if where is not None:
        dashed = {"color": "#888", "dash": "dash"}
        figure.add_vline(x=where / MEGA, line=dashed, annotation_text="crossing")
    figure.update_xaxes(title="Mbit/s that each task can send", type="log")
    figure.update_yaxes(title="ms a step", type="log", dtick=1)
    figure.update_layout(margin=MARGIN)
    return figure
