"""The reports in the folder of a run: report.html, report.md and junit.xml.

report.md is the result for comments on changes and CI summaries. junit.xml has a test suite for the
run, and a test case for each expectation. Its format is that of Ant's JUnit task, as read by
Jenkins, GitLab and GitHub's actions. A verdict `unknown` is an `error`, JUnit's term for a test
without a result: `skipped` would be green, but `emulate up` exits with 3.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from emulator.analysis.comparison import Row
from emulator.analysis.expectations import Verdict
from emulator.analysis.figures import (
    DIGITS,
    FAULT_STAGES,
    FIGURES,
    fault_rates,
    fault_stages,
    in_summary,
)
from emulator.errors import RecordError
from emulator.record.reader import Record
from emulator.report import comparison_page, page
from emulator.report.data import (
    HTML,
    Facts,
    causes,
    key_figures,
    notes,
    notice_table,
    read,
    save_table,
)
from emulator.report.text import printable
from emulator.results import Judged, judge
from emulator.runtime.files import MAKE_ROOM, atomic_write, os_errors
from emulator.validation.units import format_duration, format_number

MARKDOWN, JUNIT = "report.md", "junit.xml"
MARKS = {"ok": "✅ ok", "failed": "❌ failed", "unknown": "❓ unknown"}
# Characters with a meaning in GitHub's Markdown.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~!@&$])")


def write(record: Record, judged: Judged | None = None) -> Path:
    """Write all reports of a run, finished or not; return the page. Raises RecordError."""
    facts = read(record, judged or judge(record))
    put(record.path / MARKDOWN, markdown(facts), private=True)
    put(record.path / JUNIT, junit(facts), private=True)
    return put(record.path / HTML, page.render(facts), private=True)


def write_page(record: Record, path: Path) -> Path:
    """Write only the page, anywhere; it links to the run folder. Raises RecordError."""
    return put(path, page.render(read(record, judge(record)), place=path.resolve().parent))


def write_comparison(
    rows: Sequence[Row], runs: Sequence[tuple[Record, Judged]], path: Path
) -> Path:
    """Write a page that compares several runs. Raises RecordError."""
    facts = [read(*run) for run in runs]
    place = path.resolve().parent
    return put(path, comparison_page.render_comparison(rows, facts, place=place))


def put(path: Path, text: str, *, private: bool = False) -> Path:
    """Write a file whole or not at all, also beside other writers. Raises RecordError.

    A link or a device (`/dev/stdout`) is written to, not replaced. A `private` file can be opened
    by its owner only.
    """
    with os_errors(RecordError, f"Can't write {path}", MAKE_ROOM):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
        else:
            atomic_write(path, text, many_writers=True, private=private)
    return path


# --- report.md ------------------------------------------------------------------------------------


def markdown(facts: Facts) -> str:
    """Return the report in GitHub's Markdown."""
    return "\n".join(_lines(facts)) + "\n"


def _lines(facts: Facts) -> Iterator[str]:
    analysis, summary = facts.analysis, facts.summary
    name = f"{summary['scenario']} {summary['variant']}".strip()
    yield f"## {MARKS[summary['verdict']]}: {in_markdown(name)}"
    yield ""
    reason = "" if analysis.outcome == "running" else f": {analysis.reason}"
    began = f" on {facts.began:%Y-%m-%d %H:%M} UTC" if facts.began else ""
    yield (
        f"{in_markdown(facts.state + reason)}; {format_duration(analysis.duration)} "
        f"on the {summary['engine']} engine{began}, run `{summary['run_id']}`."
    )
    for line in facts.summary["why"]:
        yield from ("", in_markdown(line))
    for kind, text in notes(facts.summary):
        yield from ("", f"> **{kind.capitalize()}:** {in_markdown(text)}")
    yield from table_lines(
        ("expectation", "verdict", "expected", "actual"),
        ((v.expectation, MARKS[v.status], v.expected, v.actual) for v in facts.verdicts),
    )
    yield from table_lines(
        ("figure", ""), ((title, value) for title, value, _ in key_figures(facts))
    )
    yield from table_lines(
        ("time", "seconds", "share"),
        ((c.name, f"{c.seconds:.2f}", f"{c.share:.1%}") for c in causes(analysis.time)),
    )
    yield from table_lines(
        ("fault", "status", "at", *(head for head, _ in FAULT_STAGES.values()), "steps/s"),
        map(_fault, summary["faults"]),
    )
    if worth := notice_table(summary):
        yield from table_lines(worth.heads, worth.rows)
    if saves := save_table(summary):
        yield from table_lines(saves.heads, saves.rows)
    yield from table_lines(
        ("task", "state", "exit", "restarts", "last step"),
        (
            (n, t.state_in_words, t.exit_code, t.restarts, t.last_step)
            for n, t in analysis.tasks.items()
        ),
    )
    yield from table_lines(
        ("helper", "state", "exit"),
        ((name, one.state, one.exit_code) for name, one in analysis.helpers.items()),
    )
    for task, lines in facts.logs.items():
        if lines:
            yield from ("", f"The last output of {in_markdown(task)}:", "", *_fenced(lines))


def _fault(fault: Mapping[str, Any]) -> Sequence[str]:
    return (
        "{id}: {kind} {target}".format(**fault),
        "{status}: {reason}".format(**fault) if fault["reason"] else fault["status"],
        "" if fault["triggered"] is None else format_duration(fault["triggered"]),
        *fault_stages(fault).values(),
        fault_rates(fault),
    )


def table_lines(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield a table with an empty cell for None; nothing if it has no rows."""
    cells = [["" if cell is None else in_markdown(str(cell)) for cell in row] for row in rows]
    if cells:
        yield ""
        for row in (head, ["---"] * len(head), *cells):
            yield f"| {' | '.join(row)} |"


def in_markdown(text: str) -> str:
    """Return the text escaped for Markdown, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))


def _fenced(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines in a fence longer than any in them (CommonMark 4.5)."""
    longest = max([2, *(len(run) for line in lines for run in re.findall("`+", line))])
    fence = "`" * (longest + 1)
    yield from (f"{fence}text", *lines, fence)


# --- junit.xml ------------------------------------------------------------------------------------


def junit(facts: Facts) -> str:
    """Return the test suite of a run as XML."""
    return xml_of(_suite(facts))


def xml_of(suite: ET.Element) -> str:
    """Return a test suite as a whole file."""
    totals = {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped", "time")}
    root = ET.Element("testsuites", totals)
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _suite(facts: Facts) -> ET.Element:
    name = f"{facts.summary['scenario']} {facts.summary['variant']}".strip()
    statuses = [verdict.status for verdict in facts.verdicts]
    suite = suite_of(name, statuses, facts.analysis.duration)
    if facts.began:
        suite.set("timestamp", f"{facts.began:%Y-%m-%dT%H:%M:%S}")  # UTC; the format allows no zone
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(facts):
        ET.SubElement(properties, "property", name=key, value=value)
    for number, verdict in enumerate(facts.verdicts):
        # The first case, the outcome, has the run's time; the others take none.
        seconds = facts.analysis.duration if number == 0 else 0.0
        hints = [text for kind, text in notes(facts.summary) if kind == "hint" and number == 0]
        suite.append(_case(name, verdict, seconds, hints))
    if said := [f"{kind}: {printable(text)}" for kind, text in notes(facts.summary)]:
        ET.SubElement(suite, "system-out").text = "\n".join(said)
    if output := [f"{task} | {line}" for task, lines in facts.logs.items() for line in lines]:
        ET.SubElement(suite, "system-err").text = "\n".join(output)
    return suite


def suite_of(name: str, statuses: Sequence[str], seconds: float) -> ET.Element:
    """Return a test suite whose cases have these verdicts."""
    return ET.Element(
        "testsuite",
        name=printable(name),
        tests=str(len(statuses)),
        failures=str(statuses.count("failed")),
        errors=str(statuses.count("unknown")),
        skipped="0",
        time=f"{seconds:.3f}",
    )


def _case(suite: str, verdict: Verdict, seconds: float, hints: Sequence[str]) -> ET.Element:
    case = ET.Element(
        "testcase",
        name=printable(verdict.expectation),
        classname=f"emulate.{printable(suite)}",
        time=f"{seconds:.3f}",
    )
    if verdict.status != "ok":
        kind = "failure" if verdict.status == "failed" else "error"
        expected, actual = printable(verdict.expected), printable(verdict.actual)
        message = f"expected {expected}, got {actual}"
        problem = ET.SubElement(case, kind, type=verdict.status, message=message)
        problem.text = f"expected: {expected}\nactual:   {actual}"
        problem.text += "".join(f"\nhint:     {printable(hint)}" for hint in hints)
    return case


def _properties(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the known figures, for charts of a CI system."""
    summary = facts.summary
    yield "run_id", printable(str(summary["run_id"]))
    yield "engine", printable(str(summary["engine"]))
    yield "outcome", facts.state
    for key in FIGURES:
        if (value := in_summary(summary, key)) is not None and not math.isinf(value):
            yield key, format_number(value, DIGITS) if isinstance(value, float) else str(value)
