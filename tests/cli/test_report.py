"""`report`, `runs` and `compare --html` as users meet them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.engines.memory import Script
from tests.cli.typed import typed, write
from tests.conftest import Emulate, own
from tests.report.runs import a_run, step_line

RUN = own("report")
STEPS = Script(lines=[(n, step_line(n)) for n in range(1, 11)], exits_at=12.0)


@pytest.fixture
def past(tmp_path: Path) -> Path:
    """Two runs that are over: one is ok, one failed."""
    folder = tmp_path / "past"
    ok, failed = "expect: {final_step: 10}\n", "expect: {final_step: 11}\n"
    for name, expected in (("one", ok), ("two", failed)):
        a_run(folder, f"cluster: {{worker: 1}}\n{expected}", {"worker-0": STEPS}, name)
    return folder


def test_report_writes_again_or_elsewhere_and_prints_where(past: Path, tmp_path: Path) -> None:
    page = past / "one" / "report.html"
    page.unlink()
    assert typed("report", "one", "--out", past).ended().stdout == f"{page}\n"
    assert page.is_file()
    assert typed("report", "--out", past).stdout.endswith("two/report.html\n")
    target = tmp_path / "page.html"
    assert typed("report", "one", "--out", past, "--html", target).stdout == f"{target}\n"
    assert 'href="past/one/history.jsonl"' in target.read_text()


def test_report_says_why_it_cant_be_written(past: Path) -> None:
    done = typed("report", "one", "--out", past, "--html", past).ended(4)
    assert done.stderr.startswith("emulate: Can't write ")
    assert "Traceback" not in done.stderr
    typed("report", "three", "--out", past).ended(2)


def test_runs_lists_and_filters(past: Path) -> None:
    done = typed("runs", "--out", past)
    lines = [line.split() for line in done.stdout.splitlines() if "test" in line]
    assert [(line[0], line[1], *line[4:]) for line in lines] == [
        ("one", "test", "succeeded", "ok", "1.00", "75%", "0", "12.0s"),
        ("two", "test", "succeeded", "failed", "1.00", "75%", "0", "12.0s"),
    ]

    def names(*options: str) -> list[str]:
        found = typed("runs", "--out", past, "--json", *options).json
        return [run["run_id"] for run in found]

    assert names("--verdict", "failed") == ["two"]
    assert names("--scenario", "t?st", "--limit", "1") == ["two"]
    assert names("--since", "2h") == []  # both are of 2023
    assert "no such run" in typed("runs", "--out", past, "--since", "2h").stderr


def test_compare_writes_a_page_beside_its_table(past: Path, tmp_path: Path) -> None:
    target = tmp_path / "compared.html"
    done = typed("compare", "one", "two", "--out", past, "--html", target).ended()
    assert f"emulate: wrote {target}\n" in done.stderr
    assert "expect.final_step: 10 | 11" in done.stdout
    links = re.findall(r'href="(past/[^"]+)"', target.read_text())
    assert links == ["past/one/report.html", "past/two/report.html"]


def test_a_background_run_has_its_reports_when_it_is_over(emulate: Emulate, tmp_path: Path) -> None:
    path = write(tmp_path, f"until test -e {tmp_path}/go; do sleep 0.1; done")
    emulate.up(path, "-d", "--engine", "process", "--run-id", RUN).ended()
    page = Path(typed("report", RUN, "--out", emulate.out).stdout.strip())
    assert "This run is still running" in page.read_text()
    (tmp_path / "go").touch()
    typed("wait", RUN, "--out", emulate.out).ended()
    assert "This run is still running" not in page.read_text()
