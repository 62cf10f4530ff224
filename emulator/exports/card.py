"""A run as HTML for a notebook: verdict, figures, timeline and curves, without any JavaScript.

A card contains all that it needs, and is some kilobytes long, because a notebook stores it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from emulator.analysis.analyse import Analysis
from emulator.analysis.expectations import Verdict, overall
from emulator.analysis.figures import FIGURES
from emulator.analysis.throughput import curve
from emulator.record.timeline import Timeline
from emulator.validation.units import format_duration

FIGURES_SHOWN = ("duration", "final_step", "steps_per_second", "goodput", "lost_steps", "accuracy")
TASKS = 12
"""Lanes of the timeline; of more tasks the first are shown."""
BINS = 160
"""Points of the curve of steps per second."""
POINTS = 160
"""Points of another curve."""
CURVES = ("loss", "accuracy")
"""Values of steps that have a curve, of the task that reported most of them."""
COLOURS: Mapping[str, str] = {
    "ok": "#00704f",
    "failed": "#b03a00",
    "unknown": "#7d5a00",
    "starting": "#e6e8eb",
    "running": "#9fb4c9",
    "paused": "#b98bd0",
    "throttled": "#cc79a7",
    "cut-off": "#7a6a58",
    "impaired": "#b3a284",
    "backoff": "#ecc14a",
    "down": "#d55e00",
    "fault": "#b03a00",
    "series-1": "#0072b2",
}
"""By the names of the report's stylesheet, where they have the same values."""
_STATES = {"cut off": "cut-off"}
_WIDTH, _LEFT, _LANE, _PLOT = 720, 90, 16, 70
_CELL = "padding:1px 12px 1px 0;text-align:left"

Points = Sequence[tuple[float, float]]


def card(run_id: str, timeline: Timeline, analysis: Analysis, verdicts: Sequence[Verdict]) -> str:
    """Return a run as HTML (pure)."""
    verdict = overall(verdicts)
    figures = ((FIGURES[key], FIGURES[key].of(analysis)) for key in FIGURES_SHOWN)
    known = [f"{figure.title} <b>{figure.text(v)}</b>" for figure, v in figures if v is not None]
    parts = [
        f'<b style="color:{COLOURS[verdict]}">{verdict}</b> &nbsp;<b>{escape(run_id)}</b>: '
        f"{escape(analysis.outcome)}"
        + (f", {escape(analysis.reason)}" if analysis.reason and verdict != "ok" else ""),
        " &nbsp; ".join(known),
        *(
            f'<span style="color:{COLOURS[one.status]}">{escape(one.expectation)} {one.status}: '
            f"expected {escape(one.expected)}, got {escape(one.actual)}</span>"
            for one in verdicts
            if one.status != "ok"
        ),
    ]
    head = "".join(f"<div>{part}</div>" for part in parts if part)
    return f'<div style="font:13px/1.5 sans-serif">{head}{_pictures(timeline, analysis)}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML; `ok`, `failed` and `unknown` are coloured."""
    head = "".join(f'<th style="{_CELL}">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    colour = f";color:{COLOURS[text]}" if text in ("ok", "failed", "unknown") else ""
    return f'<td style="{_CELL}{colour}">{escape(text)}</td>'


# --- Pictures -------------------------------------------------------------------------------------


def _pictures(timeline: Timeline, analysis: Analysis) -> str:
    end = max(timeline.end, 1e-3)
    tasks = [task.name for task in timeline.plan.tasks]
    top, parts = 4.0, list[str]()
    if any(task.incarnations for task in timeline.tasks.values()):
        parts += _lanes(timeline, tasks[:TASKS], end)
        top += _LANE * len(tasks[:TASKS])
        if len(tasks) > TASKS:
            parts.append(_label(f"and {len(tasks) - TASKS} more", top + 12))
            top += _LANE
    for title, points in _curves(timeline, analysis.duration, end):
        parts += _curve(title, points, end, top + 8)
        top += _PLOT + 8
    marks = [fault.triggered for fault in analysis.faults if fault.triggered is not None]
    parts += [
        f'<line x1="{_x(t, end)}" x2="{_x(t, end)}" y1="2" y2="{top:g}" '
        f'stroke="{COLOURS["fault"]}" stroke-dasharray="3 2"/>'
        for t in marks
    ]
    if not parts:
        return ""
    parts += [
        _label("0", top + 14, x=_LEFT),
        _label(format_duration(end), top + 14, x=_WIDTH - 4, anchor="end"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + 20:g}" '
        f'style="width:100%;max-width:{_WIDTH}px" font-size="11" fill="currentColor" '
        f'role="img" aria-label="timeline and curves">{"".join(parts)}</svg>'
    )


def _x(t: float, end: float) -> str:
    return f"{_LEFT + (_WIDTH - _LEFT - 4) * min(t / end, 1):.1f}"


def _label(text: str, y: float, *, x: float = 0, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _lanes(timeline: Timeline, tasks: Sequence[str], end: float) -> Iterator[str]:
    """Yield the states of tasks, one task below the other."""
    for number, task in enumerate(tasks):
        yield _label(task if len(task) < 14 else f"{task[:12]}…", 4 + _LANE * number + 11)
    for one in timeline.states():
        if one.task in tasks:
            left, right = float(_x(one.begin, end)), float(_x(one.end, end))
            colour = COLOURS.get(_STATES.get(one.name, one.name), COLOURS["impaired"])
            yield (
                f'<rect x="{left:g}" y="{4 + _LANE * tasks.index(one.task):g}" '
                f'width="{max(right - left, 0.5):.1f}" height="{_LANE - 4}" fill="{colour}">'
                f"<title>{escape(one.task)}: {escape(one.name)}, {one.begin:.2f} to "
                f"{one.end:.2f} s</title></rect>"
            )


def _curves(timeline: Timeline, duration: float, end: float) -> Iterator[tuple[str, Points]]:
    """Yield the curves of a run: title, and points of seconds and values."""
    if not timeline.steps:
        return
    rate = curve(timeline, duration, bins=BINS)
    yield "steps/s", [(min((n + 0.5) * rate.width, end), one) for n, one in enumerate(rate.job)]
    for name in CURVES:
        found: dict[str, list[tuple[float, float]]] = {}
        for _, step in timeline.steps:
            value = step.values.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(step.task, []).append((step.t, float(value)))
        if found:
            yield name, max(found.values(), key=len)


def _curve(title: str, points: Points, end: float, top: float) -> Iterator[str]:
    known = [(t, value) for t, value in points if abs(value) < float("inf")]
    known = known[:: -(-len(known) // POINTS) or 1]
    if not known:
        return
    low = min(0.0, *(value for _, value in known)) if title == "steps/s" else min(known, key=_y)[1]
    high = max(value for _, value in known)
    spread = (high - low) or 1.0
    base, height = top + _PLOT - 8, _PLOT - 16
    drawn = " ".join(f"{_x(t, end)},{base - height * (v - low) / spread:.1f}" for t, v in known)
    yield _label(title, top + _PLOT / 2)
    yield _label(f"{high:.3g}", base - height + 4, x=_LEFT - 4, anchor="end")
    yield _label(f"{low:.3g}", base, x=_LEFT - 4, anchor="end")
    yield (
        f'<polyline points="{drawn}" fill="none" stroke="{COLOURS["series-1"]}" '
        f'stroke-width="1.5"/>'
    )


def _y(point: tuple[float, float]) -> float:
    return point[1]
