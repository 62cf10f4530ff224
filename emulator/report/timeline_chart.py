"""The timeline: the job's speed above a lane for each task, as plain data (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby

from emulator.analysis.analyse import FaultResult
from emulator.analysis.figures import FAULT_STAGES, fault_stages
from emulator.analysis.goodput import CAUSES
from emulator.analysis.throughput import Curve
from emulator.faults.kinds import states
from emulator.record.events import TaskExit
from emulator.record.timeline import Interval, all_states
from emulator.report.charts import (
    POINTS,
    SECONDS,
    Chart,
    Mark,
    Trace,
    axis_of,
    chart,
    curve_points,
    line_trace,
    marked,
    overlapping,
    short,
    thinned,
)
from emulator.report.data import Facts
from emulator.validation.units import format_duration

RATE_HEIGHT, GAP, FOOT, HEAD = 200, 22, 34, 20
"""Pixels of the curve, between it and the lanes, below and above both."""
_DRAWN = 30
"""With more faults than this, only areas and hover texts show them."""
_IN_WORDS = 8
"""How many faults of one area its hover text names."""
_ENDS = {"succeeded": "circle", "failed": "x", "stopped": "square"}
_NAMED = frozenset({"starting", "running", "backoff", "down", *CAUSES, *_ENDS})
"""States and causes with a CSS variable of the same name."""


def colour(name: str) -> str:
    """Return the CSS variable of a state, a cause or a phase (`--other` for unknown phases)."""
    return f"--{name if name in _NAMED else states().get(name, 'other')}"


def timeline(facts: Facts) -> Chart:
    """Return the job's steps per second above a lane for each task, on one axis of seconds.

    Without steps there are only the lanes.
    """
    end, speed = facts.end, facts.speed
    rows = {task.name: row for row, task in enumerate(facts.plan.tasks)}
    row_height = 30 if len(rows) <= 6 else 22 if len(rows) <= 14 else 17
    lanes = row_height * len(rows)
    above = RATE_HEIGHT + GAP if any(speed.job) else 0
    height = HEAD + above + lanes + FOOT
    highest = max(speed.job) * 1.15
    faults = facts.triggered
    rates = {
        "yaxis": axis_of(
            domain=[(lanes + GAP) / (lanes + above), 1],
            range=[0, highest],
            automargin=True,
            nticks=5,
            rangemode="tozero",
        )
    }
    return chart(
        height,
        SECONDS,
        [
            *([_speed(speed, end), *_bands(facts, end, highest)] if above else ()),
            *_lanes(facts.timeline.states(), rows, 0.72, end),
            *_lanes(facts.timeline.phases(), rows, 0.3, end),
            *_exits(facts.exits, rows),
        ],
        margin={"l": 8, "r": 12, "t": HEAD, "b": FOOT},
        barmode="overlay",
        xaxis=axis_of(
            range=[0, end], anchor="y2", fixedrange=False, ticksuffix=" s", ticks="outside"
        ),
        **(rates if above else {}),
        yaxis2=axis_of(
            domain=[0, lanes / (lanes + above)],
            range=[len(rows) - 0.5, -0.5],
            tickmode="array",
            tickvals=list(rows.values()),
            ticktext=[escape(name) for name in rows],
            tickfont={"size": 12 if row_height >= 18 else 10},
            automargin=True,
            showgrid=False,
        ),
        # The areas of faults are traces here, so that they have hover texts.
        **marked(fault_marks(facts) if len(faults) <= _DRAWN else (), end, bands=not above),
    )


def fault_marks(facts: Facts) -> list[Mark]:
    """Return when faults were triggered, and until when their targets were restored."""
    return [
        Mark(when, _until(when, fault, facts.end), fault.kind, fault.target)
        for when, fault in facts.triggered
    ]


def _until(when: float, fault: FaultResult, end: float) -> float:
    """Return until when the target of a triggered fault was restored, or the end of the run."""
    return end if fault.restored_after is None else min(when + fault.restored_after, end)


def _speed(speed: Curve, end: float) -> Trace:
    """Return the job's rate."""
    points = [point for point in curve_points(speed, speed.job) if point[0] <= end]
    style = {"color": "--productive", "width": 1.8}
    filled = {"fill": "tozeroy", "fillcolor": "--productive-soft"}
    return line_trace("job", thinned(points), style, "steps/s") | filled


def _bands(facts: Facts, end: float, highest: float) -> Iterator[Trace]:
    """Yield one trace with the areas of faults, from the trigger until the target was restored.

    That of a target that was not restored extends to the end of the run. Areas that overlap are
    one. They have a minimum width, so that the pointer can hit them.
    """
    least, spans = end / 200, []
    for when, fault in facts.triggered:
        until = _until(when, fault, facts.end)
        more = max(0.0, least - (until - when)) / 2
        spans.append((when - more, until + more))
    if not spans:
        return
    bands, faults = overlapping(spans), [fault for _, fault in facts.triggered]
    yield {
        "type": "bar",
        "name": "faults",
        "x": [short((begin + until) / 2) for begin, until, _ in bands],
        "width": [short(until - begin) for begin, until, _ in bands],
        "y": [highest] * len(bands),
        "marker": {"color": "--fault-soft", "line": {"width": 0}},
        "hovertext": [_faults_in_words([faults[n] for n in places]) for *_, places in bands],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _faults_in_words(faults: Sequence[FaultResult]) -> str:
    """Return triggered faults as lines of HTML; of several a line each."""
    if len(faults) == 1:
        return _fault_in_words(faults[0])
    lines = []
    for fault in faults[:_IN_WORDS]:
        back = fault_stages(vars(fault)).get("restored_after")
        what = escape(f"{fault.id}: {fault.kind} {fault.target}")
        since = f"triggered at {format_duration(fault.triggered or 0.0)}"
        lines.append(f"<b>{what}</b> ({fault.status}) {since}")
        lines[-1] += f", restored after {back}" if back else ""
    more = len(faults) - _IN_WORDS
    return "<br>".join([*lines, f"and {more} more"] if more > 0 else lines)


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
            "base": [short(one.begin) for one in bars],
            "x": [short(one.end - one.begin) for one in bars],
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
            "x": [short(mark.t) for mark in marks],
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
