"""report.md: the result of a run, for a comment on a change or a CI summary (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from emulator.analysis.analyse import FaultResult
from emulator.analysis.figures import FAULT_STAGES, fault_rates, fault_stages
from emulator.report.data import Facts, key_figures
from emulator.report.text import printable
from emulator.validation.units import format_duration

__all__ = ["render"]

_MARKS = {"ok": "✅ ok", "failed": "❌ failed", "unknown": "❓ unknown"}
# Characters with a meaning in GitHub's Markdown.
_ACTIVE = re.compile(r"([\\`*_{}\[\]<>|#~!@&$])")


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
    yield from _table(
        ("expectation", "verdict", "expected", "actual"),
        ((v.expectation, _MARKS[v.status], v.expected, v.actual) for v in facts.verdicts),
    )
    yield from _table(("figure", ""), ((f.name, f.value) for f in key_figures(facts)))
    yield from _table(
        ("time", "seconds", "share"),
        (
            (cause, f"{seconds:.2f}", f"{seconds / analysis.duration:.1%}")
            for cause, seconds in analysis.time.items()
            if seconds
        ),
    )
    yield from _table(
        ("fault", "status", "at", *(head for head, _ in FAULT_STAGES.values()), "steps/s"),
        (tuple(_fault(fault)) for fault in analysis.faults),
    )
    yield from _table(
        ("task", "state", "exit", "restarts", "last step"),
        (
            (name, task.state, _shown(task.exit_code), str(task.restarts), _shown(task.last_step))
            for name, task in analysis.tasks.items()
        ),
    )
    for task, lines in facts.logs.items():
        if lines:
            yield from ("", f"The last output of {_text(task)}:", "", *_fenced(lines))


def _fault(fault: FaultResult) -> Iterator[str]:
    yield f"{fault.id}: {fault.kind} {fault.target}"
    yield f"{fault.status}: {fault.reason}" if fault.reason else fault.status
    yield "" if fault.triggered is None else format_duration(fault.triggered)
    yield from fault_stages(vars(fault)).values()
    yield fault_rates(vars(fault))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table; nothing if it has no rows."""
    cells = [[_text(cell) for cell in row] for row in rows]
    if cells:
        yield ""
        for row in (head, ["---"] * len(head), *cells):
            yield f"| {' | '.join(row)} |"


def _text(text: str) -> str:
    """Return the text escaped for Markdown, in one line."""
    return _ACTIVE.sub(r"\\\1", " ".join(printable(text).split()))


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _fenced(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines in a fence longer than any in them (CommonMark 4.5)."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}text", *lines, fence)
