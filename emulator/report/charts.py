"""Charts as plain data (pure): `data` and `layout` for Plotly.js.

A colour is the name of a CSS variable, such as `--running`, which the page resolves for light, dark
and print. So colours are defined once, in style.css. Texts are escaped, because Plotly parses them
as HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from typing import Any

from emulator.analysis.analyse import FaultResult
from emulator.analysis.figures import FAULT_STAGES, fault_stages
from emulator.analysis.goodput import CAUSES
from emulator.analysis.throughput import Curve
from emulator.faults.table import states
from emulator.record.events import TaskExit
from emulator.record.timeline import Interval, all_states
from emulator.report.data import Facts
from emulator.validation.units import format_duration

Chart = dict[str, Any]
"""`data`, `layout` and `height` in pixels."""
Trace = dict[str, Any]
"""One entry of `data`."""
Points = Sequence[tuple[float, float | None]]
"""Seconds since the run began, and a value; None is a gap."""

POINTS = 1000
"""Points of a line at most; more than pixels are not visible."""
RATE_HEIGHT, GAP, FOOT, HEAD = 200, 22, 34, 20
"""Pixels of the curve, between it and the lanes, below and above both."""
_LABELLED = 30
"""With more faults than this, only bands and hover texts show them."""
_TASK_COLOURS, _DASHES = 8, ("solid", "dash", "dot", "dashdot")
_ENDS = {"succeeded": "circle", "failed": "x", "stopped": "square"}
_NAMED = frozenset({"starting", "running", "backoff", "down", *CAUSES, *_ENDS})
"""States and causes with a CSS variable of the same name."""


def colour(name: str) -> str:
    """Return the CSS variable of a state, a cause or a phase (`--other` for unknown phases)."""
    return f"--{name if name in _NAMED else states().get(name, 'other')}"


def line_style(number: int) -> dict[str, Any]:
    """Return the line style of task or device `number`; styles repeat after 32."""
    hue, dash = number % _TASK_COLOURS, number // _TASK_COLOURS % len(_DASHES)
    return {"color": f"--series-{hue + 1}", "dash": _DASHES[dash], "width": 1.6}


def _layout(height: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401  Plotly's values
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


def _axis(**more: Any) -> dict[str, Any]:  # noqa: ANN401
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


def _line_trace(
    name: str, points: Points, style: Mapping[str, Any], unit: str, limit: int = POINTS
) -> Trace:
    """Return a line of at most `limit` points; the legend's buttons find it by its name."""
    shown = thinned(points, limit)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [_short(t) for t, _ in shown],
        "y": [_short(value) for _, value in shown],
        "line": style,
        "hovertemplate": f"{escape(name)}: %{{y:.3~g}} {unit} at %{{x:.1f}} s<extra></extra>",
    }


def line_chart(
    lines: Iterable[tuple[int, str, Points]],
    unit: str,
    height: int,
    end: float,
    limit: int = POINTS,
) -> Chart:
    """Return a chart of lines (number of the style, name, points) from 0 to `end` seconds."""
    traces = [_line_trace(name, points, line_style(n), unit, limit) for n, name, points in lines]
    suffix = " %" if unit == "%" else ""
    shape = _layout(
        height,
        margin={"l": 8, "r": 10, "t": 8, "b": 28},
        xaxis=_axis(range=[0, end], ticksuffix=" s", fixedrange=False),
        yaxis=_axis(rangemode="tozero", automargin=True, nticks=5, ticksuffix=suffix),
    )
    return {"height": height, "data": traces, "layout": shape}


def curve_points(curve: Curve, rates: Sequence[float]) -> Points:
    """Return the rates of a curve, each at the middle of its bin."""
    return [(curve.begin + (n + 0.5) * curve.width, rate) for n, rate in enumerate(rates)]


def timeline(facts: Facts) -> Chart:
    """Return the job's throughput above a lane for each task, on one axis of seconds."""
    end, speed = facts.end, facts.speed
    rows = {task.name: row for row, task in enumerate(facts.plan.tasks)}
    row_height = 30 if len(rows) <= 6 else 22 if len(rows) <= 14 else 17
    lanes = row_height * len(rows)
    height = HEAD + RATE_HEIGHT + GAP + lanes + FOOT
    inner = height - HEAD - FOOT
    highest = max(speed.job, default=0.0) * 1.15 or 1.0
    faults = sorted(
        ((f.triggered, f) for f in facts.analysis.faults if f.triggered is not None),
        key=lambda fault: fault[0],
    )
    labelled = faults if len(faults) <= _LABELLED else []
    return {
        "height": height,
        "data": [
            *_speed(speed, end),
            *_bands(faults, end, highest),
            *_lanes(facts.timeline.states(), rows, 0.72, end),
            *_lanes(facts.timeline.phases(), rows, 0.3, end),
            *_exits(facts.exits, rows),
        ],
        "layout": _layout(
            height,
            margin={"l": 8, "r": 12, "t": HEAD, "b": FOOT},
            barmode="overlay",
            xaxis=_axis(
                range=[0, end], anchor="y2", fixedrange=False, ticksuffix=" s", ticks="outside"
            ),
            yaxis=_axis(
                domain=[(lanes + GAP) / inner, 1],
                range=[0, highest],
                automargin=True,
                nticks=5,
                rangemode="tozero",
            ),
            yaxis2=_axis(
                domain=[0, lanes / inner],
                range=[len(rows) - 0.5, -0.5],
                tickmode="array",
                tickvals=list(rows.values()),
                ticktext=[escape(name) for name in rows],
                tickfont={"size": 12 if row_height >= 18 else 10},
                automargin=True,
                showgrid=False,
            ),
            shapes=[_fault_line(t) for t, _ in labelled],
            annotations=list(_fault_labels(labelled, end)),
        ),
    }


def _speed(speed: Curve, end: float) -> Iterator[Trace]:
    """Yield the job's rate, if it made steps."""
    if any(speed.job):
        points = [point for point in curve_points(speed, speed.job) if point[0] <= end]
        style = {"color": "--productive", "width": 1.8}
        filled = {"fill": "tozeroy", "fillcolor": "--productive-soft"}
        yield _line_trace("job", points, style, "steps/s") | filled


_Triggered = Sequence[tuple[float, FaultResult]]
"""Faults with the times of their triggers, in order."""


def _bands(faults: _Triggered, end: float, highest: float) -> Iterator[Trace]:
    """Yield one trace with a band for each fault, from its trigger until its target was restored.

    The band of a target that was not restored extends to the end of the run. Bands have a minimum
    width, so that the pointer can hit them.
    """
    if not faults:
        return
    ends = [end if f.restored_after is None else min(t + f.restored_after, end) for t, f in faults]
    bands = [(begin, until) for (begin, _), until in zip(faults, ends, strict=True)]
    yield {
        "type": "bar",
        "name": "faults",
        "x": [_short((begin + until) / 2) for begin, until in bands],
        "width": [_short(max(until - begin, end / 200)) for begin, until in bands],
        "y": [highest] * len(bands),
        "marker": {"color": "--fault-soft", "line": {"width": 0}},
        "hovertext": [_fault_in_words(fault) for _, fault in faults],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _fault_in_words(fault: FaultResult) -> str:
    """Return a triggered fault and its stages as lines of HTML."""
    lines = [f"<b>{escape(f'{fault.id}: {fault.kind} {fault.target}')}</b> ({fault.status})"]
    lines.append(f"triggered at {format_duration(fault.triggered or 0.0)}")
    code = "" if fault.exit_code is None else f", exit code {fault.exit_code}"
    how = " (lost power)" if fault.silent else " (had to be killed)" if fault.killed else ""
    details = {"applied_after": f"{code}{how}"}
    for key, text in fault_stages(vars(fault)).items():
        if text:
            lines.append(f"{FAULT_STAGES[key][0]} after {text}{details.get(key, '')}")
    said = [fault.reason, fault.effect, *fault.notes]
    return "<br>".join([*lines, *(escape(words) for words in said if words)])


def _fault_line(t: float) -> dict[str, Any]:
    """Return a vertical line at the trigger of a fault."""
    place = {"x0": _short(t), "x1": _short(t), "y0": 0, "y1": 1}
    style = {"color": "--fault", "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "paper", **place, "line": style}


def _fault_labels(faults: _Triggered, end: float) -> Iterator[dict[str, Any]]:
    """Yield a label above the line of each fault, unless it would overlap the one before."""
    last = -math.inf
    for t, fault in faults:
        if t - last >= end * 0.05:
            last = t
            yield {
                "text": escape(f"{fault.kind} {fault.target}" if len(faults) == 1 else fault.id),
                "x": _short(t),
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "xanchor": "left" if t < end * 0.6 else "right",
                "showarrow": False,
                "font": {"color": "--fault", "size": 11},
            }


def _lanes(
    intervals: Sequence[Interval], rows: Mapping[str, int], width: float, end: float
) -> Iterator[Trace]:
    """Yield one trace of bars for each state or phase, because a trace has one colour."""
    order = {state: place for place, state in enumerate(all_states())}
    merged = coalesced([one for one in intervals if one.task in rows], end / POINTS)
    merged.sort(key=lambda one: (order.get(one.name, len(order)), one.name))
    for name, group in groupby(merged, key=lambda one: one.name):
        bars = list(group)
        yield {
            "type": "bar",
            "orientation": "h",
            "name": escape(name),
            "yaxis": "y2",
            "y": [rows[one.task] for one in bars],
            "base": [_short(one.begin) for one in bars],
            "x": [_short(one.end - one.begin) for one in bars],
            "width": width,
            "marker": {"color": colour(name), "line": {"width": 0}},
            "hovertext": [_interval_in_words(one) for one in bars],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }


def _interval_in_words(one: Interval) -> str:
    count = f" ({one.count} times)" if one.count > 1 else ""
    return (
        f"<b>{escape(one.task)}</b> {escape(one.name)}{count}<br>"
        f"{one.begin:.1f} s to {one.end:.1f} s, {format_duration(one.end - one.begin)}"
    )


def _exits(exits: Sequence[TaskExit], rows: Mapping[str, int]) -> Iterator[Trace]:
    """Yield a marker at each task's last exit; shape and colour show its state."""
    for state, group in groupby(sorted(exits, key=lambda e: e.state), key=lambda e: e.state):
        marks = list(group)
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": state,
            "yaxis": "y2",
            "x": [_short(mark.t) for mark in marks],
            "y": [rows[mark.task] for mark in marks],
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


def coalesced(intervals: Sequence[Interval], apart: float) -> list[Interval]:
    """Merge equal intervals that are less than `apart` seconds apart (about a pixel)."""
    merged: list[Interval] = []
    for one in sorted(intervals, key=lambda one: (one.task, one.name, one.begin)):
        last = merged[-1] if merged else None
        equal = last is not None and (last.task, last.name) == (one.task, one.name)
        if last is not None and equal and one.begin - last.end < apart:
            end, count = max(last.end, one.end), last.count + one.count
            merged[-1] = replace(last, end=end, count=count)
        else:
            merged.append(one)
    return merged


def thinned(points: Points, limit: int = POINTS) -> Points:
    """Return at most `limit` points: the minimum and maximum of each stretch, to keep peaks.

    A gap in a stretch is kept, at its end.
    """
    if len(points) <= limit:
        return points
    size = math.ceil(len(points) / (limit // 3))
    kept: list[tuple[float, float | None]] = []
    for first in range(0, len(points), size):
        stretch = points[first : first + size]
        known = [(value, t) for t, value in stretch if value is not None]
        if known:
            extremes = {min(known), max(known)}
            kept += sorted((t, value) for value, t in extremes)
        if len(known) < len(stretch):
            kept.append((stretch[-1][0], None))
    return kept


def _short(number: float | None) -> float | None:
    """Return a number rounded to six significant digits, to make the page smaller."""
    return None if number is None else float(f"{number:.6g}")
