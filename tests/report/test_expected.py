"""Whole reports, as they are in `expected/`: of a rich run, of one with many tasks, of a bare one.

`python -m tests.report.test_expected` writes the files; what a change makes of them is to be read.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from emulator import __version__
from emulator.analysis.comparison import Row, rows
from emulator.analysis.run_state import RunState
from emulator.metrics.catalog import GpuShare, GpuUsage, Usage
from emulator.metrics.samples import Sample
from emulator.metrics.steps import JSON
from emulator.planning.claims import Capacity
from emulator.planning.planner import make_plan
from emulator.record.events import Entry
from emulator.report import page, panel
from emulator.report.comparison_page import render_comparison
from emulator.report.data import Facts
from emulator.report.event_text import event_lines
from emulator.report.files import junit, markdown
from emulator.report.plan_tables import print_plan
from emulator.report.terminal import print_comparison, print_summary
from emulator.scenario.loader import parse
from tests.histories import (
    SITE,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    job,
    phase,
    restart,
    step,
)
from tests.report.runs import PREEMPT, embedded, facts_of, preempted

EXPECTED = Path(__file__).parent / "expected"
RUN: dict[str, Any] = {
    "origin": {"system": "Linux", "machine": "arm64", "cores": "2", "commit": "a1", "python": "3"},
    "software": {"a:1": {"id": "sha256:12", "torch": "2.13"}},
}
SOURCES = [{"source": s, "tasks": ["worker-0"]} for s in (JSON.words, "the bar `Training` (60)")]
WORKERS = "{replicas: 2, image: 'a:1', cpus: 1.5, memory: 1g}"


def saved(t: float, path: str, task: str = "", **more: Any) -> Entry:
    size = {"bytes": 2**20, "count": 1, "files": {path: 9}, "seconds": 0.25, "format": "torch"}
    return happened(t, "checkpoint-saved", task, path=path, **{**size, **more})


def rich() -> Facts:
    """Return the facts of a run with all that a report can show, and with an expectation unmet."""
    share = {"worker-0": GpuShare(2**30, 0.25), "worker-1": GpuShare(2**31)}
    samples = [
        Sample(
            t,
            t,
            {
                f"worker-{n}": Usage(cpu=t * (1 + n), memory=2**29, memory_limit=2**30, cpus=2.0,
                                     throttled=t / 4, received=2**20 * t * t, sent=9 * t,
                                     read=0, written=2**12 * t, processes=4 + n)
                for n in range(2)
            },
            [GpuUsage(0, "GPU-a", "H200", 0.5, 2**30, 2**31, 212.4, 61.0, tasks=share)],
        )
        for t in (3, 4, 6, 8)
    ]  # fmt: skip
    first, *others = preempted()
    values = [step(t, "worker-0", n, loss=4 / n, lr=0.1 * n) for t, n in ((6.2, 32), (6.4, 33))]
    late = [step(15, "worker-1", 34, accuracy=0.5, loss=1)]
    late += [happened(15, "helper", "board", stage="running")]
    late += [happened(16, "helper", "board", stage="ended", exit_code=3)]
    late += [happened(2.5, "witness", sees=True, own=True), saved(5, "a|b-31.pt")]
    late += [saved(6.1, "ck/32.pt", task="worker-1", bytes=2**21, count=2)]
    late += [happened(12.9, "checkpoint-read", path="a|b-31.pt")]
    events = in_time([happened(first.t, "run", **RUN), *values, *others, *late])
    extra = f"{PREEMPT}expect: {{final_step: 40, accuracy: 0.9}}\ndescription: all\n"
    extra += "helpers: {board: {command: [b], cpus: 1}}\nseed: 7\n"
    logs = {"worker-0": (), "worker-1": ("a ```` b", "c")}
    facts = facts_of(events, f"{{worker: {WORKERS}}}", extra, samples, logs=logs)
    summary: Any = facts.summary
    summary["hints"] = [{"name": "x", "advice": "Do *this*.", "docs": "docs/x.md"}]
    summary["warnings"] = ["two | things"]
    summary["step_sources"] = {"used": [SOURCES[0]], "seen": SOURCES[1:]}
    sizes = ("memory_peak", "received", "sent", "read", "written")
    for n in range(2):
        used = {size: 2 ** (10 + 7 * place) * (n + 1) for place, size in enumerate(sizes)}
        used |= {"cpu_seconds": 90.0 + n, "cpu": 1.25, "throttled": None if n else 2.5}
        summary["usage"][f"worker-{n}"] = used
    return facts


def many() -> Facts:
    """Return the facts of a running job of 14 tasks, of which one fails and is restarted."""
    names = ["chief-0", *(f"worker-{n}" for n in range(12)), "ps-0"]
    events = [happened(0, "run"), *began_again(1, *names), happened(2, "all-running")]
    events += [step(3 + n / 2, name, n, loss=n, examples=8) for n in range(4) for name in names[:9]]
    stages = ("triggered", "applied")
    events += [
        fault(5, f"worker-{n + 1}", one, "pause", id=str(n)) for n in (0, 1) for one in stages
    ]
    events += [fault(5.5, "ps-0", "skipped", "kill", id="2", reason="it [was] not there")]
    events += [ended(6, "worker-3", 137, oom=True), restart(6, "worker-3")]
    events += phase(6, 7, "chief-0", "eval")
    used = [{name: Usage(cpu=t * n, memory=n) for n, name in enumerate(names)} for t in range(3)]
    samples = [Sample(5.0 + t, t, usage) for t, usage in enumerate(used)]
    extra = "faults: [{pause: worker-1, at: 4s, for: 9s}, {pause: worker-2, at: 4s, for: 9s},\n"
    extra += "  {kill: ps-0, at: 5s}]\n"
    extra += "restart: {policy: on-failure}\nexpect: {final_step: 9}\n"
    cluster = "{chief: 1, worker: 12, ps: 1}"
    facts = facts_of(in_time(events), cluster, extra, samples, running=True)
    facts.summary["step_sources"]["used"].append(SOURCES[0])  # as certain as can be: not said
    return facts


def bare() -> Facts:
    """Return the facts of a run in which nothing was started."""
    facts = facts_of([happened(0, "run"), job(5)], extra="")
    facts.summary["step_sources"]["seen"].append(SOURCES[1])  # without steps it is not said
    return facts


def terminal(facts: Facts) -> str:
    """Return the tables at the end of a run, and its events."""
    text = on_a_terminal(lambda console: print_summary(facts.summary, console), 130)
    return "\n".join([text, *event_lines(facts.timeline.history), ""])


def on_a_terminal(print_it: Callable[[Console], None], width: int) -> str:
    """Return what is printed; `{1}` is the escape sequence of bold text."""
    stream = io.StringIO()
    colours: Any = {"force_terminal": True, "color_system": "standard", "_environ": {}}
    print_it(Console(file=stream, width=width, **colours))
    text = re.sub(r"\x1b\[([0-9;]*)m", r"{\1}", stream.getvalue())
    return re.sub("(?m) +$", "", text)


def live(facts: Facts) -> str:
    """Return the panel of a run, with plenty of room and with little."""
    state = RunState(facts.plan)
    told: list[Entry | Sample] = [*facts.timeline.history, *facts.samples]
    for one in sorted(told, key=lambda one: one.t):
        if isinstance(one, Sample):
            state.sample(one)
        else:
            state.entry(one)
    places = [(120, 99), *((80, height) for height in (3, 4, 5, 6, 7, 8, 9, 10, 12)), (45, 6)]
    shown = [panel.lines(state, width=width, height=height) for width, height in places]
    shown.append(panel.lines(state, width=60, ascii_only=True))
    return "\n\n".join("\n".join(line.markup for line in lines) for lines in shown) + "\n"


def words(html: str) -> str:
    """Return the text of a page without environments, a row or a paragraph in a line.

    A cell that is aligned as a number begins with `#`.
    """
    html = re.sub(r'<t[hd] class="number\b[^>]*>', "# ", html)
    html = re.sub(r'(?s)<(script|style|dl class="env).*?</(script|style|dl)>', "", html)
    blocks = re.split(
        r"<(?=tr|p[ >]|h\d|li|pre|div|figure|section|summary)", html.replace("\n", " ")
    )
    lines = (re.sub("<[^>]*>|^[^>]*>", " ", re.sub("</t[hd]>|</dt>", " | ", one)) for one in blocks)
    text = "\n".join(line for one in lines if (line := " ".join(one.split())))
    return text.replace(__version__, "VERSION") + "\n"


def charts(html: str) -> str:
    """Return the charts of a page, a line for each trace; what all layouts share is there once."""
    found = json.loads(embedded(html, "charts"))
    first, *others = [chart["layout"] for chart in found.values()] or [{}]
    for layout in others:
        for key in [key for key in layout if layout[key] == first.get(key)]:
            del layout[key]
    return re.sub(r' (\{"type"|"[a-z0-9-]+": \{"height)', r"\n\1", json.dumps(found)) + "\n"


PLANS = [
    """\
name: train
description: all [of] it
framework: tensorflow
program: {command: [train, --at, a b]}
cluster:
  ingest: {replicas: 1, before: training, command: [ingest], image: 'i:1'}
  worker:
    {replicas: 2, cpus: 1.5, memory: 1g,
     ulimits: {nofile: {soft: 10, hard: 20}, memlock: unlimited}, ports: [80, 82],
     init: [{name: fetch, image: 'f:1', command: [fetch], working_dir: /f},
            {name: check, image: 'p:1', shm_size: 1m}]}
  ps: {replicas: 1, entrypoint: none, processes: 50, files: {/etc/a: abc},
       init: [{name: wait, image: 'w:1', command: [wait]}]}
helpers: {board: {command: [tensorboard], shm_size: 1m, working_dir: /w}}
mounts:
  {/cache: {volume: cache}, /ro: {path: /etc}, /rw: {path: /etc, writable: true},
   /tmp1: {tmpfs: 1m}, /s: {scratch: tmp}}
restart: {policy: on-failure, limit: 3, backoff: 2s}
timeout: 1h
faults: [{preempt: worker-1, at: {step: 5}}]
""",
    "name: job\nframework: pytorch\nprogram: {command: [a]}\ncluster: {master: 1, worker: 2}\n",
    "name: job\nprogram: {command: [a]}\ncluster: {worker: 4}\nsuccess: all-workers\n",
]


def plans(texts: Sequence[str] = PLANS) -> str:
    """Return plans as they are printed, with the names of the tasks' variables, but no values."""
    shown = []
    for number, text in enumerate(texts):
        capacity = Capacity(4, 2**33, ("0",)) if number % 2 == 0 else None
        plan = make_plan(parse(text), "run-1", SITE)
        show = partial(print_plan, plan, [{}] * (2 - number), capacity=capacity)
        shown.append(on_a_terminal(show, 120))
    return re.sub("(?m)^(  [A-Z_]+=).*", r"\1", "".join(shown))


def compared() -> tuple[list[Row], list[Facts]]:
    """Return the rows of the three runs, with other names."""
    facts = [rich(), many(), bare()]
    found = rows([*map(_judged, facts)], _judged(facts[0]))
    named = [replace(row, run_id=f"run-{number}") for number, row in enumerate(found)]
    return [replace(named[0], variant="the first [a]"), *named[1:]], facts


def _judged(facts: Facts) -> Any:
    return facts.plan, facts.analysis, facts.verdicts


def comparison() -> str:
    """Return the table of the runs on terminals of several widths."""
    found, _ = compared()
    alone = [replace(row, efficiency=None, efficiency_by=None) for row in found]
    shown = [(found, width) for width in (200, 104, 103, 60)] + [(alone, 93), (alone, 92)]
    return "".join(on_a_terminal(partial(print_comparison, of), width) for of, width in shown)


def comparison_page() -> str:
    """Return the page that compares the runs, as text, and its charts."""
    html = render_comparison(*compared(), place=Path("/runs"))
    return words(html) + charts(html)


RUNS = {"rich": rich, "many": many, "bare": bare}
REPORTS: dict[str, Callable[[Facts], str]] = {
    **{"report.md": markdown, "junit.xml": junit, "terminal.txt": terminal},
    **{"panel.txt": live, "page.txt": lambda facts: words(page.render(facts))},
    "charts.json": lambda facts: charts(page.render(facts)),
}
FILES: dict[str, Callable[[], str]] = {
    f"{run}-{name}": partial(lambda r, n: REPORTS[n](RUNS[r]()), run, name)
    for run in RUNS
    for name in REPORTS
} | {"plans.txt": plans, "comparison.txt": comparison, "comparison-page.txt": comparison_page}


@pytest.mark.parametrize("name", FILES)
def test_a_report_has_all_that_it_had_when_it_was_read_and_nothing_else(name: str) -> None:
    assert FILES[name]() == (EXPECTED / name).read_text()


if __name__ == "__main__":
    for name, text in FILES.items():
        (EXPECTED / name).write_text(text())
