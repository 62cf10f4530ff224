"""report.md: the result of a run, for comments on changes and CI summaries (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from emulator.analysis.figures import FAULT_STAGES, fault_rates, fault_stages
from emulator.report.data import Facts, causes, key_figures, machines, notes
from emulator.report.text import printable
from emulator.validation.units import format_duration

_MARKS = {"ok": "✅ ok", "failed": "❌ failed", "unknown": "❓ unknown"}
# Characters with a meaning in GitHub's Markdown.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~!@&$])")


def render(facts: Facts) -> str:
    """Return the report in GitHub's Markdown."""
    return "\n".join(_lines(facts)) + "\n"


def _lines(facts: Facts) -> Iterator[str]:
    analysis, summary = facts.analysis, facts.summary
    name = f"{summary['scenario']} {summary['variant']}".strip()
    yield f"## {_MARKS[summary['verdict']]}: {_text(name)}"
    yield ""
    reason = "" if analysis.outcome == "running" else f": {analysis.reason}"
    began = f" on {facts.began:%Y-%m-%d %H:%M} UTC" if facts.began else ""
    yield (
        f"{_text(facts.state + reason)}; {format_duration(analysis.duration)} "
        f"on the {summary['engine']} engine{began}, run `{summary['run_id']}`."
    )
    for kind, text in notes(facts.summary):
        yield from ("", f"> **{kind.capitalize()}:** {_text(text)}")
    yield from _table(
        ("expectation", "verdict", "expected", "actual"),
        ((v.expectation, _MARKS[v.status], v.expected, v.actual) for v in facts.verdicts),
    )
    yield from _table(("figure", ""), ((title, value) for title, value, _ in key_figures(facts)))
    costs = analysis.costs
    priced = () if costs is None else (f"cost, {costs.currency}" if costs.currency else "cost",)
    yield from _table(
        ("time", "seconds", "share", *priced),
        (
            (c.name, f"{c.seconds:.2f}", f"{c.share:.1%}", *(c.cost for _ in priced))
            for c in causes(analysis.time, costs)
        ),
    )
    yield from _table(
        ("fault", "status", "at", *(head for head, _ in FAULT_STAGES.values()), "steps/s"),
        map(_fault, summary["faults"]),
    )
    yield from _table(
        ("task", "state", "exit", "restarts", "last step"),
        (
            (n, t.state_in_words, t.exit_code, t.restarts, t.last_step)
            for n, t in analysis.tasks.items()
        ),
    )
    if paid := machines(costs):
        yield from _table([head.lower() for head in paid.heads], paid.every or paid.rows)
    yield from _table(
        ("helper", "state", "exit"),
        ((name, one.state, one.exit_code) for name, one in analysis.helpers.items()),
    )
    for task, lines in facts.logs.items():
        if lines:
            yield from ("", f"The last output of {_text(task)}:", "", *_fenced(lines))


def _fault(fault: Mapping[str, Any]) -> Sequence[str]:
    return (
        "{id}: {kind} {target}".format(**fault),
        "{status}: {reason}".format(**fault) if fault["reason"] else fault["status"],
        "" if fault["triggered"] is None else format_duration(fault["triggered"]),
        *fault_stages(fault).values(),
        fault_rates(fault),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield a table with an empty cell for None; nothing if it has no rows."""
    cells = [["" if cell is None else _text(str(cell)) for cell in row] for row in rows]
    if cells:
        yield ""
        for row in (head, ["---"] * len(head), *cells):
            yield f"| {' | '.join(row)} |"


def _text(text: str) -> str:
    """Return the text escaped for Markdown, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))


def _fenced(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines in a fence longer than any in them (CommonMark 4.5)."""
    longest = max([2, *(len(run) for line in lines for run in re.findall("`+", line))])
    fence = "`" * (longest + 1)
    yield from (f"{fence}text", *lines, fence)
