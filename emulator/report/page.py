"""report.html, a self-contained page about one run, and one that compares several.

Text and numbers are plain HTML; only charts need scripts. With many tasks, tables have a row and
charts a line for each role, and those of single tasks on demand.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from emulator.analysis.comparison import COMPARED, Row, called, cell, costs_of, reported, written
from emulator.analysis.figures import FAULT_STAGES, FIGURES, fault_rates
from emulator.planning.plan import Task
from emulator.record.events import RunStarted
from emulator.report import curves, document
from emulator.report.charts import (
    MANY,
    SECONDS,
    STEPS,
    Axis,
    Chart,
    Group,
    Points,
    curve_points,
    groups_of,
    line_chart,
    series_colour,
)
from emulator.report.data import (
    HTML,
    Facts,
    causes,
    key_figures,
    machines,
    notes,
    sources_of_steps,
)
from emulator.report.failure import failure_of
from emulator.report.tables import Column, Table, range_label, table_of
from emulator.report.text import printable
from emulator.report.timeline_chart import colour, timeline
from emulator.validation.units import (
    format_duration,
    format_number,
    format_rate,
    format_size,
)

TEMPLATE = "report.html.j2"
COMPARISON_HEIGHT = 300
"""Pixels of the charts that compare runs."""
_RENDEZVOUS = ("TF_CONFIG", "CLUSTER_CONFIG")
"""Environment variables with JSON."""


SECTIONS = {
    "failure": "Why it failed",
    "expectations": "Expectations",
    "figures": "Key figures",
    "timeline": "Timeline",
    "values": "Loss and accuracy",
    "goodput": "Where the time went",
    "costs": "What it cost",
    "recoveries": "Faults and recoveries",
    "throughput": "Throughput",
    "usage": "Usage",
    "plan": "Plan",
    "reproduce": "How to repeat it",
    "logs": "Logs and files",
}
"""The titles of the page's sections, by their anchors."""


def load() -> None:
    """Load everything that the page of a run needs besides its data."""
    document.load(TEMPLATE)


def render(facts: Facts, *, place: Path | None = None) -> str:
    """Return the page of a run; its links are relative to the folder `place`."""
    all_panels, gpus = list(curves.task_panels(facts)), list(curves.gpu_panels(facts))
    panels = [panel for panel in all_panels if not panel.quiet]
    values, once = curves.values_of(facts)
    charts = _charts(facts, values, panels, gpus)
    names = [task.name for task in facts.plan.tasks]
    reporting = [name for name in names if any(name in value.tasks for value in values)]
    used = [name for name in names if any(name in panel.lines for panel in panels)]
    failure, speeds, paid = failure_of(facts), _speeds(facts), machines(facts.analysis.costs)
    there: dict[str, object] = {"failure": failure, "costs": paid, "throughput": speeds}
    there["recoveries"] = facts.has_failures
    return document.document(
        TEMPLATE,
        charts,
        contents=[(key, title) for key, title in SECTIONS.items() if there.get(key, True)],
        facts=facts,
        summary=facts.summary,
        plan=facts.plan,
        scenario=facts.plan.scenario,
        failure=failure,
        figures=list(key_figures(facts)),
        sources=sources_of_steps(facts.summary),
        causes=causes(facts.analysis.time, facts.analysis.costs),
        costs=facts.analysis.costs,
        paid=paid,
        notes=list(notes(facts.summary)),
        legend=list(_legend(facts)),
        values=values[: curves.DRAWN],
        once=once,
        more_values=[value.name for value in values[curves.DRAWN :]],
        reporting=_shown(groups_of(names), reporting),
        faults=facts.summary["faults"],
        stages=FAULT_STAGES,
        fault_rates=fault_rates,
        speeds=speeds,
        panels=panels,
        quiet=[f"{panel.title} ({panel.note})" for panel in all_panels if panel.quiet],
        used=_used(facts),
        gpus=gpus,
        no_gpus=curves.no_gpus(facts),
        series=_shown(groups_of(names), used),
        devices=_shown(
            groups_of(list(curves.devices(facts).values())), [n for one in gpus for n in one.lines]
        ),
        tasks=_tasks(facts),
        many=len(names) > MANY,
        limits=limits,
        range_label=range_label,
        again=_again(facts),
        origin=_origin(facts),
        commands=_commands(facts.plan.everything),
        rendezvous={
            task.name: _environment(task, None if len(names) > MANY else 2)
            for task in facts.plan.tasks
        },
        files=facts.files | {"report.md", "junit.xml"},
        link=document.linker(facts.folder, place or facts.folder),
    )


def _charts(
    facts: Facts,
    values: Sequence[curves.ValueCharts],
    panels: Sequence[curves.Panel],
    gpus: Sequence[curves.Panel],
) -> dict[str, Chart]:
    """Return the charts by the names that the template has for them."""
    charts = {"timeline": timeline(facts)} if facts.has_timeline else {}
    for number, value in enumerate(values[: curves.DRAWN]):
        charts |= {f"value-{number}": value.over_steps, f"value-{number}-time": value.over_time}
    charts |= {f"usage-{number}": panel.chart for number, panel in enumerate(panels)}
    charts |= {f"gpu-{number}": panel.chart for number, panel in enumerate(gpus)}
    return charts


# --- Legends --------------------------------------------------------------------------------------


def _legend(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield the legend of the lanes: kind of mark, text, colour."""
    lanes = {"lane": facts.timeline.states(), "phase": facts.timeline.phases()}
    for kind, intervals in lanes.items():
        for name in dict.fromkeys(interval.name for interval in intervals):
            yield kind, printable(name), colour(name)
    for state in sorted({exit_.state for exit_ in facts.exits}):
        yield state, state, colour(state)


def _shown(groups: Sequence[Group], drawn: Sequence[str]) -> list[Group]:
    return [
        group
        for group in groups
        if any(name in drawn for _, name in group.members) or group.name in drawn
    ]


# --- Tables ---------------------------------------------------------------------------------------


def _speeds(facts: Facts) -> Table | None:
    """Return the rates of the job and of each task that reported steps; None if there are none."""
    throughput = facts.analysis.throughput
    rates = {"job": throughput.job, **throughput.tasks}
    rates = {n: rate for n, rate in rates.items() if rate.step_times or rate.steps_per_second}
    if not rates:
        return None
    times = {name: rate.step_times for name, rate in rates.items() if rate.step_times}
    return table_of(
        "Task",
        list(rates),
        [
            Column("Steps/s", {n: r.steps_per_second for n, r in rates.items()}, format_rate),
            Column("Examples/s", {n: r.examples_per_second for n, r in rates.items()}, format_rate),
            *(
                Column(head, {n: getattr(time, key) for n, time in times.items()}, _milliseconds)
                for head, key in (
                    ("Step time, mean", "mean"),
                    ("p50", "p50"),
                    ("p90", "p90"),
                    ("p99", "p99"),
                    ("Longest", "max"),
                )
            ),
        ],
    )


def _milliseconds(seconds: float) -> str:
    return f"{format_rate(1000 * seconds)}\N{NO-BREAK SPACE}ms"


def _used(facts: Facts) -> Table | None:
    """Return what each task used in total; None if nothing was sampled."""
    usage = facts.summary["usage"]
    if not usage:
        return None
    columns: list[tuple[str, str, Callable[[Any], str]]] = [
        ("CPU time", "cpu_seconds", format_duration),
        ("Cores, mean", "cpu", "{:.2f}".format),
        ("Memory, peak", "memory_peak", format_size),
        ("Throttled", "throttled", format_duration),
        ("Received", "received", format_size),
        ("Sent", "sent", format_size),
        ("Read", "read", format_size),
        ("Written", "written", format_size),
    ]
    return table_of(
        "Total",
        list(usage),
        [
            Column(head, {name: used[key] for name, used in usage.items()}, form)
            for head, key, form in columns
        ],
    )


def _tasks(facts: Facts) -> Table:
    """Return how each task and helper ended, its address and its limits."""
    tasks, results = facts.plan.tasks, facts.analysis.tasks
    columns: list[tuple[str, Mapping[str, Any], Callable[[Any], str]]] = [
        ("State", {name: one.state_in_words for name, one in results.items()}, str),
        ("Exit", {name: one.exit_code for name, one in results.items()}, format_number),
        ("Restarts", {name: one.restarts for name, one in results.items()}, format_number),
        ("Last step", {name: one.last_step for name, one in results.items()}, format_number),
        ("Address", {task.name: f"{task.host}:{task.port}" for task in tasks}, str),
        ("Limits", {task.name: limits(task) for task in tasks}, str),
    ]
    names = [task.name for task in tasks]
    return table_of("Task", names, [Column(*one, number=False) for one in columns])


def limits(task: Task) -> str:
    """Return the limits of a task in words."""
    parts = [f"{task.cpus:g} CPU"] if task.cpus is not None else []
    parts += [format_size(task.memory)] if task.memory is not None else []
    parts += [f"GPU {', '.join(task.gpus)}"] if task.gpus else []
    return ", ".join(parts) or "none"


# --- The plan -------------------------------------------------------------------------------------


def _commands(tasks: Sequence[Task]) -> list[tuple[str, str, list[str]]]:
    commands: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        commands.setdefault((shlex.join(task.command), task.image or ""), []).append(task.name)
    return [(*what, names) for what, names in commands.items()]


def _environment(task: Task, indent: int | None) -> dict[str, str]:
    """Return a task's environment, with JSON indented as given."""
    environment = dict(task.env)
    for key in environment.keys() & set(_RENDEZVOUS):
        with contextlib.suppress(ValueError):
            environment[key] = json.dumps(json.loads(environment[key]), indent=indent)
    return {key: printable(value) for key, value in environment.items()}


# --- How to repeat it -----------------------------------------------------------------------------

_SAYS = {"id": "Its id", "base": "Its base"}
"""What is known of an image besides versions."""


def _again(facts: Facts) -> str:
    """Return the command that runs it again; of older records one that finds no file by itself."""
    started = _started(facts)
    if started is not None and (given := (started.origin or {}).get("command")):
        return given
    sets = [word for one in facts.plan.variant.split() for word in ("--set", one)]
    return shlex.join(["emulate", "up", "scenario.yaml", "--engine", facts.plan.engine, *sets])


def _origin(facts: Facts) -> list[tuple[str, str]]:
    """Return names and texts of what is known."""
    started, program = _started(facts), facts.plan.scenario.program
    known = {} if started is None else started.origin or {}
    machine = " ".join(known[key] for key in ("system", "machine") if key in known)
    cores = f"{known['cores']} cores" if "cores" in known else ""
    found = [
        ("Emulator", "" if started is None else started.emulator_version),
        ("Engine", facts.plan.engine),
        *_software(facts, {} if started is None else started.software or {}),
        ("Seed", str(facts.plan.scenario.seed)),
        ("Program", "" if program.source is None else str(program.source)),
        ("Its commit", known.get("commit", "")),
        ("Machine", ", ".join(filter(None, (machine, cores)))),
        ("Python of the emulator", known.get("python", "")),
    ]
    return [(name, text) for name, text in found if text]


def _software(facts: Facts, software: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each image with what is known of it, or what this machine has without images."""
    for image in dict.fromkeys(task.image for task in facts.plan.everything):
        known = software.get(image, {})
        if image:
            yield "Image", image
        yield from ((head, known.get(key, "")) for key, head in _SAYS.items())
        versions = [f"{name} {text}" for name, text in known.items() if name not in _SAYS]
        yield "Its versions" if image else "Versions", ", ".join(versions)


def _started(facts: Facts) -> RunStarted | None:
    return next((e for e in facts.timeline.history if isinstance(e, RunStarted)), None)


# --- Of several runs ------------------------------------------------------------------------------


def render_comparison(rows: Sequence[Row], facts: Sequence[Facts], *, place: Path) -> str:
    """Return a page that compares runs; its links are relative to the folder `place`."""
    names = list(called(rows))
    unit = next((row.efficiency_by for row in rows if row.efficiency_by), None)
    runs = [
        {
            "name": name,
            "row": row,
            "cells": list(_cells(row, rows[0], unit)),
            "costs": [(FIGURES[key].title, cell(row, rows[0], key)) for key in costs_of(rows)],
            "causes": causes(one.analysis.time),
            "link": document.linker(one.folder, place)(HTML) if HTML in one.files else "",
        }
        for name, row, one in zip(names, rows, facts, strict=True)
    ]
    groups = [Group(name, number) for number, name in enumerate(names)]
    return document.document(
        "compare.html.j2",
        _compared_charts(dict(zip(names, facts, strict=True)), groups),
        runs=runs,
        reported=reported(rows),
        differs=[(key, [written(row.differs[key]) for row in rows]) for key in rows[0].differs],
        series=groups,
    )


def _cells(row: Row, reference: Row, unit: str | None) -> Iterator[tuple[str, str]]:
    """Yield the same columns for every row; `unit` of the efficiencies, None if there are none."""
    for key in COMPARED:
        yield FIGURES[key].title, cell(row, reference, key)
    if unit is not None:
        other = f" by {row.efficiency_by}" if row.efficiency_by != unit else ""
        text = "" if row.efficiency is None else f"{row.efficiency:.2f}{other}"
        yield f"Scaling efficiency, by {unit}", text


def _compared_charts(runs: Mapping[str, Facts], groups: Sequence[Group]) -> dict[str, Chart]:
    """Return the rates by time, by time since the first step, and by step, and the loss by step."""
    rates = {name: curve_points(one.speed, one.speed.job) for name, one in runs.items()}
    aligned = {name: list(_since_first_step(runs[name], rates[name])) for name in runs}
    steps = {name: list(curves.rate_over_steps(one)) for name, one in runs.items()}
    charts = {
        "curves": _compared_chart(rates, groups, SECONDS),
        "aligned": _compared_chart(aligned, groups, f"{SECONDS} since the first step"),
        "steps": _compared_chart(steps, groups, STEPS),
    }
    losses = {name: list(curves.leading_values(one, "loss")) for name, one in runs.items()}
    if any(losses.values()):
        charts["loss"] = _compared_chart(losses, groups, STEPS, unit="")
    charts["curves"]["layout"] |= {"shapes": list(_fault_lines(runs, groups))}
    return charts


def _compared_chart(
    lines: Mapping[str, Points], groups: Sequence[Group], counts: str, unit: str = "steps/s"
) -> Chart:
    last = max((x for points in lines.values() for x, _ in points), default=1.0)
    axis = Axis(counts, 0.0, last)
    return line_chart(lines, groups, unit, COMPARISON_HEIGHT, axis, from_zero=bool(unit))


def _since_first_step(facts: Facts, points: Points) -> Iterator[tuple[float, float | None]]:
    first = facts.analysis.first_step
    if first is not None:
        yield from ((x - first, y) for x, y in points if x >= first)


def _fault_lines(runs: Mapping[str, Facts], groups: Sequence[Group]) -> Iterator[dict[str, object]]:
    """Yield a dotted line at each fault, in the colour of its run."""
    for group in groups:
        for when, _ in runs[group.name].triggered:
            style = {"color": series_colour(group.number), "width": 1, "dash": "dot"}
            place = {"x0": when, "x1": when, "y0": 0, "y1": 1}
            yield {"type": "line", "xref": "x", "yref": "paper", **place, "line": style}
