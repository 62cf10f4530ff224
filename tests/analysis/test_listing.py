"""What `emulate runs` lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator.analysis.listing import Listed, chosen, listed
from emulator.engines.memory import Script
from emulator.record.folder import RunFolder
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.runtime.clock import ManualClock
from tests.histories import an_event
from tests.record.test_writer import PLAN, TEXT
from tests.report.runs import a_run, step_line

STEPS = Script(lines=[(n, step_line(n)) for n in range(1, 11)], exits_at=12.0)


def finished(tmp_path: Path) -> Record:
    return a_run(tmp_path, "cluster: {worker: 1}", {"worker-0": STEPS})


def row(run_id: str, scenario: str = "s", began: float | None = 0.0, verdict: str = "ok") -> Listed:
    return Listed(run_id, scenario, "", "docker", began, "succeeded", verdict)  # type: ignore[arg-type]


ROWS = [row("c", "ps-loss", 30), row("a", "ps-kill", 10, "failed"), row("b", "mwms", 20)]


@pytest.mark.parametrize(
    ("expected", "result"),
    [
        ({}, "abc"),
        ({"scenario": "ps-*"}, "ac"),
        ({"scenario": "PS-*"}, ""),
        ({"verdict": "failed"}, "a"),
        ({"since": 20.0}, "bc"),
        ({"limit": 1}, "c"),
        ({"limit": 9}, "abc"),
        ({"scenario": "ps-*", "limit": 1, "verdict": "failed"}, "a"),
    ],
)
def test_rows_are_chosen_and_the_latest_is_last(expected: dict[str, object], result: str) -> None:
    assert [one.run_id for one in chosen(ROWS, **expected)] == list(result)  # type: ignore[arg-type]


def test_a_run_with_unknown_begin_is_not_listed_with_since() -> None:
    assert chosen([row("x", began=None)], since=0.0) == []
    assert len(chosen([row("x", began=None)])) == 1


def test_a_finished_run_has_the_numbers_of_its_summary(tmp_path: Path) -> None:
    figures = {"steps_per_second": 1.0, "goodput": 0.75, "lost_steps": 0, "duration": 12.0}
    expected = Listed("run", "test", "", "memory", 1_700_000_000.0, "succeeded", "ok", figures)
    assert listed(finished(tmp_path)) == expected


def test_a_running_run_has_no_verdict_and_a_crashed_one_is_unknown(tmp_path: Path) -> None:
    folder = RunWriter(tmp_path / "run-1", PLAN, TEXT, ManualClock(wall=50.0))
    folder.write(an_event("run"))
    live = listed(Record(folder.path))
    assert (live.outcome, live.verdict, live.scenario) == ("running", None, "test")
    folder.close()
    crashed = listed(Record(folder.path))
    assert (crashed.outcome, crashed.verdict, crashed.began) == ("crashed", "unknown", 50.0)


def test_a_record_of_another_version_is_listed_by_what_can_be_read(tmp_path: Path) -> None:
    record = finished(tmp_path)
    (record.path / "plan.json").write_text('{"of": "another time"}')
    assert listed(Record(record.path)).scenario == "test"
    (record.path / "summary.json").unlink()
    for first in ("torn", '{"wall": 1e99, "t": 0}\n'):  # no date
        (record.path / "history.jsonl").write_text(first)
        result = listed(Record(record.path))
        assert (result.scenario, result.began, result.outcome) == ("?", None, "other format")


def test_a_summary_may_lack_keys_and_one_of_another_format_is_not_read(tmp_path: Path) -> None:
    record = finished(tmp_path)
    old: dict[str, object] = {"format": 2, "scenario": "test", "engine": "docker"}
    old |= {"outcome": "failed", "verdict": "failed"}
    (record.path / "summary.json").write_text(json.dumps(old))
    result = listed(record)
    assert (result.verdict, set(result.figures.values())) == ("failed", {None})
    (record.path / "summary.json").write_text(json.dumps({**old, "format": 1}))
    result = listed(record)
    assert (result.outcome, result.verdict, result.scenario) == ("other format", "unknown", "?")


DEEP = "[" * 100_000
NO_NAME = '{"format": 2, "scenario": 5, "engine": "a"}'


@pytest.mark.parametrize("text", ['"x"', "[]", "{", '{"format": 2}', DEEP, NO_NAME])
def test_one_bad_summary_is_unreadable_and_keeps_nobody_from_the_list(
    tmp_path: Path, text: str
) -> None:
    record = finished(tmp_path)
    (record.path / "summary.json").write_text(text)
    result = listed(RunFolder(record.path))
    assert (result.outcome, result.verdict) == ("unreadable", "unknown")
    assert set(result.figures.values()) == {None}
    assert result.began is not None
