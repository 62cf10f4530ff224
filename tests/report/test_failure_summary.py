"""The text about a run below a failed test."""

from __future__ import annotations

from pathlib import Path

from emulator.engines.memory import Script
from emulator.record.reader import Record
from emulator.report.failure_summary import FIRST, MOST, event_lines, story
from emulator.results import Result
from tests.report.runs import ran

TEXT = """\
name: summary
framework: none
program: {command: [a]}
cluster: {worker: 2}
restart: {policy: on-failure, limit: 40, backoff: 1ms}
expect: {final_step: 3}
"""


def run(tmp_path: Path, dies: Script) -> Result:
    scripts = {"worker-0": Script(exits_at=None), "worker-1": dies}
    return ran(tmp_path, TEXT, scripts, reports=False)


def test_it_has_verdicts_events_and_the_last_output_of_the_failed_task(tmp_path: Path) -> None:
    printed = [(1.0, "\x1b[31mno room\x1b[0m")]
    result = run(tmp_path, Script(printed, exits_at=2, exit_code=3, oom_killed=True))
    lines = story(result).splitlines()
    assert lines[0].split() == ["expectation", "verdict", "expected", "actual"]
    assert any(line.split()[:2] == ["final_step", "unknown"] for line in lines)
    assert "   2.00s  worker-1 ended with exit code 3 (out of memory)" in lines
    assert lines[lines.index("the last output of worker-1:") + 1] == "  no room"
    assert lines[-1] == f"run     {result.folder}"  # there is no page to point at
    assert all(line == line.rstrip() for line in lines)


def test_of_a_long_history_the_beginning_and_the_end_are_shown(tmp_path: Path) -> None:
    result = run(tmp_path, Script(exits_at=1, exit_code=1))
    lines = event_lines(Record(result.folder).history)
    assert len(lines) == MOST + 1
    assert "more …" in lines[FIRST]
    assert lines[0].endswith("all tasks are running")
    assert lines[-1].endswith("removed everything that this run created")
