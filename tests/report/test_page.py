"""The page as text, report.md and junit.xml; test_browser.py looks at it in a browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from emulator.analysis.comparison import Row, rows
from emulator.engines.memory import Script
from emulator.errors import RecordError
from emulator.metrics.catalog import GpuUsage
from emulator.metrics.samples import Sample
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.report import document, page
from emulator.report.comparison_page import render_comparison
from emulator.report.data import Facts, read
from emulator.report.files import junit, markdown, put, write, write_page
from emulator.report.plan_tables import _limits as plan_limits
from emulator.results import RunCallbacks, judge
from emulator.runtime.clock import ManualClock
from tests.histories import a_plan, happened, job, phase
from tests.report.runs import BASE, a_run, embedded, facts_of, long_run, preempted, ran, step_line

NASTY = "<script>alert(1)</script>"
DIGEST = "99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"
"""Of Plotly's script, SHA-256."""
STEPS = Script(lines=[(n, step_line(n)) for n in range(1, 20)], exits_at=25.0)
FAILS = Script(lines=[(1, f"\x1b[31m{NASTY}\x1b[0m | `x` ``` \x00\x07")], exits_at=3, exit_code=7)


def text_of(html: str) -> str:
    """Return what is outside of tags and scripts."""
    return re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style).*?</\1>", "", html))


@pytest.fixture
def good(tmp_path: Path) -> Record:
    """A run of one worker that succeeds."""
    return a_run(tmp_path / "a b", "cluster: {worker: 1}\nexpect: {final_step: 19}\n", {"*": STEPS})


# --- The page -----------------------------------------------------------------------------------


def test_nothing_in_the_page_leads_to_the_network_and_only_our_script_and_plotlys_may_run() -> None:
    html = page.render(facts_of(preempted()))
    outside = re.sub(r'(?s)<script type="text/plain".*?</script>', "", html)
    assert re.findall(r"https?:|//[a-z]|@import|url\(", outside) == []
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert policy.startswith("default-src &#39;none&#39;")
    script = embedded(html, "plotly")
    assert script.startswith(b"/**\n* plotly.js (basic - minified) v4.1.1\n")
    scripts = [s.encode() for s in re.findall(r"(?s)<script>(.*?)</script>", html)]
    assert len(scripts) == 1
    allowed = re.findall(r"sha256-([A-Za-z0-9+/=]+)", html)
    expected = [base64.b64encode(hashlib.sha256(s).digest()).decode() for s in (*scripts, script)]
    assert allowed == expected
    assert "unsafe-inline" not in html[html.index("script-src") : html.index("base-uri")]


def test_a_page_is_the_same_with_a_cache_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, impossible = tmp_path / "first", tmp_path / "impossible"
    impossible.write_text("no folder")
    pages = []
    for cache in (first, first, impossible):
        monkeypatch.setattr(
            document, "cache_dir", lambda *parts, cache=cache: cache.joinpath(*parts[1:])
        )
        document.environment.cache_clear()
        page.load()
        pages.append(page.render(facts_of(preempted())))
    assert len(set(pages)) == 1
    assert [p.suffix for p in first.iterdir()] == [".cache"] * 3


def test_plotly_is_the_bundle_that_the_script_fetches_with_its_licence() -> None:
    """What a page may run is reviewed once; another bundle comes with another digest here."""
    folder = resources.files("emulator.report") / "plotly"
    source = gzip.decompress((folder / "plotly-basic.min.js.gz").read_bytes())
    assert hashlib.sha256(source).hexdigest() == DIGEST
    script = (Path(__file__).parents[2] / "scripts" / "vendor_plotly.py").read_text()
    (version,) = re.findall(rb"plotly.js \(basic - minified\) v([0-9.]+)", source)
    assert f'"plotly.js-basic-dist-min", "{version.decode()}"' in script
    assert "MIT License" in (folder / "LICENSE").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [2, 25])
def test_a_page_has_at_most_700_kilobytes(tasks: int) -> None:
    """With an hour of samples, and steps with a loss of every task."""
    facts = long_run(tasks)
    line = "step {0} loss 0.{0}73{0} at 2026-11-28T15:{0}"
    facts.__dict__["outputs"] = {
        f"worker-{n}": [line.format(n * 7919 + k * 104_729) for k in range(200)]
        for n in range(tasks)
    }
    html = page.render(facts)
    kept = json.loads(embedded(html, "outputs"))
    assert {len(lines) for lines in kept.values()} <= {25, 50, 100, 200}
    assert kept["worker-0"][-1] == facts.outputs["worker-0"][-1]
    assert len(json.loads(embedded(html, "charts"))) > 5
    assert len(html.encode()) <= 700_000


def test_what_tasks_and_users_write_is_text(tmp_path: Path) -> None:
    extra = f'description: "{NASTY}"\ncluster: {{worker: 1}}\n'
    failed = read(run := a_run(tmp_path, extra, {"worker-0": FAILS}), judge(run))
    html = page.render(failed)
    assert html.count("<script") == 4  # ours, and three of packed data
    assert text_of(html).count("&lt;script&gt;alert(1)&lt;/script&gt;") == 3  # + scenario, log
    assert not {"\x1b", "\x00"} & {*html}
    printed = "<script>alert(1)</script> | `x` ``` "
    assert f"\n````text\n{printed}\n````\n" in markdown(failed)
    assert suite_of(failed).findtext("system-err") == f"worker-0 | {printed}"


def test_charts_cannot_close_their_script_element() -> None:
    value = {"name": "</script><!--\u2028&"}
    text = str(document.packed(value))
    assert json.loads(gzip.decompress(base64.b64decode(text))) == value
    assert not set(text) & set("<>&\u2028")
    facts = facts_of([*preempted(), *phase(21, 22, "worker-0", NASTY)])
    assert json.loads(embedded(page.render(facts), "charts")).keys() == {"timeline", "steps"}


def test_a_phase_with_unencodable_characters_does_not_break_the_page(tmp_path: Path) -> None:
    facts = facts_of([*preempted(), *phase(21, 22, "worker-0", "a\ud800\x1b[2J")])
    written = put(tmp_path / "report.html", page.render(facts))
    assert "</span>a</li>" in written.read_text(encoding="utf-8")


def test_the_legend_of_gpus_has_all_devices_as_they_are_drawn() -> None:
    first, second = GpuUsage(0, "GPU-a", memory=1), GpuUsage(1, "GPU-b", utilisation=0.5)
    html = page.render(facts_of(preempted(), samples=[Sample(1, 1, {}, [first, second])]))
    charts = json.loads(embedded(html, "charts"))
    drawn = {
        trace["name"]: trace["line"]["color"]
        for name, chart in charts.items()
        if name.startswith("gpu-")
        for trace in chart["data"]
    }
    legend = re.findall(r'data-series="(GPU \d)".*?stroke:var\((--series-\d)\)', html)
    assert dict(legend) == drawn == {"GPU 0": "--series-1", "GPU 1": "--series-2"}


def test_every_number_of_the_summary_is_there_without_scripts(good: Record) -> None:
    words = {*text_of(page.render(read(good, judge(good)))).split()}
    assert {"1.00", "64.0", "19"} <= words  # a step of 64 examples each second


def test_the_page_of_an_incomplete_record_explains_it(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run-1", a_plan("{worker: 1}"), "", ManualClock())
    texts = {"running": "This run is still running", "crashed": "the emulator was killed"}
    for state, text in texts.items():
        facts = read(record := Record(writer.path), judge(record))
        assert facts.state == state
        assert text in page.render(facts)
        writer.close()


@pytest.mark.parametrize("events", [[], [happened(0, "run")], [happened(0, "run"), job(0)]])
def test_a_record_with_next_to_nothing_has_reports(events: list[Any]) -> None:
    facts = facts_of(events, extra="")
    assert facts.end == 1
    assert "The record has no samples" in page.render(facts)
    assert markdown(facts)
    ET.fromstring(junit(facts))


@pytest.mark.parametrize(("tasks", "lines"), [(8, True), (9, False)])
def test_of_many_tasks_the_environment_is_packed(tasks: int, lines: bool) -> None:
    html = page.render(facts_of([happened(0, "run"), job(1)], f"{{worker: {tasks}}}", extra=""))
    assert ("{\n  &#34;cluster&#34;: {\n" in html) == lines
    if not lines:
        found = json.loads(embedded(html, "environments"))
        assert json.loads(found["worker-8"]["TF_CONFIG"])["task"] == {"type": "worker", "index": 8}
    assert ("<summary>Every task</summary>" in html) == (not lines)


def test_limits_of_a_task_are_in_words() -> None:
    (task,) = a_plan("{worker: 1}").tasks
    given = {"memory": 2**30, "processes": 9}
    defaults = replace(task.defaults, **given)
    for changes, page_says, plan_says in (
        ({}, "none", "none"),
        ({"cpus": 1.5, "gpus": ["0"]}, "1.5 CPU, GPU 0", "1.5 cpu, 1 gpu"),
        ({"gpus": ["0", "3"]}, "GPU 0, 3", "2 gpu"),
        ({"defaults": defaults}, "none", "1.0 GiB*, 9 processes*"),
        ({**given, "defaults": defaults}, "1.0 GiB", "1.0 GiB, 9 processes"),
    ):
        limited = task.model_copy(update=changes)
        assert (page.limits(limited), plan_limits(limited)) == (page_says, plan_says)


def test_links_lead_from_where_the_page_is_to_the_run(good: Record, tmp_path: Path) -> None:
    assert 'href="logs/worker-0.log"' in (good.path / "report.html").read_text()
    outside = write_page(good, tmp_path / "elsewhere" / "page.html").read_text()
    assert 'href="../a%20b/run/logs/worker-0.log"' in outside


def test_a_failed_task_has_its_last_output(tmp_path: Path) -> None:
    lines = Script(lines=[(1, f"line {n}") for n in range(60)], exits_at=3, exit_code=7)
    helper = Script(lines=[(1, "no disk")], exits_at=2, exit_code=1)
    extra = "cluster: {worker: 2}\nhelpers: {sink: {command: [b]}}\n"
    scripts = {"worker-0": lines, "worker-1": STEPS, "sink": helper}
    facts = read(record := a_run(tmp_path, extra, scripts), judge(record))
    last = tuple(f"line {n}" for n in range(35, 60))
    assert facts.logs == {"worker-0": last, "worker-1": (), "sink": ("no disk",)}


# --- Every run writes them ----------------------------------------------------------------------


def test_a_run_writes_its_reports_next_to_its_summary(good: Record) -> None:
    names = {path.name for path in good.path.iterdir()}
    assert {"summary.json", "report.html", "report.md", "junit.xml"} <= names
    before = (good.path / "report.html").read_text()
    write(good)
    assert (good.path / "report.html").read_text() == before
    for name in ("report.html", "report.md", "junit.xml"):
        assert (good.path / name).stat().st_mode & 0o777 == 0o600


def test_a_report_that_cant_be_written_changes_no_verdict_and_ends_with_4(tmp_path: Path) -> None:
    in_the_way = tmp_path / "run" / "report.html"
    said: list[str] = []
    calls = RunCallbacks(say=said.append, entry=lambda entry: in_the_way.mkdir(exist_ok=True))
    text = BASE + "cluster: {worker: 1}\n"
    result = ran(tmp_path, text, {"worker-0": STEPS}, run_id="run", callbacks=calls)
    assert (result.verdict, result.exit_code) == ("ok", 4)
    assert Record(result.folder).result("summary.json") is not None
    (sentence,) = [one for one in said if "report" in one]
    assert sentence.startswith("the report is missing: Can't write")
    assert not list(result.folder.glob("*.partial"))


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(RecordError, match="Can't write"):
        put(tmp_path / "there", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    with pytest.raises(RecordError, match="Choose another place"):
        put(Path("/proc/no-such/report.html"), "text")
    shared, own = (put(tmp_path / name, "", private=name == "own") for name in ("shared", "own"))
    assert (own.stat().st_mode & 0o077, shared.stat().st_mode & 0o040) == (0, 0o040)


def test_a_link_or_a_device_stays_what_it_is(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    put(link, "text")
    assert link.is_symlink()
    assert file.read_text() == "text"
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    put(pipe, "text")
    assert pipe.is_fifo()
    assert os.read(reader, 9) == b"text"
    os.close(reader)


def test_two_may_write_the_same_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def after_another(partial: Path, path: Path) -> None:
        monkeypatch.setattr(os, "replace", real)
        put(path, "of another")
        real(partial, path)

    monkeypatch.setattr(os, "replace", after_another)
    put(tmp_path / "report.md", "text")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.md", "text")]


# --- junit.xml ----------------------------------------------------------------------------------


def suite_of(facts: Facts) -> ET.Element:
    root = ET.fromstring(junit(facts))
    assert root.tag == "testsuites"
    (suite,) = root
    return suite


# --- The page that compares several runs ----------------------------------------------------------


def overlaid(*runs: tuple[Facts, str]) -> str:
    """Return the page of runs with their variants; the last is the baseline."""
    judged = [(facts.plan, facts.analysis, facts.verdicts) for facts, _ in runs]
    found: list[Row] = [
        replace(row, variant=variant)
        for row, (_, variant) in zip(rows(judged, judged[-1]), runs, strict=True)
    ]
    return render_comparison(found, [facts for facts, _ in runs], place=Path("/runs"))


def test_runs_are_compared_by_step_and_since_their_first_step() -> None:
    html = overlaid((facts_of(preempted()), "x=1"), (facts_of(preempted(), extra=""), "x=2"))
    charts = json.loads(embedded(html, "charts"))
    assert list(charts) == ["made", "curves", "aligned", "steps"]  # no task reported a loss
    made = charts["made"]["data"][0]
    assert (made["x"][0], made["y"][0]) == (3, 1)
    aligned, by_step = (charts[name]["data"][0] for name in ("aligned", "steps"))
    assert aligned["x"][0] < 1  # the first step was after 3 s
    assert "s<extra>" in aligned["hovertemplate"]
    assert by_step["x"][-1] == pytest.approx(32, abs=1)
    assert "at step" in by_step["hovertemplate"]
    faults = charts["curves"]["layout"]["shapes"]
    assert [(line["x0"], line["line"]["color"]) for line in faults] == [(7, "--series-1")]
