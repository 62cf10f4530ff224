"""The timeline: the job's speed above lanes of the job and of each task, as plain data (pure)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from itertools import groupby
from typing import Any

from emulator.analysis.analyse import FaultResult
from emulator.analysis.figures import FAULT_STAGES, fault_stages
from emulator.analysis.goodput import CAUSES
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
from emulator.report.data import Facts, fault_title
from emulator.validation.units import format_duration

RATE_HEIGHT, GAP, FOOT, HEAD = 150, 20, 34, 20
"""Pixels of the curve, between it and the lanes, below and above both."""
_DRAWN = 30
"""With more faults than this, only areas and hover texts show them."""
_IN_WORDS = 8
"""How many faults of one area its hover text names."""
JOB = "job"
"""The lane with the cause of each moment; no task is called so, as theirs end with a number."""
_MICRO = 1e-6
_FINAL, _PASSING = 9, 7
"""Pixels of the mark of a task's last exit, and of one after which it was started again."""
_ENDS = {"succeeded": "circle", "failed": "x", "stopped": "square", "down": "triangle-down"}
_NAMED = frozenset({"starting", "running", "backoff", "down", *CAUSES, *_ENDS})
"""States and causes with a CSS variable of the same name."""


def colour(name: str) -> str:
    """Return the CSS variable of a state, a cause or a phase (`--other` for unknown phases)."""
    return f"--{name if name in _NAMED else states().get(name, 'other')}"


def timeline(facts: Facts) -> Chart:
    """Return the job's steps per second above lanes, on one axis of seconds.

    The first lane is the job's, with the cause of each moment; the others are those of its tasks.
    Without steps there are only these. `faults` are those that the page can zoom to.
    """
    end, speed = facts.end, facts.speed
    names = [task.name for task in facts.plan.tasks]
    rows = {name: row for row, name in enumerate([JOB, *names] if facts.spent else names)}
    row_height = 30 if len(rows) <= 6 else 22 if len(rows) <= 14 else 17
    below = row_height * len(rows)
    above = RATE_HEIGHT + GAP if any(speed.job) else 0
    height = HEAD + above + below + FOOT
    highest = max(speed.job) * 1.15
    faults = facts.triggered
    drawn = [] if not above else [*_speed(facts), *_bands(facts, end, highest)]
    rates = {
        "yaxis": axis_of(
            domain=[(below + GAP) / (below + above), 1],
            range=[0, highest],
            automargin=True,
            nticks=5,
            rangemode="tozero",
        )
    }
    found = chart(
        height,
        SECONDS,
        [
            *drawn,
            *_lanes(causes_of(facts), rows, 0.72, end),
            *_lanes(facts.timeline.states(), rows, 0.72, end),
            *_lanes(facts.timeline.phases(), rows, 0.3, end),
            *_exits(facts, rows),
        ],
        margin={"l": 8, "r": 12, "t": HEAD, "b": FOOT},
        barmode="overlay",
        xaxis=axis_of(
            range=[0, end], anchor="y2", fixedrange=False, ticksuffix=" s", ticks="outside"
        ),
        **(rates if above else {}),
        yaxis2=axis_of(
            domain=[0, below / (below + above)],
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
    return found | {"faults": [_zoom(when, fault, end) for when, fault in faults]}


def causes_of(facts: Facts) -> list[Interval]:
    """Return the job's lane: the cause of each moment of its time."""
    return [
        Interval(piece.cause, piece.begin * _MICRO, piece.end * _MICRO, task=JOB)
        for piece in facts.spent
    ]


def _zoom(when: float, fault: FaultResult, end: float) -> dict[str, Any]:
    """Return a fault as the page zooms to it: with a margin, and its stages as times."""
    times = [("triggered", when)]
    for key, (head, _) in FAULT_STAGES.items():
        if (after := getattr(fault, key)) is not None:
            times.append((head, when + after))
    last = max(_until(when, fault, end), *(at for _, at in times))
    margin = max((last - when) / 8, end / 200)
    return {
        "id": fault.id,
        "title": fault_title(fault),
        "range": [short(max(0.0, when - margin)), short(min(end, last + margin))],
        "stages": [[name, short(at)] for name, at in sorted(times, key=lambda one: one[1])],
    }


def fault_marks(facts: Facts) -> list[Mark]:
    """Return when faults were triggered, and until when their targets were restored."""
    return [
        Mark(when, _until(when, fault, facts.end), fault.kind, fault.target)
        for when, fault in facts.triggered
    ]


def _until(when: float, fault: FaultResult, end: float) -> float:
    """Return until when the target of a triggered fault was restored, or the end of the run."""
    return end if fault.restored_after is None else min(when + fault.restored_after, end)


def _speed(facts: Facts) -> Iterator[Trace]:
    """Yield the job's rate, and where it made steps again in another colour.

    Each part is a trace of its own, because Plotly fills the area below a gap, too. Neighbours have
    the point between them in common.
    """
    curve = curve_points(facts.speed, facts.speed.job)
    points = thinned([point for point in curve if point[0] <= facts.end])
    parts = [(again, list(part)) for again, part in groupby(points, partial(_is_again, facts))]
    for number, (again, part) in enumerate(parts):
        after = parts[number + 1][1][:1] if number + 1 < len(parts) else []
        name, colour_, unit = (
            ("repeated", "--repeated", "steps/s, done again")
            if again
            else (JOB, "--productive", "steps/s")
        )
        line = line_trace(name, [*part, *after], {"color": colour_, "width": 1.8}, unit)
        filled = {"fill": "tozeroy", "fillcolor": f"{colour_}-soft"}
        yield line | filled | ({"mode": "lines"} if len(points) > len(part) else {})


def _is_again(facts: Facts, point: tuple[float, float | None]) -> bool:
    """Return whether the steps at a point of the curve had been made before."""
    spent = facts.spent
    number = bisect_right(spent, point[0] / _MICRO, key=lambda piece: piece.begin) - 1
    return number >= 0 and spent[number].cause == "wasted"


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
        "customdata": [list(places) for *_, places in bands],
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
        what = escape(fault_title(fault))
        since = f"triggered at {format_duration(fault.triggered or 0.0)}"
        lines.append(f"<b>{what}</b> ({fault.status}) {since}")
        lines[-1] += f", restored after {back}" if back else ""
    more = len(faults) - _IN_WORDS
    return "<br>".join([*lines, f"and {more} more"] if more > 0 else lines)


def _fault_in_words(fault: FaultResult) -> str:
    """Return a triggered fault and its stages as lines of HTML."""
    lines = [f"<b>{escape(fault_title(fault))}</b> ({fault.status})"]
    lines.append(f"triggered at {format_duration(fault.triggered or 0.0)}")
    code = "" if fault.exit_code is None else f", exit code {fault.exit_code}"
    how = " (lost power)" if fault.silent else " (had to be killed)" if fault.killed else ""
    by = f", by {escape(fault.detected_by)}" if fault.detected_by else ""
    details = {"applied_after": f"{code}{how}", "detected_after": by}
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


def _exits(facts: Facts, rows: Mapping[str, int]) -> Iterator[Trace]:
    """Yield a marker at each exit of a task; shape and colour show its state, the size its last.

    Of exits of a task that would be drawn over each other, the last one is drawn.
    """
    final = {task.final_exit for task in facts.timeline.tasks.values()}
    shown: dict[tuple[str, str, int], TaskExit] = {}
    for one in sorted(facts.exits, key=lambda end: end.t):
        at = -1 if one in final else int(one.t / (facts.end / (POINTS / 4)))
        shown[one.task, one.state, at] = one
    ends = sorted(shown.values(), key=lambda end: end.state)
    for state, group in groupby(ends, key=lambda end: end.state):
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
                "size": [_FINAL if mark in final else _PASSING for mark in marks],
                "color": colour(state),
                "line": {"color": "--surface", "width": 1},
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
