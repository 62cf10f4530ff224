"""Finished runs in Python: data frames, tables, and how a notebook shows them."""

from __future__ import annotations

import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest
from playwright.sync_api import Browser

import emulator
from emulator.engines.memory import Script
from emulator.errors import UsageError
from emulator.record.lock import LOCK
from emulator.results import Result
from emulator.session.history import Rows
from tests.conftest import BROWSER_PATIENCE, going_on
from tests.report.runs import ran

TEXT = """\
name: test
framework: none
program: {command: [a]}
cluster: {worker: 20}
faults: [{kill: worker-1, at: {step: 5}}]
restart: {policy: on-failure, backoff: 1s}
expect: {final_step: 30}
"""
HOSTILE = '"></iframe><script>alert(1)</script>'


def finished(
    out: Path, run_id: str = "r", per_second: int = 1, text: str = TEXT, *, reports: bool = False
) -> Result:
    step = '{{"emulate": "step", "step": {}, "loss": {}, "note": "<b>&"}}'
    lines = [(n / per_second, step.format(n, 1 / n)) for n in range(1, 11)]
    scripts = {"*": Script(lines=lines, exits_at=11)}
    return ran(out, text, scripts, run_id=run_id, reports=reports)


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


class Elements(HTMLParser):
    """The elements of a text that a browser would make, each with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_notebook_shows_the_page_of_the_run_alone(tmp_path: Path) -> None:
    text = TEXT + f"description: {json.dumps(HOSTILE)}\n"
    done = finished(tmp_path, text=text, reports=True)
    ((tag, frame),) = Elements(done._repr_html_() or "").found
    page, base = frame["srcdoc"] or "", '<base href="about:srcdoc">'
    assert (tag, frame["sandbox"]) == ("iframe", "allow-scripts allow-downloads")
    assert page.replace(base, "", 1) == (done.folder / "report.html").read_text()
    assert HOSTILE not in page
    assert escape(HOSTILE, quote=False) in page.replace("&#34;", '"')


def test_its_charts_and_links_work_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    done = finished(tmp_path, text=TEXT + f"description: {json.dumps(HOSTILE)}\n", reports=True)
    (notebook := tmp_path / "notebook.html").write_text(done._repr_html_() or "")
    said: list[str] = []
    page = browser.new_page()
    page.set_default_timeout(BROWSER_PATIENCE)
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(notebook.as_uri())
    _, frame = page.frames
    frame.wait_for_selector("html[data-charts=drawn]")
    frame.locator("a[href='#timeline']").first.click()
    frame.wait_for_url("about:srcdoc#timeline")
    page.close()
    assert said == []


def test_a_run_without_a_page_is_shown_as_text(result: Result) -> None:
    assert result._repr_html_() is None


def test_values_in_a_table_of_runs_are_text() -> None:
    row: Any = object()
    shown = Rows[Any]([row], lambda row: {"<i>": HOSTILE})._repr_html_()
    assert [tag for tag, _ in Elements(shown).found] == ["table", "tr", "th", "tr", "td"]
