"""A finished run as an object: its numbers by name, and its verdicts as an assertion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import emulator
from emulator.analysis.analyse import Analysis, analyse
from emulator.engines.memory import MemoryEngine, Script
from emulator.execution import up
from emulator.metrics.samples import Sample
from emulator.record.reader import Record
from emulator.record.timeline import Timeline
from emulator.results import ExpectationFailed, Result, load_result
from emulator.runtime.clock import ManualClock
from emulator.scenario.constructors import names
from emulator.scenario.loader import parse

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
    clock = ManualClock()
    engine = MemoryEngine(clock, {"*": worker})
    return up(parse(TEXT), engine, text=TEXT, out=tmp_path, run_id="r", clock=clock)


def test_a_run_is_judged_once_for_its_result_its_files_and_its_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []

    def counted(timeline: Timeline, samples: Sequence[Sample] = ()) -> Analysis:
        judged.append(timeline.plan.run_id)
        return analyse(timeline, samples)

    monkeypatch.setattr("emulator.results.analyse", counted)
    clock = ManualClock()
    engine = MemoryEngine(clock, {"*": worker})
    ran = up(parse(TEXT), engine, text=TEXT, out=tmp_path, run_id="r", clock=clock)
    assert (ran.folder / "report.html").is_file()
    assert judged == ["r"]


def test_the_traceback_of_a_check_that_fails_ends_in_the_test(result: Result) -> None:
    with pytest.raises(AssertionError) as failed:
        result.check()
    shown = failed.traceback.filter(failed)
    assert [entry.path for entry in shown] == [Path(__file__)]


def test_a_result_is_shown_on_one_line(result: Result) -> None:
    rate, goodput = result.steps_per_second, result.goodput
    assert rate is not None
    assert goodput is not None
    assert repr(result) == (
        f"<Result r: failed, verdict failed, step 18, {rate:.3g} steps/s, goodput {goodput:.0%}>"
    )


def test_the_runs_of_a_folder_are_listed(result: Result) -> None:
    assert [run.run_id for run in emulator.runs(result.folder.parent)] == ["r"]
    assert not emulator.runs(str(result.folder / "nothing"))


def test_the_package_completes_its_public_names() -> None:
    assert {*dir(emulator)} == {*emulator.__all__, *names(), "__version__"}


def test_numbers_have_names(result: Result) -> None:
    assert (result.run_id, result.outcome, result.verdict) == ("r", "failed", "failed")
    assert (result.final_step, result.lost_steps, result.restarts) == (18, 2, 1)
    assert result.recovery == pytest.approx(2)  # a second of backoff, one until a step
    assert result.goodput == pytest.approx(18 / 23, abs=0.2)
    assert result.examples_per_second == pytest.approx(4 * (result.steps_per_second or 0))
    assert result.accuracy is None


def test_the_check_names_every_expectation_that_is_not_met(result: Result) -> None:
    with pytest.raises(ExpectationFailed) as caught:
        result.check()
    reported = str(caught.value).split("; ")
    assert [line.partition(":")[0] for line in reported] == [
        "outcome failed",
        "final_step failed",
        "accuracy unknown",
        "max_restarts failed",
    ]
    assert "final_step failed: expected at least 30, got 18" in reported


def test_a_run_that_is_over_is_read_from_its_folder(result: Result) -> None:
    again = load_result(Record(result.folder))
    assert again == result
    assert again.last_words["worker-0"][-1] == "start 2"
    assert (again.end.task, again.exit_code) == ("worker-0", 1)


def test_what_was_met_passes(tmp_path: Path) -> None:
    clock = ManualClock()
    text = TEXT.replace("accuracy: 0.5, ", "").replace("30", "10")
    engine = MemoryEngine(clock, {"*": Script(lines=[(1, step(10))], exits_at=2)})
    done = up(parse(text), engine, text=text, out=tmp_path, clock=clock)
    assert done.verdict == "ok"
    done.check()
