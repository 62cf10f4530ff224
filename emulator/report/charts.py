"""Charts as plain data (pure): `data` and `layout` for Plotly.js.

A colour is the name of a CSS variable, such as `--running`, which the page resolves for light, dark
and print. So colours are defined once, in style.css. Texts are escaped, because Plotly parses them
as HTML.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

from emulator.analysis.throughput import Curve

T = TypeVar("T")

Chart = dict[str, Any]
"""`data` and `layout` for Plotly, the `height` in pixels, and `x`: what its axis counts. Charts
with the same `x` are zoomed together."""
Trace = dict[str, Any]
"""One entry of `data`."""
Points = Sequence[tuple[float, float | None]]
"""Values of x, such as the seconds since the run began, and of y; None is a gap."""

SECONDS, STEPS = "seconds", "steps"
"""What an axis counts."""
POINTS = 1000
"""Points of a line at most; more than pixels are not visible."""
OF_MEAN = 120
"""Points of a mean and of the range of a role at most."""
BEHIND = 48
"""Points at most of a line that is drawn on demand."""
MANY = 8
"""With more tasks than this, charts have the mean and the range of each role."""
TOGETHER = 0.005
"""Faults that were triggered closer to each other than this share of an axis have one label."""
LARGEST = 1e100
"""Browsers can't draw an axis whose length is no finite number."""
_SINGLE = 30
"""A line of fewer points has a mark at each of them."""
_COLOURS, _DASHES = 8, ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Group:
    """What a chart shows as one: a task, device or run, or the mean and range of several."""

    name: str
    number: int
    """Of its style: the same in all charts."""
    members: Sequence[tuple[int, str]] = ()
    """The lines behind a mean, with the numbers of their styles, which are shown on demand."""


@dataclass(frozen=True)
class Mark:
    """The time or step at which a fault was triggered, and until when it lasted, if known."""

    at: float
    until: float | None = None
    kind: str = ""
    target: str = ""


@dataclass(frozen=True)
class Axis:
    """The axis that charts share: what it counts, and from where to where."""

    counts: str
    begin: float
    end: float
    marks: Sequence[Mark] = ()
    """Faults, drawn in each of the charts."""


def line_style(number: int) -> dict[str, Any]:
    """Return the line style of task, device or run `number`; styles repeat after 32.

    Neighbours have different dashes and widths as well: of two equal lines both are seen.
    """
    dash = (number + number // _COLOURS) % len(_DASHES)
    width = 2.6 if dash == 0 else 1.6
    return {"color": series_colour(number), "dash": _DASHES[dash], "width": width}


def series_colour(number: int) -> str:
    """Return the colour of task, device or run `number`."""
    return f"--series-{number % _COLOURS + 1}"


def chart(height: int, counts: str, data: Sequence[Trace], **more: Any) -> Chart:  # noqa: ANN401
    """Return a chart with the layout that all share, and what is more in this one's."""
    layout = {
        "height": height,
        "showlegend": False,
        "hovermode": "closest",
        "hoverdistance": 12,
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
    return {"height": height, "x": counts, "data": data, "layout": layout}


def axis_of(**more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the axis settings that all charts share."""
    return {
        "gridcolor": "--grid",
        "zeroline": False,
        "linecolor": "--line",
        "tickcolor": "--line",
        "fixedrange": True,
        "exponentformat": "none",
        "tickangle": 0,
        # Else Plotly measures each label once for each other one, which takes longer than all else.
        "ticklabeloverflow": "allow",
        **more,
    }


def line_trace(
    name: str, points: Points, style: Mapping[str, Any], unit: str, counts: str = SECONDS
) -> Trace:
    """Return a line; the legend's buttons find it by its name."""
    known = sum(value is not None for _, value in points)
    at = "at step %{x}" if counts == STEPS else "at %{x:.1f} s"
    marked = {
        "mode": "lines+markers",
        "marker": {"size": 4, "color": style["color"]},
        "cliponaxis": False,
    }
    return {
        "type": "scatter",
        "mode": "lines",
        **(marked if known < _SINGLE else {}),
        "name": name,
        "x": [short(t) for t, _ in points],
        "y": [short(value, 5) for _, value in points],
        "line": style,
        "hovertemplate": f"{escape(name)}: {' '.join(['%{y:.4~g}', unit, at])}<extra></extra>",
    }


def line_chart(
    lines: Mapping[str, Points],
    groups: Sequence[Group],
    unit: str,
    height: int,
    axis: Axis,
    *,
    from_zero: bool = True,
) -> Chart:
    """Return a chart of lines by name, drawn as their groups say; others are left out.

    A value beyond LARGEST is a gap, like one that is no number.
    """
    lines = {name: [(x, _drawable(y)) for x, y in points] for name, points in lines.items()}
    traces: list[Trace] = []
    for group in groups:
        of_group = [lines[name] for _, name in group.members if name in lines]
        if of_group:
            traces += _group_traces(group, of_group, unit, axis.counts)
        for number, name in group.members or [(group.number, group.name)]:
            if name in lines:
                points = lines[name]
                points = stretched(points, axis) if group.members else thinned(points)
                line = line_trace(name, points, line_style(number), unit, axis.counts)
                traces.append(line | ({"visible": False} if group.members else {}))
    return chart(
        height,
        axis.counts,
        traces,
        margin={"l": 8, "r": 10, "t": 16, "b": 28},
        xaxis=axis_of(
            range=[axis.begin, axis.end],
            fixedrange=False,
            ticksuffix="" if axis.counts == STEPS else " s",
        ),
        yaxis=axis_of(
            rangemode="tozero" if from_zero else "normal",
            automargin=True,
            nticks=5,
            ticksuffix=" %" if unit == "%" else "",
        ),
        **marked(axis.marks, axis.end),
    )


def marked(marks: Sequence[Mark], end: float, *, bands: bool = True) -> dict[str, Any]:
    """Return the shapes and labels of faults, for a layout.

    The area of faults that overlap is one, as one that is drawn twice hides what is below it.
    Faults that were triggered together have one label; the page leaves out those for which there is
    no room.
    """
    shapes: list[dict[str, Any]] = []
    across = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    if bands:
        area = {"fillcolor": "--fault-soft", "line": {"width": 0}, "layer": "below"}
        spans = [(mark.at, mark.until) for mark in marks if mark.until is not None]
        for begin, until, _ in overlapping(spans):
            place = {"x0": short(begin), "x1": short(until)}
            shapes.append({"type": "rect", **across, **place, **area})
    labels = []
    for at, together in _triggered_together(marks, end * TOGETHER):
        style = {"color": "--fault", "width": 1, "dash": "dot"}
        shapes.append({"type": "line", **across, "x0": short(at), "x1": short(at), "line": style})
        labels.append(
            {
                "text": escape(_in_words(together)),
                "x": short(at),
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "xanchor": "left" if at < end * 0.6 else "right",
                "showarrow": False,
                "font": {"color": "--fault", "size": 11},
            }
        )
    return {"shapes": shapes, "annotations": [label for label in labels if label["text"]]}


def overlapping(
    spans: Sequence[tuple[float, float]],
) -> list[tuple[float, float, Sequence[int]]]:
    """Return spans that overlap as one, each with the places of those that it is made of."""
    found: list[tuple[float, float, list[int]]] = []
    for place, (begin, end) in sorted(enumerate(spans), key=lambda one: one[1]):
        if found and begin <= found[-1][1]:
            since, until, places = found[-1]
            found[-1] = since, max(until, end), [*places, place]
        else:
            found.append((begin, end, [place]))
    return [(begin, end, places) for begin, end, places in found]


def _triggered_together(
    marks: Sequence[Mark], apart: float
) -> Iterator[tuple[float, Sequence[Mark]]]:
    """Yield faults that were triggered at about the same place, with the first place."""
    group: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: mark.at):
        if group and mark.at - group[0].at > apart:
            yield group[0].at, group
            group = []
        group.append(mark)
    if group:
        yield group[0].at, group


def _in_words(marks: Sequence[Mark]) -> str:
    """Return faults by kind: `preempt 6 tasks, pause ps-0`."""
    targets: dict[str, list[str]] = {}
    for mark in marks:
        targets.setdefault(mark.kind, []).append(mark.target)
    return ", ".join(
        f"{kind} {of[0] if len(of) == 1 else f'{len(of)} tasks'}".strip()
        for kind, of in targets.items()
        if kind
    )


# --- Groups of lines ------------------------------------------------------------------------------

_NUMBER = re.compile(r"[- ][\d.]+$")


def groups_of(names: Sequence[str]) -> list[Group]:
    """Return what charts show of tasks or devices: each, or of more than MANY the roles."""
    numbered = list(enumerate(names))
    if len(names) <= MANY:
        return [Group(name, number) for number, name in numbered]
    found: dict[str, list[tuple[int, str]]] = {}
    for number, name in numbered:
        found.setdefault(_NUMBER.sub("", name), []).append((number, name))
    return [
        Group(f"{role} ({len(members)})", place, members)
        if len(members) > 1
        else Group(members[0][1], place)
        for place, (role, members) in enumerate(found.items())
    ]


def _group_traces(group: Group, lines: Sequence[Points], unit: str, counts: str) -> Iterator[Trace]:
    """Yield the range of a group as an area, and its mean as a line."""
    summary = summarised(lines)
    xs: list[float | None] = []
    ys: list[float | None] = []
    for part in _parts(summary):
        xs += [*(x for x, _ in part), *(x for x, _ in reversed(part)), None]
        ys += [*(y.high for _, y in part), *(y.low for _, y in reversed(part)), None]
    yield {
        "type": "scatter",
        "mode": "lines",
        "name": group.name,
        "x": [short(x) for x in xs],
        "y": [short(y, 5) for y in ys],
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": series_colour(group.number),
        "opacity": 0.22,
        "hoverinfo": "skip",
    }
    means: Points = [(x, None if y is None else y.mean) for x, y in summary]
    style = {"color": series_colour(group.number), "width": 2.2}
    mean = line_trace(group.name, means, style, unit, counts)
    yield mean | {"hovertemplate": f"mean of {mean['hovertemplate']}"}


@dataclass(frozen=True)
class Summary:
    """Several lines at one place."""

    mean: float
    low: float
    high: float


def summarised(lines: Sequence[Points], limit: int = OF_MEAN) -> list[tuple[float, Summary | None]]:
    """Return mean, lowest and highest value of lines, at most at `limit` places; None is a gap.

    Each line has a value at each of the places, between two of its points by interpolation, so the
    mean is always that of all lines, except those with a gap there. A place at which no line has a
    value is a gap.
    """
    xs = sorted({x for points in lines for x, _ in points})
    if len(xs) > limit:
        width = (xs[-1] - xs[0]) / limit
        places = [xs[0] + (n + 0.5) * width for n in range(limit)]
    else:
        width, places = 0.0, xs
    columns = [_on_grid(points, places, width) for points in lines]
    found: list[tuple[float, Summary | None]] = []
    for at, column in zip(places, zip(*columns, strict=True), strict=True):
        known = [one for one in column if one is not None]
        if known:
            mean = math.fsum(one.mean for one in known) / len(known)
            low, high = min(one.low for one in known), max(one.high for one in known)
            found.append((at, Summary(mean, low, high)))
        elif not found or found[-1][1] is not None:
            found.append((at, None))
    return found


def _on_grid(points: Points, places: Sequence[float], width: float) -> list[Summary | None]:
    """Return a line's value at each place, and the lowest and highest within a width around it.

    Before its first and after its last point the value lasts for as long as it has from one point
    to the next. Where a line goes back, the later part counts.
    """
    found: list[Summary | None] = [None] * len(places)
    parts = list(_parts(points))
    for number, part in enumerate(parts):
        xs = [x for x, _ in part]
        spacing = max(width, (xs[-1] - xs[0]) / (len(part) - 1) if len(part) > 1 else 0.0)
        begins, ends = number == 0, number == len(parts) - 1
        begin = xs[0] - (spacing if begins and points[0][1] is not None else 0.0)
        end = xs[-1] + (spacing if ends and points[-1][1] is not None else 0.0)
        for place in range(bisect_left(places, begin), bisect_right(places, end)):
            at = places[place]
            after = bisect_left(xs, at)
            (x0, y0), (x1, y1) = part[max(after - 1, 0)], part[min(after, len(part) - 1)]
            share = (at - x0) / (x1 - x0) if x1 > x0 else 1.0
            mean = y0 * (1 - share) + y1 * share
            around = slice(bisect_left(xs, at - width / 2), bisect_right(xs, at + width / 2))
            near = [mean, *(y for _, y in part[around])]
            found[place] = Summary(mean, min(near), max(near))
    return found


def _parts(points: Sequence[tuple[float, T | None]]) -> Iterator[list[tuple[float, T]]]:
    """Yield the parts of a line between its gaps, and from where it goes back."""
    part: list[tuple[float, T]] = []
    for x, y in points:
        if part and (y is None or x < part[-1][0]):
            yield part
            part = []
        if y is not None:
            part.append((x, y))
    if part:
        yield part


# --- Points ---------------------------------------------------------------------------------------


def curve_points(curve: Curve, rates: Sequence[float]) -> Points:
    """Return the rates of a curve, each at the middle of its bin."""
    return [(curve.begin + (n + 0.5) * curve.width, rate) for n, rate in enumerate(rates)]


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
        known = [(value, n) for n, (_, value) in enumerate(stretch) if value is not None]
        if known:
            places = sorted({min(known)[1], max(known)[1]})
            kept += [stretch[place] for place in places]
        if len(known) < len(stretch):
            kept.append((stretch[-1][0], None))
    return kept


def stretched(points: Points, axis: Axis, limit: int = BEHIND) -> Points:
    """Return at most `limit` points, two for each stretch of the axis: its lowest and highest.

    They are at the same places for all lines of an axis: that makes the page smaller.
    """
    if len(points) <= limit:
        return points
    width = (axis.end - axis.begin) / (limit // 2) or 1.0
    stretches: dict[int, list[tuple[float, float | None]]] = {}
    for point in points:
        stretches.setdefault(int((point[0] - axis.begin) / width), []).append(point)
    kept: list[tuple[float, float | None]] = []
    for number, stretch in sorted(stretches.items())[: limit // 2]:
        begin = axis.begin + number * width
        known = [(value, n) for n, (_, value) in enumerate(stretch) if value is not None]
        extremes = sorted((min(known), max(known)), key=lambda one: one[1]) if known else ()
        values: list[float | None] = [value for value, _ in extremes] or [None, None]
        kept += zip((begin + 0.25 * width, begin + 0.75 * width), values, strict=True)
    return kept


def _drawable(value: float | None) -> float | None:
    return None if value is None or abs(value) > LARGEST else value


def short(number: float | None, digits: int = 6) -> float | None:
    """Return a number rounded to significant digits, to make the page smaller; integers as is."""
    return number if number is None or isinstance(number, int) else float(f"{number:.{digits}g}")
