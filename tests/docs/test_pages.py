"""What holds for each page of this repository that people read."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from emulator.engines import engine_class
from emulator.engines.memory import Script
from emulator.faults.kinds import FAULTS
from tests.documents import of_all_plugins
from tests.report.runs import PREEMPT, a_run, step_line

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCED = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
RULE = re.compile(r"\|(:?-+:?\|)+")

on_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def tables(text: str) -> list[list[str]]:
    """Return the blocks of lines that begin with a bar."""
    lines = FENCED.sub("", text).splitlines()
    return [list(b) for bar, b in groupby(lines, lambda line: line.lstrip().startswith("|")) if bar]


def is_table(block: list[str]) -> bool:
    """A header, a rule below it, and rows: else bars are shown as text."""
    return len(block) > 2 and bool(RULE.fullmatch(block[1].replace(" ", "")))


@on_each_page
def test_every_table_begins_with_its_header(page: Path) -> None:
    assert [block[0] for block in tables(page.read_text()) if not is_table(block)] == []


def test_a_blank_line_within_a_table_is_seen() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n{}| 3 | 4 |\n"
    assert [is_table(block) for block in tables(table.format(""))] == [True]
    assert [is_table(block) for block in tables(table.format("\n"))] == [True, False]


@on_each_page
def test_make_is_named_with_a_target_that_it_has(page: Path) -> None:
    """Without one it prints its help, and installs nothing."""
    if page.name == "CHANGELOG.md":  # says what has changed
        return
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    shown = re.findall(r"(?m)(?:`|^ *)make\b[ \n]*([a-z-]*)", page.read_text())
    assert set(shown) <= targets


# --- The pages say what every key of summary.json means -------------------------------------------

DOCS = Path(__file__).parents[2] / "docs"


def listed(page: str, title: str) -> set[str]:
    """Return the keys in the first column of the tables of a section."""
    section = (DOCS / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.fixture
def summary(tmp_path: Path) -> dict[str, Any]:
    scripts = {"worker-*": Script(lines=[(n, step_line(n)) for n in range(1, 30)], exits_at=31)}
    found = a_run(tmp_path, f"cluster: {{worker: 2}}\n{PREEMPT}", scripts).summary
    assert found
    return found


def test_every_key_of_the_summary_is_explained(summary: dict[str, Any]) -> None:
    known = listed("results.md", "summary.json")
    causes = listed("numbers.md", "What the time went into")
    parents = {name.partition(".")[0] for name in known}
    assert len(summary) > 30
    assert set(summary) - parents == set()
    for part in ("steps", "startup", "throughput"):
        last = {name.rpartition(".")[2] for name in known}
        assert set(summary[part]) - last == set(), part
    assert set(summary["time"]) - causes == set()


def test_every_key_of_a_fault_is_explained(summary: dict[str, Any]) -> None:
    (fault,) = summary["faults"]
    section = (DOCS / "faults.md").read_text().partition("\n## Results of a fault\n")[2]
    unexplained = {key for key in fault if f"`{key}`" not in section.partition("\n## ")[0]}
    assert unexplained <= {"id", "kind", "target", "status", "reason", "triggered"}


# --- docs/limits.md says which faults each engine has ---------------------------------------------


@of_all_plugins
def test_the_page_of_limits_says_which_faults_each_engine_has() -> None:
    section = (
        (DOCS / "limits.md").read_text().partition("\n## By engine\n")[2].partition("\n## ")[0]
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines()]
    has: dict[str, list[bool]] = {}
    for row in rows:
        if len(row) == 4 and re.fullmatch(r"(`\w+`(, )?)+", row[0]):
            answers = [cell.partition(";")[0].partition(",")[0] == "yes" for cell in row[1:]]
            has |= dict.fromkeys(re.findall(r"`(\w+)`", row[0]), answers)
    classes = [engine_class(name) for name in ("docker", "process", "kubernetes")]
    needed = {name: kind.capability or "replace" for name, kind in FAULTS.items()}
    needed["disk"] = "calls"  # of a volume that is full, another one
    found = {
        name: [capability in engine.capabilities for engine in classes]
        for name, capability in needed.items()
    }
    assert has == found
