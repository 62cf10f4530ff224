"""A finished run as an object: its numbers by name, and its verdicts as an assertion."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

import emulator
from emulator.analysis.analyse import analyse
from emulator.engines.memory import Script
from emulator.record.reader import Record
from emulator.results import ExpectationFailed, Result, load_result
from tests.report.runs import ran

TEXT = """\
name: test
framework: none
program: {command: [a]}
cluster: {worker: 1}
restart: {policy: on-failure, limit: 1, backoff: 1s}
expect: {final_step: 30, accuracy: 0.5, max_restarts: 0}
"""


def step(number: int) -> str:
    return f'{{"emulate": "step", "step": {number}, "examples": {number * 4}}}'


def worker(start: int) -> Script:
    lines = [(number, step(number + 10 * (start - 1) - 2 * (start - 1))) for number in range(1, 11)]
    return Script(lines=[*lines, (10.5, f"start {start}")], exits_at=11, exit_code=start)


@pytest.fixture
def result(tmp_path: Path) -> Result:
    return ran(tmp_path, TEXT, {"*": worker}, run_id="r")


def test_a_run_is_judged_once_for_its_result_its_files_and_its_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Mock(wraps=analyse)
    monkeypatch.setattr("emulator.results.analyse", judged)
    assert (ran(tmp_path, TEXT, {"*": worker}).folder / "report.html").is_file()
    judged.assert_called_once()


def test_the_check_names_every_expectation_that_is_not_met_and_its_traceback_ends_in_the_test(
    result: Result,
) -> None:
    with pytest.raises(ExpectationFailed) as failed:
        result.check()
    assert isinstance(failed.value, AssertionError)
    shown = failed.traceback.filter(failed)
    assert [entry.path for entry in shown] == [Path(__file__)]
    reported = str(failed.value).split("; ")
    expected = ["outcome failed", "final_step failed", "accuracy unknown", "max_restarts failed"]
    assert [line.partition(":")[0] for line in reported] == expected
    assert "final_step failed: expected at least 30, got 18" in reported


def test_the_package_completes_its_public_names() -> None:
    assert {*dir(emulator)} == {*emulator.__all__, "__version__"}


def test_numbers_have_names_and_are_shown_on_one_line(result: Result) -> None:
    assert (result.run_id, result.outcome, result.verdict) == ("r", "failed", "failed")
    assert (result.final_step, result.lost_steps, result.restarts) == (18, 2, 1)
    assert result.recovery == pytest.approx(2)  # a second of backoff, one until a step
    assert result.goodput == pytest.approx(18 / 23, abs=0.2)
    assert result.examples_per_second == pytest.approx(4 * (result.steps_per_second or 0))
    assert result.accuracy is None
    rate, goodput = result.steps_per_second or 0, result.goodput or 0
    assert repr(result) == (
        f"<Result r: failed, verdict failed, step 18, {rate:.3g} steps/s, goodput {goodput:.0%}>"
    )


def test_the_runs_of_a_folder_are_listed(result: Result) -> None:
    assert [run.run_id for run in emulator.runs(result.folder.parent)] == ["r"]
    assert not emulator.runs(str(result.folder / "nothing"))


def test_a_run_that_is_over_is_read_from_its_folder(result: Result) -> None:
    again = load_result(Record(result.folder))
    assert again == result
    assert again.last_words["worker-0"][-1] == "start 2"
    assert (again.end.task, again.exit_code) == ("worker-0", 1)


def test_what_was_met_passes(tmp_path: Path) -> None:
    text = TEXT.replace("accuracy: 0.5, ", "").replace("30", "10")
    done = ran(tmp_path, text, {"*": Script(lines=[(1, step(10))], exits_at=2)})
    assert done.verdict == "ok"
    done.check()
