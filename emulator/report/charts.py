"""Charts as plain data (pure): `data` and `layout` for Plotly.js.

A colour is the name of a CSS variable, such as `--running`, which the page resolves for light, dark
and print. So colours are defined once, in style.css. Texts are escaped, because Plotly parses them
as HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from typing import Any

from emulator.analysis.analyse import FaultResult
from emulator.analysis.figures import FAULT_STAGES, fault_stages
from emulator.analysis.goodput import CAUSES
from emulator.analysis.throughput import Curve
from emulator.faults.table import states
from emulator.record.timeline import Interval, all_states
from emulator.report.data import Facts
from emulator.validation.units import format_duration

__all__ = ["POINTS", "Chart", "axis", "colour", "layout", "line", "short", "thinned", "timeline"]

Chart = dict[str, Any]
"""`data`, `layout` and `height` in pixels."""

POINTS = 1000
"""Points of a line at most; more than pixels are not visible."""
RATE_HEIGHT, GAP, FOOT, HEAD = 200, 22, 34, 20
"""Pixels of the curve, between it and the lanes, below and above both."""
_LABELLED = 30
"""With more faults than this, only bands and hover texts show them."""
_TASK_COLOURS, _DASHES = 8, ("solid", "dash", "dot", "dashdot")
_ENDS = {"succeeded": "circle", "failed": "x", "stopped": "square"}
_OWN = frozenset({"starting", "running", "backoff", "down", *CAUSES, *_ENDS})
"""What has a colour of its own name."""


def colour(what: str) -> str:
    """Return the CSS variable of a state, a cause or a phase (`--other` for unknown phases)."""
    key = what if what in _OWN else states().get(what, "other")
    return f"--{key}"


def line(number: int) -> dict[str, Any]:
    """Return the line style of task or device `number`; styles repeat after 32."""
    hue, dash = number % _TASK_COLOURS, number // _TASK_COLOURS % len(_DASHES)
    return {"color": f"--series-{hue + 1}", "dash": _DASHES[dash], "width": 1.6}


def layout(height: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401  Plotly's values
    """Return the layout that all charts share."""
    return {
        "height": height,
        "showlegend": False,
        "hovermode": "closest",
        "hoverdistance": 12,
        "separators": ".\u202f",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "--font", "size": 12, "color": "--muted"},
        "hoverlabel": {
            "bgcolor": "--surface",
            "bordercolor": "--line",
            "align": "left",
            "font": {"family": "--font", "size": 12, "color": "--text"},
        },
        **more,
    }


def axis(**more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the axis settings that all charts share."""
    return {
        "gridcolor": "--grid",
        "zeroline": False,
        "linecolor": "--line",
        "tickcolor": "--line",
        "fixedrange": True,
        "exponentformat": "none",
        "separatethousands": True,
        "tickangle": 0,
        **more,
    }


def timeline(facts: Facts) -> Chart:
    """Return the job's throughput above a lane for each task, on one axis of seconds."""
    end = facts.end
    names = [task.name for task in facts.plan.tasks]
    number = {name: row for row, name in enumerate(names)}
    rows = _row_height(len(names))
    lanes = rows * len(names)
    height = HEAD + RATE_HEIGHT + GAP + lanes + FOOT
    inner = height - HEAD - FOOT
    split, top = lanes / inner, (lanes + GAP) / inner
    speed = facts.speed
    highest = max(speed.job, default=0.0) * 1.15 or 1.0
    bands = list(_bands(facts.analysis.faults, end, highest))
    data = [
        *_speed(speed, end),
        *bands,
        *_lanes(facts.states, number, 0.72, end),
        *_lanes(facts.phases, number, 0.3, end),
        *_ends(facts, number),
    ]
    return {
        "height": height,
        "data": data,
        "layout": layout(
            height,
            margin={"l": 8, "r": 12, "t": HEAD, "b": FOOT},
            barmode="overlay",
            xaxis=axis(
                range=[0, end],
                anchor="y2",
                fixedrange=False,
                ticksuffix=" s",
                ticks="outside",
            ),
            yaxis=axis(
                domain=[top, 1],
                range=[0, highest],
                automargin=True,
                nticks=5,
                rangemode="tozero",
            ),
            yaxis2=axis(
                domain=[0, split],
                range=[len(names) - 0.5, -0.5],
                tickmode="array",
                tickvals=list(range(len(names))),
                ticktext=[escape(name) for name in names],
                tickfont={"size": 12 if rows >= 18 else 10},
                automargin=True,
                showgrid=False,
            ),
            shapes=[*_moments(facts.analysis.faults)],
            annotations=list(_badges(facts.analysis.faults, end)),
        ),
    }


def _row_height(tasks: int) -> int:
    """Return the pixels per lane: fewer with many tasks, so that they fit on a screen."""
    return 30 if tasks <= 6 else 22 if tasks <= 14 else 17


def _speed(speed: Curve, end: float) -> Iterator[dict[str, Any]]:
    """Yield the job's rate, with a point at the middle of each bin."""
    if not any(speed.job):
        return
    times = [speed.begin + (number + 0.5) * speed.width for number in range(len(speed.job))]
    points = thinned([(t, rate) for t, rate in zip(times, speed.job, strict=True) if t <= end])
    yield {
        "type": "scatter",
        "name": "job",
        "mode": "lines",
        "x": [short(t) for t, _ in points],
        "y": [short(rate) for _, rate in points],
        "line": {"color": "--productive", "width": 1.8, "shape": "linear"},
        "fill": "tozeroy",
        "fillcolor": "--productive-soft",
        "hovertemplate": "%{y:.3~g} steps/s at %{x:.1f} s<extra></extra>",
    }


def _bands(faults: Sequence[FaultResult], end: float, highest: float) -> Iterator[dict[str, Any]]:
    """Yield one trace with a band for each triggered fault, from its trigger until its end.

    The band of a task that was not restored extends to the end of the run. Bands have a minimum
    width, so that the pointer can hit them.
    """
    struck = [fault for fault in faults if fault.triggered is not None]
    if not struck:
        return
    spans = [_extent(fault, end) for fault in struck]
    least = end / 200
    yield {
        "type": "bar",
        "name": "faults",
        "x": [short((begin + until) / 2) for begin, until in spans],
        "width": [short(max(until - begin, least)) for begin, until in spans],
        "y": [highest] * len(spans),
        "marker": {"color": "--fault-soft", "line": {"width": 0}},
        "hovertext": [fault_in_words(fault) for fault in struck],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _extent(fault: FaultResult, end: float) -> tuple[float, float]:
    begin = fault.triggered or 0.0
    return begin, end if fault.restored_after is None else min(begin + fault.restored_after, end)


def fault_in_words(fault: FaultResult) -> str:
    """Return a fault and its stages as lines of HTML."""
    lines = [f"<b>{escape(f'{fault.id}: {fault.kind} {fault.target}')}</b> ({fault.status})"]
    if fault.triggered is not None:
        lines.append(f"triggered at {format_duration(fault.triggered)}")
    code = "" if fault.exit_code is None else f", exit code {fault.exit_code}"
    how = " (had to be killed)" if fault.killed else ""
    more = {"applied_after": f"{code}{how}"}
    for key, text in fault_stages(vars(fault)).items():
        if text:
            lines.append(f"{FAULT_STAGES[key][0]} after {text}{more.get(key, '')}")
    if fault.reason:
        lines.append(escape(fault.reason))
    return "<br>".join(lines)


def _moments(faults: Sequence[FaultResult]) -> Iterator[dict[str, Any]]:
    """Yield a vertical line at the trigger of each fault, unless there are many."""
    struck = [fault for fault in faults if fault.triggered is not None]
    if len(struck) <= _LABELLED:
        for fault in struck:
            yield {
                "type": "line",
                "xref": "x",
                "yref": "paper",
                "x0": short(fault.triggered),
                "x1": short(fault.triggered),
                "y0": 0,
                "y1": 1,
                "line": {"color": "--fault", "width": 1, "dash": "dot"},
            }


def _badges(faults: Sequence[FaultResult], end: float) -> Iterator[dict[str, Any]]:
    """Yield the label of each fault above its line, if it does not overlap the last one."""
    struck = [fault for fault in faults if fault.triggered is not None]
    if len(struck) > _LABELLED:
        return
    last = -math.inf
    for fault in sorted(struck, key=lambda fault: fault.triggered or 0.0):
        when = fault.triggered or 0.0
        if when - last < end * 0.05:  # it would overlap the last label
            continue
        last = when
        yield {
            "text": escape(f"{fault.kind} {fault.target}" if len(struck) == 1 else fault.id),
            "x": short(when),
            "y": 1,
            "yref": "paper",
            "yanchor": "bottom",
            "xanchor": "left" if when < end * 0.6 else "right",
            "showarrow": False,
            "font": {"color": "--fault", "size": 11},
        }


def _lanes(
    spans: Sequence[Interval], number: Mapping[str, int], width: float, end: float
) -> Iterator[dict[str, Any]]:
    """Yield one trace of bars for each state or phase, because a trace has one colour."""
    order = {state: place for place, state in enumerate(all_states())}
    known = [span for span in spans if span.task in number]
    drawn = sorted(coalesced(known, end / POINTS), key=lambda s: (order.get(s.name, 99), s.name))
    for what, group in groupby(drawn, key=lambda span: span.name):
        bars = list(group)
        yield {
            "type": "bar",
            "orientation": "h",
            "name": escape(what),
            "yaxis": "y2",
            "y": [number[span.task] for span in bars],
            "base": [short(span.begin) for span in bars],
            "x": [short(span.end - span.begin) for span in bars],
            "width": width,
            "marker": {"color": colour(what), "line": {"width": 0}},
            "hovertext": [_span_in_words(span) for span in bars],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }


def _span_in_words(span: Interval) -> str:
    often = f" ({span.count} times)" if span.count > 1 else ""
    return (
        f"<b>{escape(span.task)}</b> {escape(span.name)}{often}<br>"
        f"{span.begin:.1f} s to {span.end:.1f} s, {format_duration(span.end - span.begin)}"
    )


def _ends(facts: Facts, number: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Yield a marker at the end of each task's last process; shape and colour show its state."""
    ended = sorted(facts.endings, key=lambda e: e.state)
    for state, group in groupby(ended, key=lambda ending: ending.state):
        marks = list(group)
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": state,
            "yaxis": "y2",
            "x": [short(mark.t) for mark in marks],
            "y": [number[mark.task] for mark in marks],
            "cliponaxis": False,
            "marker": {
                "symbol": _ENDS[state],
                "size": 9,
                "color": colour(state),
                "line": {"color": "--surface", "width": 1.5},
            },
            "hovertext": [
                f"<b>{escape(m.task)}</b> {state}<br>exit code {m.exit_code} at {m.t:.1f} s"
                for m in marks
            ],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }


def coalesced(spans: Sequence[Interval], apart: float) -> list[Interval]:
    """Merge equal spans that are less than `apart` seconds apart (about a pixel)."""
    merged: list[Interval] = []
    for span in sorted(spans, key=lambda span: (span.task, span.name, span.begin)):
        last = merged[-1] if merged else None
        if (
            last is not None
            and (last.task, last.name) == (span.task, span.name)
            and span.begin - last.end < apart
        ):
            until = max(last.end, span.end)
            merged[-1] = replace(last, end=until, count=last.count + span.count)
        else:
            merged.append(span)
    return merged


def thinned(
    points: Sequence[tuple[float, float | None]], limit: int = POINTS
) -> list[tuple[float, float | None]]:
    """Return at most `limit` points: the minimum and maximum of each stretch, to keep peaks.

    A gap in a stretch is kept, at its end.
    """
    if len(points) <= limit:
        return list(points)
    size = math.ceil(len(points) / (limit // 3))
    kept: list[tuple[float, float | None]] = []
    for first in range(0, len(points), size):
        stretch = points[first : first + size]
        known = [point for point in stretch if point[1] is not None]
        if known:
            extremes = {min(known, key=_value), max(known, key=_value)}
            kept += sorted(extremes, key=lambda point: point[0])
        if len(known) < len(stretch):
            kept.append((stretch[-1][0], None))
    return kept


def _value(point: tuple[float, float | None]) -> float:
    return point[1] or 0.0


def short(number: float | None) -> float | None:
    """Return a number rounded to six significant digits, to make the page smaller."""
    return None if number is None else float(f"{number:.6g}")
