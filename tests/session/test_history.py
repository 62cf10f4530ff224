"""Finished runs in Python: data frames, tables, and how a notebook shows them."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest

import emulator
from emulator.engines.memory import MemoryEngine, Script
from emulator.errors import UsageError
from emulator.execution import up
from emulator.exports.card import COLOURS
from emulator.record.lock import LOCK
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from tests.conftest import going_on

TEXT = """\
name: test
framework: none
program: {command: [a]}
cluster: {worker: 20}
faults: [{kill: worker-1, at: {step: 5}}]
restart: {policy: on-failure, backoff: 1s}
expect: {final_step: 30}
"""
STYLE = Path(emulator.__file__).parent / "report" / "templates" / "style.css"


def finished(
    out: Path, run_id: str = "r", per_second: int = 1, text: str = TEXT, steps: int = 10
) -> Result:
    step = '{{"emulate": "step", "step": {}, "loss": {}, "note": "<b>&"}}'
    lines = [(n / per_second, step.format(n, 1 / n)) for n in range(1, steps + 1)]
    clock = ManualClock()
    engine = MemoryEngine(clock, {"*": Script(lines=lines, exits_at=11)})
    return up(parse(text), engine, text=text, out=out, run_id=run_id, clock=clock, reports=False)


@pytest.fixture
def result(tmp_path: Path) -> Result:
    return finished(tmp_path)


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name in missing else found(name)
    )


# --- Data frames ----------------------------------------------------------------------------------


def test_steps_faults_and_events_are_data_frames(result: Result) -> None:
    steps = result.steps
    assert isinstance(steps, pandas.DataFrame)
    of_one = steps[steps.task == "worker-0"]
    assert of_one.step.tolist() == list(range(1, 11))
    assert of_one.loss.iloc[1] == 0.5
    assert steps.examples.isna().all()
    assert steps.dtypes["step"] == "Int64"
    assert steps.attrs["run_id"] == "r"
    assert steps.attrs["units"]["t"] == "s"
    (fault,) = result.faults.itertuples()
    assert (fault.kind, fault.target, fault.status) == ("kill", "worker-1", "applied")
    assert "exit" in set(result.events.event)
    assert "step" not in set(result.events.event)
    assert len(result.gpus) == 0
    assert "cpu_cores" in result.samples.columns


def test_without_pandas_they_are_tables_of_pyarrow(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = result.steps
    without(monkeypatch, "pandas")
    steps = result.steps
    assert isinstance(steps, pyarrow.Table)
    assert steps.column("loss").to_pylist() == expected.loss.tolist()
    assert steps.schema.field("t").metadata[b"unit"] == b"s"
    rows = emulator.runs(result.folder.parent).frame
    assert rows.column("run_id").to_pylist() == ["r"]


def test_without_either_one_sentence_says_so(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "pandas", "pyarrow")
    says = r"pandas or pyarrow.*pip install pandas"
    with pytest.raises(UsageError, match=says):
        _ = result.steps
    with pytest.raises(UsageError, match=says):
        _ = emulator.runs(result.folder.parent).frame


# --- Tables ---------------------------------------------------------------------------------------


def test_runs_and_comparisons_are_tables(tmp_path: Path) -> None:
    slow = finished(tmp_path, "slow")
    finished(tmp_path, "fast", per_second=2)
    runs = emulator.runs(tmp_path)
    assert [run.run_id for run in runs] == ["slow", "fast"]
    head, first, _ = repr(runs).splitlines()
    assert head.split()[:3] == ["run", "variant", "engine"]
    assert first.split()[:4] == ["slow", "memory", "succeeded", "failed"]
    assert [run.run_id for run in emulator.runs(tmp_path, limit=1)] == ["fast"]
    assert repr(emulator.runs(tmp_path, verdict="ok")) == "no runs"
    assert runs[:1][0].run_id == "slow"
    assert runs.frame.verdict.tolist() == ["failed", "failed"]
    compared = emulator.compare(slow, "fast", out=tmp_path)
    assert re.search(r"fast .* x2\.\d+", repr(compared))
    assert compared.frame.steps_per_second[1] > compared.frame.steps_per_second[0]
    html = ET.fromstring(compared._repr_html_())
    assert [cell.text for cell in html.iter("th")][:3] == ["run", "outcome", "verdict"]
    with pytest.raises(UsageError, match="two runs or more"):
        emulator.compare(slow)


def test_a_result_is_judged_again_from_its_folder(result: Result, tmp_path: Path) -> None:
    again = emulator.result("r", tmp_path)
    assert (again.verdicts, again.summary) == (result.verdicts, result.summary)
    assert emulator.result(out=tmp_path).run_id == "r"
    with pytest.raises(UsageError, match="no run"):
        emulator.result("s", tmp_path)
    with going_on(result.folder), pytest.raises(UsageError, match="still under way"):
        emulator.result(result.folder)
    assert (result.folder / LOCK).exists()


# --- In a notebook --------------------------------------------------------------------------------


def picture(html: str) -> Any:
    return ET.fromstring(html.replace("&nbsp;", " ")).find("{http://www.w3.org/2000/svg}svg")


def test_a_notebook_shows_verdict_timeline_and_curves(result: Result) -> None:
    html = result._repr_html_()
    assert "final_step failed: expected at least 30, got 10" in html
    drawn = picture(html)
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:12] == [f"worker-{n}" for n in range(12)]
    assert {"and 8 more", "steps/s", "loss"} <= {*texts}
    assert len([*drawn.iter("{http://www.w3.org/2000/svg}polyline")]) == 2
    (fault,) = drawn.iter("{http://www.w3.org/2000/svg}line")
    assert 90 < float(fault.get("x1")) < 716
    assert len(html) < 20_000
    assert "<script" not in html
    assert "<b>&" not in html  # what a scenario says is escaped
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")


def test_a_run_without_steps_has_no_curves(tmp_path: Path) -> None:
    text = TEXT.replace("faults: [{kill: worker-1, at: {step: 5}}]\n", "")
    done = finished(tmp_path, text=text, steps=0)
    assert not [*picture(done._repr_html_()).iter("{http://www.w3.org/2000/svg}polyline")]


def test_its_colours_are_those_of_the_report() -> None:
    light = STYLE.read_text().partition("@media")[0]
    defined = dict(re.findall(r"--([\w-]+): (#\w+);", light))
    assert {name: defined[name] for name in COLOURS} == COLOURS
