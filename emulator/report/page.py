"""report.html: a self-contained page about one run, or a comparison of several.

The page contains Plotly's JavaScript, gzipped and unpacked by the browser, and loads nothing: a
content security policy allows only its two scripts, by their hashes. jinja2 escapes all task
output. Text and numbers are plain HTML; only charts need scripts.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from emulator import __version__
from emulator.analysis.comparison import (
    COMPARED,
    Row,
    called,
    cell,
    costs_of,
    reported,
    written,
)
from emulator.analysis.figures import FAULT_STAGES, FIGURES
from emulator.faults.spec import Trigger
from emulator.files import atomic_write, cache_dir
from emulator.planning.plan import Task
from emulator.report import HTML
from emulator.report.charts import Chart, colour, curve_points, line_chart, line_style, timeline
from emulator.report.data import Facts, causes, key_figures, notes
from emulator.report.text import printable
from emulator.report.usage import devices, gpu_panels, no_gpus, task_panels
from emulator.validation.units import format_duration, format_money, format_size

COMPARISON_HEIGHT = 300
"""Pixels of the chart of a comparison."""

_MARKS = {"ok": "✓", "failed": "✗", "unknown": "?"}
_RENDEZVOUS = ("TF_CONFIG", "CLUSTER_CONFIG")
"""Environment variables with JSON."""


def render(facts: Facts, *, place: Path | None = None) -> str:
    """Return the page of a run; its links are relative to the folder `place`."""
    all_panels, gpus = list(task_panels(facts)), list(gpu_panels(facts))
    panels = [panel for panel in all_panels if not panel.quiet]
    charts = {"timeline": timeline(facts)}
    charts |= {f"usage-{number}": panel.chart for number, panel in enumerate(panels)}
    charts |= {f"gpu-{number}": panel.chart for number, panel in enumerate(gpus)}
    names = [task.name for task in facts.plan.tasks]
    return _page(
        "report.html.j2",
        charts,
        facts=facts,
        summary=facts.summary,
        plan=facts.plan,
        scenario=facts.plan.scenario,
        figures=list(key_figures(facts)),
        causes=causes(facts.analysis.time, facts.analysis.costs),
        costs=facts.analysis.costs,
        notes=list(notes(facts.summary)),
        legend=list(_legend(facts)),
        speeds=_speeds(facts),
        panels=panels,
        quiet=[f"{panel.title} ({panel.note})" for panel in all_panels if panel.quiet],
        gpus=gpus,
        no_gpus=no_gpus(facts),
        series=list(_series(names, [name for panel in panels for name in panel.lines])),
        devices=list(_series(list(devices(facts).values()), [n for p in gpus for n in p.lines])),
        commands=_commands(facts.plan.everything),
        rendezvous={task.name: _environment(task) for task in facts.plan.tasks},
        files=facts.files | {"report.md", "junit.xml"},
        link=_linker(facts.folder, place or facts.folder),
    )


def render_comparison(rows: Sequence[Row], facts: Sequence[Facts], *, place: Path) -> str:
    """Return a page that compares runs; its links are relative to the folder `place`."""
    names = list(called(rows))
    unit = next((row.efficiency_by for row in rows if row.efficiency_by), None)
    curves = [
        (number, name, curve_points(one.speed, one.speed.job))
        for number, (name, one) in enumerate(zip(names, facts, strict=True))
    ]
    runs = [
        {
            "name": name,
            "row": row,
            "cells": list(_cells(row, rows[0], unit)),
            "costs": [(FIGURES[key].title, cell(row, rows[0], key)) for key in costs_of(rows)],
            "causes": causes(one.analysis.time),
            "link": _linker(one.folder, place)(HTML) if HTML in one.files else "",
        }
        for name, row, one in zip(names, rows, facts, strict=True)
    ]
    return _page(
        "compare.html.j2",
        {"curves": line_chart(curves, "steps/s", COMPARISON_HEIGHT, max(f.end for f in facts))},
        runs=runs,
        reported=reported(rows),
        differs=[(key, [written(row.differs[key]) for row in rows]) for key in rows[0].differs],
        series=list(_series(names, names)),
    )


def _cells(row: Row, reference: Row, unit: str | None) -> Iterator[tuple[str, str]]:
    """Yield the same columns for every row; `unit` of the efficiencies, None if there are none."""
    for key in COMPARED:
        yield FIGURES[key].title, cell(row, reference, key)
    if unit is not None:
        other = f" by {row.efficiency_by}" if row.efficiency_by != unit else ""
        text = "" if row.efficiency is None else f"{row.efficiency:.2f}{other}"
        yield f"Scaling efficiency, by {unit}", text


def _page(template: str, charts: Mapping[str, Chart], **context: Any) -> str:  # noqa: ANN401
    """Render a template with its charts, its scripts and the policy that allows only those."""
    plotly_digest, packed = _plotly()
    script = _source("page.js")
    scripts = f"{_digest(script.encode())} {plotly_digest}"
    policy = (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src {scripts}; base-uri 'none'; form-action 'none'"
    )
    return (
        _templates()
        .get_template(template)
        .render(
            policy=policy,
            style=Markup(_source("style.css")),
            script=Markup(script),
            plotly=packed,
            charts=embedded(charts),
            heights={name: chart["height"] for name, chart in charts.items()},
            version=__version__,
            stages=FAULT_STAGES,
            **context,
        )
    )


def load() -> None:
    """Load everything that the page of a run needs besides its data."""
    _plotly()
    for name in ("report.html.j2", "base.html.j2", "macros.html.j2"):
        _templates().get_template(name)


@lru_cache(maxsize=1)
def _plotly() -> tuple[str, Markup]:
    """Return the digest of Plotly's JavaScript, and it gzipped in base64: 1.96 MB instead of 4.8.

    The user's cache keeps both, because hashing and compressing take longer than all the rest.
    """
    cached = cache_dir("pages", f"plotly-{metadata.version('plotly')}.txt")
    try:
        digest, packed = cached.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        source = (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()
        digest = _digest(source)
        packed = base64.b64encode(gzip.compress(source, 9, mtime=0)).decode("ascii")
        with contextlib.suppress(OSError):  # without a cache it takes a little longer
            cached.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(cached, f"{digest}\n{packed}\n", many_writers=True)
    return digest, Markup(packed)


class _CompiledTemplates(jinja2.FileSystemBytecodeCache):
    """Keeps compiled templates in the user's cache, if it can be used."""

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Load a compiled template, if it is stored."""
        with contextlib.suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Store a compiled template."""
        with contextlib.suppress(OSError):
            Path(self.directory).mkdir(parents=True, exist_ok=True)
            super().dump_bytecode(bucket)


def _source(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _digest(script: bytes) -> str:
    """Return the source expression that allows exactly this script (CSP level 2)."""
    digest = hashlib.sha256(script).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def embedded(value: object) -> Markup:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("emulator.report"),
        bytecode_cache=_CompiledTemplates(str(cache_dir("pages"))),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": lambda seconds: "" if seconds is None else format_duration(seconds),
        "size": lambda size: "" if size is None else format_size(size),
        "rate": lambda value: "?" if value is None else f"{value:.3g}",
        "printable": lambda value: "" if value is None else printable(str(value)),
        "colour": colour,
        "money": format_money,
        "mark": _MARKS.__getitem__,
        "limits": _limits,
        "trigger": Trigger.in_words,
    }
    return environment


def _legend(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield the legend of the lanes: kind of mark, text, colour."""
    lanes = {"lane": facts.timeline.states(), "phase": facts.timeline.phases()}
    for kind, intervals in lanes.items():
        for name in dict.fromkeys(interval.name for interval in intervals):
            yield kind, printable(name), colour(name)
    for state in sorted({exit_.state for exit_ in facts.exits}):
        yield state, state, colour(state)


def _series(names: Sequence[str], drawn: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the legend of all usage charts: name, colour, dashes."""
    for number, name in enumerate(names):
        if name in drawn:
            style = line_style(number)
            yield name, style["color"], style["dash"]


def _speeds(facts: Facts) -> list[tuple[str, Any]]:
    """Return the rates of the job and of each task that reported steps."""
    throughput = facts.analysis.throughput
    rates = [("job", throughput.job), *throughput.tasks.items()]
    return [(name, rate) for name, rate in rates if rate.step_times or rate.steps_per_second]


def _commands(tasks: Sequence[Task]) -> list[tuple[str, str, list[str]]]:
    """Return each command and image with the tasks that run it."""
    commands: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        commands.setdefault((shlex.join(task.command), task.image or ""), []).append(task.name)
    return [(*what, names) for what, names in commands.items()]


def _environment(task: Task) -> dict[str, str]:
    """Return a task's environment, with indented JSON."""
    environment = dict(task.env)
    for key in environment.keys() & set(_RENDEZVOUS):
        with contextlib.suppress(ValueError):
            environment[key] = json.dumps(json.loads(environment[key]), indent=2)
    return {key: printable(value) for key, value in environment.items()}


def _limits(task: Task) -> str:
    parts = [f"{task.cpus:g} CPU"] if task.cpus is not None else []
    parts += [format_size(task.memory)] if task.memory is not None else []
    parts += [f"GPU {', '.join(task.gpus)}"] if task.gpus else []
    return ", ".join(parts) or "none"


def _linker(folder: Path, place: Path) -> Callable[[str], str]:
    """Return a function that links from a page in `place` to files of the run."""
    relative = os.path.relpath(folder, place)
    return lambda name: quote(name if relative == "." else f"{relative}/{name}")
