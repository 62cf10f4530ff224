"""junit.xml: a test suite for the run, a test case for each expectation (pure).

The format is that of Ant's JUnit task, as read by Jenkins, GitLab and GitHub's actions. A verdict
`unknown` is an `error`, JUnit's term for a test without a result: `skipped` would be green, but
`emulate up` exits with 3.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from emulator.analysis.expectations import Verdict
from emulator.analysis.figures import FIGURES, in_summary
from emulator.report.data import Facts, notes
from emulator.report.text import printable
from emulator.validation.units import format_number


def render(facts: Facts) -> str:
    """Return the test suite of a run as XML."""
    suite = _suite(facts)
    totals = {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped", "time")}
    root = ET.Element("testsuites", totals)
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _suite(facts: Facts) -> ET.Element:
    name = f"{facts.summary['scenario']} {facts.summary['variant']}".strip()
    statuses = [verdict.status for verdict in facts.verdicts]
    suite = ET.Element(
        "testsuite",
        name=printable(name),
        tests=str(len(statuses)),
        failures=str(statuses.count("failed")),
        errors=str(statuses.count("unknown")),
        skipped="0",
        time=f"{facts.analysis.duration:.3f}",
    )
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
    for key, figure in FIGURES.items():
        if (value := in_summary(summary, key)) is not None and not math.isinf(value):
            yield (
                key,
                format_number(value, figure.digits) if isinstance(value, float) else str(value),
            )
