"""The page of a run that goes on: the report's template, with lanes of buttons and the output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator.record.reader import Record
from emulator.report import document, page
from emulator.report.charts import Chart
from emulator.report.text import printable
from emulator.ui.live.by_hand import BUTTONS, options
from emulator.ui.live.run import LiveRun, Seen
from emulator.ui.site import served, templates, url

TEMPLATE = "live.html.j2"


@dataclass(frozen=True)
class Made:
    """A page as it is at one time."""

    html: str
    charts: Mapping[str, Chart]


def made(record: Record, seen: Seen, *, with_data: bool = False) -> Made:
    """Return the page of what is known of a run; `with_data`: with that of its charts."""
    try:
        scenario = (record.path / "scenario.yaml").read_text("utf-8", "replace")
    except OSError:
        scenario = ""
    files = frozenset(path.name for path in record.path.iterdir())
    facts = seen.facts(record.path, printable(scenario), files)
    drawn = page.drawn_of(facts)
    html = document.document(
        TEMPLATE,
        drawn.charts,
        served=served(["stream.js", "live.js"]),
        templates=templates(),
        with_data=with_data,
        data=page.more_data(facts),
        **page.context_of(facts, drawn),
        **_by_hand(seen),
    )
    return Made(html, drawn.charts)


def _by_hand(seen: Seen) -> dict[str, Any]:
    return {
        "buttons": BUTTONS,
        "options": options(),
        "names": [task.name for task in seen.plan.tasks],
        "printing": seen.plan.printing,
        "is_exact": seen.is_exact,
        "live_style": url("live.css"),
    }


def first(record: Record) -> str:
    """Return the page of a run as its folder has it now. Raises RecordError."""
    fresh = Record(record.path)
    run = LiveRun(fresh.plan)
    for entry in fresh.history:
        run.entry(entry)
    for sample in fresh.samples:
        run.sample(sample)
    return made(record, run.seen(), with_data=True).html
